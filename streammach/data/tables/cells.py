"""The cells of a column for some rows, wherever they come from, and what is wrong with some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.number_kernels import MAX_FLOAT32, long_number
from streammach.data.tables.values import MAX_VALUE, number_of
from streammach.jit import Array, kernel
from streammach.rows.names import MAX_NAME
from streammach.simd import PADDING

NO_BYTES = np.zeros(0, np.uint8)
MAX_CELL = 8 << 20  # bytes of a cell of text
NO_NUMBER = "'{}' is not a number"
NOT_FINITE = "'{}' is not a finite float32"
NO_LIST = "'{}' is no list"
NO_PAIRS = "'{}' is no list of names with values"
NOT_UTF8 = "'{}' is not UTF-8"
TOO_LONG = f"'{{}}' has more than {MAX_NAME:,} bytes"
TOO_LARGE = f"'{{}}' has more than {MAX_CELL >> 20} MiB"


class BadCell(NamedTuple):
    """A cell that cannot be read: its row, why (``{}`` is the cell), what is shown of it."""

    row: int
    reason: str
    text: str | bytes = ""


@dataclass
class Cells:
    """The cells of a column: of each row some items, none where the cell is missing."""

    offsets: NDArray[np.int64]  # int64 (n + 1,): where the items of each row start
    starts: NDArray[np.int64]  # starts, stops: int64 (items,): where each item lies in `data`
    stops: NDArray[np.int64]
    # uint8 (bytes,): the bytes of the items, and perhaps others
    data: NDArray[np.uint8] = field(default_factory=lambda: NO_BYTES)
    # float64 (items,) or None: values of the items; None where all are 1
    weights: NDArray[np.float64] | None = None
    # float64 (n, w) or None: the numbers of each row, where these are what is read; NaN for none
    numbers: NDArray[np.float64] | None = None
    wrong: list[BadCell] = field(default_factory=list)  # cells that cannot be read

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @property
    def missing(self) -> int:
        """How many rows have nothing there."""
        if self.numbers is not None:
            return int(np.isnan(self.numbers).all(axis=1).sum())
        return int((np.diff(self.offsets) == 0).sum())

    def item(self, i: int) -> bytes:
        """Return the bytes of an item."""
        return self.data[self.starts[i] : self.stops[i]].tobytes()

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each item: int64 (items,)."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.offsets))

    def firsts(self) -> list[bytes | None]:
        """Return the first item of each row, None where there is none."""
        there = np.diff(self.offsets) > 0
        firsts = zip(self.offsets[:-1].tolist(), there.tolist(), strict=True)
        return [self.item(first) if some else None for first, some in firsts]

    @classmethod
    def none(cls, n_rows: int) -> Cells:
        """Return the cells of a column that is not there."""
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros(n_rows + 1, np.int64), nothing, nothing)

    @classmethod
    def spans(
        cls, data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> Cells:
        """Return one item a row; an empty one is missing.

        `data` is uint8 (bytes,), `starts` and `stops` are int64 (n,).
        """
        there = stops > starts
        offsets = np.concatenate([[0], np.cumsum(there)])
        if not there.all():
            starts, stops = starts[there], stops[there]
        return cls(offsets, starts, stops, data)

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[bytes]], values: list[float] | None = None,
        wrong: Sequence[BadCell] = (),
    ) -> Cells:  # fmt: skip
        """Return the items of each row; empty ones are left out, unless they have `values`."""
        kept = [[t for t in row if t] for row in rows] if values is None else rows
        texts = [t for row in kept for t in row]
        offsets, ends = np.zeros(len(kept) + 1, np.int64), np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(row) for row in kept], out=offsets[1:])
        np.cumsum([len(t) for t in texts], out=ends[1:])
        data = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
        weights = None if values is None else np.array(values, np.float64)
        return cls(offsets, ends[:-1], ends[1:], data, weights, wrong=[*wrong])

    @classmethod
    def of_numbers(cls, values: NDArray[np.float64], wrong: Sequence[BadCell] = ()) -> Cells:
        """Return numbers, float64 (n, w), with those refused that float32 does not hold."""
        large = np.flatnonzero((np.abs(values) >= MAX_FLOAT32).any(axis=1))  # not NaN
        cells = cls.none(len(values))
        more = [BadCell(int(row), NOT_FINITE, _largest(values[row])) for row in large]
        cells.numbers, cells.wrong = values, [*wrong, *more]
        return cells


def parsed_numbers(cells: Cells) -> Cells:
    """Return cells of text as numbers."""
    values = np.empty(len(cells.starts), np.float64)
    exact = np.empty(len(cells.starts), np.bool_)
    data = cells.data
    if len(data) < PADDING or (len(cells.stops) and cells.stops.max() > len(data) - PADDING):
        data = np.concatenate([data, np.zeros(PADDING, np.uint8)])
    read_numbers(data, cells.starts, cells.stops, values, exact)
    rows, wrong = cells.rows, list(cells.wrong)
    for i in np.flatnonzero(~exact).tolist():
        raw = cells.item(i)
        try:
            values[i] = number_of(raw)
        except ValueError:
            wrong.append(BadCell(int(rows[i]), NO_NUMBER, raw[:80]))
            values[i] = math.nan
    out = np.full((cells.n_rows, 1), math.nan)
    out[rows, 0] = values
    return Cells.of_numbers(out, wrong)


@kernel(fastmath=False)
def read_numbers(data: Array, starts: Array, stops: Array, values: Array, exact: Array) -> None:
    """Read cells as numbers.

    Parameters
    ----------
    data : uint8
        The bytes, with room behind the cells.
    starts, stops : int64 (n,)
        Where each lies.
    values : float64 (n,)
        Receives the numbers.
    exact : bool (n,)
        Receives whether a cell is one and nothing else, and is read to the last bit.
    """
    for i in range(starts.shape[0]):
        value, end, reason, sure = long_number(data, starts[i])
        values[i] = value
        exact[i] = sure and reason == 0 and end == stops[i]


@kernel(fastmath=False)
def find_odd(data: Array, starts: Array, stops: Array, odd: Array) -> Any:
    """Give simple cells their names, and find those that `canonical` may name in another way.

    Parameters
    ----------
    data : uint8
        The bytes; ``true`` becomes ``True`` there.
    starts, stops : int64 (n,)
        Where each cell lies; that of ``3.0`` ends before the point then.
    odd : bool (n,)
        Receives whether a cell is left to `canonical`.

    Returns
    -------
    n : int
        How many are.
    """
    n = 0
    for i in range(starts.shape[0]):
        start, stop = starts[i], stops[i]
        size = stop - start
        odd[i] = False
        if size < 2 or size > MAX_VALUE:
            continue
        byte, last = data[start], data[stop - 1]
        if byte == 116 and size == 4:  # true
            if data[start + 1] == 114 and data[start + 2] == 117 and last == 101:
                data[start] = 84
        elif byte == 102 and size == 5:  # false
            inner = data[start + 1] == 97 and data[start + 2] == 108 and data[start + 3] == 115
            if inner and last == 101:
                data[start] = 70
        elif byte in (40, 91):  # an interval
            odd[i] = last in (41, 93)
        elif 43 <= byte <= 57:  # a sign, a point or a digit
            marks, points, other = 0, 0, False
            for p in range(start + (byte == 45), stop):
                letter = data[p]
                points += letter == 46
                marks += letter in (69, 101, 58)  # e, E, :
                other = other or not (
                    48 <= letter <= 57 or letter in (32, 43, 45, 46, 58, 69, 84, 90, 101)
                )
            first = start + (byte == 45)
            small = stop - first > 6 and data[first] == 48 and data[first + 5] == 48
            whole = points == 1 and last == 48 and data[stop - 2] == 46 and stop - 2 > first
            if other:
                pass
            elif marks > 0 or small or (byte == 45 and data[first] == 48):
                odd[i] = True
            elif whole and (data[first] != 48 or stop - 3 == first):
                digits = True
                for p in range(first, stop - 2):
                    digits = digits and 48 <= data[p] <= 57
                if digits:
                    stops[i] = stop - 2
        n += odd[i]
    return n


def _largest(values: NDArray[np.float64]) -> str:
    return str(values[int(np.abs(np.nan_to_num(values, nan=0.0)).argmax())])
