"""Exact top-k classes of up to 64 rows, 64 rows to a vector: the sums of one class at a time.

All classes are scanned with 8-bit sums, and only those scored that such a sum does not rule out:

- With theta the k-th best score so far, or a number below the k-th best score of all, ``slack``
  the sum of the best values of all models plus twice the rounding error of R float32 additions,
  and ``D = slack - theta``, the deficit of bucket b is ``floor((max P_r - P_r[b]) * unit)``, at
  most 255, with ``unit = 254 / D``. A class with a score of at least theta lacks at most D in all,
  so its deficits sum to at most ``D * unit``; the limit has a margin of 1e-6 for the rounding of
  the products.
- Theta only rises, and a class met later needs more than theta, since ties go to the smaller id.
  So limits move, and the table is written again with a finer unit once D has shrunk enough.
- Minimum: the deficit is 1 where ``P_r[b]`` is theta or less, and the limit 0. Median: the limit is
  R // 2, since a median is no more than the larger of the values in the middle, rounded or not.
- A first theta comes from the exact scores of some classes. A better one comes from 8-bit sums:
  where k classes have sums of at most s < 255, each has a score of at least
  ``slack - (s + R) / unit`` less these errors, and so has the k-th best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streammach.backends.cpu.decode import CodedClasses, decode_one, score
from streammach.options.estimators import MINIMUM, SUM
from streammach.rows.arrays import offer
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import LANES, aligned_zeros, keep_smaller, lanes_within, trailing_zeros

FIRST_CLASSES = 64  # scored exactly for a first theta
FIRST_SCAN = 512  # classes scanned before the limits are looked at again; doubles each time
SEED_CLASSES = 2048  # whose 8-bit sums give a better one
FULL_UNIT, WORN_UNIT = 254.0, 160.0  # of the limit of a deficit, and when it is written again


class TileRoom(NamedTuple):
    """A thread's scratch for up to 64 rows, which stand side by side."""

    by_column: Array  # float32 (C * 64,): the values, that of row q in column c at ``64 c + q``
    table: Array  # uint8 (C * 64,): their deficits
    best: Array  # float32 (R, 64): the largest value of each model
    worst: Array  # float32 (R, 64): the smallest
    v: Array  # float32 (R,)
    units: Array  # float32 (64,): of a row's deficits
    thresholds: Array  # float32 (64,): what values are compared with, but for SUM
    slack: Array  # float64 (64,): upper bounds of all sums
    error: Array  # float64 (64,): twice what their rounding may come to
    limits: Array  # uint8 (64,): of a row's sums
    sums: Array  # uint8 (64,): sums that k classes do not exceed
    some: Array  # uint8 (64,)

    @classmethod
    def of(cls, n_repetitions: int, n_columns: int) -> TileRoom:
        """Return scratch for models of R and C."""
        r = n_repetitions
        return cls(
            aligned_zeros(4 * LANES * n_columns).view(np.float32), aligned_zeros(LANES * n_columns),
            *(np.empty(shape, np.float32) for shape in ((r, LANES), (r, LANES), r, LANES, LANES)),
            *(np.empty(LANES) for _ in range(2)), *(aligned_zeros(LANES) for _ in range(3)),
        )  # fmt: skip


@kernel(fastmath=False, inner=True)
def next_above(x: Number) -> Any:
    """Return the next float32 above `x`."""
    return np.nextafter(np.float32(x), np.float32(np.inf))


@kernel(fastmath=False, inner=True)
def next_below(x: Number) -> Any:
    """Return the next float32 below the float32 nearest to `x`."""
    return np.nextafter(np.float32(x), np.float32(-np.inf))


@kernel(fastmath=False, inner=True)
def limit_of(room: Number, unit: Number) -> Any:
    """Return the largest sum of deficits that a score with `room` to the slack can have."""
    return np.uint8(max(0.0, min(FULL_UNIT, room * unit * 1.000001)))


@kernel(fastmath=False, inner=True)
def raise_best(theta: Number, scores: Array, ids: Array) -> None:
    """Have the k best of a row exceed a number that is below the k-th best score of all."""
    j = scores.shape[0] - 1
    while j >= 0 and scores[j] <= theta:
        scores[j], ids[j] = theta, -1
        j -= 1


@kernel(inline=True)
def lay_out(p: Array, n_buckets: int, room: TileRoom) -> None:
    """Bring up to 64 rows float32 (n, C) side by side, and find what bounds their scores."""
    n, n_repetitions = p.shape[0], room.best.shape[0]
    for r in range(n_repetitions):
        tops, lows = room.best[r], room.worst[r]
        tops[:], lows[:] = -np.inf, np.inf
        stop = (r + 1) * n_buckets
        for first in range(r * n_buckets, stop, 16):
            last = min(stop, first + 16)
            for q in range(n):
                row = p[q]
                for c in range(first, last):
                    room.by_column[c * LANES + q] = row[c]
            for c in range(first, last):
                values = room.by_column[c * LANES : (c + 1) * LANES]
                for q in range(LANES):  # no call of max: lanes, not a reduction
                    x = values[q]
                    tops[q] = x if x > tops[q] else tops[q]
                    lows[q] = x if x < lows[q] else lows[q]
    for q in range(n):
        total, size = 0.0, 0.0
        for r in range(n_repetitions):
            total += np.float64(room.best[r, q])
            size += np.float64(max(room.best[r, q], -room.worst[r, q]))
        room.error[q] = size * n_repetitions * 2.0**-22
        room.slack[q] = total + room.error[q]


@kernel(fastmath=False)
def write_table(model: CodedClasses, room: TileRoom) -> None:
    """Write deficits in units of 1 / `units`; but for SUM 1 below the threshold."""
    most, units = np.float32(255), room.units
    for r in range(model.n_repetitions):
        tops = room.best[r]
        for c in range(r * model.n_buckets, (r + 1) * model.n_buckets):
            some = slice(c * LANES, (c + 1) * LANES)
            values, out = room.by_column[some], room.table[some]
            if model.kind != SUM:
                for q in range(LANES):
                    out[q] = np.uint8(values[q] < room.thresholds[q])
            else:
                for q in range(LANES):
                    d = (tops[q] - values[q]) * units[q]
                    out[q] = np.uint8(np.int32(d if d < most else most))


@kernel(fastmath=False, inner=True)
def seed_sums(model: CodedClasses, first: int, last: int, k: int, room: TileRoom) -> bool:
    """Find sums that k classes do not exceed; return whether there are enough classes."""
    each, some, sums = min(max(SEED_CLASSES // k, 8), (last - first) // k), room.some, room.sums
    if each == 0:
        return False
    sums[:] = 0
    r, b, i = model.n_repetitions, model.n_buckets, first
    for _ in range(k):
        some[:] = 255
        for _ in range(each):
            keep_smaller(room.table, model.codes, i * r, r, b, some)
            i += 1
        for q in range(LANES):
            sums[q] = max(sums[q], some[q])
    return True


@kernel(fastmath=False, inner=True)
def raise_bounds(n_repetitions: int, room: TileRoom, scores: Array, ids: Array) -> None:
    """Have the k best exceed what the sums of k classes prove."""
    for q in range(scores.shape[0]):
        unit, sums = np.float64(room.units[q]), room.sums[q]
        if sums < 255 and unit > 0:
            lacks = (sums + n_repetitions + 1) / unit * 1.000001
            theta = room.slack[q] - 2 * room.error[q] - lacks
            raise_best(next_below(theta), scores[q], ids[q])


@kernel(fastmath=False, inner=True)
def set_limits(model: CodedClasses, room: TileRoom, scores: Array) -> None:
    """Bring limits, and where it pays the table, up to the present k-th best scores."""
    rewrite, units, limits = model.kind != SUM, room.units, room.limits
    for q in range(scores.shape[0]):
        theta = next_above(scores[q, -1])
        if model.kind != SUM:
            limits[q] = 0 if model.kind == MINIMUM else model.n_repetitions // 2
            room.thresholds[q] = theta
        else:
            left = room.slack[q] - np.float64(theta)
            if left >= 0 and left * units[q] < WORN_UNIT:
                units[q] = np.float32(FULL_UNIT / max(left, 1e-30))
                rewrite = True
            limits[q] = limit_of(left, np.float64(units[q]))
    if rewrite:
        write_table(model, room)


@kernel(fastmath=False, inner=True)
def offer_lanes(
    lanes: Number, i: int, p: Array, model: CodedClasses, room: TileRoom, scores: Array, ids: Array
) -> None:
    """Score class `i` for those rows that have their bit."""
    k = scores.shape[1]
    while lanes:
        q = int(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        s = score(p[q], model, i, room.v)
        if not s > scores[q, k - 1]:
            continue
        offer(s, i, scores[q], ids[q])
        if model.kind == SUM:
            left = room.slack[q] - np.float64(next_above(scores[q, k - 1]))
            room.limits[q] = limit_of(left, np.float64(room.units[q]))


@kernel(fastmath=False)
def decode_tile(
    p: Array, model: CodedClasses, first: int, last: int, room: TileRoom, scores: Array, ids: Array
) -> None:
    """Find the k best of the classes ``first:last`` for up to 64 rows: see the module's text.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms of n <= 64 rows.
    model, first, last, room : CodedClasses, int and TileRoom
        The classes, class by class; scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    n, k = scores.shape
    r, b, start = model.n_repetitions, model.n_buckets, min(last, first + max(FIRST_CLASSES, k))
    decode_one(p, model, first, start, room.v, scores, ids)
    if start == last:
        return
    room.slack[:], room.error[:], room.units[:] = 0, 0, 0
    room.thresholds[:], room.limits[:] = np.inf, 0
    lay_out(p, b, room)
    if model.kind == SUM:
        set_limits(model, room, scores)
        if seed_sums(model, first, last, k, room):
            raise_bounds(r, room, scores, ids)
    present = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(LANES - n)
    size = FIRST_SCAN
    while start < last:
        set_limits(model, room, scores)
        stop = min(last, start + size)
        for i in range(start, stop):
            lanes = lanes_within(room.table, model.codes, i * r, r, b, room.limits) & present
            if lanes:
                offer_lanes(lanes, i, p, model, room, scores, ids)
        start, size = stop, size * 2
