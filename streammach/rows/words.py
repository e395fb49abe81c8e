"""Eight bytes at a time: the machine words that names and numbers of text are read in."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.jit import Number, intrinsic, kernel

PADDING = 32  # bytes that must follow a text, since loads reach past the end of a token
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)


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
    """Return a word whose high bits mark, from the lowest one on, the zero bytes of `word`.

    Only the lowest mark is certain; a borrow can set marks above it.
    """
    return (word - ONES) & ~word & HIGH


@kernel(inline=True)
def low_bytes(word: Number, count: Number) -> Any:
    """Return the `count` (0 to 8) lowest bytes of `word`, zeros above them."""
    if count >= 8:
        return word
    return word & ((np.uint64(1) << (np.uint64(count) * np.uint64(8))) - np.uint64(1))
