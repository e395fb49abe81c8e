"""Instructions on 64 classes at once: their units, and what they reach."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.system.jit import ARRAY, intrinsic
from streammach.system.simd import INDEX, LANES, START, splat, vector_at, vector_in

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
