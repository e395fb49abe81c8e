"""The instructions that kernels need and numba-cuda's own API lacks; all of them live here.

Arrays of four scalars, records and vector types are loaded word by word (``ld.global.f32``), and a
signed index costs a comparison and a selection; these intrinsics give one instruction each. In
Numba's simulator plain Python stands for them.
"""

from __future__ import annotations

import math
import types as python_types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import config, types

from streammach.backends import rowmath
from streammach.backends.cuda import simulated
from streammach.backends.cuda.launcher import Kernel, cuda, intrinsic
from streammach.backends.cuda.shapes import STRIDING
from streammach.jit import Array, Number

F = TypeVar("F", bound=Callable[..., Any])
SIMULATED: bool = bool(config.ENABLE_CUDASIM)
WORDS = {types.float32: ir.FloatType(), types.uint32: ir.IntType(32), types.int32: ir.IntType(32)}
GLOBAL = 1  # the address space of device memory
INT32 = ir.IntType(32)
int64: Any = np.int64  # positions in kernels: wide in the simulator too, and no type to follow


def _device(function: F) -> F:
    """Make a function that kernels take in as if its body stood there."""
    # Any other device function asks the driver for the present GPU when it is typed.
    made: F = cuda.jit(device=True, inline="always")(function)
    return made


def _as_device_function(function: F, **names: Any) -> F:
    """Make a device function of a body that the CPU compiles too, with some names replaced."""
    plain = getattr(function, "py_func", function)  # none where Numba is told not to compile
    copied = python_types.FunctionType(
        plain.__code__, {**plain.__globals__, **names}, plain.__name__, plain.__defaults__
    )
    return _device(copied)  # type: ignore[return-value]


def _pointer(
    context: Any, builder: Any, kind: Any, array: Any, position: Any, n_words: int
) -> tuple[Any, Any]:
    """Return the address of some words in device memory, and the type of one."""
    word = WORDS[kind.dtype]
    address = builder.gep(context.make_array(kind)(context, builder, array).data, [position])
    address = builder.addrspacecast(address, ir.PointerType(word, GLOBAL))
    return builder.bitcast(address, ir.PointerType(ir.VectorType(word, n_words), GLOBAL)), word


def _wide_load(n_words: int, *, constant: bool) -> Any:
    def load(typing: Any, a: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address, _ = _pointer(context, builder, signature.args[0], args[0], args[1], n_words)
            vector = builder.load(address, align=4 * n_words)
            if constant:  # no one writes it during the kernel: the read-only path
                vector.set_metadata("invariant.load", builder.module.add_metadata([]))
            parts = [builder.extract_element(vector, INT32(lane)) for lane in range(n_words)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(a.dtype, n_words)(a, types.intp), generate

    return intrinsic(load)


def _narrow_load(typing: Any, a: Any, i: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return context.unpack_value(builder, signature.return_type, builder.gep(data, [args[1]]))

    return a.dtype(a, types.intp), generate


def _narrow_store(typing: Any, a: Any, i: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        context.pack_value(builder, signature.args[2], args[2], builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(a, types.intp, a.dtype), generate


def _wide_store(n_words: int) -> Any:
    def store(typing: Any, a: Any, i: Any, v: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address, word = _pointer(context, builder, signature.args[0], args[0], args[1], n_words)
            vector = ir.Constant(ir.VectorType(word, n_words), ir.Undefined)
            for lane in range(n_words):
                part = builder.extract_value(args[2], lane)
                vector = builder.insert_element(vector, part, INT32(lane))
            builder.store(vector, address, align=4 * n_words)
            return context.get_dummy_value()

        return types.void(a, types.intp, types.UniTuple(a.dtype, n_words)), generate

    return intrinsic(store)


def _cast(source: Any, target: Any) -> Any:
    def cast(typing: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], WORDS[target])

        return target(source), generate

    return intrinsic(cast)


if SIMULATED:
    device, shared, compiled = (
        simulated.device,
        simulated.as_device_function,
        simulated.compile_kernel,
    )
    get, put, product = simulated.get, simulated.put, simulated.product
    get4 = get4_constant = simulated.wide_get(4)
    get2 = get2_constant = simulated.wide_get(2)
    put4, put2 = simulated.wide_put(4), simulated.wide_put(2)
    bits_of, float_of = simulated.bits_of, simulated.float_of
    warp_sum, warp_max = simulated.warp_sum, simulated.warp_max
    exchanged4, from_lane = simulated.exchanged4, simulated.from_lane
    peers, popc, first_lane = simulated.peers, simulated.popc, simulated.first_lane
else:
    device, shared, compiled = _device, _as_device_function, Kernel
    get, put = intrinsic(_narrow_load), intrinsic(_narrow_store)
    get4, get4_constant = _wide_load(4, constant=False), _wide_load(4, constant=True)
    get2, get2_constant = _wide_load(2, constant=False), _wide_load(2, constant=True)
    put4, put2 = _wide_store(4), _wide_store(2)
    bits_of, float_of = _cast(types.float32, types.uint32), _cast(types.uint32, types.float32)

    @device
    def product(a: Number, b: Number) -> Any:
        """Return the lower 32 bits of a product."""
        return np.uint32(a * b)

    @device
    def warp_sum(x: Number) -> Any:
        """Return the sum over the warp, in the same order in every thread."""
        for distance in (16, 8, 4, 2, 1):
            x += cuda.shfl_xor_sync(0xFFFFFFFF, x, distance)
        return x

    @device
    def warp_max(x: Number) -> Any:
        """Return the largest value of the warp."""
        for distance in (16, 8, 4, 2, 1):
            x = max(x, cuda.shfl_xor_sync(0xFFFFFFFF, x, distance))
        return x

    @device
    def exchanged4(v: Any, distance: Number) -> Any:
        """Return the four numbers of the lane whose number differs by one bit, `distance`."""
        return (
            cuda.shfl_xor_sync(0xFFFFFFFF, v[0], distance),
            cuda.shfl_xor_sync(0xFFFFFFFF, v[1], distance),
            cuda.shfl_xor_sync(0xFFFFFFFF, v[2], distance),
            cuda.shfl_xor_sync(0xFFFFFFFF, v[3], distance),
        )

    @device
    def from_lane(x: Number, lane: Number) -> Any:
        """Return the number that a lane of the warp brings."""
        return cuda.shfl_sync(0xFFFFFFFF, x, lane)

    @device
    def peers(x: Number, bits: Number) -> Any:
        """Return the lanes of the warp whose x, of so many bits, is the caller's: an int64 mask."""
        mask = int64(0xFFFFFFFF)
        for bit in range(bits):
            mine = x >> bit & 1
            others = int64(cuda.ballot_sync(0xFFFFFFFF, mine != 0))
            mask &= others if mine else ~others
        return mask

    @device
    def popc(mask: Number) -> Any:
        """Return how many lanes a mask has."""
        return int64(cuda.popc(mask))

    @device
    def first_lane(mask: Number) -> Any:
        """Return the first lane of a mask that has some."""
        return np.int32(cuda.ffs(mask)) - np.int32(1)


@device
def lanes_below(lane: Number) -> Any:
    """Return the mask of the lanes before one."""
    return (int64(1) << lane) - int64(1)


@device
def ones(flag: Number, lane: Number) -> Any:
    """Return how many lanes before the caller's have the flag 1, and how many in all; or 0."""
    same = peers(flag, 1)
    mask = same if flag else same ^ int64(0xFFFFFFFF)
    return popc(mask & lanes_below(lane)), popc(mask)


@device
def whole(x: Number) -> Any:
    """Return the largest whole number that is not above float32 `x`, as float32."""
    return math.floor(x)


@device
def power_of_two(n: Number) -> Any:
    """Return 2^n for a whole float32 n: its bits are the biased exponent."""
    return float_of(np.uint32((n + rowmath.EXPONENT_BIAS) * rowmath.EXPONENT_UNIT))


exp = shared(rowmath.exp, whole=whole, power_of_two=power_of_two)
cosine = shared(rowmath.cosine, whole=whole)
log_one_more = shared(rowmath.log_one_more)
sigmoid = shared(rowmath.sigmoid, exp=exp)
log_sigmoid = shared(rowmath.log_sigmoid, exp=exp, log_one_more=log_one_more)
residual = shared(rowmath.residual)
adagrad_step = shared(rowmath.adagrad_step)
adam_moment = shared(rowmath.adam_moment)
adam_step = shared(rowmath.adam_step)


@lru_cache
def striding(function: Callable[..., None]) -> Any:
    """Return a kernel whose threads stride over entries."""
    return compiled(function, STRIDING)


@lru_cache
def bucket_function(bits: int) -> Callable[..., Any]:
    """Return ``bucket(codes, first, i)`` of class i, by codes of so many bits from word `first`."""
    per_word, mask = 32 // bits, (1 << bits) - 1

    @device
    def bucket(codes: Array, first: Number, i: Number) -> Any:
        shift = np.uint32(i % per_word * bits)
        return int64(get(codes, first + i // per_word) >> shift) & mask

    return bucket
