"""Predictions in the order of the source: a store's rows lie in a random one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.files.folders import make_folder, scratch, temporary_folder
from streammach.files.reading import check_free, disk_errors, regular
from streammach.prediction.explain import Reasons, reason_type
from streammach.prediction.ranking import Ranking
from streammach.rows.block import RowBlock
from streammach.rows.texts import Texts
from streammach.spec.reported import Reported
from streammach.threads import ahead

GIVEN_ROWS = 1 << 14  # that are yielded at a time
PLACE_BYTES = 16  # of a row's place, while rows are sorted
TAG_COPIES = 2  # of a tag, at most
SPREAD = 1.5  # parts are ranges of numbers, and some hold fewer rows than others


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
    reasons : array (n, k) or None
        Why each has its score, where that is asked for
        (:func:`streammach.prediction.explain.reason_type`).
    """

    rows: NDArray[np.int64]
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    tags: Texts | None = None
    reasons: NDArray[Any] | None = None

    def _line(self) -> str:
        n, k = self.ids.shape
        return f"{n:,} rows, {k:,} classes each"


class Order(NamedTuple):
    """How a store's rows were numbered: how many there are, the largest number, bytes of tags."""

    n_rows: int
    last: int
    tag_bytes: int

    def row_bytes(self, record: np.dtype[Any]) -> int:
        """Return the bytes that a row takes while rows are sorted, by its :func:`record_type`."""
        tag = -(-self.tag_bytes // max(self.n_rows, 1))
        return record.itemsize + PLACE_BYTES + TAG_COPIES * tag


def record_type(k: int, explain: int = 0) -> np.dtype[Any]:
    """Return how a row's predictions, and reasons, are held while they are brought into order."""
    fields: list[Any] = [("row", "i8"), ("tag", "i4"), ("ids", "i4", (k,)), ("scores", "f4", (k,))]
    return np.dtype([*fields, *[("reasons", reason_type(explain), (k,))] * (explain > 0)])


def ranked_blocks(
    blocks: Iterator[RowBlock], k: int, rank: Ranking, told: Callable[[int], None] | None = None,
    why: Reasons | None = None,
) -> Generator[Predictions, None, None]:  # fmt: skip
    """Yield the best classes of rows, and why, as they lie in the input; tell how many are done."""
    done = 0
    for block in ahead(blocks, "rows"):
        assert block.numbers is not None
        ids, scores = rank(block, k)
        reasons = None if why is None else why(block, ids)
        yield Predictions(block.numbers, ids, scores, block.tags, reasons)
        done += block.n_rows
        if told is not None:
            told(done)


def in_source_order(
    parts: Iterable[Predictions], order: Order, record: np.dtype[Any], room: int,
    beside: Path | None = None,
) -> Iterator[Predictions]:  # fmt: skip
    """Yield predictions by rising number of their rows, in bounded memory, or raise DiskError.

    Where they do not fit the room together (in bytes), each range of numbers is put aside in files
    of its own: in a scratch folder beside a path, otherwise where the system has temporary files.
    """
    n = max(1, -(-int(SPREAD * order.n_rows * order.row_bytes(record)) // room))
    width = order.last // n + 1
    with ExitStack() as stack:
        if n == 1:
            ranges = [_Range(record, room=order.n_rows)]
        else:
            place = temporary_folder() if beside is None else scratch(beside)
            folder = stack.enter_context(place)
            make_folder(folder)
            n_bytes = order.n_rows * record.itemsize
            check_free(folder, n_bytes, "bringing rows into order")
            ranges = [_Range(record, path=folder / str(i)) for i in range(n)]
        for part in parts:
            number = part.rows // width
            for i in np.unique(number).tolist():
                ranges[i].add(part, np.flatnonzero(number == i))
        for one in ranges:
            yield from one.sort_rows()


class _Range:
    """Predictions of a range of numbers: so many rows in memory, or any number in two files."""

    def __init__(self, record: np.dtype[Any], *, room: int = 0, path: Path | None = None) -> None:
        self._type = record
        self._files = None if path is None else (path, path.with_name(f"{path.name}.tags"))
        self._records, self._n = np.empty(room, self._type), 0
        self._tags = bytearray()

    def add(self, part: Predictions, chosen: NDArray[np.int64]) -> None:
        """Take in some of the rows."""
        records, tags = np.empty(len(chosen), self._type), b""
        records["row"], records["ids"] = part.rows[chosen], part.ids[chosen]
        records["scores"], records["tag"] = part.scores[chosen], 0
        if part.reasons is not None:
            records["reasons"] = part.reasons[chosen]
        if part.tags is not None:
            texts = part.tags.take(chosen)
            records["tag"], tags = np.diff(texts.offsets), texts.data.tobytes()
        for path, content in zip(self._files or (), (records.tobytes(), tags), strict=False):
            with disk_errors(path), open(path, "ab", opener=regular) as file:
                file.write(content)
        if self._files is not None:
            return
        self._records[self._n : self._n + len(records)] = records
        self._n += len(records)
        self._tags += tags

    def sort_rows(self) -> Iterator[Predictions]:
        """Yield all rows by rising number; they are held no longer."""
        records, data = self._all()
        order = np.argsort(records["row"], kind="stable")
        tags = None
        if data:
            offsets = np.concatenate([[0], np.cumsum(records["tag"], dtype=np.int64)])
            tags = Texts(offsets, np.frombuffer(data, np.uint8))
        for start in range(0, len(order), GIVEN_ROWS):
            chosen = order[start : start + GIVEN_ROWS]
            found = records[chosen]
            yield Predictions(
                found["row"].astype(np.int64), found["ids"].astype(np.int64),
                np.ascontiguousarray(found["scores"]),
                None if tags is None else tags.take(chosen),
                found["reasons"] if "reasons" in (self._type.names or ()) else None,
            )  # fmt: skip

    def _all(self) -> tuple[NDArray[Any], bytes | bytearray]:
        if self._files is None:
            return self._records[: self._n], self._tags
        with disk_errors(self._files[0]):
            rows, tags = [path.read_bytes() if path.exists() else b"" for path in self._files]
        return np.frombuffer(rows, self._type), tags
