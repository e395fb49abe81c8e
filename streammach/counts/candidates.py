"""The classes that a counted row is compared with while weights of pairs are learnt.

Where rows have few pairs, all of them are summed and all classes looked at, the row being left out.
Otherwise a long list gives only the pairs with the largest gains: which classes are hard for the
row is then known well enough, in half of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.kernels import NOWHERE, STEP, best_of, find, insert, pair_gain
from streammach.jit import Array, Number, kernel
from streammach.rows.pairs import CountWeights

NOBODY = -1  # instead of a class
EXCLUDED = np.float32(-1e30)
CUT_FROM, KEPT = 1024, 512  # pairs of a list that is cut, and those that are left of it
CUT_BYTES = 3  # of what is left of cut lists, at most, for each pair of the table
WIDE_PIECE = 4096  # classes whose sums stay in the first cache
SCAN_PAIRS = 100_000  # pairs of a row, on average, up to which all of them are summed


@dataclass(frozen=True)
class ShortLists:
    """The pairs of long lists with the largest gains."""

    # int64 (d,): which of the cut lists is that of a feature, or -1 where its own is short
    cut_of: NDArray[np.int64]
    # classes, gains: int32 (n, 512), int16 (n, 512): what is left of each
    classes: NDArray[np.int32]
    gains: NDArray[np.int16]

    @classmethod
    def of(cls, weights: CountWeights) -> ShortLists:
        """Cut the lists with more than 1,024 pairs."""
        features = np.flatnonzero(np.diff(weights.starts) > CUT_FROM)
        cut_of = np.full(weights.n_features, -1, np.int64)
        cut_of[features] = np.arange(len(features))
        classes = np.empty((len(features), KEPT), np.int32)
        gains = np.empty((len(features), KEPT), np.int16)
        cut_lists(features, weights.starts, weights.classes, weights.gains, classes, gains)
        return cls(cut_of, classes, gains)


@kernel()
def cut_lists(
    features: Array, starts: Array, classes: Array, gains: Array, kept_classes: Array,
    kept_gains: Array,
) -> None:  # fmt: skip
    """Write the pairs of some lists with the largest gains; of equal ones the smaller classes."""
    best, ids = np.empty(KEPT, np.float32), np.empty(KEPT, np.int64)
    for j in range(features.shape[0]):
        best[:] = -np.inf
        for z in range(starts[features[j]], starts[features[j] + 1]):
            if np.float32(gains[z]) > best[KEPT - 1]:
                insert(best, ids, np.float32(gains[z]), z)
        for k in range(KEPT):
            kept_classes[j, k], kept_gains[j, k] = classes[ids[k]], gains[ids[k]]


@kernel(fastmath=False)
def listed_candidates(
    indptr: Array, features: Array, label_starts: Array, labels: Array, first: int, last: int,
    starts: Array, classes: Array, gains: Array, cut_of: Array, cut_classes: Array,
    cut_gains: Array, penalty: Array, base: Array, log_values: Array, class_rows: Array,
    weights: Array, step: Number, units: Array, touched: Array, slot: Array, ids: Array,
    n_own: Array,
) -> None:  # fmt: skip
    """Write the best classes of rows ``first:last`` by short lists and by what cuts left of others.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    label_starts, labels : int64 (n + 1,), int32 (l,)
        Their classes.
    first, last : int
        Which of them.
    starts, classes, gains : int64 (d + 1,), int32 (Z,), int16 (Z,)
        Those of :class:`CountWeights`.
    cut_of, cut_classes, cut_gains : int64 (d,), int32 (c, 512), int16 (c, 512)
        Those of :class:`ShortLists`.
    penalty, base, log_values : float32 (d,), float32 (K,), float32 (K,)
        Those of :class:`CountWeights`.
    class_rows : int64 or float64 (K,)
        Rows of each class.
    weights : float32 (n,)
        What each row counts.
    step : float32
        A unit of gains in nats.
    units, touched, slot : int32 (K,), int32 (K,), uint8 (K,)
        Scratch; `slot` holds zeros before and after.
    ids : int32 (n, m)
        Receives the row's classes that are among the best, then the best others, best first, NOBODY
        where there are no more. A class of which the row is the only one is left out.
    n_own : int32 (n,)
        Receives how many of the row's classes that are; where it is 0, NOBODY stands first.
    """
    m = ids.shape[1]
    scores, best = np.empty(m, np.float32), np.empty(m, np.int64)
    for i in range(first, last):
        rest, n = np.float32(0), 0
        for p in range(indptr[i], indptr[i + 1]):
            f = features[p]
            rest += penalty[f]
            if cut_of[f] < 0:
                some, their = classes[starts[f] : starts[f + 1]], gains[starts[f] : starts[f + 1]]
            else:
                some, their = cut_classes[cut_of[f]], cut_gains[cut_of[f]]
            for z in range(some.shape[0]):
                c = np.uint32(some[z])  # unsigned: no test for negative indices
                if slot[c] == 0:
                    slot[c], units[c], touched[n] = 1, 0, c
                    n += 1
                units[c] += their[z]
        scores[:] = -np.inf
        best[:] = NOBODY
        for j in range(n):
            c = touched[j]
            slot[c] = 0
            score = base[c] - rest * log_values[c] + units[c] * step
            if score > scores[m - 1]:
                insert(scores, best, score, c)
        own = labels[label_starts[i] : label_starts[i + 1]]
        n_own[i] = own_first(best, own, class_rows, weights[i], ids[i])


@kernel(fastmath=False)
def scanned_candidates(
    indptr: Array, features: Array, label_starts: Array, labels: Array, first: int, last: int,
    starts: Array, classes: Array, counts: Array, gains: Array, wide_of: Array, wide: Array,
    penalty: Array, base: Array, log_values: Array, slope: Array, match: Array, prior: Number,
    class_rows: Array, class_values: Array, weights: Array, units: Array, total: Array, ids: Array,
    n_own: Array,
) -> None:  # fmt: skip
    """Write the best classes of rows ``first:last`` by all pairs, each row left out of the counts.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    label_starts, labels : int64 (n + 1,), int32 (l,)
        Their classes.
    first, last : int
        Which of them.
    starts, classes, counts : int64 (d + 1,), int32 (Z,), int32 or float32 (Z,)
        Those of :class:`CountTable`.
    gains, wide_of, wide : int16 (Z,), int32 (d,), int16 (w, K)
        Those of :class:`CountWeights`.
    penalty, base, log_values : float32 (d,), float32 (K,), float32 (K,)
        Those of :class:`CountWeights`.
    slope, match, prior : float32 (d,), float32 (d,), float32
        The weights that made the gains.
    class_rows, class_values : int64 or float64 (K,)
        Those of :class:`CountTable`.
    weights : float32 (n,)
        What each row counts.
    units, total : int32 (K,), float32 (K,)
        Scratch.
    ids, n_own : int32 (n, m), int32 (n,)
        As of :func:`listed_candidates`.
    """
    m = ids.shape[1]
    scores, best = np.empty(m, np.float32), np.empty(m, np.int64)
    for i in range(first, last):
        row = features[indptr[i] : indptr[i + 1]]
        those = labels[label_starts[i] : label_starts[i + 1]]
        sum_row(row, starts, classes, gains, wide_of, wide, penalty, base, log_values, units, total)
        for own in those:
            total[own] = EXCLUDED
            if class_rows[own] <= weights[i]:
                continue
            rest, gained = np.float32(0), np.float32(0)
            for f in row:
                rest += penalty[f]
                z = find(classes, starts[f], starts[f + 1], own)
                if z != NOWHERE and counts[z] > weights[i]:
                    gained += pair_gain(counts[z] - weights[i], slope[f], match[f])
            gained += prior * np.float32(math.log(max(class_rows[own] - weights[i], 0.5)))
            values = max(class_values[own] - weights[i] * row.shape[0], 0.5)
            total[own] = gained - rest * np.float32(math.log(values))
        best_of(total, scores, best)
        n_own[i] = own_first(best, those, class_rows, weights[i], ids[i])


@kernel(inline=True)
def is_one(c: int, own: Array) -> Any:
    """Return whether a class is one of some."""
    found = False
    for one in own:
        found = found | (c == one)
    return found


@kernel(inline=True)
def own_first(best: Array, own: Array, class_rows: Array, weight: Number, ids: Array) -> Any:
    """Write candidates with the row's own classes first; return how many of these there are."""
    n = 0
    for c in best:
        if c != NOBODY and is_one(c, own) and class_rows[c] > weight:
            ids[n] = c
            n += 1
    n_own = n
    if n == 0:
        ids[0], n = NOBODY, 1
    for c in best:
        if n < ids.shape[0] and c != NOBODY and not is_one(c, own):
            ids[n] = c
            n += 1
    ids[n:] = NOBODY
    return n_own


@kernel(fastmath=False)
def sum_row(
    row: Array, starts: Array, classes: Array, gains: Array, wide_of: Array, wide: Array,
    penalty: Array, base: Array, log_values: Array, units: Array, total: Array,
) -> None:  # fmt: skip
    """Write the score of every class for the features of a row.

    ``total_i = base_i - (sum_f penalty_f) log_values_i + (sum over counted (f, i) of gains) /
    UNITS``.

    Parameters
    ----------
    row : int32 (m,)
        The row's features.
    starts, classes, gains, wide_of, wide, penalty, base, log_values : arrays
        Those of :class:`streammach.rows.pairs.CountWeights`.
    units : int32 (K,)
        Scratch.
    total : float32 (K,)
        Receives the scores.
    """
    # Gains are integers, so their sum does not depend on its order: first the features whose gains
    # stand in `wide`, a piece of the classes at a time, then the lists of the others.
    add_wide(row, wide_of, wide, units)
    for f in row:
        if wide_of[f] < 0:
            for z in range(starts[f], starts[f + 1]):
                units[np.uint32(classes[z])] += gains[z]  # unsigned: no test for negative indices
    add_up(row, penalty, base, log_values, units, total)


@kernel(inline=True)
def add_wide(row: Array, wide_of: Array, wide: Array, units: Array) -> None:
    """Write the gains of a row's features that stand in `wide`: `units` int32 (K,)."""
    for first in range(0, units.shape[0], WIDE_PIECE):
        piece = units[first : first + WIDE_PIECE]
        piece[:] = 0
        for f in row:
            if wide_of[f] >= 0:
                add_piece(wide[wide_of[f], first : first + WIDE_PIECE], piece)


@kernel(inline=True, fastmath=False)
def add_up(
    row: Array, penalty: Array, base: Array, log_values: Array, units: Array, total: Array
) -> None:
    """Write the scores that the gains in `units` int32 (K,) make: `total` float32 (K,)."""
    rest = np.float32(0)
    for f in row:
        rest += penalty[f]
    for c in range(total.shape[0]):
        total[c] = base[c] - rest * log_values[c] + units[c] * STEP


@kernel(inline=True)
def add_piece(gains: Array, piece: Array) -> None:
    """Add gains int16 to `piece` int32."""
    for c in range(piece.shape[0]):
        piece[c] += gains[c]
