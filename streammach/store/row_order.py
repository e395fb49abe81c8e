"""The order of an epoch's rows, a pure function of the seed and the epoch.

Epoch e: the store's blocks are permuted, so many of them at a time form a pool, and the rows of
each pool are permuted. A device that keeps a store's rows reads all of them once, then batches of
their numbers: values are transformed by the code that does so for a streamed batch, and orders and
cuts are those of streamed batches, so that training has the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammach.options.facts import DataFacts
from streammach.options.types import Transform
from streammach.rows.arrays import permutation
from streammach.rows.batch import Batch, BatchSlot, RowIdBatch, row_arrays
from streammach.rows.layouts import ends
from streammach.store.dataset import Dataset
from streammach.system.errors import StoreError
from streammach.system.threads import work_ahead

BLOCKS_STREAM, ROWS_STREAM = 1, 2  # kinds of order drawn from one seed
# A row of a pool: its number, its key, its place and copies while it is put into order, and the
# number of a row of the next pool.
ORDER_BYTES = 8 * 8
T = TypeVar("T")


def n_blocks(facts: DataFacts) -> int:
    """Return how many blocks the rows of a store form."""
    return -(-facts.n_rows // facts.block_rows)


def pool_rows(facts: DataFacts, pool_blocks: int) -> int:
    """Return the most rows of a pool of so many blocks."""
    return min(pool_blocks * facts.block_rows, facts.n_rows)


def block_arrays(
    facts: DataFacts, n_blocks: int, *, ids: bool = True
) -> dict[str, tuple[int, Any]]:
    """Return the elements and types of arrays that hold some decoded blocks, by name."""
    rows, nnz = pool_rows(facts, n_blocks), min(n_blocks * facts.max_block_nnz, facts.nnz)
    values = np.uint8 if facts.value_bytes == 1 else np.float32
    labels = min(n_blocks * facts.max_block_labels, facts.n_labels)
    return row_arrays(rows, nnz, labels, ids=ids, values=values, weighted=facts.weighted)


class RowOrder:
    """Which rows an epoch trains on, in which order.

    `held` is bool (n_rows,) or None.
    """

    def __init__(
        self, facts: DataFacts, *, seed: int, pool_blocks: int,
        held: NDArray[np.bool_] | None = None, rows: int | None = None,
    ) -> None:  # fmt: skip
        self._seed, self._held, self._block_rows = seed, held, facts.block_rows
        self._store_rows = facts.n_rows
        # rows of the store that they are taken from: the first so many
        self.end = facts.n_rows if rows is None else min(rows, facts.n_rows)
        # n_blocks, pool_blocks: blocks that hold these, and blocks of a pool
        self.n_blocks = -(-self.end // facts.block_rows)
        self.pool_blocks = min(pool_blocks, self.n_blocks)
        starts = np.arange(0, self.end, facts.block_rows)
        self._free = np.minimum(facts.block_rows, self.end - starts)  # rows of each block
        if held is not None:
            self._free -= np.add.reduceat(held[: self.end], starts, dtype=np.int64)
        self.n_rows = int(self._free.sum())  # rows of an epoch

    def pools(self, epoch: int, skip: int) -> tuple[list[NDArray[np.int64]], int, int]:
        """Return where an epoch goes on."""
        blocks = permutation(self.n_blocks, self._seed, epoch, BLOCKS_STREAM)
        size = self.pool_blocks
        pools = [np.sort(blocks[i : i + size]) for i in range(0, len(blocks), size)]
        first = 0
        while first < len(pools) and skip >= (rows := int(self._free[pools[first]].sum())):
            skip, first = skip - rows, first + 1
        return pools, first, skip

    def rows_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the rows of blocks, one block after the other: int64 (n,)."""
        return np.concatenate([np.arange(*self.range_of(block)) for block in blocks.tolist()])

    def range_of(self, block: int) -> tuple[int, int]:
        """Return the first row of a block and the one behind its last."""
        start = block * self._block_rows
        return start, min(start + self._block_rows, self._store_rows)

    def within(self, rows: NDArray[np.int64], epoch: int, pool: int) -> NDArray[np.int64]:
        """Return the places of a pool's rows in the order of training; others are left out.

        `rows` is int64 (n,).
        """
        order = permutation(len(rows), self._seed, epoch, ROWS_STREAM, pool)
        order = order[rows[order] < self.end]
        return order if self._held is None else order[~self._held[rows[order]]]


def block_batches(
    dataset: Dataset, transform: Transform, start: int, stop: int, *, shared: bool = True,
    ids: bool = True, n_features: int | None = None,
) -> Iterator[Batch]:  # fmt: skip
    """Yield a store's blocks in turn as batches; each is valid until the next one is asked for."""
    facts = dataset.facts
    step = min(facts.block_rows, facts.n_rows)
    slot = BatchSlot(
        step, facts.max_block_nnz, n_features or facts.n_features, by_feature=False,
        n_labels=facts.max_block_labels, shared=shared, ids=ids,
        cut=bool(n_features) and n_features != facts.n_features,
    )  # fmt: skip
    for first in range(start, stop, facts.block_rows):
        block = dataset.rows(first, min(first + step, facts.n_rows))
        slot.clear()
        added = slot.add(block, np.arange(block.n_rows), transform)
        if added < block.n_rows:
            what = "damaged: a block has more values than the root says"
            raise StoreError(what, path=dataset.path)
        yield slot.batch()


def row_lengths(dataset: Dataset, stop: int) -> NDArray[np.int32]:
    """Return how many values each of a store's first rows has: int32 (stop,)."""
    return _lengths(dataset, dataset.pointers, stop)


def label_lengths(dataset: Dataset, stop: int) -> NDArray[np.int32] | None:
    """Return how many labels each of the first rows has, int32 (stop,); None where each has one."""
    if not dataset.listed:
        return None
    return _lengths(dataset, dataset.label_pointers, stop)


def _lengths(
    dataset: Dataset, pointers: Callable[[int, int], NDArray[np.int64]], stop: int
) -> NDArray[np.int32]:
    out = np.empty(stop, np.int32)
    for first, last in dataset.block_ranges(stop):
        out[first:last] = np.diff(pointers(first, last))
    return out


class WaitTimer:
    """Counts how long the caller waited for what comes next."""

    waited_seconds = 0.0

    def _waited_for(self, items: Generator[T]) -> Iterator[T]:
        with closing(items) as some:
            while True:
                began = time.monotonic()
                try:
                    item = next(some)
                except StopIteration:
                    return
                finally:
                    self.waited_seconds += time.monotonic() - began
                yield item


class OrderReader(WaitTimer):
    """Batches of row numbers, in the order and with the cuts that a reader of the rows gives them.

    `lengths` is int32 (>= end,): values of each row that the device has; `whole` int32 (>= end,):
    those of the store where these are more; `labels` is int32 (>= end,) or None.
    """

    def __init__(
        self, order: RowOrder, lengths: NDArray[np.int32], *, batch_size: int, batch_nnz: int,
        whole: NDArray[np.int32] | None = None, labels: NDArray[np.int32] | None = None,
        batch_labels: int = 0,
    ) -> None:  # fmt: skip
        self._order, self._lengths, self._labels = order, lengths, labels
        self._whole = lengths if whole is None else whole
        self._batch_size, self._batch_nnz = batch_size, batch_nnz
        self._batch_labels = batch_labels
        self.n_rows = order.n_rows  # rows of an epoch

    @staticmethod
    def footprint(
        facts: DataFacts, *, pool_blocks: int, ids: bool = True, cut: bool = False
    ) -> dict[str, int]:
        """Return the bytes of such a reader and of the pass before it, by name."""
        arrays = block_arrays(facts, 1)
        block = sum(count * np.dtype(dtype).itemsize for count, dtype in arrays.values())
        slot = BatchSlot.footprint(
            arrays["classes"][0], arrays["features"][0], by_feature=False,
            n_labels=facts.max_block_labels, ids=ids,
        )  # fmt: skip
        pools = 2 * ORDER_BYTES * pool_rows(facts, pool_blocks)  # one is drawn ahead
        lengths = (4 + 4 * cut + 4 * facts.listed) * facts.n_rows
        return {"decoded rows": 2 * block + slot, "row orders": lengths + pools}

    def epoch(self, epoch: int, start: int = 0) -> Iterator[RowIdBatch]:
        """Yield the batches of an epoch."""
        waiting = np.zeros(0, np.int64)
        drawn = work_ahead(self._draw_rows(epoch, start), "orders", patience=None)
        for rows in self._waited_for(drawn):
            waiting = np.concatenate([waiting, rows])
            while (batch := self._cut(waiting)) is not None:
                yield batch
                waiting = waiting[batch.n_rows :]
        if len(waiting):
            yield self._batch(waiting)

    def _cut(self, waiting: NDArray[np.int64]) -> RowIdBatch | None:
        """Return the first batch of what waits; None where a later row may belong to it, too."""
        some = waiting[: self._batch_size]
        ends = np.cumsum(self._whole[some], dtype=np.int64)
        fits = int(np.searchsorted(ends, self._batch_nnz, side="right"))
        if self._labels is not None:
            ends = np.cumsum(self._labels[some], dtype=np.int64)
            fits = min(fits, int(np.searchsorted(ends, self._batch_labels, side="right")))
        full = len(some) == self._batch_size or fits < len(some)
        return self._batch(some[:fits]) if full else None

    def _batch(self, rows: NDArray[np.int64]) -> RowIdBatch:
        labels = None if self._labels is None else ends(self._labels[rows])
        return RowIdBatch(rows, ends(self._lengths[rows]), labels)

    def _draw_rows(self, epoch: int, skip: int) -> Iterator[NDArray[np.int64]]:
        """Yield each pool's rows in the order of training."""
        pools, first, skip = self._order.pools(epoch, skip)
        for number, blocks in enumerate(pools[first:], first):
            rows = self._order.rows_of(blocks)
            yield rows[self._order.within(rows, epoch, number)][skip:]
            skip = 0
