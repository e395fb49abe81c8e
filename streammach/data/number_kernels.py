"""Compiled reading of decimal numbers: ``float32(float64(text))``, exactly as Python reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.jit import Array, Number, kernel
from streammach.simd import HIGH, ONES, load8, trailing_zeros

OK, NO_NUMBER, NOT_FINITE = 0, 8, 9  # among the reasons of streammach.data.formats.parsed
SPACE, PLUS, MINUS, DOT, ZERO, NINE = 32, 43, 45, 46, 48, 57
LETTER_E, LETTER_I, LETTER_N = 101, 105, 110
POWERS = np.array([float(f"1e{k}") for k in range(309)])
MAX_FLOAT32 = 3.4028235677973366e38  # the first float64 that rounds to infinity
SMALLEST_NORMAL = 1.1754943508222875e-38
HALFWAY = 1 << 28  # the low 29 bits of a float64 that lies between two float32
DROPPED_BITS = (1 << 29) - 1
EXACT_DIGITS = np.uint64(1 << 53)


@kernel(inline=True)
def leading_digits(word: Number) -> Any:
    """Return how many of eight bytes are digits up to the first that is not, and their value."""
    x = word ^ (ONES * np.uint64(ZERO))
    count = trailing_zeros(((x + ONES * np.uint64(0x76)) | x) & HIGH) >> np.uint64(3)
    x = x << (np.uint64(64) - np.uint64(8) * count) if count > np.uint64(0) else np.uint64(0)
    x = (x * np.uint64(2561)) >> np.uint64(8)  # pairs of digits: 10 a + b
    x = ((x & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    x = ((x & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return np.int64(count), x


@kernel(fastmath=False)
def long_number(text: Array, p: int) -> Any:
    """Read any decimal number at `p`: value, its end, a reason or OK, and whether it is exact."""
    # Up to 15 digits with an exponent within 22 give one product or quotient of exact float64,
    # which is rounded correctly; beyond that the value is within 2 units in its last place.
    negative = text[p] == MINUS
    if negative or text[p] == PLUS:
        p += 1
    mantissa, exponent, dots, start = np.uint64(0), 0, 0, p
    exact: Any = True
    while ZERO <= text[p] <= NINE or (text[p] == DOT and dots == 0):
        if text[p] == DOT:
            dots = 1
        elif mantissa < np.uint64(10**18):
            mantissa = mantissa * np.uint64(10) + np.uint64(text[p] - ZERO)
            exponent -= dots
        else:
            exact = exact and text[p] == ZERO
            exponent += 1 - dots
        p += 1
    if p - start == dots:
        word = text[p] | 32
        return 0.0, p, NOT_FINITE if word in (LETTER_I, LETTER_N) else NO_NUMBER, True
    if text[p] | 32 == LETTER_E:
        sign = text[p + 1]
        p += 2 if sign in (MINUS, PLUS) else 1
        power, start = 0, p
        while ZERO <= text[p] <= NINE:
            power = min(power * 10 + (text[p] - ZERO), 99999)
            p += 1
        if p == start:
            return 0.0, p, NO_NUMBER, True
        exponent += -power if sign == MINUS else power
    value = np.float64(mantissa)
    exact = exact and mantissa <= EXACT_DIGITS and abs(exponent) <= 22
    if exponent < 0:
        value = value / POWERS[min(-exponent, 22)] / POWERS[min(max(-exponent - 22, 0), 308)]
    elif mantissa > np.uint64(0):
        value = value * POWERS[min(exponent, 308)]
    return -value if negative else value, p, OK, exact or mantissa == np.uint64(0)


@kernel(fastmath=False, inline=True)
def number(text: Array, p: int) -> Any:
    """Read a number at `p` as :func:`long_number` does, with a short way for ``d`` and ``d.d``."""
    whole, value = leading_digits(load8(text, p))
    if 0 < whole < 8 and text[p + whole] <= SPACE:
        return np.float64(value), p + whole, OK, True
    if 0 < whole < 8 and text[p + whole] == DOT:
        digits, fraction = leading_digits(load8(text, p + whole + 1))
        end = p + whole + 1 + digits
        if digits < 8 and text[end] <= SPACE:
            joined = np.float64(value) * POWERS[digits] + np.float64(fraction)
            return joined / POWERS[digits], end, OK, True
    return long_number(text, p)


@kernel(fastmath=False, inline=True)
def must_be_rounded_again(value: Number, exact: bool) -> Any:
    """Return whether float32(value) could differ from the text's own rounding."""
    # `value` is within 2 units in the last place of the text's float64, so this is so only near the
    # middle between two float32, or below the normal ones, where that middle lies elsewhere.
    low = np.float64(value).view(np.int64) & DROPPED_BITS
    near = abs(low - HALFWAY) <= 4 or (abs(value) < SMALLEST_NORMAL and value != 0.0)
    return not exact and near
