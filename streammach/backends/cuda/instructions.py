"""The functions that kernels call, made of a card's instructions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from streammach.backends import rowmath
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import STRIDING
from streammach.backends.cuda.toolchain import (
    as_device_function,
    device,
    float_of,
    get,
    peers,
    popc,
)
from streammach.system.jit import Array, Number

int64: Any = np.int64  # positions in kernels: wide everywhere, and no type to follow


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


exp = as_device_function(rowmath.exp, whole=whole, power_of_two=power_of_two)
cosine = as_device_function(rowmath.cosine, whole=whole)
log_one_more = as_device_function(rowmath.log_one_more)
sigmoid = as_device_function(rowmath.sigmoid, exp=exp)
log_sigmoid = as_device_function(rowmath.log_sigmoid, exp=exp, log_one_more=log_one_more)
residual = as_device_function(rowmath.residual)
adagrad_step = as_device_function(rowmath.adagrad_step)
adam_moment = as_device_function(rowmath.adam_moment)
adam_step = as_device_function(rowmath.adam_step)


@lru_cache
def striding(function: Callable[..., None]) -> Any:
    """Return a kernel whose threads stride over entries."""
    return Kernel(function, STRIDING)


@lru_cache
def bucket_function(bits: int) -> Callable[..., Any]:
    """Return ``bucket(codes, first, i)`` of class i, by codes of so many bits from word `first`."""
    per_word, mask = 32 // bits, (1 << bits) - 1

    @device
    def bucket(codes: Array, first: Number, i: Number) -> Any:
        shift = np.uint32(i % per_word * bits)
        return int64(get(codes, first + i // per_word) >> shift) & mask

    return bucket
