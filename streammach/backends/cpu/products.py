"""Sums of rows of weights on the CPU: logits of sparse rows, and gradients of features."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.rows.packed import prefetch_row, unpack_row
from streammach.rows.quantize import quantize_row
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import prefetch

LINE_FLOATS = 16  # of a cache line
# Columns of a row that are asked for ahead; the rest of a longer row comes while its start is used.
# Measured: 11% less time at 384 columns, 2% at 768; when all of 768 were asked for, 3% more.
AHEAD_COLUMNS = 256
FIRST_COLUMNS = 64  # the same for the rows that are added up, eight at a time
TILE_ROWS = 32  # that are multiplied with them at a time
TILE_COLUMNS = 1024  # of eight rows that many sums read: 32 KiB stay in the cache meanwhile


@kernel(inline=True, inner=True)
def prefetch_columns(table: Array, row: Number, columns: int) -> None:
    """Ask for the cache lines of the first columns of a row, an int64, of `table` (n, C)."""
    width = table.shape[1]
    for at in range(0, min(width, columns), LINE_FLOATS):
        prefetch(table, row * width + at)


@kernel(inline=True, inner=True)
def add_eight(
    out: Array, values: Array, k: int, w0: Array, w1: Array, w2: Array, w3: Array, w4: Array,
    w5: Array, w6: Array, w7: Array,
) -> None:  # fmt: skip
    """Add eight rows of weights times the values from number `k` on to `out` float32 (C,)."""
    x0, x1, x2, x3 = values[k], values[k + 1], values[k + 2], values[k + 3]
    x4, x5, x6, x7 = values[k + 4], values[k + 5], values[k + 6], values[k + 7]
    for c in range(out.shape[0]):
        a = x0 * w0[c] + x1 * w1[c] + x2 * w2[c] + x3 * w3[c]
        out[c] += a + x4 * w4[c] + x5 * w5[c] + x6 * w6[c] + x7 * w7[c]


@kernel(inline=True, inner=True)
def add_rows(out: Array, values: Array, ids: Array, start: int, stop: int, table: Array) -> None:
    """Add ``values[k] * table[ids[k]]`` for k in ``start:stop`` to `out` float32 (C,)."""
    # Eight rows at a time, so that `out` is loaded and stored once for eight and their cache misses
    # overlap (measured on rows that are not in the cache: twice the bandwidth of one at a time).
    k = start
    while k + 8 <= stop:
        for j in range(k + 8, min(k + 16, stop)):
            prefetch_columns(table, np.int64(ids[j]), FIRST_COLUMNS)
        add_eight(
            out, values, k, table[ids[k]], table[ids[k + 1]], table[ids[k + 2]],
            table[ids[k + 3]], table[ids[k + 4]], table[ids[k + 5]], table[ids[k + 6]],
            table[ids[k + 7]],
        )  # fmt: skip
        k += 8
    while k < stop:
        x0, w0 = values[k], table[ids[k]]
        for c in range(out.shape[0]):
            out[c] += x0 * w0[c]
        k += 1


@kernel(inline=True)
def first_features(indptr: Array, features: Array, first: int, last: int) -> Any:
    """Return how many of the first features all rows ``first:last`` have, in eights."""
    shared = indptr[last] - indptr[first]
    for i in range(first, last):
        start, low, high = indptr[i], np.int64(0), min(shared, indptr[i + 1] - indptr[i])
        while low < high:  # ids rise: where the n-th is n, all below it are there
            n = (low + high + 1) // 2
            if features[start + n - 1] == n - 1:
                low = n
            else:
                high = n - 1
        shared = low
    return shared // 8 * 8


@kernel(inline=True, inner=True)
def add_shared(
    out: Array, first: int, last: int, values: Array, starts: Array, n: int, table: Array
) -> None:
    """Add ``values[starts[i] + k] * table[k]`` for k below n, eights, to rows ``first:last``."""
    # The sums of add_rows, in their order: bits do not depend on what rows share. All of them read
    # eight rows of the table before these leave the cache.
    for k in range(0, n, 8):
        for a in range(0, out.shape[1], TILE_COLUMNS):
            b = min(a + TILE_COLUMNS, out.shape[1])
            for i in range(first, last):
                add_eight(
                    out[i, a:b], values, starts[i] + k, table[k, a:b], table[k + 1, a:b],
                    table[k + 2, a:b], table[k + 3, a:b], table[k + 4, a:b], table[k + 5, a:b],
                    table[k + 6, a:b], table[k + 7, a:b],
                )  # fmt: skip


@kernel(inline=True)
def logits(
    indptr: Array, features: Array, values: Array, first: int, last: int, weights: Array,
    bias: Array, out: Array,
) -> None:  # fmt: skip
    """Write ``bias + x W`` for rows ``first:last`` to `out` float32 (n, C).

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
        The rows.
    weights, bias : float32 (d, C), float32 (C,)
        The model.
    """
    for a in range(first, last, TILE_ROWS):
        b = min(a + TILE_ROWS, last)
        shared = first_features(indptr, features, a, b)
        for i in range(a, b):
            row = out[i]
            for c in range(bias.shape[0]):
                row[c] = bias[c]
        add_shared(out, a, b, values, indptr, shared, weights)
        for i in range(a, b):
            add_rows(out[i], values, features, indptr[i] + shared, indptr[i + 1], weights)


@kernel()
def packed_logits(
    indptr: Array, features: Array, values: Array, first: int, last: int, data: Array,
    starts: Array, bias: Array, some: Array, places: Array, out: Array,
) -> None:  # fmt: skip
    """Do as :func:`logits` with the same bits, from weights that are packed.

    Parameters
    ----------
    indptr, features, values, first, last : arrays and int
        Those of :func:`logits`.
    data, starts : uint8 (n,), uint32 or int64 (d + 1,)
        Those of :class:`streammach.rows.packed.PackedRows`.
    bias, some, places, out : float32 (C,), int8 (8, C), int64 (8,), float32 (n, C)
        As there; scratch, and the numbers from 0 on.
    """
    # As many rows are unpacked at a time as `add_rows` adds together.
    for a in range(first, last, TILE_ROWS):
        b = min(a + TILE_ROWS, last)
        shared = first_features(indptr, features, a, b)
        for i in range(a, b):
            for c in range(bias.shape[0]):
                out[i, c] = bias[c]
        for k in range(0, shared, 8):
            for j in range(8):
                unpack_row(data, starts[k + j], starts[k + j + 1], some[j])
            for i in range(a, b):
                add_rows(out[i], values[indptr[i] + k :], places, 0, 8, some)
        for i in range(a, b):
            for k in range(indptr[i] + shared, indptr[i + 1], 8):
                end = min(k + 8, indptr[i + 1])
                for j in range(end, min(end + 8, indptr[last])):  # which come next
                    prefetch_row(data, starts[features[j]], starts[features[j] + 1])
                for j in range(k, end):
                    f = features[j]
                    unpack_row(data, starts[f], starts[f + 1], some[j - k])
                add_rows(out[i], values[k:end], places, 0, end - k, some)


@kernel()
def quantizing_logits(
    indptr: Array, features: Array, values: Array, first: int, last: int, weights: Array,
    levels: Number, bias: Array, some: Array, places: Array, units: Array, out: Array,
) -> None:  # fmt: skip
    """Do as :func:`packed_logits` with the same bits, from weights that are to become narrow.

    Parameters
    ----------
    indptr, features, values, first, last : arrays and int
        Those of :func:`logits`.
    weights, levels : float32 (d, at least C), float32
        The weights, and the largest number of narrow ones: see :func:`quantize_row`.
    bias, some, places, units, out : float32 (C,), int8 (8, C), int64 (8,), float32 (8,), (n, C)
        As there; and scratch.
    """
    for i in range(first, last):
        row = out[i]
        for c in range(bias.shape[0]):
            row[c] = bias[c]
        for k in range(indptr[i], indptr[i + 1], 8):
            end = min(k + 8, indptr[i + 1])
            for j in range(k, end):
                unit = units[j - k : j - k + 1]
                quantize_row(weights[features[j]], levels, some[j - k], unit)
                unit[0] *= values[j]
            add_rows(row, units, places, 0, end - k, some)
