"""Brings the cells of a table into the form that the kernels read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from streammach.data.formats.parsed import BAD_WEIGHT, REASONS, TOO_HEAVY
from streammach.data.tables.cells import (
    MAX_CELL,
    NOT_UTF8,
    TOO_LARGE,
    TOO_LONG,
    BadCell,
    Cells,
    find_odd,
)
from streammach.data.tables.kernels import BIN, NAMES, TEXT, VALUE, Frame, find_wide
from streammach.data.tables.python_rows import TableRows
from streammach.data.tables.values import NO_DATE, canonical, day_of
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.names import MAX_NAME
from streammach.rows.texts import Texts
from streammach.simd import PADDING
from streammach.spec.recipe import CHARS, Column, Recipe
from streammach.spec.types import Multilabel

NO_LABEL = "there is no label"
SEVERAL = "several labels (--multilabel on takes them)"
BREAK, PART, ALONE = 0, 1, 2  # what a character is: between words, of a word, a word of its own
LAST_CODE = 0x110000
IDEOGRAPHS = (
    (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2FA20), (0x30000, 0x32400),
)  # fmt: skip
ASCII = 128  # characters, of which alone the kinds are told where there are no others
KINDS = {"text": TEXT, "category": NAMES, "names": NAMES, "pairs": NAMES, "vector": VALUE}


@dataclass
class RowFrame:
    """Rows of a table for the kernels."""

    frame: Frame  # the rows
    bad: list[BadCell]  # those that are left out, in their order
    tags: Texts | None  # tags of all rows
    missing: dict[str, int]  # in how many rows each column has nothing
    left: NDArray[np.int64]  # int64 (m,): rows of importance 0, which are left out


class Framer:
    """Frames rows by a recipe."""

    def __init__(self, recipe: Recipe, multilabel: Multilabel, *, label_needed: bool) -> None:
        self.recipe = recipe
        self._multilabel: Multilabel = multilabel
        self._label_needed = label_needed
        self.spaces: list[bytes] = []
        numbers = fixed = 0
        columns = []
        for column in recipe.columns:
            otherwise = NAMES if column.role == "date" else VALUE
            kind = KINDS.get(column.role, BIN if column.edges else otherwise)
            more = [self._space(column.namespace), 0]
            if column.role == "text" and recipe.chars is not None:
                more[1] = self._space(column.namespace + CHARS)
            n_numbers = 0 if kind in (TEXT, NAMES) else max(column.width, 1)
            columns.append([kind, *more, numbers, n_numbers, fixed])
            numbers, fixed = numbers + n_numbers, fixed + column.n_fixed
        self.columns = np.array(columns, np.int64)
        self.n_numbers = numbers
        least, most = recipe.chars or (0, 0)
        self._options = np.array([recipe.ngrams, least, most], np.int64)

    @property
    def fixed_names(self) -> list[bytes]:
        """The names that are known beforehand, in the order in which the columns refer to them."""
        out: list[bytes] = []
        for column in self.recipe.columns:
            if column.role == "number" and not column.edges:
                out.append(column.name.encode())
            else:
                out += [b"%d" % i for i in range(column.n_fixed)]
        return out

    def _space(self, name: str) -> int:
        """Return the number of a namespace among `spaces`, from 1; 0 stands for none."""
        if not name:
            return 0
        self.spaces.append(name.encode())
        return len(self.spaces)

    def frame(self, rows: TableRows, absent: frozenset[str] = frozenset()) -> RowFrame:
        """Return rows for the kernels."""
        recipe, n = self.recipe, rows.n_rows
        wrong = {cell.row: cell for cell in rows.refused}
        found = [Cells.none(n) if c.name in absent else _read(rows, c) for c in recipe.columns]
        for column, cells in zip(recipe.columns, found, strict=True):
            _note(wrong, column.name, [*cells.wrong, *_too_large(column.role, cells)])
        labels = self._labels(rows, absent, wrong)
        importance = self._importance(rows, absent, wrong)
        tags = self._tags(rows, absent, wrong)
        every = [*found, labels]
        named = [*((c.name, c.role) for c in recipe.columns), (recipe.label or "", "label")]
        data, starts, stops, kinds = _joined(every, named, wrong)
        bad = np.zeros(n, np.bool_)
        bad[list(wrong)] = True
        left = np.flatnonzero((importance == 0) & ~bad)
        bad[left] = True
        frame = Frame(
            data=data, offsets=_offsets(every), starts=starts, stops=stops,
            weights=_weights(every), numbers=self._numbers(found, n), columns=self.columns,
            importance=importance, bad=bad, options=self._options, kinds=kinds,
        )  # fmt: skip
        missing = {c.name: cells.missing for c, cells in zip(recipe.columns, found, strict=True)}
        return RowFrame(frame, [wrong[row] for row in sorted(wrong)], tags, missing, left)

    def _numbers(self, found: Sequence[Cells], n_rows: int) -> NDArray[np.float64]:
        """Return the numbers of all columns, those with bins as the bins that they lie in."""
        out = np.full((n_rows, self.n_numbers), np.nan)
        for column, facts, cells in zip(self.recipe.columns, self.columns, found, strict=True):
            first, several = int(facts[3]), int(facts[4])
            if cells.numbers is None or not several:
                continue
            if column.edges:
                there = ~np.isnan(cells.numbers)
                bins = np.searchsorted(np.array(column.edges), cells.numbers, side="right")
                out[:, first : first + several][there] = bins[there]
            else:
                out[:, first : first + several] = cells.numbers
        return out

    def _labels(self, rows: TableRows, absent: frozenset[str], wrong: dict[int, BadCell]) -> Cells:
        """Return the labels; say which rows have none, or several where they may not."""
        name = self.recipe.label
        if name is None or name in absent:
            return Cells.none(rows.n_rows)
        cells, listed = rows.lists(name)
        if self.recipe.separator is not None:
            cells, listed = _split(cells, self.recipe.separator.encode())
        _note(wrong, name, [*cells.wrong, *_too_long(cells)])
        several = np.diff(cells.offsets)
        if self._multilabel == "off":
            _note(wrong, name, [BadCell(int(r), SEVERAL) for r in np.flatnonzero(several > 1)])
        if self._label_needed and self._multilabel != "on":
            may = listed if self._multilabel == "auto" else np.zeros(len(listed), np.bool_)
            none = np.flatnonzero((several == 0) & ~may)
            _note(wrong, name, [BadCell(int(row), NO_LABEL) for row in none])
        return cells

    def _importance(
        self, rows: TableRows, absent: frozenset[str], wrong: dict[int, BadCell]
    ) -> NDArray[np.float32]:
        """Return the importance of each row, 1 where it is missing: float32 (n,)."""
        name = self.recipe.weight
        if name is None or name in absent:
            return np.ones(rows.n_rows, np.float32)
        cells = rows.numbers(name)
        assert cells.numbers is not None
        _note(wrong, name, cells.wrong)
        values = cells.numbers[:, 0]
        for reason, outside in ((BAD_WEIGHT, values < 0), (TOO_HEAVY, values > MOST_IMPORTANCE)):
            places = np.flatnonzero(outside).tolist()
            _note(wrong, name, [BadCell(r, REASONS[reason], str(values[r])) for r in places])
        with np.errstate(over="ignore"):
            return np.nan_to_num(values, nan=1.0).astype(np.float32)

    def _tags(
        self, rows: TableRows, absent: frozenset[str], wrong: dict[int, BadCell]
    ) -> Texts | None:
        """Return the tag of each row."""
        name = self.recipe.tag
        if name is None or name in absent:
            return None
        cells = rows.strings(name)
        _note(wrong, name, [*cells.wrong, *_too_long(cells)])
        return Texts.of(b"" if raw is None else canonical(raw) for raw in cells.firsts())


def _read(rows: TableRows, column: Column) -> Cells:
    """Return the cells of a column by its role."""
    if column.role == "number":
        return rows.numbers(column.name)
    if column.role == "names":
        return rows.lists(column.name)[0]
    if column.role == "pairs":
        return rows.pairs(column.name)
    if column.role == "vector":
        return rows.vectors(column.name, column.width)
    if column.role == "date":
        return dates_of(rows.strings(column.name))
    return rows.strings(column.name)


def dates_of(cells: Cells) -> Cells:
    """Return dates as names of their years, months and so on, and as numbers of days."""
    days = np.full((cells.n_rows, 1), np.nan)
    names: list[Sequence[bytes]] = [()] * cells.n_rows
    wrong = list(cells.wrong)
    for i, row in enumerate(cells.rows.tolist()):
        day = day_of(cells.item(i))
        if day is None:
            wrong.append(BadCell(row, NO_DATE, cells.item(i)[:80]))
        else:
            days[row], names[row] = day
    found = Cells.of(names, wrong=wrong)
    found.numbers = days
    return found


def _note(wrong: dict[int, BadCell], name: str, cells: Sequence[BadCell]) -> None:
    """Note what is wrong with cells of a column, unless something was with their rows."""
    shown = name.replace("{", "{{").replace("}", "}}")
    for cell in cells:
        wrong.setdefault(cell.row, BadCell(cell.row, f"column {shown}: {cell.reason}", cell.text))


def _too_large(role: str, cells: Cells) -> list[BadCell]:
    if cells.numbers is not None:
        return []
    return _longer(cells, MAX_CELL, TOO_LARGE) if role == "text" else _too_long(cells)


def _too_long(cells: Cells) -> list[BadCell]:
    return _longer(cells, MAX_NAME, TOO_LONG)


def _longer(cells: Cells, most: int, reason: str) -> list[BadCell]:
    long = np.flatnonzero(cells.stops - cells.starts > most)
    rows = cells.rows if len(long) else long
    return [BadCell(int(rows[i]), reason, cells.item(int(i))[:80]) for i in long]


def _split(cells: Cells, separator: bytes) -> tuple[Cells, NDArray[np.bool_]]:
    """Return the parts of cells between separators, blanks around them aside."""
    texts: list[list[bytes]] = [[] for _ in range(cells.n_rows)]
    for i, row in enumerate(cells.rows.tolist()):
        texts[row] += [part.strip() for part in cells.item(i).split(separator)]
    return Cells.of(texts, wrong=cells.wrong), np.ones(cells.n_rows, np.bool_)


def _offsets(every: Sequence[Cells]) -> NDArray[np.int64]:
    """Return where the items of rows start in each column: int64 (columns, n + 1)."""
    before = np.cumsum([0, *(len(cells.starts) for cells in every[:-1])])
    return np.stack([cells.offsets + first for cells, first in zip(every, before, strict=True)])


def _weights(every: Sequence[Cells]) -> NDArray[np.float64]:
    """Return the values of all items: float64 (items,), or (1,) where all are 1."""
    if all(cells.weights is None for cells in every):
        return np.ones(1)
    return np.concatenate([
        np.ones(len(cells.starts)) if cells.weights is None else cells.weights for cells in every
    ] + [np.ones(1)])  # fmt: skip


def _joined(
    every: Sequence[Cells], named: Sequence[tuple[str, str]], wrong: dict[int, BadCell]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return the bytes of all items, where each starts and stops there, and kinds of characters.

    Items have their names; those with other characters than ASCII are decoded, and those of texts
    are normalised.
    """
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
    parts.append(np.zeros(PADDING, np.uint8))
    data = np.concatenate(parts)
    tail: list[bytes] = []
    end, texts = len(data), False
    wide, odd = (np.empty(len(starts), np.bool_) for _ in range(2))
    if not find_odd(data, starts, stops, odd) + find_wide(data, starts, stops, wide):
        return data, starts, stops, kinds_of_characters(ASCII)
    for i in np.flatnonzero(odd & ~wide).tolist():
        tail.append(canonical(data[starts[i] : stops[i]].tobytes()))
        starts[i], end = end, end + len(tail[-1])
        stops[i] = end
    first = 0
    for cells, (name, role) in zip(every, named, strict=True):
        chosen = np.flatnonzero(wide[first : first + len(cells.starts)])
        rows = cells.rows if len(chosen) else chosen
        for i in chosen.tolist():
            raw = cells.item(i)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                _note(wrong, name, [BadCell(int(rows[i]), NOT_UTF8, raw[:80])])
                starts[first + i] = stops[first + i] = 0
                continue
            if role == "text":
                texts = True
                tail.append(normalised(text).encode())
                starts[first + i], end = end, end + len(tail[-1])
                stops[first + i] = end
        first += len(cells.starts)
    more = np.frombuffer(b"".join(tail) + bytes(PADDING), np.uint8)
    kinds = kinds_of_characters() if texts else kinds_of_characters(ASCII)
    return np.concatenate([data, more]), starts, stops, kinds


def normalised(text: str) -> str:
    """Return text in one case and one form: NFKC, folded, NFKC."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@cache
def kinds_of_characters(n: int = LAST_CODE) -> NDArray[np.uint8]:
    """Return what each of the first characters is: uint8 (n,)."""
    kinds = np.zeros(n, np.uint8)
    for code in range(n):
        character = chr(code)
        if character.isalnum() or unicodedata.category(character)[0] == "M":
            kinds[code] = PART
    for first, stop in IDEOGRAPHS:
        part = kinds[first:stop]
        part[part == PART] = ALONE
    return kinds
