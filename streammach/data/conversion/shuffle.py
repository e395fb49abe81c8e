"""Brings the rows that were read into their final order and writes the store's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streammach.data.conversion.buffer import Ids, RowBuffer
from streammach.data.conversion.spills import Spill, bins_that_fit
from streammach.data.store.writer import RowsWriter
from streammach.rows.block import RowBlock
from streammach.rows.canonical import copy_rows, sort_rows
from streammach.rows.distinct import PairSketch
from streammach.rows.label_lists import LabelLists
from streammach.threads import in_order

PIECE_VALUES = 1 << 20
PIECE_ROWS = 1 << 17
AHEAD = 4  # pieces that are being copied


@dataclass(frozen=True)
class FinalIds:
    """The final id of each provisional one: of classes int32 (K,), of features by group."""

    classes: NDArray[np.int32]
    features: Ids
    n_features: int


class Shuffle:
    """Writes rows in the order of their keys."""

    def __init__(
        self, ranks: FinalIds, block_rows: int, pool: Executor, progress: Callable[[int], None]
    ) -> None:
        self._ranks = ranks
        self.block_rows = block_rows  # rows of a block
        self._pool = pool
        self._progress = progress
        self._sketch = PairSketch()
        # values and labels of each block of rows; the last block may not be full
        self._nnz, self._labels = list[int](), list[int]()
        self._longest_list = 0

    def said(self) -> dict[str, int]:
        """Return what the root of the store says of rows and their blocks."""
        nnz, labels = self._nnz, self._labels
        most = sum(nnz) * max(1, self._longest_list)
        return {
            "nnz": sum(nnz), "pairs": min(self._sketch.estimate(), most), "labels": sum(labels),
            "max_row_labels": self._longest_list, "block_rows": self.block_rows,
            "max_block_nnz": max(nnz, default=0), "max_block_labels": max(labels, default=0),
        }  # fmt: skip

    def write(self, rows: RowBuffer, writer: RowsWriter) -> None:
        """Append rows in the order of their keys, or raise DiskError."""
        order = np.argsort(rows.keys[: rows.n_rows], kind="stable")
        lengths = rows.lengths[order]
        ends = np.cumsum(lengths)
        copies = (
            partial(self._piece, rows, order[a:b], lengths[a:b]) for a, b in _cuts(lengths, ends)
        )
        for block, sketch in in_order(self._pool, copies, AHEAD):
            self._count_blocks(writer.n_rows, np.diff(block.indptr), block.labels)
            writer.append_rows(block)
            self._sketch.merge(sketch)
            self._progress(writer.n_rows)

    def write_spills(self, spills: list[Spill], room: RowBuffer, writer: RowsWriter) -> None:
        """Append the rows of spills, a range of bins at a time."""

        def fits(n_rows: int, nnz: int, tag_bytes: int, n_labels: int) -> bool:
            labels = n_labels if room.listed else 0
            return room.bytes_of(n_rows, nnz, tag_bytes, labels) <= room.n_bytes

        for first, end in bins_that_fit(spills, fits):
            room.clear()
            for spill in spills:
                spill.read_into(room, first, end)
            self.write(room, writer)

    def _piece(
        self, rows: RowBuffer, chosen: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[RowBlock, NDArray[np.uint8]]:
        """Return the chosen rows with their final ids, and the sketch of their pairs."""
        indptr = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        nnz = int(indptr[-1])
        features, values = np.empty(nnz + 1, np.int32), np.empty(nnz + 1, rows.values.dtype)
        ranks = self._ranks.features
        copy_rows(
            chosen, rows.starts, rows.groups, rows.features, rows.values, ranks.ids, ranks.bases,
            indptr, features, values,
        )  # fmt: skip
        sort_rows(indptr, features, values, self._ranks.n_features)
        features, values = features[:nnz], values[:nnz]
        lists, classes = rows.lists, np.empty(0, np.int32)
        if lists is None:
            classes = self._ranks.classes[rows.classes[chosen]]
        else:
            lists = lists.take(chosen).renamed(self._ranks.classes)
        sketch = PairSketch()
        sketch.add(indptr, features, classes, lists)
        block = RowBlock(
            indptr=indptr, features=features, values=values, classes=classes,
            importance=rows.importance[chosen], numbers=rows.numbers[chosen],
            tags=None if rows.tags is None else rows.tags.take(chosen),
        ).with_labels(lists)  # fmt: skip
        return block, sketch.registers

    def _count_blocks(
        self, first_row: int, lengths: NDArray[np.int64], lists: LabelLists | None
    ) -> None:
        """Take rows into the sizes of their blocks."""
        blocks = (first_row + np.arange(len(lengths))) // self.block_rows
        _add(self._nnz, blocks, lengths)
        if lists is not None:
            _add(self._labels, blocks, lists.lengths)
            self._longest_list = max(self._longest_list, int(lists.lengths.max()))


def _add(sums: list[int], blocks: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Add lengths to the sums of their blocks, which rise; the last one may not be full yet."""
    first, last = int(blocks[0]), int(blocks[-1])
    sums.extend([0] * (last + 1 - len(sums)))
    for block, n in enumerate(np.bincount(blocks - first, weights=lengths), first):
        sums[block] += int(n)


def _cuts(lengths: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of bounded size."""
    start = 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + PIECE_VALUES, "right"))
        stop = max(start + 1, min(fits, start + PIECE_ROWS))
        yield start, stop
        start = stop
