"""Narrow weights: whole numbers of a few bits, and one unit a row that these are multiples of.

Gains of counts become multiples of one unit for all.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import NO_SIGN
from streammach.system.jit import Array, Number, kernel

TINY = np.finfo(np.float32).tiny  # the least unit
NORMAL = np.float32(2.0**-14)  # below it float16 has fixed steps: so many a unit, all and short
HALF_STEPS, SHORT_STEPS = np.float32(2.0**24), np.float32(2.0**18)
LOWEST = -(1 << 15)  # of int16
PIECE_GAINS = 1 << 18  # that are looked at at once
LOW, HIGH = np.uint32(0xFFFF), np.uint32(0xFFFF0000)  # bits of a unit: the low ones are 0


def round_rows(
    weights: NDArray[np.float32], levels: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return weights float32 (n, m) as whole numbers from -levels to levels, and rows' units."""
    numbers, units = np.empty(weights.shape, np.int8), np.empty(len(weights), np.float32)
    quantize_rows(np.ascontiguousarray(weights), np.float32(levels), numbers, units)
    return numbers, units


@kernel()
def quantize_rows(weights: Array, levels: Number, numbers: Array, units: Array) -> None:
    """Write weights float32 (n, m) as int8 (n, m) and units float32 (n,); levels is a float32."""
    for i in range(weights.shape[0]):
        quantize_row(weights[i], levels, numbers[i], units[i : i + 1])


@kernel(fastmath=False, inner=True)
def quantize_row(weights: Array, levels: Number, numbers: Array, unit: Array) -> None:
    """Write the first of a row's weights as whole numbers from -levels to levels, and their unit.

    Parameters
    ----------
    weights, levels : float32 (m,), float32
        The weights and the largest number.
    numbers, unit : int8 (n,), float32 (1,)
        Receive the first n weights and what the numbers are multiples of. It has 8 significant
        bits, rounded up: its low bytes are 0 and cost nothing on disk.
    """
    bits, word, largest = weights.view(np.uint32), unit.view(np.uint32), np.uint32(0)
    for c in range(numbers.shape[0]):
        largest = max(largest, bits[c] & NO_SIGN)
    word[0] = largest
    unit[0] = max(unit[0] / levels, TINY) if largest else np.float32(1)
    word[0] = (word[0] + LOW) & HIGH
    size = unit[0]
    for c in range(numbers.shape[0]):
        numbers[c] = np.int8(np.rint(weights[c] / size))


@kernel(fastmath=False)
def round_halves(weights: Array, most: Number, short: bool, out: Array) -> None:
    """Write weights as float16 keeps them, or with four bits of its mantissa, of equals the larger.

    Parameters
    ----------
    weights, most, short, out : float32 (n, m), float32, bool, float32 (n, m)
        The weights, the largest that is kept, whether they get four bits, and what receives them.
    """
    words = out.view(np.uint32)
    for i in range(weights.shape[0]):
        given, row, bits = weights[i], out[i], words[i]
        for c in range(row.shape[0]):
            x = min(max(given[c], -most), most)
            steps = np.rint(x * HALF_STEPS) / HALF_STEPS
            row[c] = steps if abs(x) < NORMAL else x
        for c in range(row.shape[0]):
            bits[c] = (bits[c] + np.uint32(0xFFF) + ((bits[c] >> 13) & 1)) & np.uint32(0xFFFFE000)
        if not short:
            continue
        for c in range(row.shape[0]):
            x = row[c]
            steps = np.floor(abs(x) * SHORT_STEPS + np.float32(0.5)) / SHORT_STEPS
            row[c] = np.copysign(steps, x) if abs(x) < NORMAL else x
        for c in range(row.shape[0]):
            bits[c] = (bits[c] + np.uint32(0x40000)) & np.uint32(0xFFF80000)


@kernel()
def round_gains(gains: Array, unit: Number, largest: Number, out: Array) -> None:
    """Write gains as the nearest multiples of a unit, the even one of two.

    Parameters
    ----------
    gains, unit, largest, out : int16 (n,), float32, float32, int16 (n,)
        The gains; their unit; the largest multiple, which is as far below 0 the smallest one; and
        what receives them, which may be the gains.
    """
    for i in range(gains.shape[0]):
        nearest = np.rint(np.float32(gains[i]) / unit) * unit
        out[i] = np.int16(min(max(nearest, -largest), largest))


def numbers_of(arrays: Iterable[NDArray[np.int16]]) -> NDArray[np.int64]:
    """Return how often each gain occurs, from the smallest one that can be: int64 (65536,)."""
    found = np.zeros(1 << 16, np.int64)
    for gains in arrays:
        for start in range(0, len(gains), PIECE_GAINS):
            piece = gains[start : start + PIECE_GAINS].astype(np.int32) - LOWEST
            found += np.bincount(piece, minlength=len(found))
    return found


def nth_largest(numbers: NDArray[np.int64], n: int) -> int:
    """Return the gain that so many pairs have at least, the largest one if that is none."""
    place: int = min(int(np.searchsorted(np.cumsum(numbers[::-1]), n)), len(numbers) - 1)
    return len(numbers) - 1 - place + LOWEST
