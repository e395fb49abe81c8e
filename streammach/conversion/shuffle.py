"""Brings the rows that were read into their final order and writes the store's arrays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streammach.conversion.buffer import Ids, KeyOrder, RowBuffer
from streammach.conversion.spills import LABELS, ROWS, TAG_BYTES, VALUES, Spill, read_spills
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import RowBlock
from streammach.rows.canonical import DENSE_SHARE, sort_rows
from streammach.rows.distinct import PairSketch
from streammach.rows.layouts import ends
from streammach.store.writer import Chunks, RowsWriter
from streammach.system.threads import Workers, map_in_order

PIECE_VALUES = 1 << 18
PIECE_ROWS = 1 << 15
BIN_BITS = 16
AHEAD = 2  # pieces that are under way, for each thread


class Shuffle:
    """Writes rows in the order of their keys."""

    def __init__(
        self, classes: NDArray[np.int32], features: Ids, n_features: tuple[int, int],
        workers: Workers, progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        # the final id of each provisional one: of classes int32 (K,), of features by group
        self._classes, self._features = classes, features
        # how many ids of features there are, and how many of the first ones rows keep
        self._n_features, self._n_kept = n_features
        self._workers = workers
        self._progress = progress
        self._n_cut = 0

    @property
    def left_out(self) -> dict[str, int]:
        """How many features were left out, and their values, if any were."""
        n = self._n_features - self._n_kept
        return {"rare_features": n, "rare_values": self._n_cut} if n else {}

    def write(self, rows: RowBuffer, writer: RowsWriter) -> None:
        """Append rows in the order of their keys, or raise DiskError."""
        order = KeyOrder(rows, BIN_BITS)
        rows.join_facts()

        def piece(bins: tuple[int, int]) -> tuple[RowBlock, NDArray[np.uint8], int]:
            return self._piece(rows, order.rows(*bins))

        def append(made: tuple[RowBlock, NDArray[np.uint8], int]) -> Chunks:
            block, sketch, n_cut = made
            self._n_cut += n_cut
            writer.totals.pairs.merge(sketch)
            chunks = writer.append_rows(block)
            self._progress(writer.totals.n_rows)
            return chunks

        bins, n = order.ranges(PIECE_ROWS, PIECE_VALUES), self._workers.n_threads
        with (
            closing(map_in_order(self._workers, piece, bins, AHEAD * n)) as pieces,
            closing(map_in_order(self._workers, writer.encode, map(append, pieces), n)) as chunks,
        ):
            for chunk in chunks:
                writer.write(chunk)

    def write_spills(self, spills: list[Spill], room: RowBuffer, writer: RowsWriter) -> None:
        """Append the rows of spills, a range of bins at a time."""
        content = np.sum([spill.index for spill in spills], axis=0)
        rows, values, tag_bytes, labels = content[:, [ROWS, VALUES, TAG_BYTES, LABELS]].T
        n_bytes = room.bytes_of(rows, values, tag_bytes, labels * room.listed)
        before = ends(n_bytes)
        for first, end in ranges_that_fit((before, room.n_bytes)):
            room.clear()
            read_spills(spills, first, end, room, self._workers)
            self.write(room, writer)

    def _piece(
        self, rows: RowBuffer, chosen: NDArray[np.int64]
    ) -> tuple[RowBlock, NDArray[np.uint8], int]:
        """Return the chosen rows with their final ids, their pairs' sketch, values left out."""
        block = rows.copy(chosen, self._features, spare=1)
        longest, d = int(np.diff(block.indptr).max()), self._n_features
        sort_rows(block.indptr, block.features, block.values, d if DENSE_SHARE * longest > d else 0)
        lists, classes = block.labels, block.classes
        if lists is None:
            classes = self._classes[classes]
        else:
            lists = lists.rename(self._classes)
        block = replace(
            block, features=block.features[:-1], values=block.values[:-1], classes=classes
        ).with_labels(lists)
        nnz = block.nnz
        if self._n_kept < self._n_features:
            block = block.with_values(block.features < self._n_kept)
        sketch = PairSketch()
        sketch.add(block)
        return block, sketch.registers, nnz - block.nnz
