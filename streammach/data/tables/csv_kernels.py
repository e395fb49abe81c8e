"""Compiled loops over records of delimited text: where they end, and their cells."""

from __future__ import annotations

from typing import Any

from streammach.data.formats.parsed import NEWLINE
from streammach.jit import Array, kernel

QUOTED, RETURN = 34, 13
START, BARE, INSIDE, CLOSED = range(4)  # of a cell; inside quotes; behind the closing one


@kernel(fastmath=False)
def whole_records(text: Array, p: int, stop: int, delimiter: int, quotes: bool) -> Any:
    """Return where the last whole record in ``text[p:stop]`` ends, and how many there are.

    Parameters
    ----------
    text : uint8
        The text; a record starts at `p`.
    p, stop : int
        The part to look at.
    delimiter : int
        The byte between cells.
    quotes : bool
        Whether cells may stand in quotes, with newlines in them.
    """
    cut, n, start, where = p, 0, p, START
    for q in range(p, stop):
        byte = text[q]
        if where == INSIDE:
            if byte == QUOTED:
                where = CLOSED
        elif byte == NEWLINE:
            blank = q == start or (q == start + 1 and text[start] == RETURN)
            n += not blank
            cut = start = q + 1
            where = START
        elif byte == QUOTED and quotes:
            if where in (CLOSED, START):
                where = INSIDE
        elif byte == delimiter:
            where = START
        else:
            where = BARE
    return cut, n


@kernel(fastmath=False)
def read_records(
    text: Array,
    p: int,
    stop: int,
    delimiter: int,
    starts: Array,
    stops: Array,
    found: Array,
    lines: Array,
) -> Any:
    """Read whole records; cells with doubled quotes are brought into their form in the text.

    Parameters
    ----------
    text : uint8
        The text, whose bytes may be changed.
    p, stop : int
        Where the first record starts and the last one ends.
    delimiter : int
        The byte between cells.
    starts, stops : int64 (rows, columns)
        Receive where each cell lies; those that a record lacks are empty.
    found, lines : int64 (rows,)
        Receive how many cells a record has, and its line, from 1.

    Returns
    -------
    int
        The number of records; blank lines are none.
    """
    n, line, columns = 0, 1, starts.shape[1]
    while p < stop:
        if text[p] == NEWLINE or (text[p] == RETURN and text[p + 1] == NEWLINE):
            p += 1 if text[p] == NEWLINE else 2
            line += 1
            continue
        lines[n] = line
        column, last = 0, False
        while not last:
            start = end = p
            if text[p] == QUOTED:
                start = end = p = p + 1
                while p < stop:
                    if text[p] == QUOTED:
                        if text[p + 1] != QUOTED:
                            p += 1
                            break
                        p += 1
                    line += text[p] == NEWLINE
                    text[end] = text[p]
                    end += 1
                    p += 1
            while p < stop and text[p] != delimiter and text[p] != NEWLINE:
                text[end] = text[p]
                end += 1
                p += 1
            last = p >= stop or text[p] == NEWLINE
            if last and end > start and text[end - 1] == RETURN:
                end -= 1
            p += 1
            if column < columns:
                starts[n, column], stops[n, column] = start, end
            column += 1
        line += 1
        found[n] = column
        for c in range(column, columns):
            starts[n, c] = stops[n, c] = 0
        n += 1
    return n
