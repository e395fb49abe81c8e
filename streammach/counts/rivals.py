"""The classes that a counted row is compared with while weights of pairs are learnt.

Where rows have few pairs, all of them are summed and all classes looked at, the row being left out.
Otherwise a long list gives only the pairs with the largest gains: which classes are hard for the
row is then known well enough, in half of the time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streammach.counts.count_kernels import (
    NOWHERE,
    STEP,
    CountedPairs,
    best_of,
    find,
    insert,
    pair_gain,
)
from streammach.counts.learning import LearntScores, RowLists
from streammach.jit import Array, Number, kernel
from streammach.rows.pairs import CountWeights

NOBODY = -1  # instead of a class
EXCLUDED = np.float32(-1e30)
CUT_FROM, KEPT = 1024, 512  # pairs of a list that is cut, and those that are left of it
CUT_BYTES = 3  # of what is left of cut lists, at most, for each pair of the table
WIDE_PIECE = 4096  # classes whose sums stay in the first cache
SCAN_PAIRS = 100_000  # pairs of a row, on average, up to which all of them are summed


class ShortLists(NamedTuple):
    """The pairs of long lists with the largest gains."""

    cut_of: Array  # int64 (d,): which of the cut lists is a feature's, or -1 where its own is short
    classes: Array  # int32 (n, 512): what is left of each
    gains: Array  # int16 (n, 512)

    @classmethod
    def of(cls, weights: CountWeights) -> ShortLists:
        """Cut the lists with more than 1,024 pairs."""
        features = np.flatnonzero(np.diff(weights.starts) > CUT_FROM)
        cut_of = np.full(weights.n_features, -1, np.int64)
        cut_of[features] = np.arange(len(features))
        shape = len(features), KEPT
        short = cls(cut_of, np.empty(shape, np.int32), np.empty(shape, np.int16))
        cut_lists(features, weights.starts, weights.classes, weights.gains, short)
        return short


class PairScratch(NamedTuple):
    """One thread's scratch for all classes."""

    units: Array  # int32 (K,)
    touched: Array  # int32 (K,)
    total: Array  # float32 (K,), in the memory of `touched`
    slot: Array  # uint8 (K,), zeros before and after

    @classmethod
    def of(cls, n_classes: int) -> PairScratch:
        """Return scratch for so many classes."""
        touched = np.empty(n_classes, np.int32)
        slot = np.zeros(n_classes, np.uint8)
        return cls(np.empty(n_classes, np.int32), touched, touched.view(np.float32), slot)


@kernel(allocates=True)
def cut_lists(
    features: Array, starts: Array, classes: Array, gains: Array, short: ShortLists
) -> None:
    """Write the pairs of some lists with the largest gains; of equal ones the smaller classes."""
    best, ids = np.empty(KEPT, np.float32), np.empty(KEPT, np.int64)
    for j in range(features.shape[0]):
        best[:] = -np.inf
        for z in range(starts[features[j]], starts[features[j] + 1]):
            if np.float32(gains[z]) > best[KEPT - 1]:
                insert(best, ids, np.float32(gains[z]), z)
        for k in range(KEPT):
            short.classes[j, k], short.gains[j, k] = classes[ids[k]], gains[ids[k]]


@kernel(fastmath=False, allocates=True)
def listed_candidates(
    rows: RowLists, pairs: CountedPairs, scores: LearntScores, short: ShortLists,
    scratch: PairScratch, ids: Array, n_own: Array, first: int, last: int,
) -> None:  # fmt: skip
    """Write the best classes of rows ``first:last`` by short lists and by what cuts left of others.

    Parameters
    ----------
    rows, pairs, scores : RowLists, CountedPairs, LearntScores
        The rows, the table, and what scores are made of.
    short, scratch : ShortLists, PairScratch
        The cut lists; scratch.
    ids : int32 (n, m)
        Receives the row's classes that are among the best, then the best others, best first, NOBODY
        where there are no more. A class of which the row is the only one is left out.
    n_own : int32 (n,)
        Receives how many of the row's classes that are; where it is 0, NOBODY stands first.
    first, last : int
        Which of the rows.
    """
    m, units, touched, slot = ids.shape[1], scratch.units, scratch.touched, scratch.slot
    tops, best = np.empty(m, np.float32), np.empty(m, np.int64)
    for i in range(first, last):
        rest, n = np.float32(0), 0
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            f = rows.features[p]
            rest += scores.penalty[f]
            if short.cut_of[f] < 0:
                a, b = pairs.starts[f], pairs.starts[f + 1]
                some, their = pairs.classes[a:b], scores.gains[a:b]
            else:
                some, their = short.classes[short.cut_of[f]], short.gains[short.cut_of[f]]
            for z in range(some.shape[0]):
                c = np.uint32(some[z])  # unsigned: no test for negative indices
                if slot[c] == 0:
                    slot[c], units[c], touched[n] = 1, 0, c
                    n += 1
                units[c] += their[z]
        tops[:] = -np.inf
        best[:] = NOBODY
        for j in range(n):
            c = touched[j]
            slot[c] = 0
            score = scores.base[c] - rest * scores.log_values[c] + units[c] * STEP
            if score > tops[m - 1]:
                insert(tops, best, score, c)
        own = rows.labels[rows.label_starts[i] : rows.label_starts[i + 1]]
        n_own[i] = own_first(best, own, pairs.class_rows, rows.weights[i], ids[i])


@kernel(fastmath=False, allocates=True)
def scanned_candidates(
    rows: RowLists, pairs: CountedPairs, scores: LearntScores, scratch: PairScratch, ids: Array,
    n_own: Array, first: int, last: int,
) -> None:  # fmt: skip
    """Write the best classes of rows ``first:last`` by all pairs, each row left out of the counts.

    Parameters
    ----------
    rows, pairs, scores, scratch : RowLists, CountedPairs, LearntScores, PairScratch
        The rows, the table, what scores are made of, and scratch.
    ids, n_own, first, last : int32 (n, m), int32 (n,), int, int
        As of :func:`listed_candidates`.
    """
    m, total, counts = ids.shape[1], scratch.total, pairs.counts
    tops, best = np.empty(m, np.float32), np.empty(m, np.int64)
    for i in range(first, last):
        row, weight = rows.features[rows.indptr[i] : rows.indptr[i + 1]], rows.weights[i]
        those = rows.labels[rows.label_starts[i] : rows.label_starts[i + 1]]
        sum_row(row, pairs, scores, scratch.units, total)
        for own in those:
            total[own] = EXCLUDED
            if pairs.class_rows[own] <= weight:
                continue
            rest, gained = np.float32(0), np.float32(0)
            for f in row:
                rest += scores.penalty[f]
                z = find(pairs.classes, pairs.starts[f], pairs.starts[f + 1], own)
                if z != NOWHERE and counts[z] > weight:
                    gained += pair_gain(counts[z] - weight, scores.slope[f], scores.match[f])
            alike = np.float32(math.log(max(pairs.class_rows[own] - weight, 0.5)))
            gained += scores.prior * alike
            values = max(pairs.class_values[own] - weight * row.shape[0], 0.5)
            total[own] = gained - rest * np.float32(math.log(values))
        best_of(total, tops, best)
        n_own[i] = own_first(best, those, pairs.class_rows, weight, ids[i])


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
    row: Array, pairs: CountedPairs, scores: LearntScores, units: Array, total: Array
) -> None:
    """Write the score of every class for the features of a row.

    ``total_i = base_i - (sum_f penalty_f) log_values_i + (sum over counted (f, i) of gains) /
    UNITS``.

    Parameters
    ----------
    row, pairs, scores : int32 (m,), CountedPairs, LearntScores
        The row's features, the table, and what scores are made of.
    units, total : int32 (K,), float32 (K,)
        Scratch; receives the scores.
    """
    # Gains are integers, so their sum does not depend on its order: first the features whose gains
    # stand in `wide`, a piece of the classes at a time, then the lists of the others.
    for first in range(0, units.shape[0], WIDE_PIECE):
        piece = units[first : first + WIDE_PIECE]
        piece[:] = 0
        for f in row:
            if scores.wide_of[f] >= 0:
                add_piece(scores.wide[scores.wide_of[f], first : first + WIDE_PIECE], piece)
    rest = np.float32(0)
    for f in row:
        rest += scores.penalty[f]
        if scores.wide_of[f] < 0:
            for z in range(pairs.starts[f], pairs.starts[f + 1]):
                # Unsigned: no test for negative indices.
                units[np.uint32(pairs.classes[z])] += scores.gains[z]
    base, log_values = scores.base, scores.log_values
    for c in range(total.shape[0]):
        total[c] = base[c] - rest * log_values[c] + units[c] * STEP


@kernel(inline=True)
def add_piece(gains: Array, piece: Array) -> None:
    """Add gains int16 to `piece` int32."""
    for c in range(piece.shape[0]):
        piece[c] += gains[c]
