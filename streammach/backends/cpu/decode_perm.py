"""Exact top-k classes, 64 classes to a vector: each instruction looks up the buckets of 64 classes.

Classes lie in blocks of 64, and the deficits (see `decode`) of a model's B <= 256 buckets are a
table in the lanes of vectors. Four rows share the codes that were loaded; a single row has its
table looked up for four blocks at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import (
    FULL_UNIT,
    WORN_UNIT,
    limit_of,
    next_above,
    next_below,
    offer,
    raised,
    score,
)
from streammach.backends.cpu.permutes import BLOCKS, permuted_least, permuted_within
from streammach.jit import Array, Number, kernel
from streammach.simd import LANES, aligned, lay_in_blocks, trailing_zeros
from streammach.spec.estimators import MINIMUM, SUM
from streammach.spec.model import ModelSpec

SPARE = max(BLOCKS.values()) - 1  # blocks that may be looked at beyond the last one
MOST_BLOCKS = 256  # scanned before the limits are looked at again; a first few, then twice as many
LAID_CLASSES = 1 << 16  # whose codes are made at once
SEED_BLOCKS = 16  # times 4, whose best sums give a bound
WITHIN_64, WITHIN_128, WITHIN_256 = (permuted_within(width, 1) for width in (64, 128, 256))
FOUR_64, FOUR_128, FOUR_256 = (permuted_within(width, 4) for width in (64, 128, 256))
LEAST_64, LEAST_128, LEAST_256 = (permuted_least(width) for width in (64, 128, 256))


def n_blocks(n_classes: int) -> int:
    """Return the blocks that so many classes are laid out in, with those that may be read."""
    return -(-n_classes // LANES) + SPARE


def in_blocks(spec: ModelSpec) -> NDArray[np.uint8]:
    """Return all codes in blocks of 64 classes: uint8 (blocks * R * 64,), zeros for no class."""
    out = aligned(n_blocks(spec.n_classes) * spec.n_repetitions * LANES)
    blocks = out.reshape(-1, spec.n_repetitions, LANES)
    for first in range(0, spec.n_classes, LAID_CLASSES):
        some = spec.codes(first, min(first + LAID_CLASSES, spec.n_classes))
        lay_in_blocks(some, blocks[first // LANES :])
    return out


@kernel(fastmath=False, allocates=False)
def bounds_of(v: Array) -> tuple[Number, Number]:
    """Return the largest value and the largest magnitude of `v` float32 (B,)."""
    top, low = v[0], v[0]
    for b in range(1, v.shape[0]):
        x = v[b]
        top = x if x > top else top
        low = x if x < low else low
    return top, max(top, -low)


@kernel(fastmath=False, allocates=False)
def write_row(
    row: Array, best: Array, unit: Number, theta: Number, kind: int, n_buckets: int, width: int,
    start: int, tables: Array,
) -> None:  # fmt: skip
    """Write the deficits of one row: that of bucket b in model r at ``start + r * width + b``."""
    most = np.float32(255)
    for r in range(best.shape[0]):
        values, top = row[r * n_buckets : (r + 1) * n_buckets], best[r]
        out = tables[start + r * width : start + r * width + n_buckets]
        if kind == SUM:
            for b in range(n_buckets):
                d = (top - values[b]) * unit
                out[b] = np.uint8(np.int32(d if d < most else most))
        else:
            for b in range(n_buckets):
                out[b] = np.uint8(values[b] < theta)


@kernel(fastmath=False, allocates=False)
def kth_smallest(values: Array, k: int, counts: Array) -> int:
    """Return the k-th smallest of uint8 (n,), n >= k; `counts` int32 (256,) is scratch."""
    counts[:] = 0
    for x in values:
        counts[x] += 1
    seen, found = 0, 0
    while found < 255:
        seen += counts[found]
        if seen >= k:
            break
        found += 1
    return found


@kernel(fastmath=False, allocates=False)
def within_limits(
    width: int, n_tables: int, tables: Array, table: int, step: int, codes: Array, first: int,
    n_repetitions: int, limits: Array, limit: int, masks: Array,
) -> Number:  # fmt: skip
    """Call the one of :func:`permuted_within` for a width and 1 or 4 tables."""
    if n_tables == 1:
        if width == 64:
            return WITHIN_64(tables, table, step, codes, first, n_repetitions, limits, limit, masks)
        if width == 128:
            return WITHIN_128(
                tables, table, step, codes, first, n_repetitions, limits, limit, masks
            )
        return WITHIN_256(tables, table, step, codes, first, n_repetitions, limits, limit, masks)
    if width == 64:
        return FOUR_64(tables, table, step, codes, first, n_repetitions, limits, limit, masks)
    if width == 128:
        return FOUR_128(tables, table, step, codes, first, n_repetitions, limits, limit, masks)
    return FOUR_256(tables, table, step, codes, first, n_repetitions, limits, limit, masks)


@kernel(fastmath=False, allocates=False)
def seed_sum(
    codes: Array, first: int, last: int, k: int, n_repetitions: int, width: int, tables: Array,
    start: int, counts: Array, least: Array,
) -> int:  # fmt: skip
    """Return a sum of deficits that k of the classes ``first:last`` do not exceed, or 255."""
    # `counts` int32 (256,) and `least` uint8, 64 for each 64 of k, are scratch.
    group = SPARE + 1
    whole = (last - first) // (group * LANES)
    vectors = (k + LANES - 1) // LANES
    each = min(SEED_BLOCKS, whole // vectors)
    if each == 0:
        return 255
    least[: vectors * LANES] = 255
    at, more = first * n_repetitions, group * LANES * n_repetitions
    for i in range(vectors):
        for _ in range(each):
            if width == 64:
                LEAST_64(tables, start, codes, at, n_repetitions, least, i * LANES)
            elif width == 128:
                LEAST_128(tables, start, codes, at, n_repetitions, least, i * LANES)
            else:
                LEAST_256(tables, start, codes, at, n_repetitions, least, i * LANES)
            at += more
    return kth_smallest(least[: vectors * LANES], k, counts)


@kernel(inline=True)
def begin_row(
    row: Array, codes: Array, first: int, start: int, n_buckets: int, kind: int, v: Array,
    best: Array, scores: Array, ids: Array,
) -> tuple[Number, Number]:  # fmt: skip
    """Score the classes ``first:start`` of one row, and find what bounds all scores.

    Parameters
    ----------
    row, codes : float32 (C,), uint8 (n,)
        A row, and the codes in blocks.
    first, start, n_buckets, kind : int
        The classes, B, and SUM, MINIMUM or MEDIAN.
    v : float32 (R,)
        Scratch.
    best : float32 (R,)
        Receives the largest value of each model.
    scores, ids : float32 (k,), int64 (k,)
        Receive the best of these classes.

    Returns
    -------
    slack, error : float64
        An upper bound of every float32 sum, and twice what its rounding may come to.
    """
    total, size, n_repetitions = 0.0, 0.0, best.shape[0]
    for r in range(n_repetitions):
        top, magnitude = bounds_of(row[r * n_buckets : (r + 1) * n_buckets])
        best[r] = top
        total += np.float64(top)
        size += np.float64(magnitude)
    error = size * n_repetitions * 2.0**-22
    scores[:], ids[:] = -np.inf, -1
    for i in range(first, start):
        at = i // LANES * LANES * n_repetitions + i % LANES
        offer(score(row, codes, at, LANES, n_buckets, kind, v), i, scores, ids)
    return total + error, error


@kernel(fastmath=False, allocates=False)
def set_limit(
    row: Array, q: int, kind: int, n_buckets: int, width: int, best: Array, slack: Array,
    units: Array, limits: Array, tables: Array, scores: Array,
) -> None:  # fmt: skip
    """Bring the limit of row `q`, and where it pays its table, up to its present k-th best."""
    theta, n_repetitions = next_above(scores[q, -1]), best.shape[1]
    rewrite = kind != SUM
    if kind == SUM:
        room = slack[q] - np.float64(theta)
        if room >= 0 and room * units[q] < WORN_UNIT:
            units[q] = np.float32(FULL_UNIT / max(room, 1e-30))
            rewrite = True
        limits[q] = limit_of(room, np.float64(units[q]))
    else:
        limits[q] = 0 if kind == MINIMUM else n_repetitions // 2
    if rewrite:
        at = q * n_repetitions * width
        write_row(row, best[q], units[q], theta, kind, n_buckets, width, at, tables)


@kernel(inline=True)
def offer_lanes(
    lanes: Number, begin: int, stop: int, row: Array, codes: Array, n_buckets: int, kind: int,
    v: Array, slack: Number, unit: Number, limit: int, scores: Array, ids: Array,
) -> int:  # fmt: skip
    """Score those classes of a block that have their bit; return the row's limit from there on."""
    at, k = begin * v.shape[0], scores.shape[0]
    while lanes:
        lane = int(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        if begin + lane >= stop:
            break
        s = score(row, codes, at + lane, LANES, n_buckets, kind, v)
        if s > scores[k - 1]:
            offer(s, begin + lane, scores, ids)
            if kind == SUM:
                limit = limit_of(slack - np.float64(next_above(scores[k - 1])), unit)
    return limit


@kernel(fastmath=False, allocates=False)
def decode_perm(
    p: Array,
    codes: Array,
    first: int,
    last: int,
    n_repetitions: int,
    n_buckets: int,
    kind: int,
    width: int,
    tables: Array,
    floats: Array,
    slack: Array,
    masks: Array,
    counts: Array,
    bytes_: Array,
    scores: Array,
    ids: Array,
) -> None:
    """Find the k best of the classes ``first:last`` for up to 64 rows.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms of n <= 64 rows.
    codes : uint8 (n_blocks(K) * R * 64,)
        Buckets of the classes, in blocks.
    first, last : int
        The classes; `first` is a multiple of 64.
    n_repetitions, n_buckets, kind, width : int
        R, B <= 256, SUM, MINIMUM or MEDIAN, and how wide a table of B bytes is held.
    tables, floats, slack : uint8 (n * R * width,), float32 (64 + 65 * R,), float64 (64,)
        Scratch.
    masks, counts, bytes_ : uint64 (8,), int32 (256,), uint8 (64 + k rounded up to 64s,)
        Scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    n, k = scores.shape
    units, v, step = floats[:LANES], floats[LANES : LANES + n_repetitions], n_repetitions * width
    best = floats[LANES + n_repetitions :][: n * n_repetitions].reshape(n, n_repetitions)
    limits, least = bytes_[:LANES], bytes_[LANES:]
    units[:], limits[:] = 0, 0
    start = min(last, first + (k + LANES - 1) // LANES * LANES)
    for q in range(n):
        slack[q], error = begin_row(
            p[q], codes, first, start, n_buckets, kind, v, best[q], scores[q], ids[q]
        )
        if kind == SUM and start < last:
            set_limit(p[q], q, kind, n_buckets, width, best, slack, units, limits, tables, scores)
            s = seed_sum(
                codes, first, last, k, n_repetitions, width, tables, q * step, counts, least
            )
            if s < 255 and units[q] > 0:
                lacks = (s + n_repetitions + 1) / np.float64(units[q]) * 1.000001
                raised(next_below(slack[q] - 2 * error - lacks), scores[q], ids[q])
    size = SPARE + 1
    while start < last:
        stop = min(last, start + size * LANES)
        for q in range(n):
            set_limit(p[q], q, kind, n_buckets, width, best, slack, units, limits, tables, scores)
        q = 0
        while q < n:
            together, blocks = (4, 2) if q + 4 <= n else (1, 4)
            for i in range(start, stop, blocks * LANES):
                if within_limits(
                    width, together, tables, q * step, step, codes, i * n_repetitions,
                    n_repetitions, limits, q, masks,
                ):  # fmt: skip
                    for m in range(together * blocks):
                        if not masks[m]:
                            continue
                        x = q + m // blocks
                        limits[x] = offer_lanes(
                            masks[m], i + m % blocks * LANES, stop, p[x], codes, n_buckets, kind,
                            v, slack[x], np.float64(units[x]), limits[x], scores[x], ids[x],
                        )  # fmt: skip
            q += together
        start, size = stop, min(2 * size, MOST_BLOCKS)
