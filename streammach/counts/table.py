"""Counts of (feature, class) pairs, as posting lists by feature."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.counts import kernels
from streammach.rows.block import RowBlock

PIECES_PER_THREAD = 16
MARK_BYTES = 4
Blocks = Callable[[], Iterable[tuple[RowBlock, NDArray[np.bool_]]]]


@dataclass(frozen=True)
class CountTable:
    """How many rows of each class hold each feature.

    Attributes
    ----------
    starts : int64 (d + 1,)
        Feature f's pairs lie in ``starts[f]:starts[f + 1]``.
    classes : int32 (Z,)
        The class of each pair, rising within a feature.
    counts : int32 (Z,)
        Rows of that class that hold the feature; 0 where only held-out rows do.
    class_rows, class_values : int64 (K,)
        Rows of each class, and the features that they hold in all.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int32]
    counts: NDArray[np.int32]
    class_rows: NDArray[np.int64]
    class_values: NDArray[np.int64]

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return len(self.starts) - 1

    @property
    def n_pairs(self) -> int:
        """Number of pairs, Z."""
        return len(self.classes)

    def add(self, rows: RowBlock) -> None:
        """Count rows for whose pairs there are places: those held out before."""
        kernels.count_rows(
            rows.indptr, rows.features, rows.labels, self.starts, self.classes, self.counts
        )
        _add_totals(rows, self.class_rows, self.class_values)

    def entropies(self) -> NDArray[np.float32]:
        """Return the entropy of each feature's classes in nats: float32 (d,)."""
        out = np.empty(self.n_features, np.float32)
        kernels.entropies(self.starts, self.counts, out)
        return out


def cut(ends: NDArray[np.int64], parts: int) -> list[tuple[int, int]]:
    """Return ranges of about equal size, where ``ends`` int64 (n + 1,) adds up sizes from 0."""
    edges = np.searchsorted(ends, np.linspace(0, ends[-1], parts + 1)[1:-1])
    return list(itertools.pairwise(np.unique([0, *edges, len(ends) - 1]).tolist()))


def count_pairs(
    blocks: Blocks,
    n_features: int,
    n_classes: int,
    *,
    max_pairs: int,
    mark_bytes: int,
    threads: int,
) -> CountTable:
    """Count the pairs of rows that can be read again and again, within a number of bytes.

    Features are counted in ranges whose marks, four bytes a value, fit `mark_bytes`; each range is
    a pass over the rows. The table has places for the pairs of held-out rows too.

    Parameters
    ----------
    blocks : callable
        Returns the rows as (block, held): held bool (n,) says which rows are held out.
    n_features, n_classes : int
        d, and K below 2^30.
    max_pairs : int
        Pairs that there is room for.
    mark_bytes : int
        Bytes for marks.
    threads : int
        Threads that sort.

    Raises
    ------
    OverflowError
        If there are more pairs.
    """
    starts = np.zeros(n_features + 1, np.int64)
    classes, counts = np.empty(max_pairs, np.int32), np.empty(max_pairs, np.int32)
    rows, values = np.zeros(n_classes, np.int64), np.zeros(n_classes, np.int64)
    feature_counts = np.zeros(n_features, np.int64)
    for block, held in blocks():
        feature_counts += np.bincount(block.features, minlength=n_features)
        _add_totals(block, rows, values, ~held)
    with ThreadPoolExecutor(threads, "count") as pool:
        for first, last in _ranges(feature_counts, mark_bytes):
            begins = np.concatenate([[0], np.cumsum(feature_counts[first:last])])
            marks = _marks(blocks, begins, first)
            pieces = cut(begins, threads * PIECES_PER_THREAD)
            here = starts[first : last + 1]
            _fill(pool, pieces, begins, marks, here, classes, counts)
    n_pairs = int(starts[-1])
    return CountTable(starts, classes[:n_pairs], counts[:n_pairs], rows, values)


def _fill(
    pool: ThreadPoolExecutor,
    pieces: list[tuple[int, int]],
    begins: NDArray[np.int64],
    marks: NDArray[np.int32],
    starts: NDArray[np.int64],
    classes: NDArray[np.int32],
    counts: NDArray[np.int32],
) -> None:
    """Turn the marks of a range of features into their lists; `starts` begins with its start."""
    sizes = np.zeros(len(starts) - 1, np.int64)
    _each(pool, pieces, lambda a, b: kernels.sort_lists(begins, a, b, marks))
    _each(pool, pieces, lambda a, b: kernels.size_lists(begins, marks, a, b, sizes))
    starts[1:] = starts[0] + np.cumsum(sizes)
    if starts[-1] > len(classes):
        raise OverflowError
    _each(
        pool, pieces, lambda a, b: kernels.fill_lists(begins, marks, a, b, starts, classes, counts)
    )


def _each(
    pool: ThreadPoolExecutor, pieces: list[tuple[int, int]], work: Callable[[int, int], None]
) -> None:
    list(pool.map(lambda piece: work(*piece), pieces))


def _ranges(feature_counts: NDArray[np.int64], mark_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of features whose marks fit the bytes, at least one feature each."""
    ends, first, done = np.cumsum(feature_counts), 0, 0
    while first < len(ends):
        fits = int(np.searchsorted(ends, done + mark_bytes // MARK_BYTES, "right"))
        last = max(first + 1, fits)
        yield first, last
        first, done = last, int(ends[last - 1])


def _marks(blocks: Blocks, begins: NDArray[np.int64], first: int) -> NDArray[np.int32]:
    """Return each feature's rows as marks: twice the class id, plus 1 for a held-out row."""
    ends = begins[:-1].copy()
    marks = np.empty(int(begins[-1]), np.int32)
    for block, held in blocks():
        row_marks = 2 * block.labels + held
        kernels.scatter(block.indptr, block.features, row_marks, first, ends, marks)
    return marks


def _add_totals(
    block: RowBlock,
    rows: NDArray[np.int64],
    values: NDArray[np.int64],
    chosen: NDArray[np.bool_] | None = None,
) -> None:
    """Add the rows of each class and their values."""
    labels, lengths = block.labels, np.diff(block.indptr)
    if chosen is not None:
        labels, lengths = labels[chosen], lengths[chosen]
    np.add.at(rows, labels, 1)
    np.add.at(values, labels, lengths)
