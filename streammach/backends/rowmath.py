"""The arithmetic of one number, shared by every backend.

Each function takes and gives scalars, so that the same body is compiled into the CPU's loops and
into the GPU's; a device that lacks a way to floor, or to make a float of bits, replaces `whole` and
`power_of_two`. All arithmetic is float32 unless it says otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streammach.system.jit import Number, kernel

LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # few bits: a small integer times it is exact
LN2_LOW = np.float32(-2.12194440e-4)
EXPONENT_BIAS = np.float32(127)
EXPONENT_UNIT = np.float32(1 << 23)
# Below it exp counts as 0: the squares of what is left stay normal float32 numbers. Subnormal ones
# cost a hundred times as much (measured on dense rows: half the speed after the first epoch).
LOWEST = np.float32(-40)
NEGLIGIBLE = np.float32(1e-30)
ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
L3, L5, L7, L9, L11, L13 = (np.float32(1 / n) for n in range(3, 14, 2))
C2, C3, C4 = np.float32(5.0000001201e-1), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
C5, C6, C7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
TURNS = np.float32(1 / (2 * math.pi))
TURN_HIGH = np.float32(6.28125)  # few bits
TURN_LOW = np.float32(2 * math.pi - 6.28125)
K4, K6, K8, K10, K12, K14, K16 = (np.float32(1 / math.factorial(n)) for n in range(4, 17, 2))


@kernel(inline=True)
def whole(x: Number) -> Any:
    """Return the largest whole number that is not above float32 `x`, as float32."""
    return np.floor(x)


@kernel(inline=True)
def power_of_two(n: Number) -> Any:
    """Return 2^n for a whole float32 n: its bits are the biased exponent."""
    return np.int32((n + EXPONENT_BIAS) * EXPONENT_UNIT).view(np.float32)


@kernel(fastmath=False)
def exp(x: Number) -> Any:
    """Return e^x for float32 x <= 0, within 2 units in the last place, and 0 for x below -40."""
    # 2^n times a polynomial of degree 7 on [-ln 2 / 2, ln 2 / 2]; no table and no branch, so that
    # loops over it vectorise and every device gives nearly the same bits.
    y = max(x, LOWEST)
    n = whole(y * LOG2_E + HALF)
    f = y - n * LN2_HIGH - n * LN2_LOW
    p = ((((C7 * f + C6) * f + C5) * f + C4) * f + C3) * f + C2
    p = p * f * f + f + ONE
    e = p * power_of_two(n)
    return np.float32(0) if x < LOWEST else e


@kernel(fastmath=False)
def log_one_more(e: Number) -> Any:
    """Return ln(1 + e) for float32 e from 0 to 1, within 2e-7."""
    # 2 artanh(t) with t = e / (2 + e), which is 1/3 at most: seven terms of its series.
    t = e / (TWO + e)
    s = t * t
    return TWO * t * (ONE + s * (L3 + s * (L5 + s * (L7 + s * (L9 + s * (L11 + s * L13))))))


@kernel(inline=True)
def sigmoid(x: Number) -> Any:
    """Return 1 / (1 + e^-x) for float32 `x`."""
    e = exp(-abs(x))
    return (ONE if x >= ZERO else e) / (ONE + e)


@kernel(inline=True)
def log_sigmoid(x: Number) -> Any:
    """Return ln(1 / (1 + e^-x)) for float32 `x`."""
    return min(x, ZERO) - log_one_more(exp(-abs(x)))


@kernel(fastmath=False)
def cosine(x: Number) -> Any:
    """Return the cosine of float32 `x`, within 1e-6 for up to a thousand turns."""
    # A polynomial on [-pi, pi], as for exp.
    n = whole(x * TURNS + HALF)
    f = x - n * TURN_HIGH - n * TURN_LOW
    s = f * f
    p = (((((((K16 * s - K14) * s + K12) * s - K10) * s + K8) * s - K6) * s + K4) * s - HALF) * s
    return p + ONE


@kernel(inline=True)
def residual(p: Number, hit: bool, smoothing: Number, n_buckets: int) -> Any:
    """Return d loss / d logit of one bucket: its probability less its share of the target."""
    # The target of the true bucket is 1 - smoothing + smoothing / B, of the others smoothing / B.
    target = smoothing / np.float32(n_buckets)
    return p - target - (ONE - smoothing if hit else np.float32(0))


@kernel(inline=True)
def adagrad_step(rate: Number, accumulated: Number, epsilon: Number) -> Any:
    """Return ``rate / sqrt(accumulated + epsilon)``, the factor of a row's gradient."""
    return rate / np.float32(math.sqrt(accumulated + epsilon))


@kernel(inline=True)
def adam_moment(moment: Number, value: Number, decay: Number) -> Any:
    """Return the running mean ``decay * moment + (1 - decay) * value``; below 1e-30 it is 0."""
    mean = decay * moment + (ONE - decay) * value
    return mean if abs(mean) > NEGLIGIBLE else np.float32(0)


@kernel(inline=True)
def adam_step(first: Number, second: Number, rate: Number, epsilon: Number) -> Any:
    """Return what Adam takes off a weight: ``rate * first / (sqrt(second) + epsilon)``."""
    # `rate` and `epsilon` carry the corrections of the first steps' bias:
    # rate * sqrt(1 - b2^t) / (1 - b1^t) and epsilon * sqrt(1 - b2^t).
    return rate * first / (np.float32(math.sqrt(second)) + epsilon)
