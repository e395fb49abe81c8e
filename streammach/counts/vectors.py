"""Instructions on 64 classes at once: their units, what they reach, and room for deficits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.jit import ARRAY, intrinsic
from streammach.simd import (
    BYTES,
    INDEX,
    LANES,
    PERMUTES,
    START,
    by_width,
    looked_up,
    splat,
    vector_at,
    vector_in,
)

WORDS = ir.VectorType(ir.IntType(32), LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)


def _units(builder: Any, array: Any, first: Any) -> Any:
    """Return 64 integers of any width, as int32."""
    kind = ir.VectorType(array.type.pointee, LANES)
    vector = vector_in(builder, array, first, kind)
    return vector if kind == WORDS else builder.sext(vector, WORDS)


@intrinsic(types.int32, ARRAY, types.intp)
def highest_unit(builder: Any, units: Any, first: Any) -> Any:
    """Return the largest of ``units[first : first + 64]``, int16 or int32, as int32."""
    kind = ir.VectorType(units.type.pointee, LANES)
    name = f"llvm.vector.reduce.smax.v{LANES}i{kind.element.width}"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind.element, [kind]), name
    )
    highest = builder.call(function, [vector_in(builder, units, first, kind)])
    return highest if kind == WORDS else builder.sext(highest, WORDS.element)


@intrinsic(types.void, ARRAY, types.intp, ARRAY)
def take_units(builder: Any, units: Any, first: Any, gained: Any) -> None:
    """Copy ``units[first : first + 64]``, int16 or int32, to `gained` int32 (64,)."""
    vector = _units(builder, units, first)
    builder.store(vector, vector_at(builder, gained, START, WORDS), align=1)


@intrinsic(types.void, ARRAY, types.intp, ARRAY)
def add_gains(builder: Any, wide: Any, first: Any, gained: Any) -> None:
    """Add ``wide.ravel()[first : first + 64]``, int8 or int16, to `gained` int32 (64,)."""
    vector, place = _units(builder, wide, first), vector_at(builder, gained, START, WORDS)
    builder.store(builder.add(builder.load(place, align=1), vector), place, align=1)


@intrinsic(types.uint64, *[ARRAY] * 3, types.intp, *[types.float32] * 4, ARRAY)
def reach_block(
    builder: Any, gained: Any, base: Any, log_values: Any, first: Any, rest: Any, step: Any,
    cap: Any, bound: Any, reached: Any,
) -> Any:  # fmt: skip
    """Write ``base - rest * log_values + gained * step + cap`` of 64 classes.

    Parameters
    ----------
    gained : int32 (64,)
        Units of gains.
    base, log_values, first : float32 (K,), float32 (K,), int64
        Those of the classes stand from `first` on.
    rest, step, cap, bound : float32
        As above.
    reached : float32 (64,)
        Receives the sums.

    Returns
    -------
    uint64
        Bit j says whether that of class j is `bound` or more.
    """
    rest, step, cap, bound = (splat(builder, x, FLOATS) for x in (rest, step, cap, bound))
    units = builder.sitofp(vector_in(builder, gained, START, WORDS), FLOATS)
    logs = builder.fmul(rest, vector_in(builder, log_values, first, FLOATS))
    total = builder.fsub(vector_in(builder, base, first, FLOATS), logs)
    total = builder.fadd(builder.fadd(total, builder.fmul(units, step)), cap)
    builder.store(total, vector_at(builder, reached, START, FLOATS), align=1)
    return builder.bitcast(builder.fcmp_ordered(">=", total, bound), INDEX)


@intrinsic(types.void, ARRAY, types.float32, types.float32, ARRAY)
def write_rooms(builder: Any, reached: Any, bound: Any, scale: Any, rooms: Any) -> None:
    """Write ``(reached - bound) * scale`` of 64 classes, rounded down, 0 to 254, as uint8 (64,)."""
    bound, scale = (splat(builder, x, FLOATS) for x in (bound, scale))
    room = builder.fmul(builder.fsub(vector_in(builder, reached, START, FLOATS), bound), scale)
    for relation, limit in ((">", 0.0), ("<", 254.0)):
        limits = ir.Constant(FLOATS, [limit] * LANES)
        room = builder.select(builder.fcmp_ordered(relation, room, limits), room, limits)
    bytes_ = builder.trunc(builder.fptosi(room, WORDS), BYTES)
    builder.store(bytes_, vector_at(builder, rooms, START, BYTES), align=1)


@intrinsic(types.uint64, types.int64, ARRAY, ARRAY, types.int64, types.int64, ARRAY)
def lanes_with_room(
    builder: Any, width: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, rooms: Any
) -> Any:
    """Return a uint64 whose bit j says whether the deficits of class j of a block find room.

    Where the machine cannot look them up no class is ruled out.

    Parameters
    ----------
    width, table : int, uint8 (R * width,)
        64, 128 or 256, and the deficits.
    codes, first, n_repetitions : uint8, int and int
        Buckets in blocks of 64 classes, where those of the block start, and R.
    rooms : uint8 (64,)
        The classes' room, at most 254.
    """
    if not PERMUTES:
        return ir.Constant(INDEX, -1)
    found = cgutils.alloca_once(builder, INDEX)

    def of(width: int) -> None:
        total = looked_up(builder, table, codes, first, n_repetitions, width)
        within = builder.icmp_unsigned("<=", total, vector_in(builder, rooms, START, BYTES))
        builder.store(builder.bitcast(within, INDEX), found)

    by_width(builder, width, of)
    return builder.load(found)
