"""Counts of (feature, class) pairs, as posting lists by feature."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts import count_kernels
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import RowBlock
from streammach.rows.layouts import ArrayLayout, ends
from streammach.rows.pairs import PairTable
from streammach.system.threads import Workers, pieces_of

PIECES_PER_THREAD = 16
MARK_BYTES = 4
LOW_HALF = 0 if sys.byteorder == "little" else 1
Blocks = Callable[[], Iterable[tuple[RowBlock, NDArray[np.bool_]]]]


@dataclass(frozen=True, kw_only=True)
class CountTable(PairTable):
    """How many rows of each class hold each feature."""

    # int32 (Z,), or float32 where rows have importances, which are added up: rows of that class
    # that hold the feature; 0 where only held-out rows do
    counts: Annotated[NDArray[np.int32], ArrayLayout(("pairs",))]
    # class_rows, class_values: int64 (K,), or float64: rows of each class, -1 where nothing but its
    # name is known; and the features that they hold in all
    class_rows: Annotated[NDArray[np.int64], ArrayLayout(("classes",))]
    class_values: Annotated[NDArray[np.int64], ArrayLayout(("classes",))]

    @property
    def n_pairs(self) -> int:
        """Number of pairs, Z."""
        return len(self.classes)

    @property
    def n_common_features(self) -> int:
        """How many of the first features are not counted: all rows share them."""
        return int(np.searchsorted(self.starts, 0, "right")) - 1

    @cached_property
    def gains(self) -> NDArray[np.int16]:
        """Room for what each pair adds to a score: int16 (Z,)."""
        return np.empty(self.n_pairs, np.int16)

    @cached_property
    def pairs(self) -> count_kernels.CountedPairs:
        """The table as kernels take it, with where the pairs of the longest lists lie."""
        marks = count_kernels.marks_of(self, len(self.class_rows))
        return count_kernels.CountedPairs(
            self.starts, self.classes, self.counts, self.class_rows, self.class_values, *marks
        )

    def forget_places(self) -> None:
        """Give back the memory of :attr:`pairs`, which are found again when asked for."""
        vars(self).pop("pairs", None)

    def add(self, rows: RowBlock) -> None:
        """Count rows for whose pairs there are places: those held out before."""
        rows = rows.beyond(self.n_common_features)
        count_kernels.count_rows(
            rows.indptr, rows.features, rows.classes, rows.weights, self.starts, self.classes,
            self.counts,
        )  # fmt: skip
        _add_totals(rows, self.class_rows, self.class_values)

    def entropies(self) -> NDArray[np.float32]:
        """Return the entropy of each feature's classes in nats: float32 (d,)."""
        out = np.empty(self.n_features, np.float32)
        count_kernels.entropies(self.starts, self.counts, out)
        return out


@dataclass(frozen=True, kw_only=True)
class GroupWeights:
    """Weights by group of features, by feature and by pair.

    :func:`streammach.counts.learning.weigh` says what scores they make.
    """

    group: NDArray[np.int32]  # int32 (d,): group of each feature, 0..G-1
    # slope, match, penalty: float32 (G,): of ln n, of being counted, of the logarithm of the
    # class's values
    slope: NDArray[np.float32]
    match: NDArray[np.float32]
    penalty: NDArray[np.float32]
    prior: float  # of the logarithm of the class's rows
    learnt: float  # of the feature and pair weights
    hashed: float  # of the hashed models' mean logarithm, 0 or more
    # theta, delta: float32 (Z,), (d,): of each pair and of each feature; both empty where nothing
    # was learnt
    theta: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    delta: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return len(self.slope)


def count_pairs(
    blocks: Blocks, n_features: int, n_classes: int, *, max_pairs: int, mark_bytes: int,
    threads: int, gains: GroupWeights | None = None, weighted: bool = False,
) -> CountTable:  # fmt: skip
    """Count the pairs of rows that can be read again and again, within a number of bytes.

    Features are counted in ranges whose marks, four or eight bytes a value, fit `mark_bytes`; each
    range is a pass over the rows. The table has places for the pairs of held-out rows too, if all
    fit. Where they do not, those are kept that add most by `gains`.
    """
    starts = np.zeros(n_features + 1, np.int64)
    one: Any = np.float32 if weighted else np.int32
    total: Any = np.float64 if weighted else np.int64
    classes, counts = np.empty(max_pairs, np.int32), np.empty(max_pairs, one)
    rows, values = np.zeros(n_classes, total), np.zeros(n_classes, total)
    feature_counts = np.zeros(n_features, np.int64)
    for block, held in blocks():
        feature_counts += np.bincount(block.features, minlength=n_features)
        _add_totals(block, rows, values, ~held)
    slope = match = np.zeros(n_features, np.float32)
    if gains is not None:
        slope, match = gains.slope[gains.group], gains.match[gains.group]
    least = 0
    most = mark_bytes // (MARK_BYTES * (1 + weighted))
    ranges = list(ranges_that_fit((ends(feature_counts), most)))
    with contextlib.closing(Workers(threads, "count")) as workers:

        def lists(first: int, last: int) -> tuple[count_kernels.MarkedLists, list[tuple[int, int]]]:
            begins = ends(feature_counts[first:last])
            pieces = pieces_of(last - first, threads, begins, a_thread=PIECES_PER_THREAD)
            marks = _marks(blocks, begins, first, workers, weighted=weighted)
            low = marks[: len(marks) * weighted].view(np.float32)[LOW_HALF::2]
            own = slope[first:last], match[first:last]
            found = count_kernels.MarkedLists(begins, marks, low, *own)
            workers.each(partial(count_kernels.sort_lists, found), pieces)
            return found, pieces

        if gains is not None:
            bins = np.zeros(count_kernels.BINS, np.int64)
            for some in ranges:
                found, pieces = lists(*some)
                bins += _bins(found, pieces, workers)
            above = np.cumsum(bins[::-1])[::-1]
            least = max(1, int(np.searchsorted(-above, -max_pairs)))
        for first, last in ranges:
            found, pieces = lists(first, last)
            own, sizes = starts[first : last + 1], np.zeros(last - first, np.int64)
            fill = partial(count_kernels.fill_lists, found, least, own)
            workers.each(partial(fill, classes[:0], counts, sizes), pieces)
            own[1:] = own[0] + np.cumsum(sizes)
            if own[-1] > max_pairs:
                raise OverflowError
            workers.each(partial(fill, classes, counts, sizes), pieces)
    np.maximum.accumulate(starts, out=starts)  # those of the last features, if no row has them
    n_pairs = int(starts[-1])
    return CountTable(
        starts=starts, classes=classes[:n_pairs], counts=counts[:n_pairs], class_rows=rows,
        class_values=values,
    )  # fmt: skip


def _bins(
    lists: count_kernels.MarkedLists, pieces: list[tuple[int, int]], workers: Workers
) -> NDArray[np.int64]:
    found: list[NDArray[np.int64]] = []

    def of(first: int, last: int) -> None:
        own = np.zeros(count_kernels.BINS, np.int64)
        count_kernels.bin_lists(lists, first, last, own)
        found.append(own)

    workers.each(of, pieces)
    total: NDArray[np.int64] = np.sum(found, axis=0)
    return total


def _marks(
    blocks: Blocks, begins: NDArray[np.int64], first: int, workers: Workers, *, weighted: bool
) -> NDArray[Any]:
    """Return each feature's rows as marks: see :func:`streammach.counts.count_kernels.scatter`."""
    ends, threads = begins[:-1].copy(), workers.n_threads
    # Each thread reads all rows, and writes the marks of its own features.
    edges = np.searchsorted(begins, begins[-1] * np.arange(threads + 1) // threads)
    edges[-1] = len(ends)
    parts = list(itertools.pairwise(edges.tolist()))
    marks = np.empty(int(begins[-1]), np.int64 if weighted else np.int32)
    for block, held in blocks():
        row_marks = 2 * block.classes + held
        if weighted:  # no number below 0: as integers they stand in their order
            row_marks = row_marks.astype(np.int64) << 32 | block.weights.view(np.int32)

        def scatter(
            a: int, b: int, row_marks: NDArray[Any] = row_marks, of: RowBlock = block
        ) -> None:
            count_kernels.scatter(of.indptr, of.features, row_marks, first + a, ends[a:b], marks)

        workers.each(scatter, parts)
    return marks


def _add_totals(
    block: RowBlock, rows: NDArray[Any], values: NDArray[Any],
    chosen: NDArray[np.bool_] | None = None,
) -> None:  # fmt: skip
    classes, lengths, weights = block.classes, np.diff(block.indptr), block.weights
    if chosen is not None:
        classes, lengths, weights = classes[chosen], lengths[chosen], weights[chosen]
    weights = weights.astype(rows.dtype)
    np.add.at(rows, classes, weights)
    np.add.at(values, classes, lengths * weights)
