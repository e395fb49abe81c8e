"""Brings the rows that were read into their final order and writes the store's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.conversion.buffer import Ids, RowBuffer
from streammach.data.conversion.spills import Spill, bins_that_fit
from streammach.data.store.arrays import OpenArray, is_sealed, sealed
from streammach.data.store.writer import RowsWriter, StoreWriter
from streammach.files.reading import read_small
from streammach.files.writing import write_atomic
from streammach.rows.block import RowBlock
from streammach.rows.canonical import copy_rows, sort_rows
from streammach.rows.distinct import PairSketch
from streammach.rows.label_lists import LabelLists
from streammach.threads import in_order

PIECE_VALUES = 1 << 20
PIECE_ROWS = 1 << 17
AHEAD = 4  # pieces that are being copied
MAX_STATE = 64 << 20


@dataclass(frozen=True)
class FinalIds:
    """The final id of each provisional one: of classes int32 (K,), of features by group."""

    classes: NDArray[np.int32]
    features: Ids
    n_features: int


class ShuffleState(msgspec.Struct, kw_only=True):
    """What is written of a store.

    ``bins`` of the keys are done. ``registers`` are those of the sketch of pairs; ``nnz`` and
    ``labels`` are the values and the labels of each block of rows; the last block may not be full.
    """

    bins: int = 0
    arrays: dict[str, OpenArray] = msgspec.field(default_factory=dict)
    registers: bytes = b""
    nnz: list[int] = msgspec.field(default_factory=list)
    labels: list[int] = msgspec.field(default_factory=list)
    longest_list: int = 0

    def take_blocks(self, first: int, nnz: list[int], labels: list[int]) -> None:
        """Take in blocks from `first` on; that may be the last one, which is being filled."""
        for held, more in ((self.nnz, nnz), (self.labels, labels)):
            open_one = int(bool(more) and first < len(held))
            if open_one:
                held[-1] += more[0]
            held.extend(more[open_one:])


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
        self.written = ShuffleState()  # what is done

    def said(self) -> dict[str, int]:
        """Return what the root of the store says of rows and their blocks."""
        nnz, labels = self.written.nnz, self.written.labels
        most = sum(nnz) * max(1, self.written.longest_list)
        return {
            "nnz": sum(nnz), "pairs": min(self._sketch.estimate(), most), "labels": sum(labels),
            "max_row_labels": self.written.longest_list, "block_rows": self.block_rows,
            "max_block_nnz": max(nnz, default=0), "max_block_labels": max(labels, default=0),
        }  # fmt: skip

    def load(self, path: Path) -> None:
        """Go on from what :meth:`write_spills` saved, if there is anything."""
        if not path.is_file():
            return
        document = read_small(path, MAX_STATE)
        if is_sealed(document):
            self.written = msgspec.msgpack.decode(document[:-4], type=ShuffleState)
            self._sketch.merge(np.frombuffer(self.written.registers, np.uint8))

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

    def write_spills(
        self, spills: list[Spill], room: RowBuffer, writer: StoreWriter, path: Path
    ) -> None:
        """Append the rows of spills, a range of bins at a time; the state is saved after each."""

        def fits(n_rows: int, nnz: int, tag_bytes: int, n_labels: int) -> bool:
            labels = n_labels if room.listed else 0
            return room.bytes_of(n_rows, nnz, tag_bytes, labels) <= room.n_bytes

        for first, end in bins_that_fit(spills, self.written.bins, fits):
            room.clear()
            for spill in spills:
                spill.read_into(room, first, end)
            self.write(room, writer)
            self.written.bins = end
            self.written.arrays = writer.saved()
            self.written.registers = self._sketch.registers.tobytes()
            write_atomic(path, sealed(msgspec.msgpack.encode(self.written)))

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
        first = first_row // self.block_rows
        blocks = (first_row + np.arange(len(lengths))) // self.block_rows - first
        nnz, labels = _sums(blocks, lengths), []
        if lists is not None:
            labels = _sums(blocks, lists.lengths)
            self.written.longest_list = max(self.written.longest_list, int(lists.lengths.max()))
        self.written.take_blocks(first, nnz, labels)


def _sums(blocks: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[int]:
    """Return the sum of lengths by block."""
    return [int(n) for n in np.bincount(blocks, weights=lengths)]


def _cuts(lengths: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of bounded size."""
    start = 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + PIECE_VALUES, "right"))
        stop = max(start + 1, min(fits, start + PIECE_ROWS))
        yield start, stop
        start = stop
