"""Exact top-k classes of up to 64 rows, 64 rows to a vector: the sums of one class at a time.

Beside the deficits of `decode` there is the surplus, by which peaked probabilities can be told
apart more finely, since most buckets hold about nothing: that of bucket b is
``ceil((P_r[b] - min P_r) * unit)``, at most 255. A class with a score of at least theta has sums of
at least ``(theta - sum of the worst values) * unit`` less the errors. The unit that is finer for
more of the rows is taken for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.backends.cpu.decode import (
    FULL_UNIT,
    WORN_UNIT,
    decode_one,
    limit_of,
    next_above,
    next_below,
    offer,
    raised,
    score,
)
from streammach.jit import Array, Number, kernel
from streammach.simd import (
    LANES,
    keep_larger,
    keep_smaller,
    lanes_at_least,
    lanes_within,
    trailing_zeros,
)
from streammach.spec.estimators import MINIMUM, SUM

FIRST_CLASSES = 64  # scored exactly for a first theta
FIRST_SCAN = 512  # classes scanned before the limits are looked at again; doubles each time
SEED_CLASSES = 2048  # whose 8-bit sums give a better one
LOW_UNIT, AIM, HIGH_UNIT = 160.0, 220.0, 240.0  # of the limit of a surplus


@kernel(inline=True)
def lay_out(
    p: Array, n_repetitions: int, n_buckets: int, by_column: Array, best: Array, worst: Array,
    slack: Array, error: Array, base: Array,
) -> None:  # fmt: skip
    """Bring up to 64 rows side by side, and find what bounds their scores.

    Parameters
    ----------
    p : float32 (n, C)
        The rows.
    by_column : float32 (C * 64,)
        Receives ``p[q, c]`` at ``64 c + q``.
    best, worst : float32 (R, 64)
        Receive the largest and the smallest value of each model.
    slack, error, base : float64 (64,)
        Receive an upper bound of every float32 sum, twice what its rounding may come to, and the
        sum of the smallest values and of that.
    """
    n = p.shape[0]
    for r in range(n_repetitions):
        tops, lows = best[r], worst[r]
        tops[:], lows[:] = -np.inf, np.inf
        stop = (r + 1) * n_buckets
        for first in range(r * n_buckets, stop, 16):
            last = min(stop, first + 16)
            for q in range(n):
                row = p[q]
                for c in range(first, last):
                    by_column[c * LANES + q] = row[c]
            for c in range(first, last):
                values = by_column[c * LANES : (c + 1) * LANES]
                for q in range(LANES):  # no call of max: lanes, not a reduction
                    x = values[q]
                    tops[q] = x if x > tops[q] else tops[q]
                    lows[q] = x if x < lows[q] else lows[q]
    for q in range(n):
        total, low, size = 0.0, 0.0, 0.0
        for r in range(n_repetitions):
            total += np.float64(best[r, q])
            low += np.float64(worst[r, q])
            size += np.float64(max(best[r, q], -worst[r, q]))
        error[q] = size * n_repetitions * 2.0**-22
        slack[q], base[q] = total + error[q], low + error[q]


@kernel(fastmath=False, allocates=False)
def write_deficits(
    by_column: Array, best: Array, units: Array, n_buckets: int, table: Array
) -> None:
    """Write the deficits of all buckets in units of 1 / `units`: `table` uint8 (C * 64,)."""
    most = np.float32(255)
    for r in range(best.shape[0]):
        tops = best[r]
        for c in range(r * n_buckets, (r + 1) * n_buckets):
            values, out = by_column[c * LANES : (c + 1) * LANES], table[c * LANES : (c + 1) * LANES]
            for q in range(LANES):
                d = (tops[q] - values[q]) * units[q]
                out[q] = np.uint8(np.int32(d if d < most else most))


@kernel(fastmath=False, allocates=False)
def write_surplus(
    by_column: Array, worst: Array, units: Array, n_buckets: int, table: Array
) -> None:
    """Write the surpluses of all buckets in units of 1 / `units`: `table` uint8 (C * 64,)."""
    most, almost = np.float32(255), np.float32(0.99999994)
    for r in range(worst.shape[0]):
        lows = worst[r]
        for c in range(r * n_buckets, (r + 1) * n_buckets):
            values, out = by_column[c * LANES : (c + 1) * LANES], table[c * LANES : (c + 1) * LANES]
            for q in range(LANES):
                d = (values[q] - lows[q]) * units[q] + almost
                out[q] = np.uint8(np.int32(d if d < most else most))


@kernel(fastmath=False, allocates=False)
def write_below(by_column: Array, thresholds: Array, n_columns: int, table: Array) -> None:
    """Write 1 for each bucket whose value is below the row's threshold: `table` uint8 (C * 64,)."""
    for c in range(n_columns):
        values, out = by_column[c * LANES : (c + 1) * LANES], table[c * LANES : (c + 1) * LANES]
        for q in range(LANES):
            out[q] = np.uint8(values[q] < thresholds[q])


@kernel(fastmath=False, allocates=False)
def least_of(need: Number, unit: Number) -> Any:
    """Return the smallest sum of surpluses that a score which needs so much can have."""
    # 0.01: what numbers just above a whole one lose when they are rounded up.
    return np.uint8(max(0.0, min(255.0, need * unit * 0.999998 - 0.01)))


@kernel(fastmath=False, allocates=False)
def prefers_surplus(scores: Array, slack: Array, base: Array) -> Any:
    """Return whether for most rows the k-th best is nearer to the worst sum than to the best."""
    votes = 0
    for q in range(scores.shape[0]):
        theta = np.float64(scores[q, -1])
        votes += theta > base[q] and theta - base[q] < slack[q] - theta
    return votes * 2 > scores.shape[0]


@kernel(fastmath=False, allocates=False)
def seed_sums(
    codes: Array, first: int, last: int, k: int, n_repetitions: int, n_buckets: int, up: bool,
    table: Array, some: Array, found: Array,
) -> bool:  # fmt: skip
    """Find sums that k classes reach (surplus) or do not exceed (deficits): uint8 (64,)."""
    # `some` uint8 (64,) is scratch.
    each = min(max(SEED_CLASSES // k, 8), (last - first) // k)
    if each == 0:
        return False
    found[:] = 255 if up else 0
    i = first
    for _ in range(k):
        some[:] = 0 if up else 255
        for _ in range(each):
            if up:
                keep_larger(table, codes, i * n_repetitions, n_repetitions, n_buckets, some)
            else:
                keep_smaller(table, codes, i * n_repetitions, n_repetitions, n_buckets, some)
            i += 1
        for q in range(LANES):
            if up:
                found[q] = min(found[q], some[q])
            else:
                found[q] = max(found[q], some[q])
    return True


@kernel(fastmath=False, allocates=False)
def raise_bounds(
    up: bool, n_repetitions: int, found: Array, units: Array, slack: Array, base: Array,
    error: Array, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Have the k best exceed what the sums of k classes prove."""
    for q in range(scores.shape[0]):
        unit = np.float64(units[q])
        if up and found[q] > n_repetitions and unit > 0:
            gain = (found[q] - n_repetitions) / unit * 0.999998
            theta = base[q] - 2 * error[q] + gain
        elif not up and found[q] < 255 and unit > 0:
            theta = slack[q] - 2 * error[q] - (found[q] + n_repetitions + 1) / unit * 1.000001
        else:
            continue
        raised(next_below(theta), scores[q], ids[q])


@kernel(fastmath=False, allocates=False)
def set_limits(
    kind: int, up: bool, n_buckets: int, by_column: Array, best: Array, worst: Array,
    slack: Array, base: Array, units: Array, thresholds: Array, limits: Array, table: Array,
    scores: Array,
) -> None:  # fmt: skip
    """Bring limits, and where it pays the table, up to the present k-th best scores."""
    rewrite, n_repetitions = kind != SUM, best.shape[0]
    for q in range(scores.shape[0]):
        theta = next_above(scores[q, -1])
        if kind != SUM:
            thresholds[q], limits[q] = theta, 0 if kind == MINIMUM else n_repetitions // 2
        elif up:
            need, unit = np.float64(theta) - base[q], np.float64(units[q])
            if unit == 0 or (need > 0 and not LOW_UNIT <= need * unit <= HIGH_UNIT):
                units[q] = np.float32(AIM / max(need if need > 0 else slack[q] - base[q], 1e-30))
                rewrite = True
            limits[q] = least_of(need, np.float64(units[q]))
        else:
            room = slack[q] - np.float64(theta)
            if room >= 0 and room * units[q] < WORN_UNIT:
                units[q] = np.float32(FULL_UNIT / max(room, 1e-30))
                rewrite = True
            limits[q] = limit_of(room, np.float64(units[q]))
    if not rewrite:
        return
    if kind != SUM:
        write_below(by_column, thresholds, n_repetitions * n_buckets, table)
    elif up:
        write_surplus(by_column, worst, units, n_buckets, table)
    else:
        write_deficits(by_column, best, units, n_buckets, table)


@kernel(fastmath=False, allocates=False)
def offer_lanes(
    lanes: Number, i: int, p: Array, codes: Array, n_buckets: int, kind: int, up: bool, v: Array,
    slack: Array, base: Array, units: Array, limits: Array, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Score class `i` for those rows that have their bit; `base` comes with its error."""
    at, k = i * v.shape[0], scores.shape[1]
    while lanes:
        q = int(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        s = score(p[q], codes, at, 1, n_buckets, kind, v)
        if not s > scores[q, k - 1]:
            continue
        offer(s, i, scores[q], ids[q])
        theta = np.float64(next_above(scores[q, k - 1]))
        if up:
            limits[q] = least_of(theta - base[q], np.float64(units[q]))
        elif kind == SUM:
            limits[q] = limit_of(slack[q] - theta, np.float64(units[q]))


@kernel(fastmath=False, allocates=False)
def decode_tile(
    p: Array,
    codes: Array,
    first: int,
    last: int,
    n_repetitions: int,
    n_buckets: int,
    kind: int,
    by_column: Array,
    table: Array,
    floats: Array,
    numbers: Array,
    bytes_: Array,
    scores: Array,
    ids: Array,
) -> None:
    """Find the k best of the classes ``first:last`` for up to 64 rows: see the module's text.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms of n <= 64 rows.
    codes : unsigned (K * R,)
        Buckets of the classes, class by class.
    first, last, n_repetitions, n_buckets, kind : int
        The classes, R, B, and SUM, MINIMUM or MEDIAN.
    by_column, table, floats : float32 (C * 64,), uint8 (C * 64,), float32 (128 + 129 * R,)
        Scratch.
    numbers, bytes_ : float64 (192,), uint8 (192,)
        Scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    n, k = scores.shape
    start = min(last, first + max(FIRST_CLASSES, k))
    units, thresholds, v = floats[:LANES], floats[LANES : 2 * LANES], floats[2 * LANES :]
    v, values = v[:n_repetitions], v[n_repetitions:]
    decode_one(p, codes, first, start, n_repetitions, n_buckets, kind, v, scores, ids)
    if start == last:
        return
    size = n_repetitions * LANES
    best = values[:size].reshape(n_repetitions, LANES)
    worst = values[size : 2 * size].reshape(n_repetitions, LANES)
    slack, error, base = numbers[:LANES], numbers[LANES : 2 * LANES], numbers[2 * LANES :]
    limits, found, some = bytes_[:LANES], bytes_[LANES : 2 * LANES], bytes_[2 * LANES :]
    numbers[:], units[:], thresholds[:], limits[:] = 0, 0, np.inf, 0
    lay_out(p, n_repetitions, n_buckets, by_column, best, worst, slack, error, base)
    up = kind == SUM and prefers_surplus(scores, slack, base)
    for _ in range((2 if up else 1) if kind == SUM else 0):
        set_limits(
            kind, up, n_buckets, by_column, best, worst, slack, base, units, thresholds, limits,
            table, scores,
        )  # fmt: skip
        if up:  # sums of twice what is known are to be told apart
            for q in range(n):
                units[q] *= np.float32(0.5)
            write_surplus(by_column, worst, units, n_buckets, table)
        if seed_sums(codes, first, last, k, n_repetitions, n_buckets, up, table, some, found):
            raise_bounds(up, n_repetitions, found, units, slack, base, error, scores, ids)
    present = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(LANES - n)
    size = FIRST_SCAN
    while start < last:
        set_limits(
            kind, up, n_buckets, by_column, best, worst, slack, base, units, thresholds, limits,
            table, scores,
        )  # fmt: skip
        stop = min(last, start + size)
        for i in range(start, stop):
            at = i * n_repetitions
            if up:
                lanes = lanes_at_least(table, codes, at, n_repetitions, n_buckets, limits)
            else:
                lanes = lanes_within(table, codes, at, n_repetitions, n_buckets, limits)
            if lanes & present:
                offer_lanes(
                    lanes & present, i, p, codes, n_buckets, kind, up, v, slack, base, units,
                    limits, scores, ids,
                )  # fmt: skip
        start, size = stop, size * 2
