"""Instructions on 64 classes at once: their units, and what they reach."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.jit import intrinsic
from streammach.simd import BYTES, INDEX, LANES, START, splat, vector_at

WORDS = ir.VectorType(ir.IntType(32), LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)


def place_of(
    context: Any, builder: Any, signature: Any, args: Any, which: int, at: Any, vector: Any
) -> Any:
    """Return a pointer to a vector within an array that is an argument."""
    data = context.make_array(signature.args[which])(context, builder, args[which]).data
    return vector_at(builder, data, at, vector)


def vector_of(
    context: Any, builder: Any, signature: Any, args: Any, which: int, at: Any, vector: Any
) -> Any:
    """Return the vector at a place of an array that is an argument."""
    return builder.load(place_of(context, builder, signature, args, which, at, vector), align=1)


def _reduced(builder: Any, name: str, vector: Any) -> Any:
    """Return the largest element, by LLVM's name of the instruction."""
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector.type.element, [vector.type]),
        f"llvm.vector.reduce.{name}",
    )  # fmt: skip
    return builder.call(function, [vector])


def _integers(array: Any) -> ir.VectorType:
    """Return the vector type of 64 elements of an array of integers."""
    return ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)


def _as_words(builder: Any, vector: Any) -> Any:
    """Return integers as int32."""
    return vector if vector.type == WORDS else builder.sext(vector, WORDS)


@intrinsic
def highest_unit(typing: Any, units: Any, first: Any) -> Any:
    """Return the largest of ``units[first : first + 64]``, int16 or int32, as int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = _integers(units)
        vector = vector_of(context, builder, signature, args, 0, args[1], kind)
        highest = _reduced(builder, f"smax.v{LANES}i{kind.element.width}", vector)
        return highest if kind == WORDS else builder.sext(highest, WORDS.element)

    return types.int32(units, types.intp), generate


@intrinsic
def take_units(typing: Any, units: Any, first: Any, gained: Any) -> Any:
    """Copy ``units[first : first + 64]``, int16 or int32, to `gained` int32 (64,)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = vector_of(context, builder, signature, args, 0, args[1], _integers(units))
        place = place_of(context, builder, signature, args, 2, START, WORDS)
        builder.store(_as_words(builder, vector), place, align=1)
        return context.get_dummy_value()

    return types.void(units, types.intp, gained), generate


@intrinsic
def add_gains(typing: Any, wide: Any, first: Any, gained: Any) -> Any:
    """Add ``wide.ravel()[first : first + 64]``, int8 or int16, to `gained` int32 (64,)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = vector_of(context, builder, signature, args, 0, args[1], _integers(wide))
        place = place_of(context, builder, signature, args, 2, START, WORDS)
        total = builder.add(builder.load(place, align=1), _as_words(builder, vector))
        builder.store(total, place, align=1)
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

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def of(which: int, at: Any, vector: Any) -> Any:
            return vector_of(context, builder, signature, args, which, at, vector)

        rest_, step_, cap_, bound_ = (splat(builder, args[i], FLOATS) for i in (4, 5, 6, 7))
        units = builder.sitofp(of(0, START, WORDS), FLOATS)
        total = builder.fsub(of(1, args[3], FLOATS), builder.fmul(rest_, of(2, args[3], FLOATS)))
        total = builder.fadd(builder.fadd(total, builder.fmul(units, step_)), cap_)
        place = place_of(context, builder, signature, args, 8, START, FLOATS)
        builder.store(total, place, align=1)
        return builder.bitcast(builder.fcmp_ordered(">=", total, bound_), INDEX)

    number = types.float32
    return types.uint64(
        gained, base, log_values, types.intp, number, number, number, number, reached
    ), generate


@intrinsic
def write_rooms(typing: Any, reached: Any, bound: Any, scale: Any, rooms: Any) -> Any:
    """Write ``(reached - bound) * scale`` of 64 classes, rounded down, 0 to 254, as uint8 (64,)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total = vector_of(context, builder, signature, args, 0, START, FLOATS)
        bound, scale = (splat(builder, args[i], FLOATS) for i in (1, 2))
        room = builder.fmul(builder.fsub(total, bound), scale)
        for relation, limit in ((">", 0.0), ("<", 254.0)):
            limits = ir.Constant(FLOATS, [limit] * LANES)
            room = builder.select(builder.fcmp_ordered(relation, room, limits), room, limits)
        bytes_ = builder.trunc(builder.fptosi(room, WORDS), BYTES)
        place = place_of(context, builder, signature, args, 3, START, BYTES)
        builder.store(bytes_, place, align=1)
        return context.get_dummy_value()

    number = types.float32
    return types.void(reached, number, number, rooms), generate
