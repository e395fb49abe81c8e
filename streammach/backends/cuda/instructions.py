"""The functions that kernels call: a card's instructions, or plain Python in Numba's simulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import config

from streammach.backends import rowmath
from streammach.backends.cuda import simulated, toolchain
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import STRIDING
from streammach.system.jit import Array, Number

SIMULATED: bool = bool(config.ENABLE_CUDASIM)
if SIMULATED:
    source: Any = simulated
    device, shared, compiled = (
        simulated.device, simulated.as_device_function, simulated.compile_kernel,
    )  # fmt: skip
else:
    source = toolchain
    device, shared, compiled = toolchain.device, toolchain.as_device_function, Kernel
int64: Any = np.int64  # positions in kernels: wide in the simulator too, and no type to follow
get, put, get2, put2, get4, put4 = (
    source.get, source.put, source.get2, source.put2, source.get4, source.put4,
)  # fmt: skip
get2_constant, get4_constant = source.get2_constant, source.get4_constant
bits_of, float_of, product = source.bits_of, source.float_of, source.product
warp_sum, warp_max, peers = source.warp_sum, source.warp_max, source.peers
exchanged4, from_lane = source.exchanged4, source.from_lane
popc, first_lane = source.popc, source.first_lane


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
