"""Predictions of an input in its order: a store's rows lie in a random one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.prediction.allowed import Allowed
from streammach.prediction.inputs import is_store
from streammach.prediction.scorer_sum import PredictionRequest, Predictions, ScorerSum
from streammach.rows.block import RowBlock
from streammach.rows.texts import Texts
from streammach.store.dataset import Dataset
from streammach.system.files.folders import make_folder, scratch, temporary_folder
from streammach.system.files.raw_text import is_piped
from streammach.system.files.reading import check_free, disk_errors, regular
from streammach.system.threads import work_ahead

GIVEN_ROWS = 1 << 14  # that are yielded at a time
PLACE_BYTES = 16  # of a row's place, while rows are sorted
TAG_COPIES = 2  # of a tag, at most
WIDE = {"ids": np.int64}  # types of what is held in fewer bytes
SPREAD = 1.5  # parts are ranges of numbers, and some hold fewer rows than others


class Order(NamedTuple):
    """How a store's rows were numbered: how many there are, the largest number, bytes of tags."""

    n_rows: int
    last: int
    tag_bytes: int

    def row_bytes(self, record: np.dtype[Any]) -> int:
        """Return the bytes that a row takes while rows are sorted, by its record type."""
        tag = -(-self.tag_bytes // max(self.n_rows, 1))
        return record.itemsize + PLACE_BYTES + TAG_COPIES * tag


def source_order(path: Path) -> Order | None:
    """Return the order that a store's rows had; `None` where rows come as they are numbered."""
    if is_piped(path) or not is_store(path):  # so they come from files
        return None
    with Dataset.open(path) as dataset:
        last = max(dataset.root.source_rows - 1, 0)
        return Order(dataset.n_rows, last, dataset.tag_bytes)


def rank_blocks(
    scorers: ScorerSum, blocks: Iterator[RowBlock], request: PredictionRequest,
    allowed: Allowed | None = None, report: Callable[[int], None] | None = None,
) -> Generator[Predictions, None, None]:  # fmt: skip
    """Yield the best classes of rows as they lie in the input; report how many are ranked."""
    n_rows = 0
    for block in work_ahead(blocks, "rows"):
        yield scorers.predict(block, request, allowed)
        n_rows += block.n_rows
        if report is not None:
            report(n_rows)


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
            ranges = [_Range(record)]
        else:
            place = temporary_folder() if beside is None else scratch(beside)
            folder = stack.enter_context(place)
            make_folder(folder)
            n_bytes = order.n_rows * record.itemsize
            check_free(folder, n_bytes, "bringing rows into order")
            ranges = [_Range(record, folder / str(i)) for i in range(n)]
        for part in parts:
            number = part.rows // width
            for i in np.unique(number).tolist():
                ranges[i].add(part, np.flatnonzero(number == i))
        for one in ranges:
            yield from one.sort_rows()


class _Range:
    """Predictions of a range of numbers, as records and tags: in memory, or in two files."""

    def __init__(self, record: np.dtype[Any], path: Path | None = None) -> None:
        self._type, self._columns = record, [x for x in record.names or () if x != "tag"]
        self._files = None if path is None else (path, path.with_name(f"{path.name}.tags"))
        self._content = bytearray(), bytearray()

    def add(self, part: Predictions, chosen: NDArray[np.int64]) -> None:
        """Take in some of the rows."""
        records, tags = np.zeros(len(chosen), self._type), b""
        for name in self._columns:
            records[name] = getattr(part, name)[chosen]
        if part.tags is not None:
            texts = part.tags.take(chosen)
            records["tag"], tags = np.diff(texts.offsets), texts.data.tobytes()
        for i, content in enumerate((records.tobytes(), tags)):
            if self._files is None:
                self._content[i].extend(content)
                continue
            with disk_errors(path := self._files[i]), open(path, "ab", opener=regular) as file:
                file.write(content)

    def sort_rows(self) -> Iterator[Predictions]:
        """Yield all rows by rising number; they are held no longer."""
        records, data = self._all()
        order = np.argsort(records["rows"], kind="stable")
        tags = None
        if data:
            offsets = np.concatenate([[0], np.cumsum(records["tag"], dtype=np.int64)])
            tags = Texts(offsets, np.frombuffer(data, np.uint8))
        for start in range(0, len(order), GIVEN_ROWS):
            chosen = order[start : start + GIVEN_ROWS]
            own = records[chosen]
            yield Predictions(
                tags=None if tags is None else tags.take(chosen),
                **{name: np.ascontiguousarray(own[name], WIDE.get(name)) for name in self._columns},
            )

    def _all(self) -> tuple[NDArray[Any], bytes | bytearray]:
        rows, tags = self._content
        for path, content in zip(self._files or (), self._content, strict=False):
            with disk_errors(path):
                content.extend(path.read_bytes() if path.exists() else b"")
        return np.frombuffer(rows, self._type), tags
