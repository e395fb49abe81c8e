"""The order of an epoch's rows, a pure function of the seed and the epoch.

Epoch e: the store's blocks are permuted, so many of them at a time form a pool, and the rows of
each pool are permuted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import permutation
from streammach.spec.facts import DataFacts

BLOCKS_STREAM, ROWS_STREAM = 1, 2  # kinds of order drawn from one seed
# A row of a pool: its number, its key, its place and copies while it is put into order, and the
# number of a row of the next pool.
ORDER_BYTES = 8 * 8


def n_blocks(facts: DataFacts) -> int:
    """Return how many blocks the rows of a store form."""
    return -(-facts.n_rows // facts.block_rows)


def pool_rows(facts: DataFacts, pool_blocks: int) -> int:
    """Return the most rows of a pool of so many blocks."""
    return min(pool_blocks * facts.block_rows, facts.n_rows)


def block_arrays(facts: DataFacts, n_blocks: int) -> dict[str, tuple[int, Any]]:
    """Return the elements and types of arrays that hold some decoded blocks, by name."""
    rows, nnz = pool_rows(facts, n_blocks), min(n_blocks * facts.max_block_nnz, facts.nnz)
    arrays: dict[str, tuple[int, Any]] = {
        "indptr": (rows + 1, np.int64),
        "features": (nnz, np.int32),
        "values": (nnz, np.uint8 if facts.value_bytes == 1 else np.float32),
        "classes": (rows, np.int32),
    }
    if facts.weighted:
        arrays["importance"] = (rows, np.float32)
    if facts.listed:
        labels = min(n_blocks * facts.max_block_labels, facts.n_labels)
        arrays["label_starts"] = (rows + 1, np.int64)
        arrays["label_classes"] = (labels, np.int32)
        arrays["label_weights"] = (labels, np.float32)
    return arrays


class RowOrder:
    """Which rows an epoch trains on, in which order.

    `held` is bool (n_rows,) or None.
    """

    def __init__(
        self,
        facts: DataFacts,
        *,
        seed: int,
        pool_blocks: int,
        held: NDArray[np.bool_] | None = None,
        rows: int | None = None,
    ) -> None:
        self._seed, self._held, self._block_rows = seed, held, facts.block_rows
        self._store_rows = facts.n_rows
        # rows of the store that they are taken from: the first so many
        self.end = facts.n_rows if rows is None else min(rows, facts.n_rows)
        # n_blocks, pool_blocks: blocks that hold these, and blocks of a pool
        self.n_blocks = -(-self.end // facts.block_rows)
        self.pool_blocks = min(pool_blocks, self.n_blocks)
        self._free = [self._free_rows(block) for block in range(self.n_blocks)]
        self.n_rows = sum(self._free)  # rows of an epoch

    def pools(self, epoch: int, skip: int) -> tuple[list[NDArray[np.int64]], int, int]:
        """Return where an epoch goes on."""
        blocks = permutation(self.n_blocks, self._seed, epoch, BLOCKS_STREAM)
        size = self.pool_blocks
        pools = [np.sort(blocks[i : i + size]) for i in range(0, len(blocks), size)]
        first = 0
        while first < len(pools) and skip >= (rows := sum(self._free[b] for b in pools[first])):
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

    def _free_rows(self, block: int) -> int:
        start = block * self._block_rows
        stop = min(start + self._block_rows, self.end)
        held = int(self._held[start:stop].sum()) if self._held is not None else 0
        return stop - start - held
