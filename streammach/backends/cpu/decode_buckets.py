"""Exact top-k classes of single rows: the classes of the best buckets alone, as long as that pays.

Buckets are taken one after another, and all their classes scored. With u_r the value of the best
bucket of model r that was not taken, a class of none that was has a score of at most
``u_0 + ... + u_(R-1)``. Both are added in the same order, and float32 additions never fall when
their numbers rise, so this bounds the very bits. Once the k-th best score is above it, the best
have been found (Fagin's threshold algorithm). The next bucket is the one after which the bound is
lowest. Where the k-th best is too far below it, all classes are scored: when an eighth of them was,
or after a quarter of these if bounds that fall twice as fast as the last one would not be enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.backends.cpu.bucket_classes import STATE, listed, walk
from streammach.backends.cpu.decode import decode_one, total
from streammach.jit import Array, Number, kernel
from streammach.simd import prefetch
from streammach.spec.estimators import SUM

SHARE = 8  # at most an eighth of the classes, of which each takes three to six times as long here
AHEAD = 32  # classes whose codes are asked for together
GROUP = 32  # buckets whose largest value is kept


def floats_of(n_repetitions: int, n_buckets: int) -> int:
    """Return how many float32 of scratch a row takes."""
    return n_repetitions * (n_buckets + -(-n_buckets // GROUP) + 2)


def numbers_of(n_repetitions: int) -> int:
    """Return how many int64 of scratch a row takes."""
    return n_repetitions + STATE + AHEAD


@kernel(fastmath=False, allocates=False)
def offer_any(s: Number, i: int, scores: Array, ids: Array) -> None:
    """Insert class `i` with score `s` into the k best, if it belongs there and is not there."""
    # `scores` float32 (k,) and `ids` int64 (k,) are sorted, best first, the smaller id first where
    # scores are equal; classes come in any order.
    j = scores.shape[0] - 1
    if s < scores[j] or (s == scores[j] and i > ids[j]):
        return
    for known in ids:
        if known == i:
            return
    while j > 0 and (s > scores[j - 1] or (s == scores[j - 1] and i < ids[j - 1])):
        scores[j], ids[j] = scores[j - 1], ids[j - 1]
        j -= 1
    scores[j], ids[j] = s, i


@kernel(inline=True)
def best_of(values: Array) -> Any:
    """Return where the largest of float32 (n,) is, the first one."""
    found = 0
    for i in range(1, values.shape[0]):
        if values[i] > values[found]:
            found = i
    return found


@kernel(fastmath=False, allocates=False)
def lay_out(row: Array, n_buckets: int, left: Array, tops: Array) -> None:
    """Copy a row's values, and find the largest of each group of buckets.

    Parameters
    ----------
    row : float32 (C,)
        The row.
    n_buckets : int
        B.
    left, tops : float32 (R, B), float32 (R, ceil(B / 32))
        Receive the values, and the largest of each group.
    """
    for r in range(left.shape[0]):
        for c in range(n_buckets):
            left[r, c] = row[r * n_buckets + c]
        for g in range(tops.shape[1]):
            group = left[r, g * GROUP : (g + 1) * GROUP]
            tops[r, g] = group[best_of(group)]


@kernel(fastmath=False, allocates=False)
def take(left: Array, tops: Array) -> Any:
    """Return the best bucket of a model that was not taken, and take it; see `lay_out`."""
    g = best_of(tops)
    group = left[g * GROUP : (g + 1) * GROUP]
    bucket = best_of(group)
    group[bucket] = -np.inf
    tops[g] = group[best_of(group)]
    return g * GROUP + bucket


@kernel(fastmath=False, allocates=False)
def score_bucket(
    row: Array, codes: Array, n_repetitions: int, n_buckets: int, state: Array, some: Array,
    scores: Array, ids: Array,
) -> Any:  # fmt: skip
    """Score the classes of a bucket; return how many there were.

    Parameters
    ----------
    row : float32 (C,)
        The row.
    codes : unsigned (K * R,)
        Buckets of the classes, class by class.
    n_repetitions, n_buckets : int
        R and B.
    state, some : int64 (8,), int64 (32,)
        The walk through the bucket; scratch.
    scores, ids : float32 (k,), int64 (k,)
        The k best so far.
    """
    k, n, found = scores.shape[0], 0, some.shape[0]
    while found == some.shape[0]:
        found = listed(state, some)
        for i in some[:found]:
            prefetch(codes, i * n_repetitions)
            prefetch(codes, i * n_repetitions + n_repetitions - 1)
        for i in some[:found]:
            s = total(row, codes, i * n_repetitions, 1, n_buckets, n_repetitions)
            if s >= scores[k - 1]:
                offer_any(s, i, scores, ids)
        n += found
    return n


@kernel(fastmath=False, allocates=False)
def found_in_buckets(
    row: Array, codes: Array, first: int, last: int, n_buckets: int, turns: Array, left: Array,
    tops: Array, values: Array, next_values: Array, numbers: Array, scores: Array, ids: Array,
) -> bool:  # fmt: skip
    """Find the k best of the hashed classes ``first:last`` of a row; return whether that paid.

    Parameters
    ----------
    row, codes, first, last, n_buckets, turns : see `decode_buckets`
        The row; the model.
    left, tops : float32 (R, B), float32 (R, ceil(B / 32))
        Scratch.
    values, next_values : float32 (R,)
        Scratch.
    numbers : int64 (R + 40,)
        Scratch.
    scores, ids : float32 (k,), int64 (k,)
        The k best of other classes; receive those of all if it paid.
    """
    n_repetitions, k = turns.shape[0], scores.shape[0]
    buckets, state = numbers[:n_repetitions], numbers[n_repetitions : n_repetitions + STATE]
    some = numbers[n_repetitions + STATE :]
    each, most, n = (last - first) // n_buckets + 1, (last - first) // SHARE, 0
    if each > most:
        return False
    lay_out(row, n_buckets, left, tops)
    for r in range(n_repetitions):
        buckets[r] = take(left[r], tops[r])
        values[r] = row[r * n_buckets + buckets[r]]
        next_values[r] = tops[r, best_of(tops[r])]
    while True:
        bound, taken, most_drop = values[0], 0, values[0] - next_values[0]
        for r in range(1, n_repetitions):
            bound += values[r]
            drop = values[r] - next_values[r]
            if drop > most_drop:
                taken, most_drop = r, drop
        if scores[k - 1] > bound or bound == -np.inf:
            return True
        allowed = (most - n) // each
        missing = bound - scores[k - 1]
        if allowed < 1 or (n * 4 >= most and missing > 2 * most_drop * allowed):
            return False
        walk(turns[taken], buckets[taken], n_buckets, first, last, state)
        n += max(1, score_bucket(row, codes, n_repetitions, n_buckets, state, some, scores, ids))
        values[taken] = next_values[taken]
        if values[taken] > -np.inf:
            buckets[taken] = take(left[taken], tops[taken])
            next_values[taken] = tops[taken, best_of(tops[taken])]


@kernel(fastmath=False, allocates=False)
def decode_buckets(
    p: Array,
    codes: Array,
    first: int,
    last: int,
    n_repetitions: int,
    n_buckets: int,
    kind: int,
    turns: Array,
    hashed: int,
    floats: Array,
    numbers: Array,
    scores: Array,
    ids: Array,
) -> None:
    """Find the k best of the classes ``first:last`` for each row: see the module's text.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms.
    codes : unsigned (K * R,)
        Buckets of the classes, class by class.
    first, last, n_repetitions, n_buckets, kind : int
        The classes, R, B, and SUM, MINIMUM or MEDIAN; all classes are scored but for SUM.
    turns : int64 (R, 3)
        Of the hashes; see :func:`streammach.backends.cpu.bucket_classes.turns`.
    hashed : int
        How many classes are hashed; those after them were added.
    floats, numbers : float32, int64
        Scratch, of `floats_of` and `numbers_of`.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    size, n_groups = n_repetitions * n_buckets, -(-n_buckets // GROUP)
    v, values = floats[:n_repetitions], floats[n_repetitions : 2 * n_repetitions]
    left = floats[2 * n_repetitions : 2 * n_repetitions + size].reshape(n_repetitions, n_buckets)
    tops = floats[2 * n_repetitions + size :][: n_repetitions * n_groups]
    tops = tops.reshape(n_repetitions, n_groups)
    for q in range(p.shape[0]):
        row, best, where = p[q], scores[q], ids[q]
        best[:], where[:] = -np.inf, -1
        if kind == SUM:
            for i in range(max(first, hashed), last):
                s = total(row, codes, i * n_repetitions, 1, n_buckets, n_repetitions)
                offer_any(s, i, best, where)
            if found_in_buckets(
                row, codes, first, min(last, hashed), n_buckets, turns, left, tops, values, v,
                numbers, best, where,
            ):  # fmt: skip
                continue
        decode_one(
            p[q : q + 1], codes, first, last, n_repetitions, n_buckets, kind, v,
            scores[q : q + 1], ids[q : q + 1],
        )  # fmt: skip
