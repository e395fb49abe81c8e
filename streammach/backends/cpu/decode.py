"""Exact top-k classes from bucket probabilities: every class is scored.

The score of class i is ``sum_r P_r[h_r(i)]`` in float32, r = 0 .. R-1 in order (mean, and log-sum
on logarithms), or the minimum or median over r. Ties go to the smaller class. `decode_tile` and
`decode_buckets` give the ids and the bits of `decode_one` in less time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.options.estimators import MINIMUM, SUM, EstimatorKind
from streammach.rows.arrays import offer, sort_few
from streammach.rows.candidate_lists import CandidateLists
from streammach.system.jit import Array, kernel


class CodedClasses(NamedTuple):
    """The buckets of all classes, and how a score is made of their values."""

    codes: Array  # unsigned (K * R,), class by class
    n_repetitions: int  # R
    n_buckets: int  # B
    kind: int  # SUM, MINIMUM or MEDIAN


@kernel(inline=True)
def total(p: Array, model: CodedClasses, i: int) -> Any:
    """Return the sum of the values of class `i`, in their order, for a row float32 (C,)."""
    # Indices without a sign cost no test for negative ones.
    codes, at, column = model.codes, np.uint64(i * model.n_repetitions), np.uint64(0)
    width = np.uint64(model.n_buckets)
    s = p[np.uint64(codes[at])]
    for _ in range(1, model.n_repetitions):
        at += np.uint64(1)
        column += width
        s += p[column + np.uint64(codes[at])]
    return s


@kernel(fastmath=False)
def score(p: Array, model: CodedClasses, i: int, v: Array) -> Any:
    """Return the exact score of class `i` for a row."""
    # `p` is float32 (C,), `v` float32 (R,) is scratch.
    if model.kind == SUM:
        return total(p, model, i)
    at, column = np.uint64(i * model.n_repetitions), np.uint64(0)
    for r in range(v.shape[0]):
        v[r] = p[column + np.uint64(model.codes[at])]
        at += np.uint64(1)
        column += np.uint64(model.n_buckets)
    sort_few(v)
    n = v.shape[0]
    if model.kind == MINIMUM:
        return v[0]
    return (v[n // 2] + v[(n - 1) // 2]) * np.float32(0.5)


@kernel(fastmath=False)
def decode_one(
    p: Array, model: CodedClasses, first: int, last: int, v: Array, scores: Array, ids: Array
) -> None:
    """Score classes ``first:last`` for each row.

    Parameters
    ----------
    p : float32 (n, C)
        The rows.
    model, first, last, v : CodedClasses, int, int, float32 (R,)
        The classes, class by class; scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    most = 0 if model.kind == MINIMUM else model.n_repetitions // 2
    for q in range(p.shape[0]):
        row, best, where = p[q], scores[q], ids[q]
        best[:], where[:] = -np.inf, -1
        if model.kind == SUM:
            best_sums(row, model, first, last, best, where)
            continue
        for i in range(first, last):
            needed = best[best.shape[0] - 1]
            at, column, below = np.uint64(i * model.n_repetitions), np.uint64(0), 0
            for _ in range(model.n_repetitions):
                below += row[column + np.uint64(model.codes[at])] <= needed
                at += np.uint64(1)
                column += np.uint64(model.n_buckets)
            if below <= most:
                offer(score(row, model, i, v), i, best, where)


@kernel(fastmath=False, inner=True)
def best_sums(
    row: Array, model: CodedClasses, first: int, last: int, best: Array, where: Array
) -> None:
    """Do so for the sums of one row: `row` float32 (C,), results (k,)."""
    # Four classes side by side: their additions do not wait for one another.
    codes, step, width = model.codes, np.uint64(model.n_repetitions), np.uint64(model.n_buckets)
    i = first
    while i + 4 <= last:
        a = np.uint64(i) * step
        b, c, d = a + step, a + step + step, a + step + step + step
        s, t = row[np.uint64(codes[a])], row[np.uint64(codes[b])]
        u, w = row[np.uint64(codes[c])], row[np.uint64(codes[d])]
        column = np.uint64(0)
        for _ in range(1, model.n_repetitions):
            a += np.uint64(1)
            b += np.uint64(1)
            c += np.uint64(1)
            d += np.uint64(1)
            column += width
            s += row[column + np.uint64(codes[a])]
            t += row[column + np.uint64(codes[b])]
            u += row[column + np.uint64(codes[c])]
            w += row[column + np.uint64(codes[d])]
        needed = best[best.shape[0] - 1]
        if s > needed or t > needed or u > needed or w > needed:
            offer(s, i, best, where)
            offer(t, i + 1, best, where)
            offer(u, i + 2, best, where)
            offer(w, i + 3, best, where)
        i += 4
    while i < last:
        offer(total(row, model, i), i, best, where)
        i += 1


@kernel(fastmath=False)
def score_listed(
    p: Array, model: CodedClasses, lists: CandidateLists, first: int, last: int, v: Array,
    scores: Array,
) -> None:  # fmt: skip
    """Score the listed classes of rows ``first:last``, as `decode_one` scores all of them.

    Parameters
    ----------
    p, model : float32 (n, C), CodedClasses
        The rows; the buckets of all classes, class by class.
    lists, first, last, v : CandidateLists, int, int, float32 (R,)
        What is scored; which rows; scratch.
    scores : float32 (m,)
        Receives the scores where the classes stand.
    """
    for q in range(first, last):
        for z in range(lists.first[q], lists.last[q]):
            i: Any = np.int64(lists.classes[z])
            scores[z] = score(p[q], model, i, v)


def join_lists(
    p: NDArray[np.float32], codes: NDArray[np.integer], kind: EstimatorKind, lists: CandidateLists
) -> NDArray[np.float32]:
    """Return the same by an estimator that no kernel knows: `codes` (K, R) are all buckets."""
    assert kind.join is not None
    columns = np.arange(codes.shape[1]) * (p.shape[1] // codes.shape[1])
    return kind.join(p[lists.rows[:, None], columns + codes[lists.classes]])
