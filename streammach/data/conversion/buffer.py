"""Rows in memory between their source and the store: one room of fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.errors import BudgetError
from streammach.jit import Array, kernel
from streammach.machine import size_text
from streammach.rows.block import RowBlock, Values
from streammach.rows.canonical import copy_rows
from streammach.rows.label_lists import LabelLists
from streammach.rows.texts import Texts
from streammach.threads import Workers

Counts = NDArray[np.int64]
MAX_BYTE = 255
FEATURE_BYTES = 4
ROW_BYTES = 8 + 2 + 4 + 4 + 8 + 8  # what is held
TAG_BYTES = 8  # of the place of a row's tag, where rows have tags
LIST_BYTES = 8  # of the place of a row's list of labels, where rows have lists
LABEL_BYTES = 4 + 4  # of a label in a list, and of its weight
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

    def __init__(self, n_bytes: int, *, wide: bool = False) -> None:
        self.n_bytes = n_bytes
        self.n_rows = self.nnz = 0
        rows = n_bytes // (ROW_BYTES + ORDER_BYTES) + 1
        # arrays (rows,): where each row's values start, whose ids it has, its class and importance,
        # the key that decides where it goes, its number among the rows of all sources
        self.starts = np.zeros(rows + 1, np.int64)
        self.groups = np.empty(rows, np.int16)
        self.classes = np.empty(rows, np.int32)
        self.importance = np.empty(rows, np.float32)
        self.keys = np.empty(rows, np.uint64)
        self.numbers = np.empty(rows, np.int64)
        self.tagged = False
        # int64 (rows + 1,), uint8 (bytes,): where each row's tag ends, and the tags
        self.tag_ends, self.tag_data = np.zeros(1, np.int64), np.empty(0, np.uint8)
        self.listed = False
        # int64 (rows + 1,), int32 (labels,), float32 (labels,): where each row's labels end, the
        # labels and their weights
        self.list_ends = np.zeros(1, np.int64)
        self.list_classes, self.list_weights = np.empty(0, np.int32), np.empty(0, np.float32)
        most = n_bytes // (FEATURE_BYTES + (4 if wide else 1)) + 1
        # int32 (values,): ids of the features, of a row's group
        self.features = np.empty(most, np.int32)
        # uint8 or float32 (values,): the values
        self.values: Values = np.empty(most, np.float32) if wide else np.empty(most, np.uint8)

    @property
    def wide(self) -> bool:
        """Whether values are float32."""
        return self.values.dtype == np.float32

    def widen(self) -> None:
        """Hold float32 values from now on."""
        old, self.values = self.values, np.empty(len(self.values), np.float32)
        self.values[: self.nnz] = old[: self.nnz]

    @property
    def n_labels(self) -> int:
        """Labels held, where rows have lists of them."""
        return int(self.list_ends[self.n_rows]) if self.listed else 0

    def bytes_of(self, n_rows: int, nnz: int, tag_bytes: int = 0, n_labels: int = 0) -> int:
        """Return the bytes that so many rows, values, bytes of tags and labels in lists take."""
        value_bytes = FEATURE_BYTES + self.values.dtype.itemsize
        row_bytes = ROW_BYTES + ORDER_BYTES + (TAG_BYTES if self.tagged or tag_bytes else 0)
        row_bytes += LIST_BYTES if self.listed or n_labels else 0
        return n_rows * row_bytes + nnz * value_bytes + tag_bytes + n_labels * LABEL_BYTES

    def room_for(self, block: RowBlock) -> int:
        """Return the bytes that the rows take with those of a block."""
        tag_bytes = int(self.tag_ends[self.n_rows]) if self.tagged else 0
        tag_bytes += 0 if block.tags is None else block.tags.n_bytes
        labels = 0
        if self.listed or block.labels is not None:
            labels = (self.n_labels if self.listed else self.n_rows) + block.lists.n_labels
        n_rows, nnz = self.n_rows + block.n_rows, self.nnz + block.nnz
        return self.bytes_of(n_rows, nnz, tag_bytes, labels)

    def reserve(self, block: RowBlock, keys: NDArray[np.uint64], group: int) -> slice:
        """Append rows with their keys uint64 (n,), whose features have a group's ids.

        Return the places of their features and values, which are left to :meth:`fill`; raise
        BudgetError if there is no room.
        """
        if block.labels is not None:
            self.list_labels()
        tags, lists = block.tags, block.lists if self.listed else None
        assert block.numbers is not None, "places among the rows of all sources"
        if tags is not None and tags.n_bytes and not self.tagged:
            self.tagged = True
            self.tag_ends = np.zeros(len(self.starts), np.int64)
            self.tag_data = np.empty(self.n_bytes, np.uint8)
        needed = self.room_for(block)
        if needed > self.n_bytes:
            what = f"{size_text(self.n_bytes)} are left for rows, {size_text(needed)} are needed"
            raise BudgetError(what, hint="Give more with --memory.")
        rows = slice(self.n_rows, self.n_rows + block.n_rows)
        values = slice(self.nnz, self.nnz + block.nnz)
        if lists is not None:
            self._add_lists(rows, lists)
        if self.tagged:
            self._add_tags(rows, tags)
        self.starts[rows.start + 1 : rows.stop + 1] = block.indptr[1:] + values.start
        self.classes[rows], self.importance[rows] = block.classes, block.importance
        self.keys[rows], self.numbers[rows], self.groups[rows] = keys, block.numbers, group
        self.n_rows, self.nnz = rows.stop, values.stop
        return values

    def fill(self, places: slice, block: RowBlock) -> None:
        """Take in the features and values of rows; several threads may, each its own."""
        self.features[places], self.values[places] = block.features, block.values

    def list_labels(self) -> None:
        """Hold a list of labels for each row from now on."""
        if self.listed:
            return
        self.listed, n = True, self.n_rows
        most = self.n_bytes // LABEL_BYTES + 1
        self.list_ends = np.zeros(len(self.starts), np.int64)
        self.list_classes, self.list_weights = np.empty(most, np.int32), np.empty(most, np.float32)
        self.list_ends[: n + 1] = np.arange(n + 1)
        self.list_classes[:n], self.list_weights[:n] = self.classes[:n], 1

    def _add_lists(self, rows: slice, lists: LabelLists) -> None:
        start = int(self.list_ends[rows.start])
        self.list_ends[rows.start : rows.stop + 1] = start + lists.starts
        some = slice(start, start + lists.n_labels)
        self.list_classes[some] = lists.classes
        self.list_weights[some] = 1 if lists.weights is None else lists.weights

    @property
    def lists(self) -> LabelLists | None:
        """The labels of all rows, where they have lists."""
        if not self.listed:
            return None
        m = self.n_labels
        ends = self.list_ends[: self.n_rows + 1]
        return LabelLists(ends, self.list_classes[:m], self.list_weights[:m])

    def _add_tags(self, rows: slice, tags: Texts | None) -> None:
        start = int(self.tag_ends[rows.start])
        ends = self.tag_ends[rows.start + 1 : rows.stop + 1]
        ends[:] = start
        if tags is not None:
            ends += tags.offsets[1:] - tags.offsets[0]
            self.tag_data[start : int(ends[-1])] = tags.data[tags.offsets[0] : tags.offsets[-1]]

    @property
    def tags(self) -> Texts | None:
        """The tags of all rows, if there are any."""
        return Texts(self.tag_ends[: self.n_rows + 1], self.tag_data) if self.tagged else None

    def copy(self, chosen: NDArray[np.int64], ids: Ids, spare: int = 0) -> RowBlock:
        """Return chosen rows in their order, with other ids; `spare` values follow the last."""
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        indptr = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        n = int(indptr[-1]) + spare
        features, values = np.empty(n, np.int32), np.empty(n, self.values.dtype)
        copy_rows(
            chosen, self.starts, self.groups, self.features, self.values, ids.ids, ids.bases,
            indptr, features, values,
        )  # fmt: skip
        return RowBlock(
            indptr=indptr, features=features, values=values, classes=self.classes[chosen],
            importance=self.importance[chosen], numbers=self.numbers[chosen],
            tags=None if self.tags is None else self.tags.take(chosen),
            labels=None if self.lists is None else self.lists.take(chosen),
        )  # fmt: skip

    def clear(self) -> None:
        """Forget all rows."""
        self.n_rows = self.nnz = 0

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
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(bins, minlength=n_bins))])
        values = np.bincount(bins, rows.lengths, n_bins)
        self.values = np.concatenate([[0], np.cumsum(values)]).astype(np.int64)

    def rows(self, first: int, end: int) -> NDArray[np.int64]:
        """Return the rows of bins ``first:end`` in the order of their keys: int64 (n,)."""
        some = self._rows[self.starts[first] : self.starts[end]]
        return some[np.argsort(self._keys[some], kind="stable")]

    def ranges(self, most_rows: int, most_values: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of bins with so many rows and values at most, or one bin with more."""
        first = 0
        while self.starts[first] < self.starts[-1]:
            ends = (
                np.searchsorted(self.starts, self.starts[first] + most_rows, "right"),
                np.searchsorted(self.values, self.values[first] + most_values, "right"),
            )
            end = max(first + 1, int(min(ends)) - 1)
            yield first, end
            first = end


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
