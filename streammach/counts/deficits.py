"""Which classes hashed models do not rule out, 64 classes at a time.

The deficit of a bucket is what its logarithm lacks to the highest one of its model, in small units,
rounded down, 255 at most. A class whose deficits come to more than the room that its counts leave
to the k-th best score is none of the best. Where the machine can, an instruction looks the deficits
of 64 classes up: then their buckets lie in blocks, model by model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from streammach.counts.vectors import vector_of
from streammach.jit import Array, Number, intrinsic, kernel
from streammach.simd import (
    BYTES,
    INDEX,
    LANES,
    PERMUTES,
    START,
    WIDEST,
    aligned,
    bytes_function,
    lay_in_blocks,
    permute,
    table_width,
)

UNITS = 250.0  # of the largest room
ERROR = 2.0**-21  # twice what rounding one addition takes or gives, and more


def width_of(n_buckets: int, codes: NDArray[Any]) -> int:
    """Return the bytes of a model's table of deficits; 0 where none can be looked up."""
    if not PERMUTES or codes.dtype != np.uint8 or n_buckets > WIDEST:
        return 0
    return table_width(n_buckets)


def in_blocks(codes: NDArray[np.uint8], n_repetitions: int) -> NDArray[np.uint8]:
    """Return buckets (K * R,) in blocks of 64 classes: (blocks * R * 64,), zeros for no class."""
    by_class = codes.reshape(-1, n_repetitions)
    blocks = -(-len(by_class) // LANES)
    out = aligned(blocks * n_repetitions * LANES)
    lay_in_blocks(by_class, out.reshape(blocks, n_repetitions, LANES))
    return out


def _within(width: int) -> Callable[..., Any]:
    """Return :func:`lanes_with_room` for tables of a width; elsewhere no class is ruled out."""

    @intrinsic
    def lanes(
        typing: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, rooms: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if not PERMUTES:
                return ir.Constant(INDEX, -1)
            add = bytes_function(builder, "uadd.sat")
            total = cgutils.alloca_once_value(builder, ir.Constant(BYTES, [0] * LANES))
            with cgutils.for_range(builder, args[3]) as loop:
                lanes_at = builder.mul(loop.index, ir.Constant(INDEX, LANES))
                at = builder.add(args[2], lanes_at)
                indices = vector_of(context, builder, signature, args, 1, at, BYTES)
                start = builder.mul(loop.index, ir.Constant(INDEX, width))
                places = [builder.add(start, ir.Constant(INDEX, x)) for x in range(0, width, LANES)]
                parts = [vector_of(context, builder, signature, args, 0, x, BYTES) for x in places]
                found = permute(builder, parts, indices)
                builder.store(builder.call(add, [builder.load(total), found]), total)
            rooms_ = vector_of(context, builder, signature, args, 4, START, BYTES)
            within = builder.icmp_unsigned("<=", builder.load(total), rooms_)
            return builder.bitcast(within, INDEX)

        integer = types.int64
        return types.uint64(table, codes, integer, integer, rooms), generate

    return lanes


WITHIN_64, WITHIN_128, WITHIN_256 = (_within(width) for width in (64, 128, WIDEST))


@kernel(inline=True)
def lanes_with_room(
    width: int, table: Array, codes: Array, first: Number, n_repetitions: int, rooms: Array
) -> Any:
    """Return a uint64 whose bit j says whether the deficits of class j of a block find room.

    Parameters
    ----------
    width : int
        64, 128 or 256.
    table : uint8 (R * width,)
        The deficits.
    codes : uint8
        Buckets as :func:`in_blocks` lays them out.
    first : int
        Where those of the block start.
    n_repetitions : int
        R.
    rooms : uint8 (64,)
        The classes' room, at most 254.
    """
    if width == 64:
        found = WITHIN_64(table, codes, first, n_repetitions, rooms)
    elif width == 128:
        found = WITHIN_128(table, codes, first, n_repetitions, rooms)
    else:
        found = WITHIN_256(table, codes, first, n_repetitions, rooms)
    return found


@kernel(inline=True)
def highest_of(logs: Array, n_buckets: int, n_repetitions: int, tops: Array) -> Any:
    """Write the highest logarithm of each model; return their sum, and that of magnitudes."""
    # `tops` float32 (R,) receives them. No class has a larger sum, computed in this order.
    most, size = np.float32(0), np.float32(0)
    for r in range(n_repetitions):
        high = low = logs[r * n_buckets]
        for b in range(1, n_buckets):
            x = logs[r * n_buckets + b]
            high = x if x > high else high
            low = x if x < low else low
        tops[r] = high
        most += high
        size += max(high, -low)
    return most, size


@kernel(inline=True)
def write_deficits(
    logs: Array, tops: Array, n_buckets: int, width: int, scale: Number, table: Array
) -> None:
    """Write the deficits of a row's buckets: `table` uint8 (R * width,)."""
    most = np.float32(255)
    for r in range(tops.shape[0]):
        values, top = logs[r * n_buckets : (r + 1) * n_buckets], tops[r]
        out = table[r * width : r * width + n_buckets]
        for b in range(n_buckets):
            d = (top - values[b]) * scale
            out[b] = np.uint8(np.int32(d if d < most else most))


@kernel(inline=True)
def finds_room(
    logs: Array, tops: Array, codes: Array, n_buckets: int, weight: Number, c: Number, room: Number
) -> Any:
    """Return whether what the models take from a class leaves it room, one model after another."""
    left, r = room, 0
    while r < tops.shape[0] and left >= 0:
        left -= weight * (tops[r] - logs[r * n_buckets + codes[c * tops.shape[0] + r]])
        r += 1
    return left >= 0
