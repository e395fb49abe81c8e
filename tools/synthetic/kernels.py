"""Compiled makers of rows that can be learnt, and of VW text.

Every number is a hash of (seed, row, place in the row), in integer and float64 arithmetic that
rounds the same everywhere: a row is the same bits on every machine, whichever rows are made beside
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.jit import Array, Number, kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW32 = np.uint64(0xFFFFFFFF)
LOW16 = np.uint64(0xFFFF)
HALF = np.uint64(32)

# Rows of counts.
WORDS, WORD_OCTAVES = 64, 7  # features that a class, and a group of classes, prefers
GROUP_CLASSES = 16
FEWEST_TOKENS, MORE_TOKENS = 38, 56
OWN_PARTS = 3  # a row's share of tokens from its class or group is drawn from 0 to 1 / OWN_PARTS
SLOTS = 192  # of the table that sorts the tokens of a row
EMPTY = -1

# Rows of activations: four 16-bit numbers are nearly normal.
NORMAL_MEAN = 2.0 * 65535
NORMAL_DEVIATION = 37837.2  # 65536 * sqrt(4 / 12)
SMALLEST, LARGEST = 1e-4, 9999.5  # what four digits without an exponent can say
DIGITS = 10_000
POWERS = np.array([10.0**k for k in range(8)])

NEWLINE, SPACE, DOT, ZERO, COLON, BAR = 10, 32, 46, 48, 58, 124


@kernel(inline=True)
def mixed(x: Number) -> Any:
    """Return the hash of a uint64: the finaliser of splitmix64."""
    z = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel(inline=True)
def drawn(state: Number, place: int) -> Any:
    """Return the 64 random bits that belong to a state and a place."""
    return mixed(state + GOLDEN * np.uint64(place + 1))


@kernel(inline=True)
def below(bits: Number, n: Number) -> Any:
    """Return a number from 0 to n - 1 from the high half of random bits; `n` is below 2^32."""
    return np.int64(((bits >> HALF) * np.uint64(n)) >> HALF)


@kernel(inline=True)
def zipf(bits: Number, octaves: int, n: int) -> Any:
    """Return a number from 0 to n - 1, its chance about in proportion to 1 / (number + 1).

    One of the octaves (1, 2 to 3, 4 to 7 ...; as many as n has bits) is drawn, then a number inside
    it: integers alone, where the inverse of a Zipf distribution would need an exponential.
    """
    octave = below(bits, octaves)
    found = (np.int64(1) << octave) - 1 + np.int64((bits & LOW32) >> np.uint64(32 - octave))
    return found if found < n else found >> 1


@kernel(inline=True)
def class_of_row(row: int, bits: Number, n_rows: int, n_classes: int, step: int) -> Any:
    """Return the class of a row: its chance falls with 1 / sqrt(class + 1).

    A `step` above 0, which has no divisor in common with `n_rows`, visits every row once: so each
    class gets one row for certain.
    """
    turn = (np.int64(row) * step) % n_rows if step > 0 else n_classes
    if turn < n_classes:
        return turn
    u = bits >> HALF
    return np.int64((((u * u) >> HALF) * np.uint64(n_classes)) >> HALF)


@kernel(inline=True)
def add_token(table: Array, counts: Array, feature: int, n_features: int) -> None:
    """Count a feature in a table whose entries rise, with gaps.

    A feature's first place is its share of all features, so that few entries have to move.
    """
    p, carried, count = feature * SLOTS // n_features, np.int32(feature), np.float32(1)
    while table[p] != EMPTY and table[p] < carried:
        p += 1
    if table[p] == carried:
        counts[p] += count
        return
    while carried != EMPTY:
        table[p], carried = carried, table[p]
        counts[p], count = count, counts[p]
        p += 1


@kernel(inline=True)
def take_row(table: Array, counts: Array, features: Array, values: Array, end: int) -> Any:
    """Append the entries of a table to the rows and empty it; return the rows' new end."""
    for p in range(table.shape[0]):
        if table[p] != EMPTY:
            features[end], values[end] = table[p], counts[p]
            table[p] = EMPTY
            end += 1
    return end


@kernel(fastmath=False)
def count_rows(
    indptr: Array,
    features: Array,
    values: Array,
    classes: Array,
    n_rows: int,
    n_classes: int,
    n_features: int,
    first: int,
    step: int,
    octaves: int,
    table: Array,
    counts: Array,
    stream: Number,
    structure: Number,
) -> None:
    """Make rows of counts, like words of a text: common ones, and those of a class and its group.

    Parameters
    ----------
    indptr, features, values, classes : int64 (n + 1,), int32 (nnz,), float32 (nnz,), int32 (n,)
        Receive the rows; room for the most tokens a row.
    n_rows, n_classes, n_features : int
        Of the whole data set.
    first : int
        Number of the first row.
    step : int
        See :func:`class_of_row`; 0 for test rows. Above 0, row i also holds feature i.
    octaves : int
        Bits of `n_features`.
    table, counts : int32 (SLOTS + most tokens,), float32 (the same,)
        Scratch; all of `table` is EMPTY, before and after.
    stream, structure : uint64
        States of what differs between parts, and of what they share.
    """
    indptr[0] = 0
    for r in range(classes.shape[0]):
        row = first + r
        state = mixed(stream + GOLDEN * np.uint64(row))
        label = class_of_row(row, drawn(state, 0), n_rows, n_classes, step)
        classes[r] = label
        bits = drawn(state, 1)
        n_tokens = FEWEST_TOKENS + below(bits, MORE_TOKENS)
        own = (bits & LOW32) // np.uint64(OWN_PARTS)
        group = n_classes + label // GROUP_CLASSES
        if step > 0:
            add_token(table, counts, row % n_features, n_features)
        for t in range(n_tokens):
            bits = drawn(state, 2 * t + 2)
            word = drawn(state, 2 * t + 3)
            if bits >> HALF < own:
                owner = np.uint64(label if bits & np.uint64(1) else group)
                place = zipf(word, WORD_OCTAVES, WORDS)
                bits = drawn(structure + mixed(owner), place)
            else:
                bits = mixed(structure ^ (GOLDEN * np.uint64(zipf(word, octaves, n_features))))
            add_token(table, counts, below(bits, n_features), n_features)
        indptr[r + 1] = take_row(table, counts, features, values, indptr[r])


@kernel(inline=True)
def normal(bits: Number) -> Any:
    """Return a nearly normal number, mean 0 and deviation 1, from 64 random bits."""
    total = (
        (bits & LOW16)
        + ((bits >> np.uint64(16)) & LOW16)
        + ((bits >> HALF) & LOW16)
        + (bits >> np.uint64(48))
    )
    return (np.float64(total) - NORMAL_MEAN) / NORMAL_DEVIATION


@kernel(inline=True)
def four_digits(value: float) -> Any:
    """Return the integer of four digits and the decimals that stand for a number, 1e-4 to 9999."""
    decimals = (value < 1000.0) + (value < 100.0) + (value < 10.0) + (value < 1.0)
    decimals += (value < 0.1) + (value < 0.01) + (value < 0.001)
    digits = np.int64(np.rint(value * POWERS[decimals]))
    if digits == DIGITS and decimals > 0:
        return np.int64(1000), decimals - 1
    return digits, decimals


@kernel(fastmath=False)
def activation_rows(
    indptr: Array,
    features: Array,
    values: Array,
    classes: Array,
    n_rows: int,
    n_classes: int,
    thresholds: Array,
    first: int,
    step: int,
    strength: float,
    scale: float,
    stream: Number,
    structure: Number,
) -> None:
    """Make rows of activations: normal noise and the class's own pattern, cut at thresholds.

    Parameters
    ----------
    indptr, features, values, classes : int64 (n + 1,), int32 (nnz,), float32 (nnz,), int32 (n,)
        Receive the rows; values are rounded to four significant digits.
    n_rows, n_classes : int
        Of the whole data set.
    thresholds : float64 (d,)
        What a feature must pass to be more than 0, in deviations of the noise.
    first, step : int
        Number of the first row; see :func:`class_of_row`.
    strength, scale : float
        Deviation of the pattern in units of the noise; factor of all values.
    stream, structure : uint64
        States of what differs between parts, and of what they share.
    """
    indptr[0] = 0
    for r in range(classes.shape[0]):
        row = first + r
        state = mixed(stream + GOLDEN * np.uint64(row))
        label = class_of_row(row, drawn(state, 0), n_rows, n_classes, step)
        classes[r] = label
        pattern = mixed(structure + GOLDEN * np.uint64(label))
        end = indptr[r]
        for f in range(thresholds.shape[0]):
            x = normal(drawn(state, f + 1)) + strength * normal(drawn(pattern, f)) - thresholds[f]
            value = x * scale
            if value >= SMALLEST:
                digits, decimals = four_digits(value)
                features[end] = f
                values[end] = np.float32(digits / POWERS[decimals])
                end += 1
        indptr[r + 1] = end


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
def vw_lines(indptr: Array, features: Array, values: Array, classes: Array, out: Array) -> Any:
    """Write rows as VW text, classes counted from 1, a value of 1 left out; return the bytes.

    Parameters
    ----------
    indptr, features, values, classes : int64 (n + 1,), int32 (nnz,), float32 (nnz,), int32 (n,)
        The rows; values from 1e-4 to 9999 are written with four significant digits.
    out : uint8 (bytes,)
        Receives the lines.
    """
    p = 0
    for r in range(classes.shape[0]):
        p = write_integer(out, p, np.uint32(classes[r] + 1))
        out[p], out[p + 1] = SPACE, BAR
        p += 2
        for i in range(indptr[r], indptr[r + 1]):
            out[p] = SPACE
            p = write_integer(out, p + 1, np.uint32(features[i]))
            if values[i] != np.float32(1):
                out[p] = COLON
                p = write_number(out, p + 1, np.float64(values[i]))
        out[p] = NEWLINE
        p += 1
    return p
