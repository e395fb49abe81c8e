"""Brings the cells of a table into the form that the kernels read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.tables.cell_kernels import ODD, WIDE, look_at_cells
from streammach.inputs.tables.cells import (
    MAX_CELL,
    NOT_UTF8,
    TOO_LARGE,
    TOO_LONG,
    BadCell,
    Cells,
    TableRows,
)
from streammach.inputs.tables.values import NO_DATE, canonical, day_of
from streammach.inputs.tokenizers import Change
from streammach.options.recipe import DATE_PARTS, Column, DatePart
from streammach.rows.names import MAX_NAME
from streammach.system.simd import PADDING

BREAK, PART, ALONE = 0, 1, 2  # what a character is: between words, of a word, a word of its own
LAST_CODE = 0x110000
IDEOGRAPHS = (
    (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2FA20), (0x30000, 0x32400),
)  # fmt: skip
ASCII = 128  # characters: their kinds alone are told where there are no others
Wrong = dict[int, BadCell]  # what is wrong with rows, by their numbers


def note(wrong: Wrong, name: str, cells: Sequence[BadCell]) -> None:
    """Note what is wrong with cells of a column, unless something was with their rows."""
    shown = name.replace("{", "{{").replace("}", "}}")
    for cell in cells:
        wrong.setdefault(cell.row, BadCell(cell.row, f"column {shown}: {cell.reason}", cell.text))


def cells_of(rows: TableRows, column: Column, wrong: Wrong) -> Cells:
    """Return the cells of a column by its role; note what is wrong with some."""
    if column.role == "number":
        cells = rows.numbers(column.name)
    elif column.role == "names":
        cells = rows.lists(column.name)
    elif column.role == "pairs":
        cells = rows.pairs(column.name)
    elif column.role == "vector":
        cells = rows.vectors(column.name, column.width)
    elif column.role == "date":
        cells = dates_of(rows.strings(column.name), column.parts)
    else:
        cells = rows.strings(column.name)
    long = too_long(cells, text=column.role == "text") if cells.numbers is None else []
    note(wrong, column.name, [*cells.wrong, *long])
    return cells


def dates_of(cells: Cells, parts: Sequence[DatePart]) -> Cells:
    """Return dates as names of some of their parts, and as numbers of days."""
    places = [DATE_PARTS.index(part) for part in parts]
    days = np.full((cells.n_rows, 1), np.nan)
    names: list[Sequence[bytes]] = [()] * cells.n_rows
    wrong = list(cells.wrong)
    for i, row in enumerate(cells.rows.tolist()):
        day = day_of(cells.item(i))
        if day is None:
            wrong.append(BadCell(row, NO_DATE, cells.item(i)[:80]))
        else:
            days[row], names[row] = day.days, [day.names[i] for i in places]
    found = Cells.of(names, wrong=wrong)
    found.numbers = days
    return found


def too_long(cells: Cells, *, text: bool = False) -> list[BadCell]:
    """Return the items that have more bytes than a name, or a text, may have."""
    most, reason = (MAX_CELL, TOO_LARGE) if text else (MAX_NAME, TOO_LONG)
    long = np.flatnonzero(cells.stops - cells.starts > most)
    rows = cells.rows if len(long) else long
    return [BadCell(int(rows[i]), reason, cells.item(int(i))[:80]) for i in long]


def split(cells: Cells, separator: bytes) -> Cells:
    """Return what stands between separators, blanks around it aside, as lists."""
    texts: list[list[bytes]] = [[] for _ in range(cells.n_rows)]
    for i, row in enumerate(cells.rows.tolist()):
        texts[row] += [part.strip() for part in cells.item(i).split(separator)]
    return replace(Cells.of(texts, wrong=cells.wrong), listed=True)


def join_cells(
    every: Sequence[Cells], named: Sequence[tuple[str, str]], wrong: Wrong,
    changes: tuple[Change | None, Change | None] = (None, None),
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:  # fmt: skip
    """Return the bytes of all items, where each starts and stops there, and kinds of characters."""
    # Items have their names; those with other characters than ASCII are decoded, and those of texts
    # are normalised. Where a function parts texts or words become stems all texts are.
    tokens, stemmed = changes
    changed = tokens is not None or stemmed is not None
    bases: dict[int, int] = {}
    parts: list[NDArray[np.uint8]] = []
    n_bytes = 0
    for cells in every:
        if id(cells.data) not in bases:
            bases[id(cells.data)] = n_bytes
            parts.append(cells.data)
            n_bytes += len(cells.data)
    starts = np.concatenate([cells.starts + bases[id(cells.data)] for cells in every])
    stops = np.concatenate([cells.stops + bases[id(cells.data)] for cells in every])
    data = np.concatenate([*parts, np.zeros(PADDING, np.uint8)])
    tail: list[bytes] = []
    end, texts = len(data), False
    marks = np.empty(len(starts), np.uint8)
    if not look_at_cells(data, starts, stops, marks) and not changed:
        return data, starts, stops, kinds_of_characters(ASCII)

    def put(place: int, text: bytes) -> None:
        nonlocal end
        tail.append(text)
        starts[place], end = end, end + len(text)
        stops[place] = end

    for i in np.flatnonzero(marks == ODD).tolist():
        put(i, canonical(data[starts[i] : stops[i]].tobytes()))
    first = 0
    for cells, (name, role) in zip(every, named, strict=True):
        own = marks[first : first + len(cells.starts)]
        chosen = np.flatnonzero((own == WIDE) | (role == "text" and changed))
        rows = cells.rows if len(chosen) else chosen
        for i in chosen.tolist():
            raw = cells.item(i)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                note(wrong, name, [BadCell(int(rows[i]), NOT_UTF8, raw[:80])])
                starts[first + i] = stops[first + i] = 0
                continue
            if role == "text":
                texts = True
                text = normalize(text if tokens is None else tokens(text))
                put(first + i, (text if stemmed is None else stemmed(text)).encode())
        first += len(cells.starts)
    more = np.frombuffer(b"".join(tail) + bytes(PADDING), np.uint8)
    kinds = kinds_of_characters(LAST_CODE if texts else ASCII, alone=tokens is None)
    return np.concatenate([data, more]), starts, stops, kinds


def normalize(text: str) -> str:
    """Return text in one case and one form: NFKC, folded, NFKC."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@cache
def kinds_of_characters(n: int = LAST_CODE, *, alone: bool = True) -> NDArray[np.uint8]:
    """Return what each of the first characters is, ideographs `alone` or not: uint8 (n,)."""
    kinds = np.zeros(n, np.uint8)
    for code in range(n):
        character = chr(code)
        if character.isalnum() or unicodedata.category(character)[0] == "M":
            kinds[code] = PART
    for first, stop in IDEOGRAPHS if alone else ():
        part = kinds[first:stop]
        part[part == PART] = ALONE
    return kinds
