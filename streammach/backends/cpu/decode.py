"""Exact top-k classes from bucket probabilities.

The score of class i is ``sum_r P_r[h_r(i)]`` in float32, r = 0 .. R-1 in order (mean, and log-sum
on logarithms), or the minimum or median over r. Ties go to the smaller class. Every way of
computing it gives the ids and the bits of scoring all classes.

`decode_tile` handles up to 64 rows at once. It scans all classes with 8-bit sums, 64 rows to a
vector, and scores exactly only those that such a sum does not rule out:

- With theta the k-th best score so far, ``slack = sum_r max_b P_r[b]`` plus twice the rounding
  error of R float32 additions, and ``D = slack - theta``, the deficit of bucket b is
  ``floor((max P_r - P_r[b]) * unit)``, at most 255, with ``unit = 254 / D``. A class with a score
  of at least theta lacks at most D in all, so its deficits sum to at most ``D * unit``; the limit
  has a margin of 1e-6 for the rounding of the products.
- theta only rises, and a class met later needs more than theta, since ties go to the smaller id.
  So the limit falls, and the deficits are written again with a finer unit once D has shrunk enough.
- Minimum: the deficit is 1 where ``P_r[b] < theta``, the limit 0. Median: the limit is R // 2, and
  theta is lowered by more than the one rounding of an even R's mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.jit import Array, Number, kernel
from streammach.simd import LANES, lanes_within, trailing_zeros
from streammach.spec.estimators import MINIMUM, SUM

FIRST_CLASSES = 64  # scored exactly for a first theta
FIRST_SCAN = 512  # classes scanned before the limits are looked at again; doubles each time
FULL_UNIT, WORN_UNIT = 254.0, 160.0


@kernel(fastmath=False)
def aggregate(v: Array, kind: int) -> Any:
    """Return the score from the values of one class, in their order; may sort `v` float32 (R,)."""
    if kind == SUM:
        s = v[0]
        for r in range(1, v.shape[0]):
            s += v[r]
        return s
    for a in range(1, v.shape[0]):
        x, j = v[a], a
        while j > 0 and v[j - 1] > x:
            v[j] = v[j - 1]
            j -= 1
        v[j] = x
    n = v.shape[0]
    return v[0] if kind == MINIMUM else (v[n // 2] + v[(n - 1) // 2]) * np.float32(0.5)


@kernel(fastmath=False)
def score(
    p: Array, codes: Array, i: int, n_repetitions: int, n_buckets: int, kind: int, v: Array
) -> Any:
    """Return the exact score of class `i`: `p` float32 (C,), `codes` (K * R,), `v` scratch (R,)."""
    for r in range(n_repetitions):
        v[r] = p[r * n_buckets + np.int64(codes[i * n_repetitions + r])]
    return aggregate(v, kind)


@kernel(fastmath=False)
def offer(s: Number, i: int, scores: Array, ids: Array) -> None:
    """Insert class `i` with score `s` into the k best, if it belongs there."""
    # `scores` float32 (k,) and `ids` int64 (k,) are sorted, best first; classes come in rising
    # order, so that of equal scores the smaller id is first.
    j = scores.shape[0] - 1
    if not s > scores[j]:
        return
    while j > 0 and s > scores[j - 1]:
        scores[j], ids[j] = scores[j - 1], ids[j - 1]
        j -= 1
    scores[j], ids[j] = s, i


@kernel(fastmath=False)
def decode_one(
    p: Array,
    codes: Array,
    n_classes: int,
    n_repetitions: int,
    n_buckets: int,
    kind: int,
    scores: Array,
    ids: Array,
) -> None:
    """Score every class of each row: `p` float32 (n, C), results (n, k), k <= K."""
    v = np.empty(n_repetitions, np.float32)
    for q in range(p.shape[0]):
        row, best, where = p[q], scores[q], ids[q]
        best[:], where[:] = -np.inf, -1
        for i in range(n_classes):
            offer(score(row, codes, i, n_repetitions, n_buckets, kind, v), i, best, where)


@kernel(inline=True)
def extremes(v: Array) -> Any:
    """Return the largest value and the largest magnitude of `v` float32 (B,)."""
    top, low = v[0], v[0]
    for b in range(v.shape[0]):
        top = max(top, v[b])
        low = min(low, v[b])
    return top, max(top, -low)


@kernel(inline=True)
def lay_out(
    p: Array, n_repetitions: int, n_buckets: int, by_column: Array, best: Array, slack: Array
) -> None:
    """Bring up to 64 rows side by side, and find what bounds their scores.

    Parameters
    ----------
    p : float32 (n, C)
        The rows.
    by_column : float32 (C * 64,)
        Receives ``p[q, c]`` at ``64 c + q``.
    best : float32 (R, 64)
        Receives the best value of each model.
    slack : float64 (64,)
        Receives an upper bound of every float32 sum.
    """
    columns = n_repetitions * n_buckets
    for first in range(0, columns, 16):
        for q in range(p.shape[0]):
            for c in range(first, min(columns, first + 16)):
                by_column[c * LANES + q] = p[q, c]
    for q in range(p.shape[0]):
        total, size = 0.0, 0.0
        for r in range(n_repetitions):
            top, magnitude = extremes(p[q, r * n_buckets : (r + 1) * n_buckets])
            best[r, q] = top
            total += np.float64(top)
            size += np.float64(magnitude)
        slack[q] = total + size * n_repetitions * 2.0**-22


@kernel(inline=True)
def write_deficits(
    by_column: Array, best: Array, units: Array, n_repetitions: int, n_buckets: int, table: Array
) -> None:
    """Write the deficits of all buckets in units of 1 / `units`: `table` uint8 (C * 64,)."""
    most = np.float32(255)
    for r in range(n_repetitions):
        tops = best[r]
        for c in range(r * n_buckets, (r + 1) * n_buckets):
            values, out = by_column[c * LANES : (c + 1) * LANES], table[c * LANES : (c + 1) * LANES]
            for q in range(LANES):
                d = (tops[q] - values[q]) * units[q]
                out[q] = np.uint8(np.int32(d if d < most else most))


@kernel(inline=True)
def write_below(by_column: Array, thresholds: Array, n_columns: int, table: Array) -> None:
    """Write 1 for each bucket whose value is below the row's threshold: `table` uint8 (C * 64,)."""
    for c in range(n_columns):
        values, out = by_column[c * LANES : (c + 1) * LANES], table[c * LANES : (c + 1) * LANES]
        for q in range(LANES):
            out[q] = np.uint8(values[q] < thresholds[q])


@kernel(fastmath=False)
def limit_of(room: Number, unit: Number) -> Any:
    """Return the largest sum of deficits that a score with `room` to the slack can have."""
    return np.uint8(max(0.0, min(FULL_UNIT, room * unit * 1.000001)))


@kernel(fastmath=False)
def next_above(x: Number) -> Any:
    """Return the next float32 above `x`."""
    return np.nextafter(np.float32(x), np.float32(np.inf))


@kernel(fastmath=False)
def set_limits(
    n: int,
    kind: int,
    n_repetitions: int,
    n_buckets: int,
    scores: Array,
    slack: Array,
    by_column: Array,
    best: Array,
    units: Array,
    thresholds: Array,
    limits: Array,
    table: Array,
) -> None:
    """Bring limits, and where it pays the table, up to the present k-th best scores."""
    rewrite = kind != SUM
    for q in range(n):
        theta = next_above(scores[q, -1])
        if kind == SUM:
            room = slack[q] - np.float64(theta)
            if room >= 0 and room * units[q] < WORN_UNIT:
                units[q] = np.float32(FULL_UNIT / max(room, 1e-30))
                rewrite = True
            limits[q] = limit_of(room, np.float64(units[q]))
        elif kind == MINIMUM:
            thresholds[q], limits[q] = theta, 0
        else:
            thresholds[q], limits[q] = theta - abs(theta) * np.float32(2.0**-22), n_repetitions // 2
    if rewrite and kind == SUM:
        write_deficits(by_column, best, units, n_repetitions, n_buckets, table)
    elif rewrite:
        write_below(by_column, thresholds, n_repetitions * n_buckets, table)


@kernel(fastmath=False)
def decode_tile(
    p: Array,
    codes: Array,
    n_classes: int,
    n_repetitions: int,
    n_buckets: int,
    kind: int,
    by_column: Array,
    table: Array,
    scores: Array,
    ids: Array,
) -> None:
    """Find the k best classes of up to 64 rows: see the module's text.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms of n <= 64 rows.
    codes : unsigned (K * R,)
        Buckets of the classes, class by class.
    n_classes, n_repetitions, n_buckets, kind : int
        K, R, B, and SUM, MINIMUM or MEDIAN.
    by_column, table : float32 (C * 64,), uint8 (C * 64,)
        Scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k <= K best, best first.
    """
    n, k = scores.shape
    v, best = np.empty(n_repetitions, np.float32), np.zeros((n_repetitions, LANES), np.float32)
    slack, units = np.zeros(LANES), np.zeros(LANES, np.float32)
    thresholds = np.full(LANES, np.float32(np.inf))
    limits = np.zeros(LANES, np.uint8)
    start = min(n_classes, max(FIRST_CLASSES, k))
    decode_one(p, codes, start, n_repetitions, n_buckets, kind, scores, ids)
    lay_out(p, n_repetitions, n_buckets, by_column, best, slack)
    size = FIRST_SCAN
    while start < n_classes:
        set_limits(
            n, kind, n_repetitions, n_buckets, scores, slack, by_column, best, units, thresholds,
            limits, table,
        )  # fmt: skip
        stop = min(n_classes, start + size)
        for i in range(start, stop):
            lanes = lanes_within(table, codes, i * n_repetitions, n_repetitions, n_buckets, limits)
            while lanes:
                q = np.int64(trailing_zeros(lanes))
                lanes &= lanes - np.uint64(1)
                if q >= n:
                    break
                offer(
                    score(p[q], codes, i, n_repetitions, n_buckets, kind, v), i, scores[q], ids[q]
                )
                if kind == SUM:
                    room = slack[q] - np.float64(next_above(scores[q, k - 1]))
                    limits[q] = limit_of(room, np.float64(units[q]))
        start, size = stop, size * 2
