"""Instructions of the machine: words of text, prefetching, turns of threads, lanes of vectors."""

from __future__ import annotations

import os
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numpy.typing import NDArray

from streammach.system.jit import ARRAY, Array, Number, intrinsic, kernel

PADDING = 32  # bytes that must follow a text, since loads reach past the end of a token
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
LANES = 64  # of bytes
YIELDS = 100  # before a thread sleeps that waits for others: about the time of a turn


def _has(feature: str) -> bool:
    """Return whether kernels may use what a machine has, by LLVM's name."""
    given = numba.config.CPU_FEATURES
    return f"+{feature}" in (get_host_cpu_features() if given is None else given).split(",")


EXPANDS = _has("avx512vbmi2")  # one instruction for 64 bytes
BYTE, INDEX = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, LANES)
START = ir.Constant(INDEX, 0)


def aligned_zeros(n_bytes: int) -> NDArray[np.uint8]:
    """Return zeros uint8 (n_bytes,) where a vector is: one across two lines takes twice as long."""
    room = np.zeros(n_bytes + LANES, np.uint8)
    start = -room.ctypes.data % LANES
    return room[start : start + n_bytes]


@intrinsic(types.uint64, ARRAY, types.intp)
def load8(builder: Any, text: Any, position: Any) -> Any:
    """Return ``text[position : position + 8]`` as one little-endian uint64, unaligned."""
    address = builder.bitcast(builder.gep(text, [position]), INDEX.as_pointer())
    return builder.load(address, align=1)


@intrinsic(types.uint64, types.uint64)
def trailing_zeros(builder: Any, word: Any) -> Any:
    """Return how many low bits of a uint64 are zero; 64 for zero."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


@intrinsic(types.void, ARRAY, types.intp)
def prefetch(builder: Any, array: Any, position: Any) -> None:
    """Ask for the cache line of ``array.ravel()[position]``; the array is C-contiguous."""
    pointer = builder.bitcast(builder.gep(array, [position]), BYTE.as_pointer())
    integer = ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [pointer.type, integer, integer, integer]),
        "llvm.prefetch.p0i8",
    )
    builder.call(function, [pointer, *(ir.Constant(integer, x) for x in (0, 3, 1))])


@intrinsic(types.int64, ARRAY, types.intp)
def take_turn(builder: Any, turns: Any, position: Any) -> Any:
    """Return ``turns[position]`` int64 and add 1 to it, as no other thread does meanwhile."""
    place = builder.gep(turns, [position])
    return builder.atomic_rmw("add", place, ir.Constant(INDEX, 1), "seq_cst")


@intrinsic(types.int64, ARRAY, types.intp)
def read_turns(builder: Any, turns: Any, position: Any) -> Any:
    """Return ``turns[position]`` int64; what was written before turns were taken can be read."""
    return builder.load_atomic(builder.gep(turns, [position]), "acquire", 8)


@intrinsic(types.void, types.boolean)
def let_others(builder: Any, asleep: Any) -> None:
    """Let another thread have this core, if one waits for it here; or any thread, while asleep."""
    # A thread that was put aside is brought to another core only where that has nothing to do.
    number = ir.IntType(32)
    names = ("Sleep", "SwitchToThread") if os.name == "nt" else ("usleep", "sched_yield")
    with builder.if_else(asleep) as ways:
        for way, name, given in zip(ways, names, ([1], []), strict=True):
            with way:
                kind = ir.FunctionType(number, [number] * len(given))
                function = cgutils.get_or_insert_function(builder.module, kind, name)
                builder.call(function, [ir.Constant(number, x) for x in given])


@kernel(fastmath=False, inner=True)
def wait_for(turns: Array, position: int, n: int) -> None:
    """Wait until so many turns were taken; what their threads wrote before can be read then."""
    waited = 0
    while read_turns(turns, position) < n:
        let_others(waited >= YIELDS)
        waited += 1


@kernel(fastmath=False, inline=True, inner=True)
def zero_bytes(word: Number) -> Any:
    """Return a word whose high bits mark, from the lowest one on, the zero bytes of `word`."""
    # Only the lowest mark is certain; a borrow can set marks above it.
    return (word - ONES) & ~word & HIGH


@kernel(fastmath=False, inline=True, inner=True)
def low_bytes(word: Number, count: Number) -> Any:
    """Return the `count` (0 to 8) lowest bytes of `word`, zeros above them."""
    if count >= 8:
        return word
    return word & ((np.uint64(1) << (np.uint64(count) * np.uint64(8))) - np.uint64(1))


@intrinsic(types.int64, ARRAY, types.int64, types.int8, ARRAY, types.int64)
def replace_marked(builder: Any, out: Any, start: Any, mark: Any, data: Any, position: Any) -> Any:
    """Replace the numbers of ``out[start : start + 64]`` that are a mark by the next bytes.

    Parameters
    ----------
    out, start, mark : int8 (n,), int64, int8
        The numbers, where the 64 start, and the mark.
    data, position : uint8, int64
        Bytes, as many as marks are found, and where these start.

    Returns
    -------
    int64
        How many were replaced.
    """
    place = vector_at(builder, out, start, BYTES)
    numbers = builder.load(place, align=1)
    chosen = builder.icmp_signed("==", numbers, splat(builder, mark, BYTES))
    bytes_, marked = builder.gep(data, [position]), builder.bitcast(chosen, INDEX)
    if EXPANDS:
        kinds = [bytes_.type, chosen.type, BYTES]
        expand = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(BYTES, kinds), f"llvm.masked.expandload.v{LANES}i8"
        )
        builder.store(builder.call(expand, [bytes_, chosen, numbers]), place, align=1)
    else:
        _put_each(builder, marked, bytes_, builder.gep(out, [start]))
    return builder.ctpop(marked)


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


def vector_in(builder: Any, data: Any, position: Any, vector: Any) -> Any:
    """Return the vector that begins there."""
    return builder.load(vector_at(builder, data, position, vector), align=1)


def splat(builder: Any, value: Any, vector: Any) -> Any:
    """Return a vector of equal elements."""
    out = ir.Constant(vector, ir.Undefined)
    for lane in range(vector.count):
        out = builder.insert_element(out, value, ir.Constant(ir.IntType(32), lane))
    return out


def bytes_function(builder: Any, name: str) -> Any:
    """Return an instruction on two vectors of bytes, by LLVM's name: ``uadd.sat`` or ``umin``."""
    kind = ir.FunctionType(BYTES, [BYTES, BYTES])
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}i8")


# Arguments of a function on the sums of lanes of a class: ``table`` uint8 (R * B * 64,), 64 bytes
# for each bucket of each model, ``codes`` unsigned (K * R,), ``first``, R, B, and uint8 (64,). The
# sum of lane q is that of ``table[r, codes[first + r], q]`` over r in ``range(R)``, in uint8 and
# stopping at 255.
OF_LANES = ARRAY, ARRAY, types.int64, types.int64, types.int64, ARRAY


def _sum_lanes(
    builder: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, n_buckets: Any
) -> Any:
    """Return the sums of lanes."""
    add = bytes_function(builder, "uadd.sat")
    total = cgutils.alloca_once_value(builder, ir.Constant(BYTES, [0] * LANES))
    with cgutils.for_range(builder, n_repetitions) as loop:
        code = builder.load(builder.gep(codes, [builder.add(first, loop.index)]))
        wide = builder.zext(code, INDEX) if code.type.width < INDEX.width else code
        column = builder.add(builder.mul(loop.index, n_buckets), wide)
        position = builder.mul(column, ir.Constant(INDEX, LANES))
        entry = vector_in(builder, table, position, BYTES)
        builder.store(builder.call(add, [builder.load(total), entry]), total)
    return builder.load(total)


@intrinsic(types.uint64, *OF_LANES)
def lanes_within(
    builder: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, n_buckets: Any,
    limits: Any,
) -> Any:  # fmt: skip
    """Return a uint64 whose bit q says whether the sum of lane q is within its limit."""
    total = _sum_lanes(builder, table, codes, first, n_repetitions, n_buckets)
    limits = vector_in(builder, limits, START, BYTES)
    return builder.bitcast(builder.icmp_unsigned("<=", total, limits), INDEX)


@intrinsic(types.void, *OF_LANES)
def keep_smaller(
    builder: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, n_buckets: Any,
    numbers: Any,
) -> None:  # fmt: skip
    """Bring the last array to the smaller of its numbers and the sums."""
    total = _sum_lanes(builder, table, codes, first, n_repetitions, n_buckets)
    place = vector_at(builder, numbers, START, BYTES)
    choose = bytes_function(builder, "umin")
    builder.store(builder.call(choose, [total, builder.load(place, align=1)]), place, align=1)
