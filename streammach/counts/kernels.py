"""Compiled loops over counts of (feature, class) pairs.

The table is a posting list a feature: ``classes[starts[f]:starts[f + 1]]``, rising, and beside it
how many rows of the class hold the feature. What a pair adds to a score is a whole number of small
units, and loops over float32 are not reassociated: the score of a class is the same number wherever
it is computed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streammach.jit import Array, Number, kernel

NOWHERE = -1
UNITS = np.float32(1024)  # gains are whole numbers of 1/1024 nat
STEP = np.float32(1 / 1024)
LARGEST = np.float32(32767)
BINS, BINS_A_NAT = 4096, 128  # of gains, where not all pairs are kept
SCAN_PIECE = 256  # classes that are looked at together


@kernel()
def scatter(
    indptr: Array, features: Array, row_marks: Array, first: int, ends: Array, marks: Array
) -> None:
    """Append each row's mark to the lists of its features ``first : first + m``.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    row_marks : int32 or int64 (n,)
        Twice the class id, plus 1 for a held-out row; above the bits of the importance, float32,
        where rows have one.
    first : int
        The first of the m features.
    ends : int64 (m,)
        Where the next mark of each list goes; they rise with what is written.
    marks : int32 or int64
        Receives the marks.
    """
    for i in range(row_marks.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            f = features[p] - first
            if 0 <= f < ends.shape[0]:
                marks[ends[f]] = row_marks[i]
                ends[f] += 1


@kernel()
def sort_lists(begins: Array, first: int, last: int, marks: Array) -> None:
    """Sort the marks of lists ``first:last``, which begin at `begins` int64."""
    for f in range(first, last):
        marks[begins[f] : begins[f + 1]].sort()


@kernel(inline=True, fastmath=False)
def pair_gain(count: Number, slope: Number, match: Number) -> Any:
    """Return what a pair of so many rows adds: of less than one that part of what one adds."""
    more = np.float32(math.log(max(count, np.float64(1))))
    return slope * more + match * min(np.float32(count), np.float32(1))


@kernel(inline=True, fastmath=False)
def gain_bin(count: Number, slope: Number, match: Number) -> Any:
    """Return the bin of what a pair of so many rows adds to a score, 0..BINS-1; 0 without rows."""
    if count == 0:
        return 0
    gain = pair_gain(count, slope, match) * BINS_A_NAT + BINS // 2
    return int(max(np.float32(0), min(np.float32(BINS - 1), gain)))


@kernel(inline=True, fastmath=False)
def run_end(marks: Array, weights: Array, p: int, end: int) -> Any:
    """Return the class at `p`, where its marks end, and the sum of its rows not held out."""
    low = 32 if weights.shape[0] > 0 else 0  # bits of an importance
    of_class, count = marks[p] >> (low + 1), 0.0
    while p < end and marks[p] >> (low + 1) == of_class:
        if not (marks[p] >> low) & 1:
            count += weights[p] if low else 1.0
        p += 1
    return of_class, p, count


@kernel(fastmath=False)
def bin_lists(
    begins: Array, marks: Array, weights: Array, first: int, last: int, slope: Array, match: Array,
    bins: Array,
) -> None:  # fmt: skip
    """Count the pairs of sorted lists ``first:last`` by their gain: int64 (BINS,)."""
    for f in range(first, last):
        p = begins[f]
        while p < begins[f + 1]:
            _, p, count = run_end(marks, weights, p, begins[f + 1])
            bins[gain_bin(count, slope[f], match[f])] += 1


@kernel(fastmath=False)
def fill_lists(
    begins: Array, marks: Array, weights: Array, first: int, last: int, slope: Array, match: Array,
    least: int, starts: Array, classes: Array, counts: Array, sizes: Array,
) -> None:  # fmt: skip
    """Write how many classes sorted lists have with a gain from bin `least` on, and which.

    Parameters
    ----------
    begins, marks : int64 (m + 1,), int32 or int64
        Where the lists begin and end, and their marks.
    weights : float32
        The importance of the row of each mark; empty where each counts once.
    first, last : int
        The lists ``first:last`` are looked at.
    slope, match : float32 (m,)
        A pair of list f with n rows gains ``slope_f ln n + match_f``; see :func:`pair_gain`.
    least : int
        The lowest bin that is kept.
    starts : int64 (m + 1,)
        Where the classes of each list go.
    classes, counts : int32, int32 or float32
        Receive the classes, and the rows of each that are not held out, unless `classes` is empty.
    sizes : int64 (m,)
        Receives how many classes each list has.
    """
    for f in range(first, last):
        n, p = 0, begins[f]
        while p < begins[f + 1]:
            of_class, p, count = run_end(marks, weights, p, begins[f + 1])
            if gain_bin(count, slope[f], match[f]) >= least:
                if classes.shape[0]:
                    classes[starts[f] + n], counts[starts[f] + n] = of_class, count
                n += 1
        sizes[f] = n


@kernel(inline=True)
def find(classes: Array, low: int, high: int, wanted: int) -> Any:
    """Return where `wanted` stands in ``classes[low:high]``, which rises, or NOWHERE."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if classes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and classes[low] == wanted else NOWHERE


@kernel()
def count_rows(
    indptr: Array, features: Array, row_classes: Array, row_weights: Array, starts: Array,
    classes: Array, counts: Array,
) -> None:  # fmt: skip
    """Count rows, float32 (n,) or int32 (n,) each, at the places of their pairs in the table."""
    for i in range(row_classes.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            f = features[p]
            z = find(classes, starts[f], starts[f + 1], row_classes[i])
            if z != NOWHERE:
                counts[z] += row_weights[i]


@kernel()
def entropies(starts: Array, counts: Array, out: Array) -> None:
    """Write the entropy of each feature's classes in nats: float32 (d,)."""
    for f in range(out.shape[0]):
        total, n_log_n = 0.0, 0.0
        for z in range(starts[f], starts[f + 1]):
            if counts[z] > 0:
                total += counts[z]
                n_log_n += counts[z] * math.log(counts[z])
        out[f] = math.log(total) - n_log_n / total if total > 0 else 0.0


@kernel(fastmath=False)
def pair_gains(
    starts: Array, counts: Array, slope: Array, match: Array, share: Number, theta: Array,
    delta: Array, gains: Array,
) -> None:  # fmt: skip
    """Write ``slope_f ln n + match_f + share (theta + delta_f)`` of every pair, 0 where n = 0.

    Parameters
    ----------
    starts, counts : int64 (d + 1,), int32 (Z,)
        The table of pairs, and the rows n of each.
    slope, match : float32 (d,)
        As above.
    share, theta, delta : float32, float32 (Z,), float32 (d,)
        As above; the arrays are empty where nothing was learnt.
    gains : int16 (Z,)
        Receives the gains in units of 1/1024 nat, rounded and cut.
    """
    learnt = theta.shape[0] > 0
    for f in range(slope.shape[0]):
        for z in range(starts[f], starts[f + 1]):
            gain = np.float32(0)
            if counts[z] > 0:
                gain = pair_gain(counts[z], slope[f], match[f])
                if learnt:
                    part = min(np.float32(counts[z]), np.float32(1))
                    gain += share * (theta[z] + delta[f]) * part
            gains[z] = round(max(-LARGEST, min(LARGEST, gain * UNITS)))


@kernel()
def spread_lists(
    features: Array, starts: Array, classes: Array, gains: Array, table: Array
) -> None:
    """Write the gains of some features as rows over all classes: `table` int16 (n, K)."""
    for j in range(features.shape[0]):
        table[j] = 0
        for z in range(starts[features[j]], starts[features[j] + 1]):
            table[j, classes[z]] = gains[z]


@kernel(inline=True)
def insert(scores: Array, ids: Array, score: Number, which: Number) -> None:
    """Put a class into a list ordered by falling score, behind its equals; the last drops out."""
    j = scores.shape[0] - 1
    while j > 0 and scores[j - 1] < score:
        scores[j], ids[j] = scores[j - 1], ids[j - 1]
        j -= 1
    scores[j], ids[j] = score, which


@kernel(fastmath=False)
def any_above(total: Array, first: int, last: int, bound: Number) -> bool:
    """Return whether one of ``total[first:last]`` is above a bound; vectorises, unlike a search."""
    n = 0
    for c in range(first, last):
        n += total[c] > bound
    return n > 0


@kernel(fastmath=False)
def best_of(total: Array, scores: Array, ids: Array) -> None:
    """Write the classes with the largest totals, best first, ties to the smaller id."""
    scores[:] = -np.inf
    ids[:] = 0
    last = scores.shape[0] - 1
    for first in range(0, total.shape[0], SCAN_PIECE):
        end = min(first + SCAN_PIECE, total.shape[0])
        if any_above(total, first, end, scores[last]):
            for c in range(first, end):
                if total[c] > scores[last]:
                    insert(scores, ids, total[c], c)


@kernel(fastmath=False, inline=True)
def hashed_sum(logs: Array, codes: Array, n_buckets: int, n_repetitions: int, c: Number) -> Number:
    """Return ``sum_r ln P_r[h_r(c)]`` of a class, r rising."""
    s = np.float32(0)
    for r in range(n_repetitions):
        s += logs[r * n_buckets + codes[c * n_repetitions + r]]
    return s
