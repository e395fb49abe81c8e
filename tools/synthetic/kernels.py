"""Compiled makers of rows that can be learnt.

Every number is a hash of (seed, row, place in the row), in integer and float64 arithmetic that
rounds the same everywhere: a row is the same bits on every machine, whichever rows are made beside
it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streammach.system.jit import Array, Number, kernel

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


@kernel(fastmath=False)
def classes_of_rows(
    out: Array, n_rows: int, n_classes: int, first: int, step: int, stream: Number
) -> None:
    """Write the class of each row from number `first` on to `out` int32 (n,)."""
    for r in range(out.shape[0]):
        state = mixed(stream + GOLDEN * np.uint64(first + r))
        out[r] = class_of_row(first + r, drawn(state, 0), n_rows, n_classes, step)


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
    indptr: Array, features: Array, values: Array, starts: Array, labels: Array, n_classes: int,
    n_features: int, first: int, every: bool, tokens: tuple[int, int, int], octaves: int,
    table: Array, counts: Array, stream: Number, structure: Number,
) -> None:  # fmt: skip
    """Make rows of counts, like words of a text: common ones, and those of a class and its group.

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
        Receive the rows; room for the most tokens a row.
    starts, labels : int64 (n + 1,), int32 (m,)
        The classes of each row; one of them is drawn for each token.
    n_classes, n_features, octaves, first, every : int, int, int, int, bool
        Of the whole data set, and bits of `n_features`; number of the first row; whether row i also
        holds feature i.
    tokens : (int, int, int)
        Fewest tokens a row, how many more there may be (less than), and into how many parts a row's
        share of tokens that come from its classes is divided.
    table, counts : int32 (SLOTS + most tokens,), float32 (the same,)
        Scratch; all of `table` is EMPTY, before and after.
    stream, structure : uint64
        States of what differs between parts, and of what they share.
    """
    indptr[0] = 0
    for r in range(starts.shape[0] - 1):
        row = first + r
        state = mixed(stream + GOLDEN * np.uint64(row))
        n_own = starts[r + 1] - starts[r]
        bits = drawn(state, 1)
        n_tokens = tokens[0] + below(bits, tokens[1])
        own = (bits & LOW32) // np.uint64(tokens[2]) if n_own > 0 else np.uint64(0)
        if every:
            add_token(table, counts, row % n_features, n_features)
        for t in range(n_tokens):
            bits = drawn(state, 2 * t + 2)
            word = drawn(state, 2 * t + 3)
            if bits >> HALF < own:
                place = np.int64((bits >> np.uint64(1)) & LOW16) % n_own
                label = np.int64(labels[starts[r] + place])
                group = n_classes + label // GROUP_CLASSES
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
    total = (bits & LOW16) + ((bits >> np.uint64(16)) & LOW16) + ((bits >> HALF) & LOW16)
    total += bits >> np.uint64(48)
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
    indptr: Array, features: Array, values: Array, starts: Array, labels: Array, thresholds: Array,
    first: int, strength: float, scale: float, stream: Number, structure: Number,
) -> None:  # fmt: skip
    """Make rows of activations: normal noise and the class's own pattern, cut at thresholds.

    The pattern of a row of n classes is the sum of theirs by the root of n.

    Parameters
    ----------
    indptr, features, values, starts, labels, first, stream, structure
        As for :func:`count_rows`; values are rounded to four significant digits.
    thresholds, strength, scale : float64 (d,), float, float
        What a feature must pass to be more than 0, in deviations of the noise; deviation of the
        pattern in the same unit; factor of all values.
    """
    indptr[0] = 0
    for r in range(starts.shape[0] - 1):
        state = mixed(stream + GOLDEN * np.uint64(first + r))
        share = strength / math.sqrt(max(starts[r + 1] - starts[r], 1))
        end = indptr[r]
        for f in range(thresholds.shape[0]):
            pattern = 0.0
            for p in range(starts[r], starts[r + 1]):
                own = mixed(structure + GOLDEN * np.uint64(labels[p]))
                pattern += normal(drawn(own, f))
            x = normal(drawn(state, f + 1)) + share * pattern - thresholds[f]
            value = x * scale
            if value >= SMALLEST:
                digits, decimals = four_digits(value)
                features[end] = f
                values[end] = np.float32(digits / POWERS[decimals])
                end += 1
        indptr[r + 1] = end
