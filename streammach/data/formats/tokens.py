"""Loops over the bytes of names and numbers, which all text formats share."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.data.formats.parsed import COLON, NEWLINE, NINE, SPACE, ZERO
from streammach.data.number_kernels import leading_digits
from streammach.jit import Array, Number, kernel
from streammach.rows.name_table import LARGEST, mix, start_state
from streammach.simd import HIGH, ONES, load8, low_bytes, trailing_zeros, zero_bytes


@kernel(inline=True)
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


@kernel(inline=True)
def is_blank(byte: int) -> Any:
    """Return whether a byte separates tokens: space, tab, carriage return, vertical tab, feed."""
    return byte == SPACE or (9 <= byte <= 13 and byte != NEWLINE)


@kernel(fastmath=False)
def token_end(text: Array, p: int, stop: int) -> Any:
    """Return the first position from `p` on that holds a blank, a control byte or `stop`."""
    while text[p] > SPACE and text[p] != stop:
        p += 1
    return p


@kernel(fastmath=False)
def all_digits(text: Array, start: int, end: int) -> Any:
    """Return whether the bytes are at most 18 digits without sign or leading zero."""
    if end - start > 18 or end == start or (text[start] == ZERO and end - start > 1):
        return False
    for q in range(start, end):
        if not ZERO <= text[q] <= NINE:
            return False
    return True


@kernel(fastmath=False)
def is_below(text: Array, start: int, end: int, limit: int) -> Any:
    """Return whether the bytes are a number from 0 to below `limit`, in its usual form."""
    if not all_digits(text, start, end):
        return False
    found = np.int64(0)
    for q in range(start, end):
        found = found * 10 + (np.int64(text[q]) - ZERO)
    return found < limit


@kernel(inline=True)
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


@kernel(fastmath=False)
def next_line(text: Array, p: int) -> Any:
    """Return where the line after the one at `p` starts."""
    while text[p] != NEWLINE:
        p += 1
    return p + 1
