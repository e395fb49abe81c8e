"""Kernels of :mod:`streammach.data.near_rows`: signatures of rows, and the rows that are alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.jit import Array, kernel

BANDS, HASHES = 16, 64  # a band is two hashes: rows that share one are compared by all hashes
LEAST = 0.4  # of the hashes that are equal then: more than half of what each row holds is in both


@kernel(fastmath=False, inline=True, inner=True)
def mixed(x: Any) -> Any:
    """Return a hash of a 32-bit number: uint32."""
    x = np.uint32(x)
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@kernel(fastmath=False, inline=True, inner=True)
def item_of(feature: int, value: Any, bits: Array, n_features: int) -> Any:
    """Return where the bits of a value stand: its feature, or behind them by a hash of both."""
    if bits[feature] >= 0:
        return np.int64(feature)
    mask = np.uint32(bits.shape[0] - n_features - 1)
    return n_features + np.int64(mixed(mixed(feature) ^ np.uint32(value)) & mask)


@kernel()
def count(features: Array, values: Array, bits: Array, n_features: int, out: Array) -> None:
    """Count in `out` float32 the values whose bits stand behind the features: see :func:`sign`."""
    for p in range(features.shape[0]):
        item = item_of(features[p], values[p], bits, n_features)
        if item >= n_features:
            out[item - n_features] += 1


@kernel(fastmath=False)
def sign(
    indptr: Array, features: Array, values: Array, bits: Array, n_features: int, salts: Array,
    out: Array, total: Array,
) -> None:  # fmt: skip
    """Write the signatures of rows to `out` float32 (n, HASHES), their bits to `total` (n,).

    A hash is the least of those of what a row holds, each divided by its bits: two rows have it in
    common with about the share of their bits that is in both (weighted minwise hashing for weights
    that depend on the feature alone).

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32 (nnz,), uint8 or uint32 (nnz,)
        The rows; of a float32 value its bits.
    bits : float32 (d + a power of two,)
        What a feature tells, 0 for nothing; -1 where its values tell it, by :func:`item_of`.
    n_features : int
        d.
    salts : uint32 (2, HASHES)
        What makes the hashes differ; odd in the second row.
    """
    for i in range(out.shape[0]):
        held = np.float32(0)
        for k in range(HASHES):
            out[i, k] = np.inf
        for p in range(indptr[i], indptr[i + 1]):
            item = item_of(features[p], values[p], bits, n_features)
            if bits[item] <= 0:
                continue
            held += bits[item]
            each, start = np.float32(1) / bits[item], mixed(item)
            for k in range(HASHES):
                drawn = np.uint32((start ^ salts[0, k]) * salts[1, k]) >> np.uint32(1)
                out[i, k] = min(out[i, k], np.float32(np.int32(drawn)) * each)
        total[i] = held


@kernel(fastmath=False, inline=True, inner=True)
def root_of(parents: Array, j: int) -> Any:
    """Return the first of the cluster that j is in."""
    while parents[j] != j:
        parents[j] = parents[parents[j]]
        j = parents[j]
    return j


@kernel(fastmath=False, inline=True, inner=True)
def band_key(signs: Array, i: int, band: int) -> Any:
    """Return a hash of the band of row i: uint64."""
    x = np.uint64(np.uint32(signs[i, 2 * band]))
    x |= np.uint64(np.uint32(signs[i, 2 * band + 1])) << np.uint64(32)
    x = (x ^ (np.uint64(band) << np.uint64(58))) * np.uint64(0x9E3779B97F4A7C15)
    return (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)


@kernel(fastmath=False, inline=True, inner=True)
def bit_of(key: Any, bits: Array) -> Any:
    """Return which byte of a bit map, and which bit of it, stand for a key."""
    place = np.int64(key >> np.uint64(8)) & (8 * bits.shape[0] - 1)
    return place >> 3, np.uint8(1 << (place & 7))


@kernel(fastmath=False, inline=True, inner=True)
def place_of(table: Array, known: Array, signs: Array, i: int, band: int, key: Any) -> Any:
    """Return where a table has a known row that shares a band with row i, or where it is free."""
    a, b = signs[i, 2 * band], signs[i, 2 * band + 1]
    at = np.int64(key >> np.uint64(32)) & (table.shape[0] - 1)
    while table[at] >= 0:
        j = table[at]
        if known[j, 2 * band] == a and known[j, 2 * band + 1] == b:
            break
        at = (at + 1) & (table.shape[0] - 1)
    return at


@kernel()
def enter(known: Array, total: Array, least: float, table: Array, bits: Array) -> None:
    """Put known rows of `least` bits or more into a table by their bands, of equal ones the first.

    Parameters
    ----------
    known, total : int32 (p, HASHES), float32 (p,)
        The bits of their signatures, and what they hold.
    least : float
        The bits.
    table : int32 (a power of two above 2 p BANDS,)
        -1 everywhere; receives the numbers of rows.
    bits : uint8 (a power of two,)
        Zeros; receives a bit for each band: most rows share none, and ask no further.
    """
    for j in range(known.shape[0]):
        for band in range(BANDS if total[j] >= least else 0):
            key = band_key(known, j, band)
            at = place_of(table, known, known, j, band, key)
            byte, bit = bit_of(key, bits)
            bits[byte] |= bit
            if table[at] < 0:
                table[at] = j


@kernel(fastmath=False)
def match(
    signs: Array, total: Array, known: Array, known_total: Array, table: Array, bits: Array,
    least: float, out: Array,
) -> None:  # fmt: skip
    """Find the known rows that each row is like: `out` int32 (n, BANDS), -1 where there is none.

    Parameters
    ----------
    signs, total : int32 (n, HASHES), float32 (n,)
        Rows: bits of their signatures, what they hold.
    known, known_total : int32 (p, HASHES), float32 (p,)
        The same of the known rows.
    table, bits : int32 (size,), uint8 (size,)
        Of :func:`enter`.
    least : float
        The fewest bits that two rows share.
    """
    for i in range(signs.shape[0]):
        before = -1
        for band in range(BANDS):
            out[i, band] = -1
            key = band_key(signs, i, band)
            byte, bit = bit_of(key, bits)
            if total[i] < least or not bits[byte] & bit:
                continue
            j = table[place_of(table, known, signs, i, band, key)]
            if j == before or j < 0:
                continue
            equal, before = 0, j
            for k in range(HASHES):
                equal += signs[i, k] == known[j, k]
            share = equal / HASHES
            if share >= LEAST and share / (1 + share) * (total[i] + known_total[j]) >= least:
                out[i, band] = j


@kernel()
def link(
    matches: Array, classes: Array, own: Array, known_classes: Array, parents: Array, sizes: Array,
    alike: Array, out: Array,
) -> None:  # fmt: skip
    """Join the known rows that one row is like.

    Parameters
    ----------
    matches : int32 (n, BANDS)
        Of :func:`match`.
    classes, own : int32 (n,), int32 (n,)
        Classes of the rows; which known row each one is; -1 where it is none.
    known_classes : int32 (p,)
        Classes of the known rows.
    parents : int32 (p,)
        Of the clusters of known rows: the parent of each one.
    sizes, alike : int32 (p,)
        Grow by the rows, no known ones, that are first found to be like each one, and by those of
        its class.
    out : int32 (n,)
        Receives the known row that each one is, or is like; else -1.
    """
    for i in range(matches.shape[0]):
        out[i] = own[i]
        for band in range(BANDS):
            j = matches[i, band]
            if j < 0:
                continue
            if out[i] < 0:
                out[i] = j
                sizes[j] += 1
                alike[j] += classes[i] == known_classes[j]
            else:
                a, b = root_of(parents, j), root_of(parents, out[i])
                parents[max(a, b)] = min(a, b)
