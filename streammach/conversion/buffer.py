"""Rows in memory between their source and the store: one room of fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import RowBlock, Values
from streammach.rows.canonical import copy_rows
from streammach.rows.layouts import ends
from streammach.system.errors import BudgetError
from streammach.system.jit import Array, kernel
from streammach.system.machine import size_text
from streammach.system.threads import Workers

Counts = NDArray[np.int64]
MAX_BYTE = 255
FEATURE_BYTES = 4
ROW_BYTES = 8 + 2 + 4 + 4 + 8 + 8  # start, group, class, importance, key, number
TAG_BYTES = 8 + 8  # of the place of a row's tag, where rows have tags; joined it is there twice
LIST_BYTES = 8 + 8  # of the place of a row's list of labels, where rows have lists
LABEL_BYTES = 8 + 8  # of a label in a list, and of its weight
ORDER_BYTES = 8 + 8  # two orders, while rows are brought into theirs


@dataclass(frozen=True)
class Ids:
    """Ids of the features of all groups: int32, and where each group's begin: int64 (groups,)."""

    ids: NDArray[np.int32]
    bases: NDArray[np.int64]

    @classmethod
    def of(cls, groups: list[NDArray[np.int32]]) -> Ids:
        """Return those of groups, in their order."""
        bases = np.cumsum([0] + [len(group) for group in groups[:-1]])
        return cls(np.concatenate(groups), bases)


class RowBuffer:
    """Rows of several sources, as many as fit some bytes."""

    def __init__(self, n_bytes: int, *, wide: bool = False, listed: bool = False) -> None:
        self.n_bytes = n_bytes
        self.listed = listed  # whether rows have lists of labels
        rows = n_bytes // (ROW_BYTES + ORDER_BYTES) + 1
        # arrays (rows,): where each row's values start, whose ids it has, the key that decides
        # where it goes
        self.starts = np.zeros(rows + 1, np.int64)
        self.groups = np.empty(rows, np.int16)
        self.keys = np.empty(rows, np.uint64)
        most = n_bytes // (FEATURE_BYTES + (4 if wide else 1)) + 1
        # int32 (values,): ids of the features, of a row's group
        self.features = np.empty(most, np.int32)
        # uint8 or float32 (values,): the values
        self.values: Values = np.empty(most, np.float32) if wide else np.empty(most, np.uint8)
        self.n_rows = self.nnz = self._tag_bytes = self._n_labels = 0
        self._facts: list[RowBlock] = []  # classes, labels, importances, numbers, tags

    @property
    def wide(self) -> bool:
        """Whether values are float32."""
        return self.values.dtype == np.float32

    def widen(self) -> None:
        """Hold float32 values from now on."""
        old, self.values = self.values, np.empty(len(self.values), np.float32)
        self.values[: self.nnz] = old[: self.nnz]

    def bytes_of(self, n_rows: Any, nnz: Any, tag_bytes: Any = 0, n_labels: Any = 0) -> Any:
        """Return the bytes that so many rows, values, bytes of tags and labels in lists take.

        They are integers, or arrays of them, one for each bin.
        """
        value_bytes = FEATURE_BYTES + self.values.dtype.itemsize
        row_bytes = ROW_BYTES + ORDER_BYTES + TAG_BYTES * bool(np.any(tag_bytes))
        row_bytes += LIST_BYTES * bool(np.any(n_labels))
        return n_rows * row_bytes + nnz * value_bytes + 2 * tag_bytes + n_labels * LABEL_BYTES

    def room_for(self, block: RowBlock) -> int:
        """Return the bytes that the rows take with those of a block."""
        tag_bytes = self._tag_bytes + (0 if block.tags is None else block.tags.text_bytes)
        listed = self.listed or block.labels is not None
        labels = self._n_labels + block.lists.n_labels if listed else 0
        n_rows, nnz = self.n_rows + block.n_rows, self.nnz + block.nnz
        return int(self.bytes_of(n_rows, nnz, tag_bytes, labels))

    def add(self, block: RowBlock, keys: NDArray[np.uint64], group: int) -> None:
        """Append rows with their keys uint64 (n,), whose features have a group's ids.

        Raises BudgetError if there is no room.
        """
        needed = self.room_for(block)
        if needed > self.n_bytes:
            what = f"{size_text(self.n_bytes)} are left for rows, {size_text(needed)} are needed"
            raise BudgetError(what, hint="Give more with --memory.")
        rows = slice(self.n_rows, self.n_rows + block.n_rows)
        values = slice(self.nnz, self.nnz + block.nnz)
        self.starts[rows.start + 1 : rows.stop + 1] = block.indptr[1:] + values.start
        self.keys[rows], self.groups[rows] = keys, group
        self.features[values], self.values[values] = block.features, block.values
        bare = replace(
            block, indptr=np.zeros(block.n_rows + 1, np.int64), features=block.features[:0],
            values=block.values[:0], places=None,
        )  # fmt: skip
        self._facts.append(bare.take(np.arange(block.n_rows)))
        self.listed |= block.labels is not None
        self._tag_bytes += 0 if block.tags is None else block.tags.text_bytes
        self._n_labels += block.lists.n_labels
        self.n_rows, self.nnz = rows.stop, values.stop

    def join_facts(self) -> RowBlock:
        """Join and return all of the rows but their values; before threads copy some."""
        if len(self._facts) != 1:
            self._facts = [RowBlock.concat(self._facts)]
        return self._facts[0]

    def copy(self, chosen: NDArray[np.int64], ids: Ids, spare: int = 0) -> RowBlock:
        """Return chosen rows in their order, with other ids; `spare` values follow the last."""
        indptr = ends(self.starts[chosen + 1] - self.starts[chosen])
        n = int(indptr[-1]) + spare
        features, values = np.empty(n, np.int32), np.empty(n, self.values.dtype)
        copy_rows(
            chosen, self.starts, self.groups, self.features, self.values, ids.ids, ids.bases,
            indptr, features, values,
        )  # fmt: skip
        block = replace(
            self._facts[0].take(chosen), indptr=indptr, features=features, values=values
        )
        return replace(block, labels=block.lists) if self.listed else block

    def clear(self) -> None:
        """Forget all rows."""
        self.n_rows = self.nnz = self._tag_bytes = self._n_labels = 0
        self._facts = []

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Values of each row: int64 (rows,)."""
        return np.diff(self.starts[: self.n_rows + 1])


class KeyOrder:
    """The order of rows by their keys: bins of the highest bits, each put into order on its own.

    Keys are evenly spread. Several threads may ask for bins.
    """

    def __init__(self, rows: RowBuffer, bits: int) -> None:
        self._keys, n_bins = rows.keys[: rows.n_rows], 1 << bits
        bins = (self._keys >> np.uint64(64 - bits)).astype(np.uint16)
        self._rows = np.argsort(bins, kind="stable")  # int64 (n,): by bin
        # int64 (bins + 1,): rows and values before each bin
        self.starts = ends(np.bincount(bins, minlength=n_bins))
        self.values = ends(np.bincount(bins, rows.lengths, n_bins).astype(np.int64))

    def rows(self, first: int, end: int) -> NDArray[np.int64]:
        """Return the rows of bins ``first:end`` in the order of their keys: int64 (n,)."""
        some = self._rows[self.starts[first] : self.starts[end]]
        return some[np.argsort(self._keys[some], kind="stable")]

    def ranges(self, most_rows: int, most_values: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of bins with so many rows and values at most, or one bin with more."""
        return ranges_that_fit((self.starts, most_rows), (self.values, most_values))


def fit_bytes(integers: bool, largest: float) -> bool:
    """Return whether values fit uint8: all are integers of 0 or more, and this is the largest."""
    return integers and largest <= MAX_BYTE


def count_feature_ids(rows: RowBuffer, ids: Ids, n_ids: int, workers: Workers) -> Counts:
    """Return how often each id of a feature occurs: int64 (n_ids,)."""
    n, own = workers.n_threads, [np.zeros(n_ids, np.int64) for _ in range(workers.n_threads)]

    def count(first: int, last: int) -> None:
        a, b = rows.n_rows * first // n, rows.n_rows * last // n
        count_ids(a, b, rows.starts, rows.groups, rows.features, ids.ids, ids.bases, own[first])

    workers.each(count, [(i, i + 1) for i in range(n)])
    whole = own[0]
    for counts in own[1:]:
        whole += counts
    return whole


@kernel()
def count_ids(
    first: int, stop: int, starts: Array, groups: Array, features: Array, ids: Array, bases: Array,
    counts: Array,
) -> None:  # fmt: skip
    """Add 1 to `counts` for each id of the features of rows ``first:stop``."""
    for i in range(first, stop):
        base = bases[groups[i]]
        for p in range(starts[i], starts[i + 1]):
            counts[ids[base + features[p]]] += 1
