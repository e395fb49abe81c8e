"""Packed forms of int8 weights and of counts, which are unpacked as they are needed.

A row of weights takes two bits a number. A row of zeros has no bytes. Any other one begins with the
lowest of the three successive numbers that are met most. Then comes each number less that one in
two bits, in the lowest bits of the bytes first, then in the next ones; with both bits set for
another number, which follows as a byte behind them, in their order.

An entry of a list of counts is how far its class lies behind that of the entry before it, from 0
on, and its gain, two bytes each. An entry of the longest step has no pair of its own. Where classes
are so many that such entries could take more than is saved, counts stay plain
(:meth:`PackedCounts.pays`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streammach.rows.layouts import ends
from streammach.rows.neighbours import Neighbours
from streammach.rows.pairs import CountWeights
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import prefetch, replace_marked

OTHER = 3  # in two bits: a number that follows as a byte
LINE = 64  # bytes


@dataclass(frozen=True, eq=False)
class PackedRows:
    """A table int8 (d, C) whose rows are unpacked as they are needed."""

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
        data.resize(_pack_rows(pieces, starts, data), refcheck=False)
        return cls(data, starts, shape[1])

    @staticmethod
    def footprint(pieces: Iterable[NDArray[np.int8]], shape: tuple[int, int]) -> int:
        """Return the bytes that :meth:`of` takes for the same rows."""
        starts = _starts(shape)
        return _pack_rows(pieces, starts, np.zeros(0, np.uint8)) + starts.nbytes

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
        if isinstance(rows, slice) or rows.dtype == bool:
            rows = np.arange(len(self))[rows]
        out = np.empty((len(rows), self.n_columns), np.int8)
        unpack_rows(self.data, self.starts, rows, out)
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


def _pack_rows(
    pieces: Iterable[NDArray[np.int8]], starts: NDArray[Any], data: NDArray[np.uint8]
) -> int:
    """Write rows to `data`, unless it is empty, and where each ends; return where the last does."""
    done, end, met = 0, 0, np.zeros((4, 256), np.int32)
    for rows in pieces:
        end = int(pack_rows(rows, met, starts[done : done + len(rows) + 1], end, data))
        done += len(rows)
    return end


@kernel()
def pack_rows(rows: Array, met: Array, starts: Array, end: int, data: Array) -> Any:
    """Pack rows behind what is there; return where the last one ends.

    Parameters
    ----------
    rows, met : int8 (n, C), int32 (4, 256)
        The rows; scratch.
    starts, end : unsigned (n + 1,), int
        Receives where each row ends; where the first one starts.
    data : uint8
        Receives the bytes, and one more that means nothing; empty where only their number is asked
        for.
    """
    columns = rows.shape[1]
    part = (columns + 3) // 4
    for i in range(rows.shape[0]):
        row = rows[i]
        low, high = span(row)
        if low != 0 or high != 0:  # not all are 0
            count_numbers(row, low, high, met)
            least, most = most_frequent(low, high, met[0])
            if data.shape[0] > 0:
                data[end] = np.uint8(least & 255)
                write_row(row, least, data[end + 1 : end + 1 + part], data, end + 1 + part)
            end += 1 + part + columns - most
        starts[i + 1] = end
    return end


@kernel(inline=True)
def span(row: Array) -> Any:
    """Return the least and the largest number of a row, and of 0."""
    low, high = np.int8(0), np.int8(0)
    for c in range(row.shape[0]):
        low, high = min(low, row[c]), max(high, row[c])
    return np.int64(low), np.int64(high)


@kernel(inline=True)
def count_numbers(row: Array, low: int, high: int, met: Array) -> None:
    """Write how often each number is met in a row, from -128 on, 0 for two beside: ``met[0]``."""
    columns, first, last = row.shape[0], max(low + 126, 0), min(high + 131, 256)
    n = columns & ~3
    for k in range(4):
        met[k, first:last] = 0
    for c in range(0, n, 4):  # in four arrays, as numbers repeat: none waits for the one before
        for k in range(4):
            met[k, np.int64(row[c + k]) + 128] += 1
    for c in range(n, columns):
        met[0, np.int64(row[c]) + 128] += 1
    for v in range(first, last):
        met[0, v] += met[1, v] + met[2, v] + met[3, v]


@kernel(inline=True)
def most_frequent(low: int, high: int, met: Array) -> Any:
    """Return the first of the three successive numbers that are met most, and how often."""
    place, most = 0, np.int64(0)
    for v in range(max(low + 126, 0), min(high + 129, 254)):
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
    for c in range(row.shape[0]):  # these are few: a loop of its own lets the one above use vectors
        if not 0 <= np.int64(row[c]) - least < OTHER:
            data[at] = row[c]
            at += 1


@kernel(fastmath=False, inner=True)
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
def prefetch_row(data: Array, first: Number, last: Number) -> None:
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


LONGEST = 65535  # step: a pair's own is smaller
ENTRY_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class PackedCounts:
    """What :class:`CountWeights` says, with lists that are only added up."""

    # uint32 or int64 (d + 1,): feature f's entries lie in `starts[f]:starts[f + 1]`
    starts: NDArray[Any]
    steps: NDArray[np.uint16]  # uint16 (n,): classes from one entry to the next
    gains: NDArray[np.int16]  # int16 (n,): what each adds, in units
    # int16 (d,): what a feature's list adds to a class at most, and takes from it, in units
    peaks: NDArray[np.int16]
    unit: int  # in 1/1024 nat
    n_listed: int  # pairs of all lists
    wide_of: NDArray[np.int32]  # int32 (d,): that of :class:`CountWeights`
    wide: NDArray[np.int16]  # int16 (w, K): that of :class:`CountWeights` in units
    # penalty, base, log_values, hashed: those of :class:`CountWeights`
    penalty: NDArray[np.float32]
    base: NDArray[np.float32]
    log_values: NDArray[np.float32]
    hashed: float
    near: Neighbours | None = None  # that of :class:`CountWeights`

    @classmethod
    def of(cls, counts: CountWeights, unit: int) -> PackedCounts:
        """Pack pairs whose gains are multiples of a unit; ValueError if classes do not rise."""
        d, n = counts.n_features, len(counts.classes)
        room = most_entries(n, d, counts.n_classes)  # pages that get no entries are not taken
        starts, peaks = np.zeros(d + 1, starts_type(room)), np.zeros(d, np.int16)
        steps, gains = np.empty(room, np.uint16), np.empty(room, np.int16)
        if not pack_lists(
            counts.starts, counts.classes, counts.gains, unit, starts, steps, gains, peaks
        ):
            raise ValueError("the counts are wrong")
        for array in (steps, gains):
            array.resize(int(starts[-1]), refcheck=False)
        return cls(
            starts=starts, steps=steps, gains=gains, peaks=peaks, unit=unit, n_listed=n,
            wide_of=counts.wide_of, wide=counts.wide // np.int16(unit), penalty=counts.penalty,
            base=counts.base, log_values=counts.log_values, hashed=counts.hashed, near=counts.near,
        )  # fmt: skip

    @staticmethod
    def pays(pairs: int, features: int, classes: int) -> bool:
        """Return whether so many pairs take fewer bytes packed, wherever their classes are."""
        plain = CountWeights.footprint(pairs=pairs)
        return ENTRY_BYTES * most_entries(pairs, features, classes) < plain

    @staticmethod
    def bytes_saved_by(pairs: int, features: int, classes: int) -> int:
        """Return the bytes that packing saves, at least."""
        room = most_entries(pairs, features, classes)
        each = CountWeights.footprint(pairs=pairs) - ENTRY_BYTES * room
        starts = (8 - starts_type(room).itemsize) * (features + 1)
        return each + starts - 2 * features

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.base)

    @property
    def n_pairs(self) -> int:
        """Pairs that add something to a score."""
        return self.n_listed + int(np.count_nonzero(self.wide))

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays."""
        own = sum(a.nbytes for a in vars(self).values() if isinstance(a, np.ndarray))
        return own + (0 if self.near is None else self.near.n_bytes)

    def plain(self) -> CountWeights:
        """Return the same with lists of classes and gains."""
        classes, gains = np.empty(self.n_listed, np.int32), np.empty(self.n_listed, np.int16)
        lengths = np.zeros(len(self.starts) - 1, np.int64)
        unpack_lists(self.starts, self.steps, self.gains, self.unit, lengths, classes, gains)
        return CountWeights(
            starts=ends(lengths), classes=classes, gains=gains, wide_of=self.wide_of,
            wide=self.wide * np.int16(self.unit), penalty=self.penalty, base=self.base,
            log_values=self.log_values, hashed=self.hashed, near=self.near,
        )  # fmt: skip


Counts = CountWeights | PackedCounts


def most_entries(pairs: int, features: int, classes: int) -> int:
    """Return the most entries that so many pairs in as many lists as features may have."""
    return pairs + min(features, pairs) * (max(classes - 1, 0) // LONGEST)


@kernel()
def pack_lists(
    starts: Array, classes: Array, gains: Array, unit: int, new_starts: Array, steps: Array,
    units: Array, peaks: Array,
) -> Any:  # fmt: skip
    """Write the entries of lists; return whether the classes of each rise from 0 on.

    Parameters
    ----------
    starts, classes, gains, unit : arrays and int
        Those of :class:`streammach.rows.pairs.CountWeights`, and a gain of 1 in 1/1024 nat.
    new_starts, steps, units, peaks : arrays
        Receive what :class:`PackedCounts` calls `starts`, `steps`, `gains` and `peaks`.
    """
    at = np.int64(0)
    for f in range(peaks.shape[0]):
        before, peak = np.int64(-1), np.int64(0)
        for z in range(starts[f], starts[f + 1]):
            c, gain = np.int64(classes[z]), np.int64(gains[z]) // unit
            if c <= before:
                return False
            step: Any = c - max(before, np.int64(0))
            while step >= LONGEST:
                steps[at], units[at] = LONGEST, 0
                at, step = at + 1, step - LONGEST
            steps[at], units[at] = step, gain
            at, before, peak = at + 1, c, max(peak, abs(gain))
        new_starts[f + 1], peaks[f] = at, min(peak, 32767)
    return True


@kernel()
def unpack_lists(
    starts: Array, steps: Array, units: Array, unit: int, lengths: Array, classes: Array,
    gains: Array,
) -> None:  # fmt: skip
    """Write packed lists as lists of pairs.

    Parameters
    ----------
    starts, steps, units, unit : arrays and int
        Those of :func:`pack_lists`.
    lengths, classes, gains : int64 (d,), int32 (Z,), int16 (Z,)
        Receive the pairs of each list, zeros before, and the pairs.
    """
    n = 0
    for f in range(lengths.shape[0]):
        c = np.int64(0)
        for q in range(np.int64(starts[f]), np.int64(starts[f + 1])):
            c += steps[q]
            if steps[q] != LONGEST:
                classes[n], gains[n] = c, units[q] * unit
                lengths[f] += 1
                n += 1
