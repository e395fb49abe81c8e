"""Streams a store's rows as batches, in an order that is a pure function of the seed and the epoch.

Blocks of the store (row ranges of about 2^20 values) are decoded `pool_blocks` at a time, and the
rows of such a pool are cut into batches, all in the order of :mod:`streammach.store.row_order`;
batches run on across pools. One thread decodes the next pool while another makes batches of the
present one, into a few slots of fixed size; the first has threads that share its work, and so has
the other where the machine's cores are free. Memory does not depend on the size of the store: see
:meth:`Reader.footprint`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.options.facts import DataFacts
from streammach.options.types import Transform
from streammach.rows.batch import Batch, BatchSlot, HostRoom
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.store.blobs import damage_error
from streammach.store.dataset import Dataset
from streammach.store.row_order import ORDER_BYTES, RowOrder, WaitTimer, block_arrays, n_blocks
from streammach.system.threads import Workers, in_pieces, work_ahead

N_SLOTS = 3
THREAD_BYTES = 1 << 20  # of a thread that decodes: chunks where a part alone is wanted
POINTER_BYTES = 8  # of a row of a pool that several threads decode


class _Pool:
    """Room for the decoded rows of some blocks, without `ids` if all have all features."""

    def __init__(self, facts: DataFacts, blocks: int, *, ids: bool) -> None:
        shapes = block_arrays(facts, blocks, ids=ids)
        self._row_values = 0 if ids else facts.n_features  # of every row
        own = self._arrays = {name: np.empty(n, dtype) for name, (n, dtype) in shapes.items()}
        lists = None
        if "label_starts" in own:
            lists = LabelLists(own["label_starts"], own["label_classes"], own["label_weights"])
        self._room = RowBlock(
            indptr=own["indptr"], features=own["features"], values=own["values"],
            classes=own["classes"], importance=own.get("importance"), labels=lists,
        )  # fmt: skip
        self.rows, self.block = np.empty(0, np.int64), self._room  # as `fill` says

    def fill(
        self, dataset: Dataset, order: RowOrder, blocks: NDArray[np.int64], workers: Workers
    ) -> None:
        """Decode rising blocks into `block`; `rows` then says which rows of the store these are.

        `blocks` is int64 (b,).
        """
        ranges = [order.range_of(block) for block in blocks.tolist()]
        pointers = [np.empty(0, np.int64)] * len(ranges)

        def find(first: int, last: int) -> None:
            for i in range(first, last):
                start, stop = ranges[i]
                if self._row_values:  # a chunk of pointers takes as long as one of values
                    pointers[i] = np.arange(start, stop + 1) * self._row_values
                else:
                    pointers[i] = dataset.pointers(start, stop)

        in_pieces(workers, len(ranges), find)
        cuts = -(-workers.n_threads // len(ranges))
        pieces = list(self._pieces(ranges, pointers, cuts, dataset.path))
        rows = replace(self._room, labels=None)

        def decode(first: int, last: int) -> None:
            for start, indptr, a, b in pieces[first:last]:
                dataset.read_into(start, indptr, rows.part(a, b))

        in_pieces(workers, len(pieces), decode)
        n = 0
        for start, stop in ranges:
            self._add_labels(n, dataset.lists(start, stop))
            n += stop - start
        self.rows, self.block = order.rows_of(blocks), self._room.part(0, n)

    def _pieces(
        self, ranges: list[tuple[int, int]], pointers: list[NDArray[np.int64]], cuts: int,
        path: Path,
    ) -> Iterator[tuple[int, NDArray[np.int64], int, int]]:  # fmt: skip
        """Yield rows of each block in so many pieces: the first one, pointers, where they go."""
        room, n, nnz = self._room, 0, 0
        for (start, stop), indptr in zip(ranges, pointers, strict=True):
            m, last = stop - start, nnz + int(np.ptp(indptr))
            if last > len(room.values):
                raise damage_error(path, "a block has more values than the root says")
            room.indptr[n : n + m + 1] = indptr + (nnz - indptr[0])
            for a, b in itertools.pairwise(sorted({m * i // cuts for i in range(cuts + 1)})):
                yield start + a, indptr[a : b + 1], n + a, n + b
            n, nnz = n + m, last

    def _add_labels(self, n: int, lists: LabelLists | None) -> None:
        """Take in the labels of rows behind the first n, where rows have lists of them."""
        if lists is None:
            return
        starts = self._arrays["label_starts"][n : n + len(lists) + 1]
        first = int(starts[0]) if n else 0
        starts[:] = first + lists.starts
        self._arrays["classes"][n : n + len(lists)] = lists.first
        some = slice(first, first + lists.n_labels)
        self._arrays["label_classes"][some] = lists.classes
        self._arrays["label_weights"][some] = 1 if lists.weights is None else lists.weights


class Reader(WaitTimer):
    """Batches of a store's rows, prefetched by threads.

    `held` is bool (n_rows,) or None; `ids`, `n_features` and `make` as for a :class:`BatchSlot`.
    """

    def __init__(
        self, dataset: Dataset, *, seed: int, batch_size: int, batch_nnz: int, pool_blocks: int,
        transform: Transform, by_feature: bool, held: NDArray[np.bool_] | None = None,
        rows: int | None = None, batch_labels: int = 0, shared: bool = True, threads: int = 1,
        batch_threads: int = 1, ids: bool = True, n_features: int | None = None,
        make: HostRoom = np.empty,
    ) -> None:  # fmt: skip
        facts = dataset.facts
        self._threads, self._batch_threads = threads, batch_threads
        order = RowOrder(facts, seed=seed, pool_blocks=pool_blocks, held=held, rows=rows)
        self._dataset, self._order, self._transform = dataset, order, transform
        pools = 1 if order.pool_blocks == order.n_blocks else 2
        self._pools = [_Pool(facts, order.pool_blocks, ids=ids) for _ in range(pools)]
        self._kept = False  # whether a single pool is filled already
        self._slots = [
            BatchSlot(
                batch_size, batch_nnz, n_features or facts.n_features, by_feature=by_feature,
                n_labels=batch_labels, shared=shared, ids=ids,
                cut=bool(n_features) and n_features != facts.n_features, make=make,
            )
            for _ in range(N_SLOTS)
        ]  # fmt: skip
        self._batch_size = batch_size
        self.n_rows = order.n_rows  # rows of an epoch

    @staticmethod
    def footprint(
        facts: DataFacts, *, batch_size: int, batch_nnz: int, pool_blocks: int, by_feature: bool,
        batch_labels: int = 0, threads: int = 1, ids: bool = True,
    ) -> dict[str, int]:  # fmt: skip
        """Return the bytes of the buffers of such a reader, by name."""
        pool_blocks = min(pool_blocks, n_blocks(facts))
        arrays = block_arrays(facts, pool_blocks, ids=ids)
        pool = sum(count * np.dtype(dtype).itemsize for count, dtype in arrays.values())
        orders = ORDER_BYTES * arrays["classes"][0]
        slot = BatchSlot.footprint(
            batch_size, batch_nnz, by_feature=by_feature, n_labels=batch_labels, ids=ids
        )
        pools = 1 if pool_blocks == n_blocks(facts) else 2
        shared = threads * THREAD_BYTES + POINTER_BYTES * arrays["classes"][0] if threads > 1 else 0
        return {"decoded rows": pools * pool + orders + shared, "batches": N_SLOTS * slot}

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch; each is valid until the next one is asked for."""
        made = work_ahead(self._batches(epoch, start), "reader", N_SLOTS - 1, patience=None)
        return self._waited_for(made)

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield the batches, each in the slot after that of the one before."""
        slots = itertools.cycle(self._slots)
        slot = next(slots)
        slot.clear()
        decoded = work_ahead(self._decode_pools(epoch, start), "decoder", patience=None)
        with closing(Workers(self._batch_threads, "batches")) as workers, closing(decoded) as pools:
            for block, chosen in pools:
                done = 0
                while done < len(chosen):
                    wanted = min(self._batch_size - slot.n_rows, len(chosen) - done)
                    added = slot.add(block, chosen[done : done + wanted], self._transform, workers)
                    done += added
                    assert added or slot.n_rows, "a batch holds the longest row"
                    if added < wanted or slot.n_rows == self._batch_size:
                        yield slot.batch()
                        slot = next(slots)
                        slot.clear()
            if slot.n_rows:
                yield slot.batch()

    def _decode_pools(self, epoch: int, skip: int) -> Iterator[tuple[RowBlock, NDArray[np.int64]]]:
        """Yield each pool's rows and the order in which they are used, from row `skip` on."""
        groups, first, skip = self._order.pools(epoch, skip)
        with closing(Workers(self._threads, "blocks")) as workers:
            pools = zip(groups[first:], itertools.cycle(self._pools), strict=False)
            for number, (group, pool) in enumerate(pools, first):
                if not self._kept:
                    pool.fill(self._dataset, self._order, group, workers)
                    self._kept = len(self._pools) == 1
                yield pool.block, self._order.within(pool.rows, epoch, number)[skip:]
                skip = 0
