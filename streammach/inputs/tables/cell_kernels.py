"""Compiled loops over records of delimited text, and over cells: numbers, names, characters."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.inputs.formats.parsed import NEWLINE
from streammach.inputs.formats.tokens import long_number
from streammach.inputs.tables.values import MAX_VALUE
from streammach.system.jit import Array, kernel
from streammach.system.simd import HIGH, load8, low_bytes

QUOTED, RETURN = 34, 13
LETTERS, CELLS, PAIRED = range(3)  # what quotes are: letters, or around cells; where they pair up
OPEN = 2  # it cannot be told yet
SMALL_TRUE, SMALL_FALSE = (np.uint64(int.from_bytes(t, "little")) for t in (b"true", b"false"))
ODD, WIDE = 1, 2  # marks of cells
SPANNING, UNPAIRED = 0, 2  # places of numbers of cells, and behind each of the line of the first


@kernel(inline=True)
def pairs_up(text: Array, p: int, stop: int, delimiter: int) -> Any:
    """Return whether the quote before `p` begins a cell in quotes: 1, 0 for a letter, or OPEN."""
    # It does if another one closes it in its line; or in a later one, at the end of a cell, with
    # no delimiter between.
    crossed, parted = False, False
    while p < stop:
        byte = text[p]
        if byte == QUOTED:
            if p + 1 == stop:
                return OPEN
            after = text[p + 1]
            if after != QUOTED:
                return int(not crossed or after in (delimiter, NEWLINE, RETURN))
            p += 1
        elif byte == NEWLINE:
            crossed = True
        elif byte == delimiter:
            parted = True
        if crossed and parted:
            return 0
        p += 1
    return OPEN


@kernel(fastmath=False)
def read_records(
    text: Array, p: int, stop: int, delimiter: int, quotes: int, most: int, ended: bool,
    starts: Array, stops: Array, found: Array, lines: Array, odd: Array,
) -> Any:  # fmt: skip
    """Read records, or count them; return where the last whole one ends, and how many there are.

    Blank lines are no records. Doubled quotes of a cell that is read become one in the text.

    Parameters
    ----------
    text, p, stop : uint8, int, int
        The text, and the part to look at, whose first record starts at `p`.
    delimiter : int
        The byte between cells.
    quotes : int
        LETTERS; CELLS: cells may stand in quotes, with newlines in them; PAIRED: where
        :func:`pairs_up` says so.
    most : int
        How many are wanted at most; 0: all.
    ended : bool
        Whether nothing follows.
    starts, stops : int64 (columns, rows)
        Receive where each cell lies of records that have all columns, one behind another; there is
        room for one more of these.
    found, lines : int64 (records,)
        Receive how many cells a record has, and its line, from 1. Without room for any, records are
        counted and nothing is written.
    odd : int64 (4,)
        Receives how many cells span lines and the line of the first; the same of cells whose first
        quote is a letter for it has no pair.
    """
    n, kept, line, columns, cut, reads = 0, 0, 1, starts.shape[0], p, len(found) > 0
    odd[:] = 0
    while p < stop and (most == 0 or n < most):
        size = 1 + (text[p] == RETURN and p + 1 < stop)
        if text[p + size - 1] == NEWLINE:
            p += size
            cut = p
            line += 1
            continue
        first, column, last = line, 0, False
        while not last:
            start = end = p
            quoted = p < stop and text[p] == QUOTED and quotes != LETTERS
            if quoted and quotes == PAIRED:
                paired = pairs_up(text, p + 1, stop, delimiter)
                quoted = paired == 1 or (paired == OPEN and not ended)
                if not quoted:
                    odd[UNPAIRED] += 1
                    if odd[UNPAIRED] == 1:
                        odd[UNPAIRED + 1] = line
            if quoted:
                opened = line
                start = end = p = p + 1
                while p < stop:
                    if text[p] == QUOTED:
                        p += 1
                        if p == stop or text[p] != QUOTED:
                            break
                    line += text[p] == NEWLINE
                    if reads:
                        text[end] = text[p]
                    end += 1
                    p += 1
                if line > opened:
                    odd[SPANNING] += 1
                    if odd[SPANNING] == 1:
                        odd[SPANNING + 1] = opened
            shift = (p - end) * reads
            while p < stop and text[p] != delimiter and text[p] != NEWLINE:
                if shift > 0:
                    text[p - shift] = text[p]
                p += 1
            end = p - shift
            last = p >= stop or text[p] == NEWLINE
            if last and end > start and text[end - 1] == RETURN:
                end -= 1
            if column < columns:
                starts[column, kept], stops[column, kept] = start, end
            column += 1
            p += 1
        if p > stop and not reads:  # it is not whole
            break
        line += 1
        if reads:
            found[n], lines[n] = column, first
        kept += column == columns
        n += 1
        cut = p
    return min(cut, stop), n


@kernel(fastmath=False)
def read_numbers(data: Array, starts: Array, stops: Array, values: Array, exact: Array) -> None:
    """Read cells as numbers.

    Parameters
    ----------
    data, starts, stops : uint8, int64 (n,), int64 (n,)
        The bytes, with room behind the cells, and where each cell lies.
    values, exact : float64 (n,), bool (n,)
        Receive the numbers; whether a cell is one and nothing else, and is read to the last bit.
    """
    for i in range(starts.shape[0]):
        value, end, reason, sure = long_number(data, starts[i])
        values[i] = value
        exact[i] = sure and reason == 0 and end == stops[i]


@kernel(fastmath=False)
def look_at_cells(data: Array, starts: Array, stops: Array, marks: Array) -> Any:
    """Give simple cells their names; return how many have a mark.

    Parameters
    ----------
    data, starts, stops : uint8, int64 (n,), int64 (n,)
        The bytes, and where each cell lies: ``true`` becomes ``True`` there, and ``3.0`` ends
        before the point.
    marks : uint8 (n,)
        Receives what is left to others: ODD cells to `canonical`, for they may have another name,
        and WIDE ones, with other bytes than ASCII; 0 for the rest.
    """
    n = 0
    for i in range(starts.shape[0]):
        start, stop = starts[i], stops[i]
        size = stop - start
        marks[i] = 0
        q, high = start, np.uint64(0)
        while q + 8 <= stop:
            high |= load8(data, q)
            q += 8
        while q < stop:
            high |= np.uint64(data[q])
            q += 1
        if high & HIGH != np.uint64(0):
            marks[i] = WIDE
            n += 1
            continue
        if size < 2 or size > MAX_VALUE:
            continue
        byte, last, word = data[start], data[stop - 1], low_bytes(load8(data, start), size)
        if (size == 4 and word == SMALL_TRUE) or (size == 5 and word == SMALL_FALSE):
            data[start] -= 32
        elif byte in (40, 91):  # an interval
            marks[i] = ODD if last in (41, 93) else 0
        elif 43 <= byte <= 57:  # a sign, a point or a digit
            powers, points, other = 0, 0, False
            for p in range(start + (byte == 45), stop):
                letter = data[p]
                points += letter == 46
                powers += letter in (69, 101, 58)  # e, E, :
                other = other or not (
                    48 <= letter <= 57 or letter in (32, 43, 45, 46, 58, 69, 84, 90, 101)
                )
            first = start + (byte == 45)
            small = stop - first > 6 and data[first] == 48 and data[first + 5] == 48
            whole = points == 1 and last == 48 and data[stop - 2] == 46 and stop - 2 > first
            if other:
                pass
            elif powers > 0 or small or (byte == 45 and data[first] == 48):
                marks[i] = ODD
            elif whole and (data[first] != 48 or stop - 3 == first):
                digits = True
                for p in range(first, stop - 2):
                    digits = digits and 48 <= data[p] <= 57
                if digits:
                    stops[i] = stop - 2
        n += marks[i] != 0
    return n
