"""Compiled writers of rows as text: VW, and that of the XMC repository."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.system.jit import Array, Number, kernel
from tools.synthetic.kernels import four_digits

NEWLINE, SPACE, COMMA, DOT, ZERO, COLON, BAR = 10, 32, 44, 46, 48, 58, 124
VALUE_BYTES, LABEL_BYTES, LINE_BYTES = 22, 11, 5  # of text, at most


@kernel(inline=True)
def write_integer(out: Array, p: int, number: Number) -> Any:
    """Write a uint32; return the position behind it."""
    end, limit = p + 1, np.uint64(10)
    while np.uint64(number) >= limit:
        limit *= np.uint64(10)
        end += 1
    for q in range(end - 1, p - 1, -1):
        rest = number // np.uint32(10)
        out[q] = np.uint32(ZERO) + (number - rest * np.uint32(10))
        number = rest
    return end


@kernel(inline=True)
def write_number(out: Array, p: int, value: float) -> Any:
    """Write a number from 1e-4 to 9999 with four significant digits, as ``%.4g`` does."""
    digits, decimals = four_digits(value)
    if decimals > 3:  # 0.0ddd
        out[p], out[p + 1] = ZERO, DOT
        p += 2
        for _ in range(decimals - 4):
            out[p] = ZERO
            p += 1
    number = np.uint32(digits)
    p += 4 + (0 < decimals < 4)
    for q in range(1, 5):
        rest = number // np.uint32(10)
        out[p - q - (q > decimals > 0)] = np.uint32(ZERO) + (number - rest * np.uint32(10))
        number = rest
    if 0 < decimals < 4:
        out[p - decimals - 1] = DOT
    if decimals > 0:
        while out[p - 1] == ZERO:
            p -= 1
        if out[p - 1] == DOT:
            p -= 1
    return p


@kernel(fastmath=False)
def text_lines(
    indptr: Array, features: Array, values: Array, starts: Array, labels: Array, xmc: bool,
    out: Array,
) -> Any:  # fmt: skip
    """Write rows as text, classes counted from 1; return the bytes.

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
        The rows; values from 1e-4 to 9999 are written with four significant digits.
    starts, labels : int64 (n + 1,), int32 (m,)
        Their classes.
    xmc : bool
        Whether it is XMC text: no bar, and each value is said. In VW text a value of 1 is left out.
    out : uint8 (bytes,)
        Receives the lines.
    """
    p = 0
    for r in range(starts.shape[0] - 1):
        for i in range(starts[r], starts[r + 1]):
            p = write_integer(out, p, np.uint32(labels[i] + 1))
            out[p] = COMMA if i + 1 < starts[r + 1] else SPACE
            p += 1
        if not xmc:
            out[p] = BAR
            p += 1
        for i in range(indptr[r], indptr[r + 1]):
            if not xmc or i > indptr[r] or starts[r] == starts[r + 1]:
                out[p] = SPACE
                p += 1
            p = write_integer(out, p, np.uint32(features[i]))
            if xmc or values[i] != np.float32(1):
                out[p] = COLON
                p = write_number(out, p + 1, np.float64(values[i]))
        out[p] = NEWLINE
        p += 1
    return p
