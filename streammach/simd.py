"""Instructions of the machine: words of text, prefetching, sums in the lanes of a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numpy.typing import NDArray

from streammach.jit import Number, intrinsic, kernel

PADDING = 32  # bytes that must follow a text, since loads reach past the end of a token
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
LANES = 64  # of bytes
WIDEST = 256  # bytes of the largest table that is looked up in


def _has(feature: str) -> bool:
    """Return whether kernels may use what a machine has, by LLVM's name."""
    given = numba.config.CPU_FEATURES
    return f"+{feature}" in (get_host_cpu_features() if given is None else given).split(",")


EXPANDS = _has("avx512vbmi2")  # one instruction for 64 bytes
PERMUTES = _has("avx512vbmi")  # one instruction looks 64 bytes up in a table of 64 or 128
BYTE, INDEX = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, LANES)
START = ir.Constant(INDEX, 0)


def aligned(n_bytes: int) -> NDArray[np.uint8]:
    """Return zeros uint8 (n_bytes,) where a vector is: one across two lines takes twice as long."""
    room = np.zeros(n_bytes + LANES, np.uint8)
    start = -room.ctypes.data % LANES
    return room[start : start + n_bytes]


def lay_in_blocks(codes: NDArray[np.uint8], blocks: NDArray[np.uint8]) -> None:
    """Write what classes have, uint8 (n, R), to blocks of 64 classes: uint8 (b, R, 64)."""
    n_models, whole = codes.shape[1], len(codes) // LANES
    full, rest = codes[: whole * LANES], codes[whole * LANES :]
    blocks[:whole] = full.reshape(whole, LANES, n_models).transpose(0, 2, 1)
    if len(rest):
        blocks[whole, :, : len(rest)] = rest.T


@intrinsic
def load8(typing: Any, text: Any, position: Any) -> Any:
    """Return ``text[position : position + 8]`` as one little-endian uint64, unaligned."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(address, align=1)

    return types.uint64(text, types.intp), generate


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Return how many low bits of a uint64 are zero; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def prefetch(typing: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of ``array.ravel()[position]``; the array is C-contiguous."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        integer = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer.type, integer, integer, integer]),
            "llvm.prefetch.p0i8",
        )
        builder.call(function, [pointer, *(ir.Constant(integer, x) for x in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@kernel(inline=True)
def zero_bytes(word: Number) -> Any:
    """Return a word whose high bits mark, from the lowest one on, the zero bytes of `word`."""
    # Only the lowest mark is certain; a borrow can set marks above it.
    return (word - ONES) & ~word & HIGH


@kernel(inline=True)
def low_bytes(word: Number, count: Number) -> Any:
    """Return the `count` (0 to 8) lowest bytes of `word`, zeros above them."""
    if count >= 8:
        return word
    return word & ((np.uint64(1) << (np.uint64(count) * np.uint64(8))) - np.uint64(1))


@intrinsic
def replace_marked(typing: Any, out: Any, start: Any, mark: Any, data: Any, position: Any) -> Any:
    """Replace the numbers of ``out[start : start + 64]`` that are a mark by the next bytes.

    Parameters
    ----------
    out : int8 (n,)
        The numbers.
    start : int64
        Where the 64 start.
    mark : int8
        The mark.
    data : uint8
        Bytes, of which as many are read as marks are found.
    position : int64
        Where these start.

    Returns
    -------
    int64
        How many were replaced.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 3)]
        place = vector_at(builder, arrays[0].data, args[1], BYTES)
        marks = splat(builder, args[2], BYTES)
        numbers = builder.load(place, align=1)
        chosen = builder.icmp_signed("==", numbers, marks)
        bytes_ = builder.gep(arrays[1].data, [args[4]])
        marked = builder.bitcast(chosen, INDEX)
        if EXPANDS:
            kinds = [bytes_.type, chosen.type, BYTES]
            expand = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(BYTES, kinds), f"llvm.masked.expandload.v{LANES}i8"
            )
            builder.store(builder.call(expand, [bytes_, chosen, numbers]), place, align=1)
        else:
            _put_each(builder, marked, bytes_, builder.gep(arrays[0].data, [args[1]]))
        return builder.ctpop(marked)

    return types.int64(out, types.int64, types.int8, data, types.int64), generate


def _put_each(builder: Any, marked: Any, bytes_: Any, out: Any) -> None:
    """Write the next byte to each place of `out` whose bit is set."""
    one, left = ir.Constant(INDEX, 1), cgutils.alloca_once_value(builder, marked)
    with cgutils.for_range(builder, builder.ctpop(marked)) as loop:
        word = builder.load(left)
        place = builder.cttz(word, ir.Constant(ir.IntType(1), 1))
        builder.store(builder.load(builder.gep(bytes_, [loop.index])), builder.gep(out, [place]))
        builder.store(builder.and_(word, builder.sub(word, one)), left)


def vector_at(builder: Any, data: Any, position: Any, vector: Any) -> Any:
    """Return a pointer to a vector that begins at an element, aligned or not."""
    return builder.bitcast(builder.gep(data, [position]), vector.as_pointer())


def splat(builder: Any, value: Any, vector: Any) -> Any:
    """Return a vector of equal elements."""
    out = ir.Constant(vector, ir.Undefined)
    for lane in range(vector.count):
        out = builder.insert_element(out, value, ir.Constant(ir.IntType(32), lane))
    return out


def _summed(
    context: Any, builder: Any, signature: Any, args: Any, vector: Any, add: Callable[..., Any]
) -> tuple[Any, Any]:
    """Return the sum over r of ``table[r, codes[first + r]]``, r rising, and the last array's data.

    The arguments are those of `lanes_within`; `vector` is the type of an entry of the table.
    """
    arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 5)]
    table, codes, last = (array.data for array in arrays)
    first, models, buckets = args[2], args[3], args[4]
    total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * vector.count))
    with cgutils.for_range(builder, models) as loop:
        code = builder.load(builder.gep(codes, [builder.add(first, loop.index)]))
        wide = builder.zext(code, INDEX) if code.type.width < INDEX.width else code
        column = builder.add(builder.mul(loop.index, buckets), wide)
        position = builder.mul(column, ir.Constant(INDEX, vector.count))
        entry = builder.load(vector_at(builder, table, position, vector), align=1)
        builder.store(add(builder, builder.load(total), entry), total)
    return builder.load(total), last


def bytes_function(builder: Any, name: str) -> Any:
    """Return an instruction on two vectors of bytes, by LLVM's name: ``uadd.sat`` or ``umin``."""
    kind = ir.FunctionType(BYTES, [BYTES, BYTES])
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}i8")


def _saturated(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return the sums of lanes in uint8, stopping at 255, and the last array's data."""
    add = bytes_function(builder, "uadd.sat")
    return _summed(context, builder, signature, args, BYTES, lambda b, x, y: b.call(add, [x, y]))


def _lanes_compared(relation: str) -> Callable[..., Any]:
    """Return a function for kernels that compares the sums of one class with limits."""

    @intrinsic
    def lanes(
        typing: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, n_buckets: Any,
        limits: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            total, data = _saturated(context, builder, signature, args)
            limit = builder.load(vector_at(builder, data, START, BYTES), align=1)
            return builder.bitcast(builder.icmp_unsigned(relation, total, limit), INDEX)

        integer = types.int64
        return types.uint64(table, codes, integer, integer, integer, limits), generate

    return lanes


def _lanes_kept(better: str) -> Callable[..., Any]:
    """Return a function for kernels that keeps the better of sums so far and those of a class."""

    @intrinsic
    def keep(
        typing: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, n_buckets: Any,
        kept: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            total, data = _saturated(context, builder, signature, args)
            place, choose = vector_at(builder, data, START, BYTES), bytes_function(builder, better)
            builder.store(
                builder.call(choose, [total, builder.load(place, align=1)]), place, align=1
            )
            return context.get_dummy_value()

        integer = types.int64
        return types.void(table, codes, integer, integer, integer, kept), generate

    return keep


# Functions of kernels on the sums of lanes for one class: that of lane q is the sum of
# ``table[r, codes[first + r], q]`` over r in ``range(R)``, in uint8 and stopping at 255. Arguments
# are ``table`` uint8 (R * B * 64,), a vector of 64 bytes for each bucket of each model, ``codes``
# unsigned (K * R,), ``first``, R, B, and uint8 (64,).
# The first two return a uint64 whose bit q says whether the sum of lane q is at most, or at least,
# its limit in the last array; the others bring that array to the smaller, or the larger, of its
# numbers and the sums.
lanes_within, lanes_at_least = _lanes_compared("<="), _lanes_compared(">=")
keep_smaller, keep_larger = _lanes_kept("umin"), _lanes_kept("umax")


def table_width(n_bytes: int) -> int:
    """Return how wide a table of at most 256 bytes is held, for instructions to look up in it."""
    return next(width for width in (64, 128, WIDEST) if n_bytes <= width)


def permute(builder: Any, parts: list[Any], indices: Any) -> Any:
    """Return what a table in parts of 64 bytes has at 64 indices."""
    name = "permvar.qi.512" if len(parts) == 1 else "vpermi2var.qi.512"
    pair = [parts[0], indices] if len(parts) == 1 else [parts[0], indices, parts[1]]
    found = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(BYTES, [BYTES] * len(pair)), f"llvm.x86.avx512.{name}"
    )
    low = builder.call(found, pair)
    if len(parts) <= 2:
        return low
    zeros = ir.Constant(BYTES, [0] * LANES)
    high = builder.call(found, [parts[2], indices, parts[3]])
    return builder.select(builder.icmp_signed("<", indices, zeros), high, low)
