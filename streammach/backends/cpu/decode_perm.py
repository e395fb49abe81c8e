"""Exact top-k classes, 64 classes to a vector: each instruction looks up the buckets of 64 classes.

Classes lie in blocks of 64, and the deficits (see `decode`) of a model's B <= 256 buckets are a
table in the lanes of vectors. Four rows share the codes that were loaded; a single row has its
table looked up for four blocks at once. It needs a machine where `simd.PERMUTES` is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from streammach.backends.cpu.decode import (
    FULL_UNIT,
    WORN_UNIT,
    CodedClasses,
    limit_of,
    next_above,
    next_below,
    offer,
    raised,
    score,
)
from streammach.jit import ARRAY, Array, Number, intrinsic, kernel
from streammach.simd import (
    BYTES,
    INDEX,
    LANES,
    aligned,
    by_width,
    bytes_function,
    in_blocks,
    looked_up,
    splat,
    table_width,
    trailing_zeros,
    vector_at,
)
from streammach.spec.estimators import MINIMUM, SUM
from streammach.spec.model_spec import ModelSpec

BLOCKS = {1: 4, 4: 2}  # of 64 indices that are looked up together, by how many tables are
SPARE = max(BLOCKS.values()) - 1  # blocks that may be looked at beyond the last one
MOST_BLOCKS = 256  # scanned before the limits are looked at again; a first few, then twice as many
LAID_CLASSES = 1 << 16  # whose codes are made at once
SEED_BLOCKS = 16  # times 4, whose best sums give a bound


class PermRoom(NamedTuple):
    """A thread's scratch for up to 64 rows."""

    width: int  # bytes of a table of B deficits: 64, 128 or 256
    tables: Array  # uint8 (64 * R * width,): deficits, of bucket b at ``(q * R + r) * width + b``
    units: Array  # float32 (64,): of a row's deficits
    v: Array  # float32 (R,)
    best: Array  # float32 (64, R): the largest value of each model
    slack: Array  # float64 (64,): upper bounds of all sums
    limits: Array  # uint8 (64,): of a row's sums of deficits
    masks: Array  # uint64 (8,): classes within them
    counts: Array  # int32 (256,)
    least: Array  # uint8 (k rounded up to 64s,)

    @classmethod
    def of(cls, r: int, n_buckets: int) -> PermRoom:
        """Return scratch for models of R and B, without `least`."""
        width = table_width(n_buckets)
        return cls(
            width, aligned(LANES * r * width), np.empty(LANES, np.float32),
            np.empty(r, np.float32), np.empty((LANES, r), np.float32), np.empty(LANES),
            aligned(LANES), np.empty(8, np.uint64), np.empty(256, np.int32), np.empty(0, np.uint8),
        )  # fmt: skip


def _within(n_tables: int) -> Callable[..., Any]:
    """Return a function for kernels that finds sums of looked-up bytes within limits.

    With 1 or 4 tables, which share the codes of 4 or 2 blocks: lane j of block b has the sum of
    ``tables[q, r, codes[b, r, j]]`` over r in ``range(R)``, in uint8 and stopping at 255. It writes
    to `masks` uint64 (8,), where one is within its limit, bit j of lane j for each table and block;
    it returns a uint64 that is 0 where none is. Arguments are the bytes of a table's part, the
    tables and where the first is, how far they are from one another, codes in blocks and where
    those of the first block are, R, limits uint8 and where the first table's is, and the masks.
    """
    blocks = BLOCKS[n_tables]

    @intrinsic(
        types.uint64, types.int64, ARRAY, types.int64, types.int64, ARRAY, types.int64,
        types.int64, ARRAY, types.int64, ARRAY,
    )  # fmt: skip
    def within(
        builder: Any, width: Any, tables: Any, table: Any, step: Any, codes: Any, first: Any,
        n_repetitions: Any, limits: Any, limit: Any, masks: Any,
    ) -> Any:  # fmt: skip
        places, zero = (table, step, first, n_repetitions), ir.Constant(INDEX, 0)
        found = cgutils.alloca_once(builder, INDEX)

        def of(width: int) -> None:
            sums = looked_up(builder, tables, codes, places, width, (n_tables, blocks))
            words, some = [], zero
            for i, total in enumerate(sums):
                place = builder.add(limit, ir.Constant(INDEX, i // blocks))
                most = splat(builder, builder.load(builder.gep(limits, [place])), BYTES)
                words.append(builder.bitcast(builder.icmp_unsigned("<=", total, most), INDEX))
                some = builder.or_(some, words[-1])
            builder.store(some, found)
            with builder.if_then(builder.icmp_unsigned("!=", some, zero)):
                for i, word in enumerate(words):
                    builder.store(word, builder.gep(masks, [ir.Constant(INDEX, i)]))

        by_width(builder, width, of)
        return builder.load(found)

    return within


one_within, four_within = _within(1), _within(4)


@intrinsic(
    types.void, types.int64, ARRAY, types.int64, ARRAY, types.int64, types.int64, ARRAY, types.int64
)
def keep_least(
    builder: Any, width: Any, tables: Any, table: Any, codes: Any, first: Any, n_repetitions: Any,
    out: Any, start: Any,
) -> None:  # fmt: skip
    """Lower 64 bytes to the sums of the same lanes in 4 blocks where these are smaller.

    Parameters
    ----------
    width, tables, table, codes, first, n_repetitions : int and arrays
        As for one table of :func:`_within`.
    out, start : uint8 (n,), int64
        The bytes, and where they start.
    """
    places, smaller = (table, table, first, n_repetitions), bytes_function(builder, "umin")
    place = vector_at(builder, out, start, BYTES)

    def of(width: int) -> None:
        found = builder.load(place, align=1)
        for total in looked_up(builder, tables, codes, places, width, (1, BLOCKS[1])):
            found = builder.call(smaller, [found, total])
        builder.store(found, place, align=1)

    by_width(builder, width, of)


def n_blocks(n_classes: int) -> int:
    """Return the blocks that so many classes are laid out in, with those that may be read."""
    return -(-n_classes // LANES) + SPARE


def codes_in_blocks(spec: ModelSpec) -> NDArray[np.uint8]:
    """Return all codes in blocks of 64 classes: uint8 (blocks * R * 64,), zeros for no class."""
    k = spec.n_classes
    firsts = range(0, k, LAID_CLASSES)
    pieces = (spec.codes(first, min(first + LAID_CLASSES, k)) for first in firsts)
    return in_blocks(pieces, n_blocks(k), spec.n_repetitions)


@kernel(fastmath=False, inner=True)
def bounds_of(v: Array) -> tuple[Number, Number]:
    """Return the largest value and the largest magnitude of `v` float32 (B,)."""
    top, low = v[0], v[0]
    for b in range(1, v.shape[0]):
        x = v[b]
        top = x if x > top else top
        low = x if x < low else low
    return top, max(top, -low)


@kernel(fastmath=False, inner=True)
def write_row(row: Array, q: int, model: CodedClasses, theta: Number, room: PermRoom) -> None:
    """Write the deficits of row `q`, float32 (C,), to its table."""
    most, unit, n_buckets = np.float32(255), room.units[q], model.n_buckets
    for r in range(model.n_repetitions):
        values, top = row[r * n_buckets : (r + 1) * n_buckets], room.best[q, r]
        at = (q * model.n_repetitions + r) * room.width
        out = room.tables[at : at + n_buckets]
        if model.kind == SUM:
            for b in range(n_buckets):
                d = (top - values[b]) * unit
                out[b] = np.uint8(np.int32(d if d < most else most))
        else:
            for b in range(n_buckets):
                out[b] = np.uint8(values[b] < theta)


@kernel(fastmath=False, inner=True)
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


@kernel(fastmath=False, inner=True)
def seed_sum(model: CodedClasses, first: int, last: int, k: int, q: int, room: PermRoom) -> int:
    """Return a sum of row q's deficits that k of the classes do not exceed, or 255."""
    more = (SPARE + 1) * LANES
    vectors, r = (k + LANES - 1) // LANES, model.n_repetitions
    each = min(SEED_BLOCKS, (last - first) // more // vectors)
    if each == 0:
        return 255
    least, at = room.least, first * r
    least[: vectors * LANES] = 255
    for i in range(vectors):
        for _ in range(each):
            keep_least(
                room.width, room.tables, q * r * room.width, model.codes, at, r, least, i * LANES
            )
            at += more * r
    return kth_smallest(least[: vectors * LANES], k, room.counts)


@kernel(inline=True)
def begin_row(
    row: Array, q: int, model: CodedClasses, first: int, start: int, room: PermRoom,
    scores: Array, ids: Array,
) -> Number:  # fmt: skip
    """Score the classes ``first:start`` of row q; return twice what rounding a sum may come to.

    Parameters
    ----------
    row, q, model : float32 (C,), int and CodedClasses
        The row, and the classes in blocks.
    first, start : int
        The classes.
    room : PermRoom
        Receives the largest value of each model, and an upper bound of every float32 sum.
    scores, ids : float32 (k,), int64 (k,)
        Receive the best of these classes.
    """
    total, size, n_repetitions, n_buckets = 0.0, 0.0, model.n_repetitions, model.n_buckets
    for r in range(n_repetitions):
        top, magnitude = bounds_of(row[r * n_buckets : (r + 1) * n_buckets])
        room.best[q, r] = top
        total += np.float64(top)
        size += np.float64(magnitude)
    error = size * n_repetitions * 2.0**-22
    room.slack[q] = total + error
    scores[:], ids[:] = -np.inf, -1
    for i in range(first, start):
        at = i // LANES * LANES * n_repetitions + i % LANES
        offer(score(row, model, at, LANES, room.v), i, scores, ids)
    return error


@kernel(fastmath=False)
def set_limit(row: Array, q: int, model: CodedClasses, room: PermRoom, scores: Array) -> None:
    """Bring the limit of row `q`, and where it pays its table, up to its present k-th best."""
    theta, rewrite = next_above(scores[q, -1]), model.kind != SUM
    if model.kind == SUM:
        left = room.slack[q] - np.float64(theta)
        if left >= 0 and left * room.units[q] < WORN_UNIT:
            room.units[q] = np.float32(FULL_UNIT / max(left, 1e-30))
            rewrite = True
        room.limits[q] = limit_of(left, np.float64(room.units[q]))
    else:
        room.limits[q] = 0 if model.kind == MINIMUM else model.n_repetitions // 2
    if rewrite:
        write_row(row, q, model, theta, room)


@kernel(inline=True)
def offer_lanes(
    lanes: Number, begin: int, stop: int, row: Array, q: int, model: CodedClasses, room: PermRoom,
    scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Score those classes of a block that have their bit, and lower the limit of row q."""
    at, k, unit = begin * model.n_repetitions, scores.shape[0], np.float64(room.units[q])
    while lanes:
        lane = int(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        if begin + lane >= stop:
            break
        s = score(row, model, at + lane, LANES, room.v)
        if s > scores[k - 1]:
            offer(s, begin + lane, scores, ids)
            if model.kind == SUM:
                left = room.slack[q] - np.float64(next_above(scores[k - 1]))
                room.limits[q] = limit_of(left, unit)


@kernel(inline=True)  # a call would pass on all of the scratch
def within_limits(four: bool, q: int, model: CodedClasses, first: int, room: PermRoom) -> Number:
    """Look the blocks from class `first` on up for one row or four, from q on."""
    r, at = model.n_repetitions, first * model.n_repetitions
    step = r * room.width
    if four:
        found = four_within(
            room.width, room.tables, q * step, step, model.codes, at, r, room.limits, q, room.masks
        )
    else:
        found = one_within(
            room.width, room.tables, q * step, step, model.codes, at, r, room.limits, q, room.masks
        )
    return found


@kernel(fastmath=False)
def decode_perm(
    p: Array, model: CodedClasses, first: int, last: int, room: PermRoom, scores: Array, ids: Array
) -> None:
    """Find the k best of the classes ``first:last`` for up to 64 rows.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms of n <= 64 rows.
    model, first, last, room : CodedClasses, int and PermRoom
        The classes in blocks, uint8 (n_blocks(K) * R * 64,), from a multiple of 64 on; scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    n, k = scores.shape
    room.units[:], room.limits[:] = 0, 0
    start = min(last, first + (k + LANES - 1) // LANES * LANES)
    for q in range(n):
        error = begin_row(p[q], q, model, first, start, room, scores[q], ids[q])
        if model.kind == SUM and start < last:
            set_limit(p[q], q, model, room, scores)
            s = seed_sum(model, first, last, k, q, room)
            if s < 255 and room.units[q] > 0:
                lacks = (s + model.n_repetitions + 1) / np.float64(room.units[q]) * 1.000001
                raised(next_below(room.slack[q] - 2 * error - lacks), scores[q], ids[q])
    size = SPARE + 1
    while start < last:
        stop = min(last, start + size * LANES)
        for q in range(n):
            set_limit(p[q], q, model, room, scores)
        q = 0
        while q < n:
            together, blocks = (4, 2) if q + 4 <= n else (1, 4)
            for i in range(start, stop, blocks * LANES):
                if within_limits(together == 4, q, model, i, room):
                    for m in range(together * blocks):
                        if room.masks[m]:
                            x = q + m // blocks
                            begin = i + m % blocks * LANES
                            offer_lanes(
                                room.masks[m], begin, stop, p[x], x, model, room, scores[x], ids[x]
                            )
            q += together
        start, size = stop, min(2 * size, MOST_BLOCKS)
