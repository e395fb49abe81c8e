"""Compiled loops over records of delimited text: where they end, and their cells."""

from __future__ import annotations

from typing import Any

from streammach.data.formats.parsed import NEWLINE
from streammach.jit import Array, kernel

QUOTED, RETURN = 34, 13
START, BARE, INSIDE, CLOSED = range(4)  # of a cell; inside quotes; behind the closing one
LETTERS, CELLS, PAIRED = range(3)  # what quotes are: letters, or around cells; where they pair up
OPEN = 2  # it cannot be told yet
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
def whole_records(
    text: Array, p: int, stop: int, delimiter: int, quotes: int, most: int, ended: bool
) -> Any:
    """Return where the last whole record in ``text[p:stop]`` ends, and how many there are.

    Parameters
    ----------
    text : uint8
        The text; a record starts at `p`.
    p, stop : int
        The part to look at.
    delimiter : int
        The byte between cells.
    quotes : int
        LETTERS; CELLS: cells may stand in quotes, with newlines in them; PAIRED: where
        :func:`pairs_up` says so.
    most : int
        How many are wanted at most; 0: all.
    ended : bool
        Whether nothing follows.
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
            if n == most and most:
                break
        elif byte == QUOTED and quotes != LETTERS and where in (CLOSED, START):
            where = INSIDE if where == CLOSED or quotes == CELLS else BARE
            if where == BARE:
                found = pairs_up(text, q + 1, stop, delimiter)
                where = BARE if found == 0 or (found == OPEN and ended) else INSIDE
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
    quotes: int,
    starts: Array,
    stops: Array,
    found: Array,
    lines: Array,
    odd: Array,
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
    quotes : int
        What they are, as for :func:`whole_records`.
    starts, stops : int64 (rows, columns)
        Receive where each cell lies; those that a record lacks are empty.
    found, lines : int64 (rows,)
        Receive how many cells a record has, and its line, from 1.
    odd : int64 (4,)
        Receives how many cells span lines and the line of the first; the same of cells whose first
        quote is a letter for it has no pair.

    Returns
    -------
    int
        The number of records; blank lines are none.
    """
    n, line, columns = 0, 1, starts.shape[1]
    odd[:] = 0
    while p < stop:
        if text[p] == NEWLINE or (text[p] == RETURN and text[p + 1] == NEWLINE):
            p += 1 if text[p] == NEWLINE else 2
            line += 1
            continue
        lines[n] = line
        column, last = 0, False
        while not last:
            start = end = p
            quoted = text[p] == QUOTED and quotes != LETTERS
            if quoted and quotes == PAIRED and pairs_up(text, p + 1, stop, delimiter) != 1:
                quoted = False
                odd[UNPAIRED] += 1
                if odd[UNPAIRED] == 1:
                    odd[UNPAIRED + 1] = line
            if quoted:
                first = line
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
                if line > first:
                    odd[SPANNING] += 1
                    if odd[SPANNING] == 1:
                        odd[SPANNING + 1] = first
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
