"""Sixty-four small sums at once: the one vector operation that exact decoding needs."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.jit import intrinsic

LANES = 64
BYTE, INDEX = ir.IntType(8), ir.IntType(64)
VECTOR = ir.VectorType(BYTE, LANES)


def _load(builder: Any, data: Any, position: Any) -> Any:
    address = builder.bitcast(builder.gep(data, [position]), VECTOR.as_pointer())
    return builder.load(address, align=1)


@intrinsic
def lanes_within(
    typing: Any, table: Any, codes: Any, first: Any, n_models: Any, n_buckets: Any, limits: Any
) -> Any:
    """Return a uint64 whose bit q says whether lane q's sum for one class is within its limit.

    The sum of lane q is that of ``table[r, codes[first + r], q]`` over r in ``range(n_models)``, in
    uint8 and stopping at 255.

    Parameters
    ----------
    table : uint8 (n_models * n_buckets * 64,)
        A vector of 64 bytes for each bucket of each model.
    codes : unsigned (K * n_models,)
        Buckets of the classes.
    first : int64
        Where the class's codes start.
    n_models, n_buckets : int64
        R and B.
    limits : uint8 (64,)
        The lanes' limits.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 5)
        ]
        table_data, codes_data, limits_data = (array.data for array in arrays)
        first_value, models, buckets = args[2], args[3], args[4]
        total = cgutils.alloca_once_value(builder, ir.Constant(VECTOR, [0] * LANES))
        add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(VECTOR, [VECTOR, VECTOR]), f"llvm.uadd.sat.v{LANES}i8"
        )
        with cgutils.for_range(builder, models) as loop:
            code = builder.load(builder.gep(codes_data, [builder.add(first_value, loop.index)]))
            wide = builder.zext(code, INDEX) if code.type.width < INDEX.width else code
            column = builder.add(builder.mul(loop.index, buckets), wide)
            position = builder.mul(column, ir.Constant(INDEX, LANES))
            vector = _load(builder, table_data, position)
            builder.store(builder.call(add, [builder.load(total), vector]), total)
        limit = _load(builder, limits_data, ir.Constant(INDEX, 0))
        within = builder.icmp_unsigned("<=", builder.load(total), limit)
        return builder.bitcast(within, INDEX)

    integer = types.int64
    return types.uint64(table, codes, integer, integer, integer, limits), generate
