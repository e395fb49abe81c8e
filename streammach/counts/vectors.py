"""Instructions on 64 classes at once: their units, what they reach, and room for deficits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.jit import intrinsic
from streammach.simd import (
    BYTES,
    INDEX,
    LANES,
    PERMUTES,
    START,
    by_width,
    data_of,
    looked_up,
    splat,
    vector_at,
)

WORDS = ir.VectorType(ir.IntType(32), LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)


def _place_of(call: tuple[Any, ...], which: int, at: Any, vector: Any) -> Any:
    """Return a pointer to a vector within an array that is an argument of a call."""
    return vector_at(call[1], data_of(*call, which)[0], at, vector)


def _vector_of(call: tuple[Any, ...], which: int, at: Any, vector: Any) -> Any:
    """Return the vector at a place of an array that is an argument of a call."""
    return call[1].load(_place_of(call, which, at, vector), align=1)


def _integers(array: Any) -> ir.VectorType:
    """Return the vector type of 64 elements of an array of integers."""
    return ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)


def _as_words(builder: Any, vector: Any) -> Any:
    """Return integers as int32."""
    return vector if vector.type == WORDS else builder.sext(vector, WORDS)


@intrinsic
def highest_unit(typing: Any, units: Any, first: Any) -> Any:
    """Return the largest of ``units[first : first + 64]``, int16 or int32, as int32."""

    def generate(*call: Any) -> Any:
        (_, builder, _, args), kind = call, _integers(units)
        name = f"llvm.vector.reduce.smax.v{LANES}i{kind.element.width}"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind.element, [kind]), name
        )
        highest = builder.call(function, [_vector_of(call, 0, args[1], kind)])
        return highest if kind == WORDS else builder.sext(highest, WORDS.element)

    return types.int32(units, types.intp), generate


@intrinsic
def take_units(typing: Any, units: Any, first: Any, gained: Any) -> Any:
    """Copy ``units[first : first + 64]``, int16 or int32, to `gained` int32 (64,)."""

    def generate(*call: Any) -> Any:
        context, builder, _, args = call
        vector = _as_words(builder, _vector_of(call, 0, args[1], _integers(units)))
        builder.store(vector, _place_of(call, 2, START, WORDS), align=1)
        return context.get_dummy_value()

    return types.void(units, types.intp, gained), generate


@intrinsic
def add_gains(typing: Any, wide: Any, first: Any, gained: Any) -> Any:
    """Add ``wide.ravel()[first : first + 64]``, int8 or int16, to `gained` int32 (64,)."""

    def generate(*call: Any) -> Any:
        context, builder, _, args = call
        vector = _as_words(builder, _vector_of(call, 0, args[1], _integers(wide)))
        place = _place_of(call, 2, START, WORDS)
        builder.store(builder.add(builder.load(place, align=1), vector), place, align=1)
        return context.get_dummy_value()

    return types.void(wide, types.intp, gained), generate


@intrinsic
def reach_block(
    typing: Any, gained: Any, base: Any, log_values: Any, first: Any, rest: Any, step: Any,
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

    def generate(*call: Any) -> Any:
        _, builder, _, args = call
        rest_, step_, cap_, bound_ = (splat(builder, args[i], FLOATS) for i in (4, 5, 6, 7))
        units = builder.sitofp(_vector_of(call, 0, START, WORDS), FLOATS)
        logs = builder.fmul(rest_, _vector_of(call, 2, args[3], FLOATS))
        total = builder.fsub(_vector_of(call, 1, args[3], FLOATS), logs)
        total = builder.fadd(builder.fadd(total, builder.fmul(units, step_)), cap_)
        builder.store(total, _place_of(call, 8, START, FLOATS), align=1)
        return builder.bitcast(builder.fcmp_ordered(">=", total, bound_), INDEX)

    number = types.float32
    return types.uint64(
        gained, base, log_values, types.intp, number, number, number, number, reached
    ), generate


@intrinsic
def write_rooms(typing: Any, reached: Any, bound: Any, scale: Any, rooms: Any) -> Any:
    """Write ``(reached - bound) * scale`` of 64 classes, rounded down, 0 to 254, as uint8 (64,)."""

    def generate(*call: Any) -> Any:
        context, builder, _, args = call
        bound, scale = (splat(builder, args[i], FLOATS) for i in (1, 2))
        room = builder.fmul(builder.fsub(_vector_of(call, 0, START, FLOATS), bound), scale)
        for relation, limit in ((">", 0.0), ("<", 254.0)):
            limits = ir.Constant(FLOATS, [limit] * LANES)
            room = builder.select(builder.fcmp_ordered(relation, room, limits), room, limits)
        bytes_ = builder.trunc(builder.fptosi(room, WORDS), BYTES)
        builder.store(bytes_, _place_of(call, 3, START, BYTES), align=1)
        return context.get_dummy_value()

    number = types.float32
    return types.void(reached, number, number, rooms), generate


@intrinsic
def lanes_with_room(
    typing: Any, width: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, rooms: Any
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

    def generate(*call: Any) -> Any:
        _, builder, _, args = call
        if not PERMUTES:
            return ir.Constant(INDEX, -1)
        found = cgutils.alloca_once(builder, INDEX)
        tables, codes = data_of(*call, 1, 2)
        places = START, START, args[3], args[4]

        def of(width: int) -> None:
            (total,) = looked_up(builder, tables, codes, places, width, (1, 1))
            within = builder.icmp_unsigned("<=", total, _vector_of(call, 5, START, BYTES))
            builder.store(builder.bitcast(within, INDEX), found)

        by_width(builder, args[0], of)
        return builder.load(found)

    integer = types.int64
    return types.uint64(integer, table, codes, integer, integer, rooms), generate
