"""Rows of int8 weights in as few bytes as one of four forms takes, unpacked as they are needed.

A row of zeros has no bytes. Any other one begins with its form. ``GAPS``: a byte for each number
that is not 0, from -8 to 7 in its low four bits, and in the high ones how many zeros come before
it; before that a byte for each 256 zeros or less, in sixteens, whose number less 1 is in the high
bits.
``TWO``, ``THREE`` and ``FOUR``: the lowest of the 3, 7 or 15 successive numbers that are met most,
then each number less that one in so many bits, with all bits set for others, which follow as bytes
in their order. Numbers lie in the lowest bits of the bytes first, then in the next bits, and so on;
of three bits the lowest two come first, then the others in the same way. ``PLAIN``: a byte for each
number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streammach.jit import Array, Number, kernel
from streammach.simd import (
    LANES,
    lanes_equal,
    ones_in,
    prefetch,
    replace_marked,
    trailing_zeros,
)

GAPS, TWO, THREE, FOUR, PLAIN = 1, 2, 3, 4, 5
LINE = 64  # bytes
LEAST_HALF = 128 - 8  # of numbers of four bits, counted from -128 on


@dataclass(frozen=True, eq=False)
class PackedRows:
    """A table int8 (d, C) of which rows are unpacked as they are needed."""

    data: NDArray[np.uint8]  # uint8 (n,): the bytes of all rows, one after another
    # uint32 or int64 (d + 1,): where each row starts in `data`, and where the last one ends
    starts: NDArray[Any]
    n_columns: int  # C

    dtype = np.dtype(np.int8)

    @classmethod
    def of(cls, pieces: Iterable[NDArray[Any]], shape: tuple[int, int]) -> PackedRows:
        """Pack rows.

        `pieces` is iterable of int8 (n, C) or uint8 (n, C / 2).
        """
        n, columns = shape
        most = n * (columns + 1)
        starts = np.zeros(n + 1, starts_type(most))
        data = np.empty(most + 1, np.uint8)  # pages that get no bytes are not taken
        end = _packed(pieces, columns, starts, data)
        data.resize(end, refcheck=False)
        return cls(data, starts, columns)

    @staticmethod
    def footprint(pieces: Iterable[NDArray[Any]], shape: tuple[int, int]) -> int:
        """Return the bytes that :meth:`of` takes for the same rows."""
        n, columns = shape
        starts = np.zeros(n + 1, starts_type(n * (columns + 1)))
        return _packed(pieces, columns, starts, np.zeros(0, np.uint8)) + starts.nbytes

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


def _packed(
    pieces: Iterable[NDArray[Any]], columns: int, starts: NDArray[Any], data: NDArray[np.uint8]
) -> int:
    """Write rows to `data`, unless it is empty, and where each ends; return where the last does."""
    done, end, (row, marks) = 0, 0, np.zeros((2, columns + LANES), np.uint8)
    met = np.zeros((4, 256), np.int32)
    for rows in pieces:
        some = starts[done : done + len(rows) + 1]
        flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        halves = rows.dtype == np.uint8
        end = int(pack_rows(flat, halves, columns, row, marks, met, some, end, data))
        done += len(rows)
    return end


@kernel(allocates=False)
def pack_rows(
    rows: Array, halves: bool, columns: int, row: Array, marks: Array, met: Array, starts: Array,
    end: int, data: Array,
) -> Any:  # fmt: skip
    """Pack rows behind what is there.

    Parameters
    ----------
    rows : uint8 (n * C,) or (n * C / 2,)
        The rows: a byte for each number, or half of one.
    halves : bool
        Which of both.
    columns : int
        C; even for halves.
    row, marks : uint8 (C + 64,)
        Scratch; zeros behind C.
    met : int32 (4, 256)
        Scratch, zeros; for rows of one kind.
    starts : unsigned (n + 1,)
        Receives where each row ends.
    end : int
        Where the first one starts.
    data : uint8
        Receives the bytes, and may have others behind them; empty where only their number is asked
        for.

    Returns
    -------
    int64
        Where the last row ends.
    """
    low, high = (LEAST_HALF, LEAST_HALF + 16) if halves else (0, 256)
    found, kept = met[0], data.shape[0] > 0
    for i in range(starts.shape[0] - 1):
        if halves:
            half = columns // 2
            for c in range(half):
                byte = rows[i * half + c]
                row[2 * c] = ((byte & np.uint8(15)) ^ np.uint8(8)) - np.uint8(8)
                row[2 * c + 1] = ((byte >> np.uint8(4)) ^ np.uint8(8)) - np.uint8(8)
            count_halves(row, columns, found)
        else:
            for c in range(columns):
                row[c] = rows[i * columns + c]
            count_numbers(row, columns, met)
        if found[128] < columns:  # not all are 0
            size, form, least = form_of(columns, low, high, found)
            few = np.int64(0)
            for v in range(LEAST_HALF, LEAST_HALF + 16):
                few += found[v]
            if few == columns and columns - found[128] + 1 < size:
                out, at = (data, end) if kept else (marks, 0)
                n = pack_gaps(row, columns, out, at + 1) - at
                if n < size:
                    size, form = n, GAPS
            if size > columns - columns // 8:  # others cost time
                size, form = 1 + columns, PLAIN
            if kept:
                write_row(row, marks, columns, form, least, data, end, size)
            end += size
        starts[i + 1] = end
    return end


@kernel(inline=True)
def count_halves(row: Array, columns: int, met: Array) -> None:
    """Write how often the numbers from -8 to 7 are met: `met` int32 (256,), from -128 on."""
    for v in range(LEAST_HALF, LEAST_HALF + 16):
        n = np.int64(0)
        for first in range(0, columns, LANES):
            n += ones_in(lanes_equal(row, first, np.int8(v - 128)))
        met[v] = n
    met[128] -= (LANES - columns % LANES) % LANES  # zeros behind the row


@kernel(inline=True)
def count_numbers(row: Array, columns: int, met: Array) -> None:
    """Write how often each number is met in a row: ``met[0]`` int32 (256,), from -128 on."""
    n = columns & ~3
    for k in range(4):
        met[k, :] = 0
    for c in range(0, n, 4):  # in four arrays, as numbers repeat: none waits for the one before
        for k in range(4):
            met[k, row[c + k] ^ np.uint8(128)] += 1
    for c in range(n, columns):
        met[0, row[c] ^ np.uint8(128)] += 1
    for v in range(256):
        met[0, v] += met[1, v] + met[2, v] + met[3, v]


@kernel(fastmath=False, allocates=False)
def form_of(columns: int, low: int, high: int, met: Array) -> Any:
    """Return the bytes that a row takes in bits, the form of the fewest and its lowest number."""
    # `met` int32 (256,) says how often each number is met, from -128 on.
    least, size, form = 0, 1 << 60, TWO
    for bits in range(2, 5):
        place, most = most_frequent(met, low, high, (1 << bits) - 1)
        n = 2 + bits_bytes(columns, bits) + columns - most
        if n <= size:
            least, size, form = place, n, TWO + bits - 2
    return size, form, np.uint8(least & 255)


@kernel(inline=True)
def bits_bytes(columns: int, bits: int) -> Any:
    """Return the bytes of so many bits for each number."""
    whole = (columns * (bits & 6) + 7) // 8
    return whole + (bits & 1) * ((columns + 7) // 8)


@kernel(inline=True)
def most_frequent(met: Array, low: int, high: int, n: int) -> Any:
    """Return the first of the n successive numbers that are met most, and how often they are."""
    # Of `met` int32 (256,) only what lies from `low` to below `high` is not 0.
    start = max(0, low - n + 1)
    total = np.int64(0)
    for v in range(start, start + n):
        total += met[v]
    place, most = start, total
    for v in range(start + 1, min(257 - n, high)):
        total += met[v + n - 1] - met[v - 1]
        if total > most:
            place, most = v, total
    return place - 128, most


@kernel(fastmath=False, allocates=False)
def write_row(
    row: Array, marks: Array, columns: int, form: int, least: Number, data: Array, start: int,
    size: int,
) -> None:  # fmt: skip
    """Write a row in a form that was chosen, from `start` on; ``GAPS`` have their bytes already."""
    data[start] = form
    if form == PLAIN:
        for c in range(columns):
            data[start + 1 + c] = row[c]
    elif form != GAPS:
        data[start + 1] = least
        pack_bits(row, marks, columns, form - TWO + 2, least, data, start + 2, start + size)


@kernel(fastmath=False, allocates=False)
def pack_gaps(row: Array, columns: int, data: Array, at: int) -> Any:
    """Write a row in the form ``GAPS`` from `at` on; return where it ends."""
    after = np.int64(0)
    for first in range(0, columns, LANES):
        word = ~lanes_equal(row, first, np.int8(0))
        while word:
            place = first + np.int64(trailing_zeros(word))
            word &= word - np.uint64(1)
            before = place - after
            while before > 15:
                sixteens = before >> 4 if before < 256 else 16
                data[at] = (sixteens - 1) << 4
                at, before = at + 1, before - 16 * sixteens
            data[at] = (before << 4) | (row[place] & 15)
            at, after = at + 1, place + 1
    return at


@kernel(inline=True)
def pack_bits(
    row: Array, marks: Array, columns: int, bits: int, least: Number, data: Array, at: int, end: int
) -> None:  # fmt: skip
    """Write a row's numbers in so many bits from `at` on, and then those that these do not hold."""
    other = np.uint8((1 << bits) - 1)
    for c in range(columns):
        code = np.uint8(row[c] - least)
        marks[c] = code if code < other else other
    pack_plane(marks, columns, 0, bits & 6, data, at)
    at += bits_bytes(columns, bits & 6)
    if bits & 1:
        pack_plane(marks, columns, 2, 1, data, at)
        at += bits_bytes(columns, 1)
    for first in range(0, columns if at < end else 0, LANES):
        word = lanes_equal(marks, first, np.int8(other))
        while word:
            data[at] = row[first + np.int64(trailing_zeros(word))]
            at, word = at + 1, word & (word - np.uint64(1))


@kernel(inline=True)
def pack_plane(codes: Array, columns: int, shift: int, bits: int, data: Array, at: int) -> None:
    """Write so many bits of each code, those from `shift` on, from `at` on."""
    part, mask = (columns * bits + 7) // 8, np.uint8((1 << bits) - 1)
    out = data[at : at + part]
    for k in range(8 // bits):
        some = codes[k * part : min((k + 1) * part, columns)]
        for c in range(some.shape[0]):
            code = np.uint8(
                np.uint8(np.uint8(some[c] >> np.uint8(shift)) & mask) << np.uint8(k * bits)
            )
            out[c] = code if k == 0 else out[c] | code


@kernel(fastmath=False, allocates=False)
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
    elif form in (TWO, THREE):
        part, low = (columns + 3) // 4, data[at + 1]
        codes = data[at + 2 : at + 2 + part]
        for k in range(4):
            some = out[k * part : (k + 1) * part]
            for c in range(some.shape[0]):
                some[c] = (codes[c] >> np.uint8(2 * k) & np.uint8(3)) + low
        mark, at = low + 3, at + 2 + part
        if form == THREE:
            part, mark = (columns + 7) // 8, low + 7
            codes = data[at : at + part]
            for k in range(8):
                some = out[k * part : (k + 1) * part]
                for c in range(some.shape[0]):
                    some[c] += (codes[c] >> np.uint8(k) & np.uint8(1)) << np.uint8(2)
            at += part
        if end > at:
            put_others(data, at, mark, out)
    else:
        out[:] = 0
        after = np.int64(0)
        for q in range(at + 1, end):
            number = data[q] & 15
            after += ((data[q] >> 4) + 1) << (0 if number else 4)
            out[np.uint32(after - 1)] = (number ^ 8) - 8 if number else 0


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


@kernel(allocates=False)
def unpack_rows(data: Array, starts: Array, chosen: Array, out: Array) -> None:
    """Write some rows of a packed table to `out` int8 (n, C)."""
    for i in range(chosen.shape[0]):
        f = chosen[i]
        unpack_row(data, starts[f], starts[f + 1], out[i])
