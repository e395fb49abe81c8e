"""Reading for a device that keeps a store's rows: all of them once, then batches of their numbers.

Values are transformed by the code that transforms them for a streamed batch, and orders and cuts
are those of streamed batches, so that training has the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from streammach.data.row_order import ORDER_BYTES, RowOrder, block_arrays, pool_rows
from streammach.data.store.dataset import Dataset
from streammach.errors import StoreError
from streammach.rows.batch import Batch, BatchSlot, RowIdBatch
from streammach.spec.facts import DataFacts
from streammach.spec.types import Transform


def block_batches(
    dataset: Dataset, transform: Transform, start: int, stop: int, *, shared: bool = True
) -> Iterator[Batch]:
    """Yield a store's blocks in turn as batches; each is valid until the next one is asked for."""
    facts = dataset.facts
    step = min(facts.block_rows, facts.n_rows)
    slot = BatchSlot(
        step, facts.max_block_nnz, facts.n_features, by_feature=False,
        n_labels=facts.max_block_labels, shared=shared,
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
    return _lengths(dataset.pointers, stop, dataset.facts.block_rows)


def label_lengths(dataset: Dataset, stop: int) -> NDArray[np.int32] | None:
    """Return how many labels each of the first rows has, int32 (stop,); None where each has one."""
    if not dataset.listed:
        return None
    return _lengths(dataset.label_pointers, stop, dataset.facts.block_rows)


def _lengths(
    pointers: Callable[[int, int], NDArray[np.int64]], stop: int, step: int
) -> NDArray[np.int32]:
    out = np.empty(stop, np.int32)
    for first in range(0, stop, step):
        last = min(first + step, stop)
        out[first:last] = np.diff(pointers(first, last))
    return out


class OrderReader:
    """Batches of row numbers, in the order and with the cuts that a reader of the rows gives them.

    `lengths` is int32 (>= end,), `labels` is int32 (>= end,) or None.

    Attributes
    ----------
    n_rows : int
        Rows of an epoch.
    waited_seconds : float
        How long the caller waited for orders.
    """

    def __init__(
        self, order: RowOrder, lengths: NDArray[np.int32], *, batch_size: int, batch_nnz: int,
        labels: NDArray[np.int32] | None = None, batch_labels: int = 0,
    ) -> None:  # fmt: skip
        self._order, self._lengths, self._labels = order, lengths, labels
        self._batch_size, self._batch_nnz = batch_size, batch_nnz
        self._batch_labels = batch_labels
        self.n_rows, self.waited_seconds = order.n_rows, 0.0

    @staticmethod
    def footprint(facts: DataFacts, *, pool_blocks: int) -> dict[str, int]:
        """Return the bytes of such a reader and of the pass before it, by name."""
        arrays = block_arrays(facts, 1)
        block = sum(count * np.dtype(dtype).itemsize for count, dtype in arrays.values())
        slot = BatchSlot.footprint(
            arrays["classes"][0], arrays["features"][0], by_feature=False,
            n_labels=facts.max_block_labels,
        )  # fmt: skip
        pools = 2 * ORDER_BYTES * pool_rows(facts, pool_blocks)  # one is drawn ahead
        lengths = (4 + 4 * facts.listed) * facts.n_rows
        return {"decoded rows": 2 * block + slot, "row orders": lengths + pools}

    def epoch(self, epoch: int, start: int = 0) -> Iterator[RowIdBatch]:
        """Yield the batches of an epoch."""
        waiting = np.zeros(0, np.int64)
        for rows in self._rows(epoch, start):
            waiting = np.concatenate([waiting, rows])
            while (batch := self._cut(waiting)) is not None:
                yield batch
                waiting = waiting[batch.n_rows :]
        if len(waiting):
            yield self._batch(waiting)

    def _cut(self, waiting: NDArray[np.int64]) -> RowIdBatch | None:
        """Return the first batch of what waits; None where a later row may belong to it, too."""
        some = waiting[: self._batch_size]
        ends = np.cumsum(self._lengths[some], dtype=np.int64)
        fits = int(np.searchsorted(ends, self._batch_nnz, side="right"))
        if self._labels is not None:
            ends = np.cumsum(self._labels[some], dtype=np.int64)
            fits = min(fits, int(np.searchsorted(ends, self._batch_labels, side="right")))
        full = len(some) == self._batch_size or fits < len(some)
        return self._batch(some[:fits]) if full else None

    def _batch(self, rows: NDArray[np.int64]) -> RowIdBatch:
        def starts(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
            out = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(lengths[rows], out=out[1:])
            return out

        labels = None if self._labels is None else starts(self._labels)
        return RowIdBatch(rows, starts(self._lengths), labels)

    def _rows(self, epoch: int, skip: int) -> Iterator[NDArray[np.int64]]:
        """Yield each pool's rows in the order of training; the next one's is drawn meanwhile."""
        pools, first, skip = self._order.pools(epoch, skip)

        def drawn(number: int) -> NDArray[np.int64]:
            rows = self._order.rows_of(pools[number])
            return rows[self._order.within(rows, epoch, number)]

        with ThreadPoolExecutor(1, "orders") as ahead:
            coming = ahead.submit(drawn, first) if first < len(pools) else None
            for number in range(first, len(pools)):
                assert coming is not None
                began = time.monotonic()
                rows = coming.result()
                self.waited_seconds += time.monotonic() - began
                coming = ahead.submit(drawn, number + 1) if number + 1 < len(pools) else None
                yield rows[skip:]
                skip = 0
