"""Predictions in the order of the source: a store's rows lie in a random one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.files.folders import make_folder, temporary_folder
from streammach.files.reading import check_free, disk_error
from streammach.rows.texts import Texts
from streammach.spec.reported import Reported

GIVEN_ROWS = 1 << 14  # that are yielded at a time
PLACE_BYTES = 16  # of a row's place, while rows are sorted
TAG_COPIES = 2  # of a tag, at most
SPREAD = 1.5  # parts are ranges of numbers, of which some hold fewer rows than others


@dataclass(frozen=True, repr=False)
class Predictions(Reported):
    """The best classes of some rows.

    Attributes
    ----------
    rows : int64 (n,)
        Number of each row among those of the input, from 0.
    ids : int64 (n, k)
        Class ids, best first.
    scores : float32 (n, k)
        Their scores by the estimator.
    tags : Texts or None
        The tag of each row; None where no row of the input has one.
    """

    rows: NDArray[np.int64]
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    tags: Texts | None = None

    def _line(self) -> str:
        n, k = self.ids.shape
        return f"{n:,} rows, {k:,} classes each"


class Order(NamedTuple):
    """How a store's rows were numbered: how many there are, the largest number, bytes of tags."""

    n_rows: int
    last: int
    tag_bytes: int


def record_type(k: int) -> np.dtype[Any]:
    """Return how a row's predictions are held while they are brought into order."""
    return np.dtype([("row", "i8"), ("tag", "i4"), ("ids", "i4", (k,)), ("scores", "f4", (k,))])


def in_source_order(
    parts: Iterable[Predictions], order: Order, k: int, room: int
) -> Iterator[Predictions]:
    """Yield predictions by rising number of their rows, in bounded memory.

    Where they do not fit the room together, they are put aside in a temporary folder, each range
    of numbers in files of its own.

    Parameters
    ----------
    parts : iterable of Predictions
        In any order.
    order : Order
        How many rows there are, and how they are numbered.
    k : int
        Classes a row.
    room : int
        Bytes that rows may take at once, while they are sorted.

    Raises
    ------
    DiskError
        If they cannot be put aside.
    """
    held = order.n_rows * (record_type(k).itemsize + PLACE_BYTES)
    held += TAG_COPIES * order.tag_bytes
    n_ranges = -(-int(SPREAD * held) // room)
    if n_ranges <= 1:
        whole = _Range(k, room=order.n_rows)
        for part in parts:
            whole.add(part, np.arange(len(part.rows)))
        yield from whole.sorted()
        return
    width = order.last // n_ranges + 1
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        make_folder(folder)
        check_free(folder, order.n_rows * record_type(k).itemsize, "bringing rows into order")
        ranges = [_Range(k, path=folder / str(i)) for i in range(n_ranges)]
        for part in parts:
            place = part.rows // width
            for i in np.unique(place).tolist():
                ranges[i].add(part, np.flatnonzero(place == i))
        for one in ranges:
            yield from one.sorted()


class _Range:
    """Predictions of a range of numbers: so many rows in memory, or any number in files."""

    def __init__(self, k: int, *, room: int = 0, path: Path | None = None) -> None:
        self._type, self._path = record_type(k), path
        self._records = np.empty(room, self._type)
        self._n = 0
        self._tags = bytearray()
        self._tagged = False

    def add(self, part: Predictions, chosen: NDArray[np.int64]) -> None:
        """Take in some of the rows."""
        records = np.empty(len(chosen), self._type)
        records["row"], records["ids"] = part.rows[chosen], part.ids[chosen]
        records["scores"], records["tag"] = part.scores[chosen], 0
        data = b""
        if part.tags is not None:
            tags = part.tags.take(chosen)
            records["tag"], data = np.diff(tags.offsets), tags.data.tobytes()
            self._tagged = True
        if self._path is None:
            self._records[self._n : self._n + len(records)] = records
            self._n += len(records)
            self._tags += data
            return
        for suffix, content in (("", records.tobytes()), (".tags", data)):
            self._append(self._path.with_name(self._path.name + suffix), content)

    def sorted(self) -> Iterator[Predictions]:
        """Yield all rows by rising number; they are held no longer."""
        records, data = self._all()
        order = np.argsort(records["row"], kind="stable")
        tags = None
        if self._tagged:
            offsets = np.concatenate([[0], np.cumsum(records["tag"], dtype=np.int64)])
            tags = Texts(offsets, np.frombuffer(data, np.uint8))
        for start in range(0, len(order), GIVEN_ROWS):
            chosen = order[start : start + GIVEN_ROWS]
            found = records[chosen]
            yield Predictions(
                found["row"].astype(np.int64), found["ids"].astype(np.int64),
                np.ascontiguousarray(found["scores"]),
                None if tags is None else tags.take(chosen),
            )  # fmt: skip

    def _all(self) -> tuple[NDArray[Any], bytes | bytearray]:
        if self._path is None:
            return self._records[: self._n], self._tags
        try:
            names = (self._path, self._path.with_name(f"{self._path.name}.tags"))
            content = [name.read_bytes() if name.exists() else b"" for name in names]
        except OSError as error:
            raise disk_error(error, self._path) from error
        return np.frombuffer(content[0], self._type), content[1]

    def _append(self, path: Path, content: bytes) -> None:
        try:
            with open(path, "ab") as file:
                file.write(content)
        except OSError as error:
            raise disk_error(error, path) from error
