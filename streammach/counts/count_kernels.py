"""Compiled loops over counts of (feature, class) pairs, and where the pairs of a few classes lie.

The table is a posting list a feature: ``classes[starts[f]:starts[f + 1]]``, rising, and beside it
how many rows of the class hold the feature. What a pair adds to a score is a whole number of small
units, and loops over float32 are not reassociated: the score of a class is the same number wherever
it is computed.

Where the pairs of a few classes lie: short lists are read whole, beside a table that says which
classes are wanted. The longest lists have a bit for each class and, beside each 32 bits, the number
of classes before them, so that a pair's place is one look. The others are searched, from each
wanted class to the next.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import lower_bound, sort_numbers
from streammach.rows.pairs import PairTable, places
from streammach.system.jit import Array, Number, kernel

NOWHERE = -1
UNITS = np.float32(1024)  # gains are whole numbers of 1/1024 nat
STEP = np.float32(1 / 1024)
LARGEST = np.float32(32767)
BINS, BINS_A_NAT = 4096, 128  # of gains, where not all pairs are kept
READ_WHOLE = 400  # pairs of a list that is read rather than searched
MARKED_SHARE = 64  # lists of fewer classes than this part of all are not marked
INDEX_BYTES = 4  # of marks, at most, for each pair of the table
WORD = 32  # classes of a mark


class MarkedLists(NamedTuple):
    """The marks of the rows of m features, and what decides which of their pairs are kept."""

    begins: Array  # int64 (m + 1,): where the list of each feature begins
    marks: Array  # int32 or int64: see :func:`scatter`
    weights: Array  # float32: the importance of the row of each mark; empty where each counts once
    slope: Array  # slope, match: float32 (m,): a pair of list f with n rows gains
    match: Array  # ``slope_f ln n + match_f``; see :func:`pair_gain`


class CountedPairs(NamedTuple):
    """A table of counts, and marks of its longest lists."""

    starts: Array  # int64 (d + 1,)
    classes: Array  # int32 (Z,)
    counts: Array  # int32 or float32 (Z,): rows of the class that hold the feature
    class_rows: Array  # int64 or float64 (K,): rows of each class
    class_values: Array  # int64 or float64 (K,): the features that these hold
    mark_of: Array  # int64 (d,): where the marks of each feature begin, or -1
    # uint32 (n, 2): for each 32 classes of such a feature: a bit for each that its list holds, and
    # how many the list holds before them
    marks: Array


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
def sort_lists(lists: MarkedLists, first: int, last: int) -> None:
    """Sort the marks of lists ``first:last``."""
    for f in range(first, last):
        sort_numbers(lists.marks[lists.begins[f] : lists.begins[f + 1]])


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
def run_end(lists: MarkedLists, p: int, end: int) -> Any:
    """Return the class at `p`, where its marks end, and the sum of its rows not held out."""
    marks, low = lists.marks, 32 if lists.weights.shape[0] > 0 else 0  # bits of an importance
    of_class, count = marks[p] >> (low + 1), 0.0
    while p < end and marks[p] >> (low + 1) == of_class:
        if not (marks[p] >> low) & 1:
            count += lists.weights[p] if low else 1.0
        p += 1
    return of_class, p, count


@kernel(fastmath=False)
def bin_lists(lists: MarkedLists, first: int, last: int, bins: Array) -> None:
    """Count the pairs of sorted lists ``first:last`` by their gain: int64 (BINS,)."""
    for f in range(first, last):
        p = lists.begins[f]
        while p < lists.begins[f + 1]:
            _, p, count = run_end(lists, p, lists.begins[f + 1])
            bins[gain_bin(count, lists.slope[f], lists.match[f])] += 1


@kernel(fastmath=False)
def fill_lists(
    lists: MarkedLists, least: int, starts: Array, classes: Array, counts: Array, sizes: Array,
    first: int, last: int,
) -> None:  # fmt: skip
    """Write how many classes sorted lists have with a gain from bin `least` on, and which.

    Parameters
    ----------
    lists, least : MarkedLists, int
        The lists, and the lowest bin that is kept.
    starts : int64 (m + 1,)
        Where the classes of each list go.
    classes, counts : int32, int32 or float32
        Receive the classes, and the rows of each that are not held out, unless `classes` is empty.
    sizes, first, last : int64 (m,), int, int
        Receives how many classes each of the lists ``first:last`` has.
    """
    for f in range(first, last):
        n, p = 0, lists.begins[f]
        while p < lists.begins[f + 1]:
            of_class, p, count = run_end(lists, p, lists.begins[f + 1])
            if gain_bin(count, lists.slope[f], lists.match[f]) >= least:
                if classes.shape[0]:
                    classes[starts[f] + n], counts[starts[f] + n] = of_class, count
                n += 1
        sizes[f] = n


@kernel(fastmath=False, inline=True, inner=True)
def find(classes: Array, low: int, high: int, wanted: int) -> Any:
    """Return where `wanted` stands in ``classes[low:high]``, which rises, or NOWHERE."""
    z = lower_bound(classes, low, high, wanted)
    return z if z < high and classes[z] == wanted else NOWHERE


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


def marks_of(table: PairTable, n_classes: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Mark the longest lists within 4 bytes a pair: see :class:`CountedPairs`."""
    lengths, words = np.diff(table.starts), -(-n_classes // WORD)
    most = INDEX_BYTES * len(table.classes) // (8 * words)
    longest = np.argsort(-lengths, kind="stable")[:most]
    longest = longest[lengths[longest] >= max(n_classes / MARKED_SHARE, READ_WHOLE)]
    features = np.sort(longest)
    marks = np.zeros((len(features) * words, 2), np.uint32)
    mark_lists(features, table.starts, table.classes, words, marks)
    order = places(features, table.n_features).astype(np.int64)
    return np.where(order < 0, order, order * words), marks


@kernel()
def mark_lists(features: Array, starts: Array, classes: Array, words: int, marks: Array) -> None:
    """Mark the classes of some features' lists: `marks` uint32 (n * words, 2), zeros before."""
    for j in range(features.shape[0]):
        first = j * words
        for z in range(starts[features[j]], starts[features[j] + 1]):
            c = classes[z]
            marks[first + (c >> 5), 0] |= np.uint32(1) << np.uint32(c & 31)
        before = np.uint32(0)
        for w in range(first, first + words):
            marks[w, 1] = before
            before += bits(marks[w, 0])


@kernel(inline=True)
def bits(word: Number) -> Any:
    """Return how many bits of a uint32 are set: uint32."""
    word = word - ((word >> np.uint32(1)) & np.uint32(0x55555555))
    word = (word & np.uint32(0x33333333)) + ((word >> np.uint32(2)) & np.uint32(0x33333333))
    word = (word + (word >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
    return np.uint32(word * np.uint32(0x01010101)) >> np.uint32(24)


@kernel(fastmath=False, inline=True, inner=True)
def marked_place(marks: Array, first: int, c: int) -> Any:
    """Return the number of a class within a marked list, or -1."""
    w = first + (c >> 5)
    word, bit = marks[w, 0], np.uint32(c & 31)
    if not (word >> bit) & np.uint32(1):
        return -1
    return np.int64(marks[w, 1] + bits(word & ((np.uint32(1) << bit) - np.uint32(1))))


@kernel(fastmath=False, inline=True, inner=True)
def find_pair(pairs: CountedPairs, f: int, c: int) -> Any:
    """Return where the pair of a feature and a class stands in the table, or NOWHERE."""
    first = pairs.starts[f]
    if pairs.mark_of[f] < 0:
        return find(pairs.classes, first, pairs.starts[f + 1], c)
    place = marked_place(pairs.marks, pairs.mark_of[f], c)
    return first + place if place >= 0 else NOWHERE


@kernel(fastmath=False, allocates=True)
def find_places(
    row: Array, wanted: Array, n: int, pairs: CountedPairs, slot: Array, place: Array
) -> None:
    """Write where the pairs of a row's features and of some classes lie.

    Parameters
    ----------
    row, wanted, n : int32 (v,), int32 (m,), int
        The features, and classes: the first n, at most 255, are different ones, others not read.
    pairs, slot : CountedPairs, uint8 (K,)
        The table; scratch, zeros before and after.
    place : int32 (v, m)
        Receives each pair's number within its feature's list, or -1.
    """
    classes, rising = pairs.classes, np.empty(n, np.int32)
    for k in range(n):
        slot[wanted[k]] = k + 1
        rising[k] = wanted[k]
    sort_numbers(rising)
    for j in range(row.shape[0]):
        f, found = row[j], place[j]
        found[:] = -1
        first, last = pairs.starts[f], pairs.starts[f + 1]
        if last - first <= READ_WHOLE:
            for z in range(first, last):
                k = slot[classes[z]]
                if k > 0:
                    found[k - 1] = z - first
        elif pairs.mark_of[f] >= 0:
            for k in range(n):
                found[k] = marked_place(pairs.marks, pairs.mark_of[f], wanted[k])
        else:
            low = first
            for c in rising:
                low = lower_bound(classes, low, last, c)
                if low < last and classes[low] == c:
                    found[slot[c] - 1] = low - first
    for k in range(n):
        slot[wanted[k]] = 0
