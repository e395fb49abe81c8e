"""Predictions in the order of the source: a store's rows lie in a random one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.errors import DiskError
from streammach.files.folders import make_folder, remove_folder, temporary_folder
from streammach.files.reading import check_free, disk_error, read_small, regular
from streammach.files.writing import fsync_file, remove_file, write_atomic
from streammach.rows.texts import Texts
from streammach.spec.reported import Reported

GIVEN_ROWS = 1 << 14  # that are yielded at a time
SAVED_SECONDS = 10.0  # between two times that what was done is made durable
SAVED, MAX_SAVED = "saved.json", 1 << 20
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

    def rest(self, start: int) -> Predictions:
        """Return the rows from one on."""
        tags = None if self.tags is None else self.tags.part(start, len(self.rows))
        return Predictions(self.rows[start:], self.ids[start:], self.scores[start:], tags)

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


@dataclass(frozen=True)
class Kept:
    """What is kept of a prediction, so that it can go on after it was cut off."""

    rows: int = 0  # rows of the table that were written: they are not yielded again
    # where the rows of a store are put aside until all are there; a folder of ours
    folder: Path | None = None


NOTHING_KEPT = Kept()


class _Saved(msgspec.Struct, frozen=True):
    """How far rows were put aside: how many, in how many ranges, bytes of each file."""

    rows: int
    ranges: int
    files: dict[str, int]


class SourceOrder:
    """Brings predictions into the order of their source, in bounded memory.

    Where they do not fit the room together, or are to be kept, they are put aside in a folder, each
    range of numbers in files of its own.

    `room` is in bytes.
    """

    def __init__(self, order: Order, k: int, room: int, folder: Path | None = None) -> None:
        held = order.n_rows * (record_type(k).itemsize + PLACE_BYTES)
        held += TAG_COPIES * order.tag_bytes
        self._order, self._k, self._folder = order, k, folder
        self._n_ranges = max(1, -(-int(SPREAD * held) // room))
        self._ranges: list[_Range] = []
        # rows that were put aside already
        self.n_rows = 0 if folder is None else self._gone_on(folder)

    def sorted(self, parts: Iterable[Predictions]) -> Iterator[Predictions]:
        """Yield predictions by rising number of their rows, or raise DiskError."""
        with ExitStack() as stack:
            folder = self._folder
            if self._n_ranges > 1 and folder is None:
                folder = stack.enter_context(temporary_folder())
            if folder is None:
                self._ranges = [_Range(self._k, room=self._order.n_rows)]
            else:
                self._open(folder)
            self._take(parts)
            for one in self._ranges:
                yield from one.sorted()

    def _open(self, folder: Path) -> None:
        make_folder(folder)
        left = self._order.n_rows - self.n_rows
        check_free(folder, left * record_type(self._k).itemsize, "bringing rows into order")
        self._ranges = [_Range(self._k, path=folder / str(i)) for i in range(self._n_ranges)]

    def _take(self, parts: Iterable[Predictions]) -> None:
        """Take in all parts; now and then, and when it is interrupted, say how far that came."""
        width = self._order.last // self._n_ranges + 1
        saved, due = self._saved(), time.monotonic() + SAVED_SECONDS
        try:
            for part in parts:
                place = part.rows // width
                for i in np.unique(place).tolist():
                    self._ranges[i].add(part, np.flatnonzero(place == i))
                self.n_rows += len(part.rows)
                saved = self._saved()
                if time.monotonic() > due:
                    self._save(saved)
                    due = time.monotonic() + SAVED_SECONDS
        except KeyboardInterrupt:
            self.n_rows = saved.rows
            self._save(saved)
            raise
        if self._folder is not None:
            self._save(saved)

    def _saved(self) -> _Saved:
        files = {name: size for one in self._ranges for name, size in one.sizes.items()}
        return _Saved(self.n_rows, self._n_ranges, files)

    def _save(self, saved: _Saved) -> None:
        """Make what was put aside durable, and say how much it is."""
        if self._folder is None:
            return
        try:
            for name in saved.files:
                fsync_file(self._folder / name)
        except OSError as error:
            raise disk_error(error, self._folder) from error
        write_atomic(self._folder / SAVED, msgspec.json.encode(saved))

    def _gone_on(self, folder: Path) -> int:
        """Return how many rows a folder holds; what was put aside after that is cut off."""
        path = folder / SAVED
        try:
            saved = msgspec.json.decode(read_small(path, MAX_SAVED), type=_Saved)
            sizes = {name: (folder / name).stat().st_size for name in saved.files}
        except (DiskError, OSError, msgspec.MsgspecError):
            saved, sizes = _Saved(0, 0, {}), {}
        short = any(sizes[name] < size for name, size in saved.files.items())
        if saved.ranges < self._n_ranges or short:  # less memory than then: ranges are too large
            remove_folder(folder)
            return 0
        self._n_ranges = saved.ranges
        for file in set(folder.iterdir()) - {path}:
            if file.name in saved.files:
                os.truncate(file, saved.files[file.name])
            else:
                remove_file(file)
        return saved.rows


def after(parts: Iterable[Predictions], first: int) -> Iterator[Predictions]:
    """Yield predictions from the row `first` on, counted from 0."""
    done = 0
    for part in parts:
        skipped = min(max(first - done, 0), len(part.rows))
        done += len(part.rows)
        if skipped < len(part.rows):
            yield part if not skipped else part.rest(skipped)


def records_of(part: Predictions, chosen: NDArray[np.int64]) -> tuple[NDArray[Any], bytes]:
    """Return some rows of predictions as records, in the given order, and their tags' bytes."""
    records = np.empty(len(chosen), record_type(part.ids.shape[1]))
    records["row"], records["ids"] = part.rows[chosen], part.ids[chosen]
    records["scores"], records["tag"] = part.scores[chosen], 0
    if part.tags is None:
        return records, b""
    tags = part.tags.take(chosen)
    records["tag"] = np.diff(tags.offsets)
    return records, tags.data.tobytes()


def by_number(records: NDArray[Any], data: bytes | bytearray) -> Iterator[Predictions]:
    """Yield the predictions of records, and of their tags' bytes, by rising number of the rows."""
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
        )  # fmt: skip


class _Range:
    """Predictions of a range of numbers: so many rows in memory, or any number in files."""

    def __init__(self, k: int, *, room: int = 0, path: Path | None = None) -> None:
        self._type, self._path = record_type(k), path
        self._records = np.empty(room, self._type)
        self._n = 0
        self._tags = bytearray()
        self.sizes: dict[str, int] = {}  # bytes of its files
        if path is not None:
            files = (path, _tags_of(path))
            self.sizes = {file.name: file.stat().st_size for file in files if file.exists()}

    def add(self, part: Predictions, chosen: NDArray[np.int64]) -> None:
        """Take in some of the rows."""
        records, data = records_of(part, chosen)
        if self._path is None:
            self._records[self._n : self._n + len(records)] = records
            self._n += len(records)
            self._tags += data
            return
        self._append(self._path, records.tobytes())
        if data:
            self._append(_tags_of(self._path), data)

    def sorted(self) -> Iterator[Predictions]:
        """Yield all rows by rising number; they are held no longer."""
        return by_number(*self._all())

    def _all(self) -> tuple[NDArray[Any], bytes | bytearray]:
        if self._path is None:
            return self._records[: self._n], self._tags
        try:
            names = (self._path, _tags_of(self._path))
            content = [name.read_bytes() if name.exists() else b"" for name in names]
        except OSError as error:
            raise disk_error(error, self._path) from error
        return np.frombuffer(content[0], self._type), content[1]

    def _append(self, path: Path, content: bytes) -> None:
        try:
            with open(path, "ab", opener=regular) as file:
                file.write(content)
        except OSError as error:
            raise disk_error(error, path) from error
        self.sizes[path.name] = self.sizes.get(path.name, 0) + len(content)


def _tags_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.tags")
