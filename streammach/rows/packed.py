"""Rows of int8 weights in two bits a number, unpacked as they are needed.

A row of zeros has no bytes. Any other one begins with the lowest of the three successive numbers
that are met most. Then comes each number less that one in two bits, in the lowest bits of the bytes
first, then in the next ones; with both bits set for another number, which follows as a byte behind
them, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streammach.jit import Array, Number, kernel
from streammach.simd import prefetch, replace_marked

OTHER = 3  # in two bits: a number that follows as a byte
LINE = 64  # bytes


@dataclass(frozen=True, eq=False)
class PackedRows:
    """A table int8 (d, C) of which rows are unpacked as they are needed."""

    data: NDArray[np.uint8]  # uint8 (n,): the bytes of all rows, one after another
    # uint32 or int64 (d + 1,): where each row starts in `data`, and where the last one ends
    starts: NDArray[Any]
    n_columns: int  # C

    dtype = np.dtype(np.int8)

    @classmethod
    def of(cls, pieces: Iterable[NDArray[np.int8]], shape: tuple[int, int]) -> PackedRows:
        """Pack rows, which are given some at a time: int8 (n, C)."""
        most = _most_bytes(shape)
        starts, data = _starts(shape), np.empty(most + 1, np.uint8)  # pages without bytes are free
        data.resize(_packed(pieces, starts, data), refcheck=False)
        return cls(data, starts, shape[1])

    @staticmethod
    def footprint(pieces: Iterable[NDArray[np.int8]], shape: tuple[int, int]) -> int:
        """Return the bytes that :meth:`of` takes for the same rows."""
        starts = _starts(shape)
        return _packed(pieces, starts, np.zeros(0, np.uint8)) + starts.nbytes

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


def _most_bytes(shape: tuple[int, int]) -> int:
    return shape[0] * (1 + -(-shape[1] // 4) + shape[1])


def _starts(shape: tuple[int, int]) -> NDArray[Any]:
    return np.zeros(shape[0] + 1, starts_type(_most_bytes(shape)))


def _packed(
    pieces: Iterable[NDArray[np.int8]], starts: NDArray[Any], data: NDArray[np.uint8]
) -> int:
    """Write rows to `data`, unless it is empty, and where each ends; return where the last does."""
    done, end, met = 0, 0, np.zeros((4, 256), np.int32)
    for rows in pieces:
        end = int(pack_rows(rows, met, starts[done : done + len(rows) + 1], end, data))
        done += len(rows)
    return end


@kernel(allocates=False)
def pack_rows(rows: Array, met: Array, starts: Array, end: int, data: Array) -> Any:
    """Pack rows behind what is there; return where the last one ends.

    Parameters
    ----------
    rows : int8 (n, C)
        The rows.
    met : int32 (4, 256)
        Scratch.
    starts : unsigned (n + 1,)
        Receives where each row ends.
    end : int
        Where the first one starts.
    data : uint8
        Receives the bytes, and one more that means nothing; empty where only their number is asked
        for.
    """
    columns = rows.shape[1]
    part = (columns + 3) // 4
    for i in range(rows.shape[0]):
        row = rows[i]
        count_numbers(row, met)
        if met[0, 128] < columns:  # not all are 0
            least, most = most_frequent(met[0])
            if data.shape[0] > 0:
                data[end] = np.uint8(least & 255)
                write_row(row, least, data[end + 1 : end + 1 + part], data, end + 1 + part)
            end += 1 + part + columns - most
        starts[i + 1] = end
    return end


@kernel(inline=True)
def count_numbers(row: Array, met: Array) -> None:
    """Write how often each number is met in a row: ``met[0]`` int32 (256,), from -128 on."""
    columns = row.shape[0]
    n = columns & ~3
    met[:] = 0
    for c in range(0, n, 4):  # in four arrays, as numbers repeat: none waits for the one before
        for k in range(4):
            met[k, np.int64(row[c + k]) + 128] += 1
    for c in range(n, columns):
        met[0, np.int64(row[c]) + 128] += 1
    for v in range(256):
        met[0, v] += met[1, v] + met[2, v] + met[3, v]


@kernel(inline=True)
def most_frequent(met: Array) -> Any:
    """Return the first of the three successive numbers that are met most, and how often."""
    place, most = 0, np.int64(met[0] + met[1] + met[2])
    for v in range(1, 254):
        total = np.int64(met[v] + met[v + 1] + met[v + 2])
        if total > most:
            place, most = v, total
    return place - 128, most


@kernel(inline=True)
def write_row(row: Array, least: int, codes: Array, data: Array, at: int) -> None:
    """Write a row's codes uint8 (C / 4,), and its other numbers from `at` on."""
    part = codes.shape[0]
    codes[:] = 0
    for k in range(4):
        some = row[k * part : (k + 1) * part]
        for c in range(some.shape[0]):
            apart = np.int64(some[c]) - least
            other = not 0 <= apart < OTHER
            codes[c] |= np.uint8((OTHER if other else apart) << (2 * k))
            data[at] = some[c]  # the next one is written over it where it is none
            at += other


@kernel(fastmath=False, allocates=False)
def unpack_row(data: Array, first: Number, last: Number, out: Array) -> None:
    """Write the row that lies in ``data[first:last]`` to `out` int8 (C,)."""
    at, end, part = np.int64(first), np.int64(last), (out.shape[0] + 3) // 4
    if at == end:
        out[:] = 0
        return
    least, codes = data[at], data[at + 1 : at + 1 + part]
    for k in range(4):
        some = out[k * part : (k + 1) * part]
        for c in range(some.shape[0]):
            some[c] = (codes[c] >> np.uint8(2 * k) & np.uint8(3)) + least
    if end > at + 1 + part:
        put_others(data, at + 1 + part, least + OTHER, out)


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
