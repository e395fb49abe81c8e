"""Loops over the bytes of names and numbers: ``float32(float64(text))``, exactly as in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.inputs.formats.parsed import (
    COLON,
    MINUS,
    NEWLINE,
    NINE,
    NO_NUMBER,
    NOT_FINITE,
    OK,
    PLUS,
    SPACE,
    ZERO,
)
from streammach.rows.name_table import LARGEST, mix, start_state
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import HIGH, ONES, load8, low_bytes, trailing_zeros, zero_bytes

DOT, LETTER_E, LETTER_I, LETTER_N = 46, 101, 105, 110
POWERS = np.array([float(f"1e{k}") for k in range(309)])
MAX_FLOAT32 = 3.4028235677973366e38  # the first float64 that rounds to infinity
SMALLEST_NORMAL = 1.1754943508222875e-38
HALFWAY = 1 << 28  # the low 29 bits of a float64 that lies between two float32
DROPPED_BITS = (1 << 29) - 1
EXACT_DIGITS = np.uint64(1 << 53)


@kernel(fastmath=False, inline=True, inner=True)
def leading_digits(word: Number) -> Any:
    """Return how many of eight bytes are digits up to the first that is not, and their value."""
    x = word ^ (ONES * np.uint64(ZERO))
    count = trailing_zeros(((x + ONES * np.uint64(0x76)) | x) & HIGH) >> np.uint64(3)
    x = x << (np.uint64(64) - np.uint64(8) * count) if count > np.uint64(0) else np.uint64(0)
    x = (x * np.uint64(2561)) >> np.uint64(8)  # pairs of digits: 10 a + b
    x = ((x & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    x = ((x & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return np.int64(count), x


@kernel(fastmath=False, inner=True)
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


@kernel(fastmath=False, inline=True, inner=True)
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


@kernel(fastmath=False, inline=True, inner=True)
def must_be_rounded_again(value: Number, exact: bool) -> Any:
    """Return whether float32(value) could differ from the text's own rounding."""
    # `value` is within 2 units in the last place of the text's float64, so this is so only near the
    # middle between two float32, or below the normal ones, where that middle lies elsewhere.
    low = np.float64(value).view(np.int64) & DROPPED_BITS
    near = abs(low - HALFWAY) <= 4 or (abs(value) < SMALLEST_NORMAL and value != 0.0)
    return not exact and near


@kernel(fastmath=False, inline=True, inner=True)
def name_at(text: Array, p: int, space: int, stop: int) -> Any:
    """Return hash, first word and end of the name at `p`."""
    # It ends before a blank, a control byte, ':' or the byte `stop`.
    state, first = start_state(space), np.uint64(0)
    start = p
    while True:
        word = load8(text, p)
        colon = zero_bytes(word ^ (ONES * np.uint64(COLON)))
        other = zero_bytes(word ^ (ONES * np.uint64(stop)))
        blank = (word - ONES * np.uint64(SPACE + 1)) & ~word & HIGH
        count: Any = np.int64(trailing_zeros(colon | other | blank) >> np.uint64(3))
        word = low_bytes(word, count)
        if count > 0:
            if p == start:
                first = word
            state = mix(state, word)
        p += count
        if count < 8:
            return min(state, LARGEST), first, p


@kernel(fastmath=False, inline=True, inner=True)
def is_blank(byte: int) -> Any:
    """Return whether a byte separates tokens: space, tab, carriage return, vertical tab, feed."""
    return byte == SPACE or (9 <= byte <= 13 and byte != NEWLINE)


@kernel(fastmath=False, inner=True)
def token_end(text: Array, p: int, stop: int) -> Any:
    """Return the first position from `p` on that holds a blank, a control byte or `stop`."""
    while text[p] > SPACE and text[p] != stop:
        p += 1
    return p


@kernel(fastmath=False, inner=True)
def all_digits(text: Array, start: int, end: int) -> Any:
    """Return whether the bytes are at most 18 digits without sign or leading zero."""
    if end - start > 18 or end == start or (text[start] == ZERO and end - start > 1):
        return False
    for q in range(start, end):
        if not ZERO <= text[q] <= NINE:
            return False
    return True


@kernel(fastmath=False, inner=True)
def is_below(text: Array, start: int, end: int, limit: int) -> Any:
    """Return whether the bytes are a number from 0 to below `limit`, in its usual form."""
    if not all_digits(text, start, end):
        return False
    found = np.int64(0)
    for q in range(start, end):
        found = found * 10 + (np.int64(text[q]) - ZERO)
    return found < limit


@kernel(fastmath=False, inline=True, inner=True)
def small_number(first: Number, in_slot: int, most: int) -> Any:
    """Return the number below `most` that a name is, by its first word, or -1."""
    # `in_slot` is its namespace and length as a slot of names has them.
    number = np.int64(-1)
    if in_slot < 8:  # no namespace, and less than a word
        digits, value = leading_digits(first)
        usual = in_slot == 1 or first & np.uint64(0xFF) != np.uint64(ZERO)
        if digits == in_slot and usual and value < np.uint64(most):
            number = np.int64(value)
    return number


@kernel(fastmath=False, inner=True)
def next_line(text: Array, p: int) -> Any:
    """Return where the line after the one at `p` starts."""
    while text[p] != NEWLINE:
        p += 1
    return p + 1
