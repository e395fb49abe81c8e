"""Rows of int8 weights in as few bytes as one of four forms takes, unpacked as they are needed.

A row of zeros has no bytes. Any other one begins with its form. ``GAPS``: a byte for each number
that is not 0, from -8 to 7 in its low four bits, and in the high ones how many zeros come before
it; a 0 behind fifteen zeros stands where more come. ``TWO`` and ``FOUR``: the lowest of the 3 or 15
numbers that are most frequent, then each number less that one in so many bits, with all bits set
for others, which follow as bytes in their order. Numbers lie in the lowest bits of the bytes first,
then in the next bits, and so on. ``PLAIN``: a byte for each number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streammach.jit import Array, Number, kernel
from streammach.simd import prefetch, replace_marked

GAPS, TWO, FOUR, PLAIN = 1, 2, 3, 4
LINE = 64  # bytes


@dataclass(frozen=True, eq=False)
class PackedRows:
    """A table int8 (d, C) of which rows are unpacked as they are needed.

    Attributes
    ----------
    data : uint8 (n,)
        The bytes of all rows, one after another.
    starts : uint32 or int64 (d + 1,)
        Where each row starts in `data`, and where the last one ends.
    n_columns : int
        C.
    """

    data: NDArray[np.uint8]
    starts: NDArray[Any]
    n_columns: int

    dtype = np.dtype(np.int8)

    @classmethod
    def of(cls, pieces: Iterable[NDArray[np.int8]], shape: tuple[int, int]) -> PackedRows:
        """Pack rows.

        Parameters
        ----------
        pieces : iterable of int8 (n, C)
            The rows, some at a time.
        shape : tuple of int
            d, the rows of all pieces, and C.
        """
        n, columns = shape
        most = n * (columns + 1)
        starts = np.zeros(n + 1, starts_type(most))
        data, done, end = np.empty(most, np.uint8), 0, 0  # pages that get no bytes are not taken
        for rows in pieces:
            sizes, forms, lows = _forms(rows)
            ends = end + np.cumsum(sizes)
            pack_rows(rows, forms, lows, ends - sizes, data)
            starts[done + 1 : done + 1 + len(rows)] = ends
            done, end = done + len(rows), int(ends[-1]) if len(rows) else end
        data.resize(end, refcheck=False)
        return cls(data, starts, columns)

    @staticmethod
    def footprint(pieces: Iterable[NDArray[np.int8]], shape: tuple[int, int]) -> int:
        """Return the bytes that :meth:`of` takes for the same rows."""
        n, columns = shape
        n_bytes = sum(int(_forms(rows)[0].sum()) for rows in pieces)
        return n_bytes + starts_type(n * (columns + 1)).itemsize * (n + 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.starts) - 1, self.n_columns

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.data.nbytes + self.starts.nbytes

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: slice | NDArray[Any]) -> NDArray[np.int8]:
        """Return some rows as they were: int8 (n, C)."""
        chosen = np.arange(len(self))[rows]
        out = np.empty((len(chosen), self.n_columns), np.int8)
        unpack_rows(self.data, self.starts, chosen, out)
        return out

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows as they were."""
        return self[:].astype(dtype or np.int8, copy=False)


Table = NDArray[Any] | PackedRows  # weights as they are, or packed


def starts_type(most: int) -> np.dtype[Any]:
    """Return the type of starts within so many bytes or entries."""
    return np.dtype(np.uint32 if most < 1 << 32 else np.int64)


def _forms(
    rows: NDArray[np.int8],
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the bytes, the form and the lowest number of each row: (n,) each."""
    sizes = np.zeros(len(rows), np.int64)
    forms, lows = np.zeros(len(rows), np.uint8), np.zeros(len(rows), np.uint8)
    choose_forms(rows, sizes, forms, lows)
    return sizes, forms, lows


@kernel()
def choose_forms(rows: Array, sizes: Array, forms: Array, lows: Array) -> None:
    """Choose the form of each row.

    Parameters
    ----------
    rows : int8 (n, C)
        The rows.
    sizes, forms, lows : int64 (n,), uint8 (n,), uint8 (n,)
        Receive the bytes, the form and the bits of the lowest number; zeros before.
    """
    columns, found = rows.shape[1], np.empty((4, 256), np.int32)
    for i in range(rows.shape[0]):
        count_numbers(rows[i], found)
        met = found[0]
        if met[128] == columns:  # all are 0
            continue
        low, most = most_frequent(met, 3)
        size, form = 2 + (columns + 3) // 4 + columns - most, TWO
        other, most = most_frequent(met, 15)
        if 2 + (columns + 1) // 2 + columns - most <= size:
            low, size, form = other, 2 + (columns + 1) // 2 + columns - most, FOUR
        few = np.int64(0)
        for v in range(120, 136):
            few += met[v]
        if few == columns and columns - met[128] + 1 < size:
            n = 1 + gap_bytes(rows[i])
            if n < size:
                size, form = n, GAPS
        if size > columns - columns // 8:  # others cost time
            size, form = 1 + columns, PLAIN
        sizes[i], forms[i], lows[i] = size, form, low & 255


@kernel(inline=True)
def count_numbers(row: Array, found: Array) -> None:
    """Write how often each number from -128 on is met in a row: ``found[0]`` int32 (256,)."""
    n = row.shape[0] & ~3
    found[:] = 0
    for c in range(0, n, 4):  # in four arrays, as numbers repeat: none waits for the one before
        for k in range(4):
            found[k, np.uint8(row[c + k]) ^ np.uint8(128)] += 1
    for c in range(n, row.shape[0]):
        found[0, np.uint8(row[c]) ^ np.uint8(128)] += 1
    for v in range(256):
        found[0, v] += found[1, v] + found[2, v] + found[3, v]


@kernel(inline=True)
def most_frequent(met: Array, n: int) -> Any:
    """Return the first of the n successive numbers that are met most, and how often they are."""
    # `met` int32 (256,) says how often each number from -128 on is met.
    total = np.int64(0)
    for v in range(n):
        total += met[v]
    low, most = 0, total
    for v in range(1, 257 - n):
        total += met[v + n - 1] - met[v - 1]
        if total > most:
            low, most = v, total
    return low - 128, most


@kernel(inline=True)
def gap_bytes(row: Array) -> Any:
    """Return how many bytes a row's numbers take in the form ``GAPS``."""
    n, before = np.int64(0), np.int64(0)
    for c in range(row.shape[0]):
        there = np.int64(row[c] != 0)
        n += there * ((before + 16) >> 4)
        before = (before + 1) * (1 - there)
    return n


@kernel()
def pack_rows(rows: Array, forms: Array, lows: Array, starts: Array, data: Array) -> None:
    """Write rows int8 (n, C) to `data` from `starts` int64 (n,) on, in forms that were chosen."""
    for i in range(rows.shape[0]):
        row, at, form = rows[i], starts[i] + 1, forms[i]
        if form == 0:
            continue
        data[starts[i]] = form
        if form == PLAIN:
            for c in range(row.shape[0]):
                data[at + c] = row[c]
        elif form == GAPS:
            pack_gaps(row, data, at)
        else:
            data[at] = lows[i]
            pack_bits(row, 2 if form == TWO else 4, lows[i], data, at + 1)


@kernel(fastmath=False)
def pack_gaps(row: Array, data: Array, at: int) -> None:
    """Write a row in the form ``GAPS`` from `at` on."""
    before = 0
    for c in range(row.shape[0]):
        if row[c] == 0:
            before += 1
            continue
        while before > 15:
            data[at] = 15 << 4
            at, before = at + 1, before - 16
        data[at] = (before << 4) | (row[c] & 15)
        at, before = at + 1, 0


@kernel(fastmath=False)
def pack_bits(row: Array, bits: int, low: int, data: Array, at: int) -> None:
    """Write a row's numbers in so many bits from `at` on, and then those that these do not hold."""
    columns, other = row.shape[0], (1 << bits) - 1
    part = -(-columns * bits // 8)
    end = at + part
    data[at:end] = 0
    for k in range(8 // bits):
        some = row[k * part : (k + 1) * part]
        for c in range(some.shape[0]):
            code = np.uint8(some[c]) - np.uint8(low) & 255
            data[at + c] |= (code if code < other else other) << (bits * k)
    for c in range(columns):
        data[end] = row[c]  # the byte behind the last one is that of a row that comes later
        end += (np.uint8(row[c]) - np.uint8(low) & 255) >= other


@kernel(inline=True)
def unpack_row(data: Array, first: Number, last: Number, out: Array) -> None:
    """Write the row that lies in ``data[first:last]`` to `out` int8 (C,)."""
    columns, at, end = out.shape[0], np.int64(first), np.int64(last)
    form = data[at] if at < end else 0
    if form == PLAIN:
        for c in range(columns):
            out[c] = data[at + 1 + c]
    elif form == FOUR:
        part, low = (columns + 1) // 2, data[at + 1]
        codes, high = data[at + 2 : at + 2 + part], out[part:]
        for c in range(part):
            out[c] = (codes[c] & np.uint8(15)) + low
        for c in range(high.shape[0]):
            high[c] = (codes[c] >> np.uint8(4)) + low
        if end > at + 2 + part:
            put_others(data, at + 2 + part, low + 15, out)
    elif form == TWO:
        part, low = (columns + 3) // 4, data[at + 1]
        codes = data[at + 2 : at + 2 + part]
        for k in range(4):
            some = out[k * part : (k + 1) * part]
            for c in range(some.shape[0]):
                some[c] = (codes[c] >> np.uint8(2 * k) & np.uint8(3)) + low
        if end > at + 2 + part:
            put_others(data, at + 2 + part, low + 3, out)
    else:
        out[:] = 0
        after = np.int64(0)
        for q in range(at + 1, end):
            after += (data[q] >> 4) + 1
            out[np.uint32(after - 1)] = (data[q] & 15 ^ 8) - 8


@kernel(inline=True)
def ahead(data: Array, first: Number, last: Number) -> None:
    """Ask for the cache lines of the row that lies in ``data[first:last]``."""
    for at in range(np.int64(first), np.int64(last), LINE):
        prefetch(data, at)


@kernel(inline=True)
def put_others(data: Array, at: int, mark: int, out: Array) -> None:
    """Write the bytes from `at` on in place of the numbers of `out` int8 (C,) that are a mark."""
    n, q = out.shape[0], np.int64(at)
    for c in range(0, n - 63, 64):
        q += replace_marked(out, np.int64(c), np.int8(mark), data, q)
    for c in range(n & ~63, n):
        if out[c] & 255 == mark & 255:
            out[c] = data[q]
            q += 1


@kernel()
def unpack_rows(data: Array, starts: Array, chosen: Array, out: Array) -> None:
    """Write some rows of a packed table to `out` int8 (n, C)."""
    for i in range(chosen.shape[0]):
        f = chosen[i]
        unpack_row(data, starts[f], starts[f + 1], out[i])
