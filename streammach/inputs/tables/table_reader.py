"""Turns rows of a table into rows of features: the same for every way in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRow
from streammach.inputs.formats import parsed
from streammach.inputs.formats.parsed import Parsed, block_of, room_for
from streammach.inputs.source import NamedLabels, PieceRows, RowReader
from streammach.inputs.tables.cells import BadCell, Cells, TableRows
from streammach.inputs.tables.frame import Wrong, cells_of, join_cells, note, split, too_long
from streammach.inputs.tables.frame_kernels import (
    BIN,
    FIRST_NUMBER,
    N_NUMBERS,
    NAMES,
    TEXT,
    VALUE,
    Frame,
    Scratch,
    count_needs,
    read_rows,
)
from streammach.inputs.tables.values import canonical
from streammach.inputs.tokenizers import changes_of
from streammach.options.recipe import CHARS, MISSING, Column, Recipe
from streammach.options.types import Multilabel
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.layouts import ends
from streammach.rows.names import MAX_NAMESPACES
from streammach.rows.texts import Texts
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import clean
from streammach.system.forks import ForkSafeLock
from streammach.system.simd import PADDING

LARGEST = 30.0  # a number that is scaled
USUAL = 1e-30  # in place of 0: a value of 0 is none, and each row has all numbers of a list
NO_LABEL = "there is no label"
SEVERAL = "several labels (--multilabel on takes them)"
UNLIKE = "it has not as many names as there are labels"
KINDS = {"text": TEXT, "category": NAMES, "names": NAMES, "pairs": NAMES, "vector": VALUE}


@dataclass
class TableCounts:
    """What was met in a table: rows, and how many have nothing in each column."""

    rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)  # rows, by the column's name
    names: set[str] = field(default_factory=set)  # columns that some row has, where rows name them
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def add(self, rows: int, missing: dict[str, int]) -> None:
        """Count rows, and those with nothing in a column."""
        with self._lock:
            self.rows += rows
            self.missing.update(missing)


class TableReader(RowReader[Any]):
    """Reads rows of a table by a recipe; one thread at a time may use it."""

    def __init__(
        self, recipe: Recipe, vocabulary: Vocabulary, *, multilabel: Multilabel,
        label_needed: bool, counts: TableCounts | None = None,
        absent: frozenset[str] = frozenset(),
        rows_of: Callable[[Any], TableRows] = attrgetter("rows"),
    ) -> None:  # fmt: skip
        beside = set() if label_needed else {recipe.label, recipe.weight}  # nothing hangs on them
        label_names = None if vocabulary.add_features else recipe.label_names
        self._absent = {None, *absent, *beside, label_names}
        self._recipe, self._vocabulary = recipe, vocabulary
        self._multilabel: Multilabel = multilabel
        self._label_needed, self._rows_of = label_needed, rows_of
        self._counts = counts or TableCounts()
        self._lines: NDArray[np.int64] | None = None  # of the rows of the present piece
        self._changes = changes_of(recipe)

    def read(self, piece: Any) -> PieceRows:
        rows = self._rows_of(piece)
        self._lines = rows.lines
        found = self.rows(rows, piece.first_row)
        found.n_lines = rows.n_lines
        return found

    def bad_row(self, piece: Any, place: int, reason: str) -> BadRow:
        """Return a row of the piece that was read last, by its number, as a bad one."""
        return self._bad_row(BadCell(place - piece.first_row, reason), piece.first_row)

    def rows(self, rows: TableRows, first_row: int) -> PieceRows:
        """Return rows, numbered from 0 on."""
        numbers = np.arange(rows.n_rows) if rows.places is None else rows.places
        refused = {cell.row: cell for cell in rows.refused}
        again = np.flatnonzero(np.isin(numbers, list(refused))).tolist() if refused else []
        wrong = {row: refused[int(numbers[row])] for row in again}
        frame, tags = self._make_frame(rows, wrong)
        refused |= {int(numbers[row]): cell for row, cell in wrong.items()}
        left = np.flatnonzero((frame.importance == 0) & ~frame.bad)
        frame.bad[left] = True
        out = self._parse(frame)
        good = np.flatnonzero(~frame.bad)
        tags = None if tags is None else tags.take(good)
        several = self._multilabel == "auto" and bool(out.state[parsed.LISTED])
        listed = self._multilabel == "on" or several
        good, left = numbers[good], numbers[left]
        return PieceRows(
            block_of(out, good + first_row, good, tags, listed=listed),
            [self._bad_row(refused[n]._replace(row=n), first_row) for n in sorted(refused)],
            unknown_values=int(out.state[parsed.UNKNOWN]),
            unknown=out.places[: int(out.state[parsed.ROWS])],
            left=first_row + left[:, None] + np.arange(2),
            named_labels=self._named_labels,
        )

    def _make_frame(self, rows: TableRows, wrong: Wrong) -> tuple[Frame, Texts | None]:
        """Return rows as the kernel reads them, and their tags."""
        recipe, n, there = self._recipe, rows.n_rows, {*rows.names}
        # A column that is missing in all rows has no features, unless these are scaled or its gaps.
        chosen = [i for i, c in enumerate(recipe.columns) if c.name in there or c.scale or c.gaps]
        own = [recipe.columns[i] for i in chosen]
        columns = [
            Cells.none(n) if c.name in self._absent else cells_of(rows, c, wrong) for c in own
        ]
        every = [*columns, self._labels(rows, wrong)]
        self._named_labels = self._label_names(every[-1], rows, wrong)
        importance, tags = self._importance(rows, wrong), self._tags(rows, wrong)
        named = [*((c.name, c.role) for c in own), (recipe.label or "", "label")]
        data, starts, stops, kinds = join_cells(every, named, wrong, self._changes)
        firsts = np.cumsum([0, *(len(cells.starts) for cells in columns)])
        weights = [np.ones(1)]
        if any(cells.weights is not None for cells in every):
            weights[:0] = [
                np.ones(len(cells.starts)) if cells.weights is None else cells.weights
                for cells in every
            ]
        missing = {c.name: cells.missing for c, cells in zip(own, columns, strict=True)}
        self._counts.add(n, dict.fromkeys((c.name for c in recipe.columns), n) | missing)
        facts = self._columns[chosen]
        facts[:, FIRST_NUMBER] = np.cumsum(facts[:, N_NUMBERS]) - facts[:, N_NUMBERS]
        least, most = recipe.chars or (0, 0)
        frame = Frame(
            data=data, starts=starts, stops=stops, kinds=kinds, importance=importance,
            offsets=np.stack([c.offsets + at for c, at in zip(every, firsts, strict=True)]),
            weights=np.concatenate(weights), numbers=_numbers_of(own, facts, columns, n),
            columns=facts, bad=np.isin(np.arange(n), list(wrong)),
            options=np.array([recipe.ngrams, least, most], np.int64),
        )  # fmt: skip
        return frame, tags

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """What ``Frame.columns`` is, with the vocabulary's ids of namespaces."""
        spaces: list[bytes] = []  # a row of the array has their numbers first, 0 for none

        def space(name: str) -> int:
            if name:
                spaces.append(name.encode())
            return len(spaces) if name else 0

        numbers = fixed = 0
        columns = []
        for column in self._recipe.columns:
            otherwise = NAMES if column.role == "date" else VALUE
            kind = KINDS.get(column.role, BIN if column.edges else otherwise)
            of = space(column.namespace)
            has_chars = column.role == "text" and self._recipe.chars is not None
            other = space(column.namespace + CHARS if has_chars else MISSING * column.gaps)
            n_numbers = 0 if kind in (TEXT, NAMES) else max(column.width, 1)
            columns.append([kind, of, other, numbers, n_numbers, fixed])
            numbers, fixed = numbers + n_numbers, fixed + column.n_number_features
        found = np.array(columns, np.int64)
        ids = self._vocabulary.namespace_ids(spaces)
        found[:, 1:3] = np.append(0, np.where(ids < 0, MAX_NAMESPACES, ids + 1))[found[:, 1:3]]
        return found

    def _labels(self, rows: TableRows, wrong: Wrong) -> Cells:
        """Return the labels; say which rows have none, or several where they may not."""
        name = self._recipe.label
        if name is None or name in self._absent:
            return Cells.none(rows.n_rows)
        cells = self._lists(rows, name, wrong)
        several = np.diff(cells.offsets)
        if self._multilabel == "off":
            note(wrong, name, [BadCell(int(r), SEVERAL) for r in np.flatnonzero(several > 1)])
        if self._label_needed and self._multilabel != "on":
            may_be_empty = self._multilabel == "auto" and cells.listed
            none = (several == 0) & np.logical_not(may_be_empty)
            note(wrong, name, [BadCell(int(row), NO_LABEL) for row in np.flatnonzero(none)])
        return cells

    def _lists(self, rows: TableRows, name: str, wrong: Wrong) -> Cells:
        """Return labels or their names."""
        cells = rows.lists(name)
        if self._recipe.separator is not None:
            cells = split(cells, self._recipe.separator.encode())
        note(wrong, name, [*cells.wrong, *too_long(cells)])
        return cells

    def _label_names(self, labels: Cells, rows: TableRows, wrong: Wrong) -> NamedLabels:
        """Return what labels are called: a row's one by all names there, each of several by one."""
        name = self._recipe.label_names
        if name is None or name in self._absent:
            return {}
        cells = self._lists(rows, name, wrong)
        several, found, own = np.diff(labels.offsets), np.diff(cells.offsets), cells.rows
        odd = np.flatnonzero((several != 1) & (found != several) & (found > 0))
        note(wrong, name, [BadCell(int(row), UNLIKE) for row in odd])
        place = np.where(several[own] == 1, 0, np.arange(len(own)) - cells.offsets[own])
        at, good = labels.offsets[own] + place, ~np.isin(own, list(wrong))
        pairs = ((labels.item(at[i]), cells.item(i)) for i in np.flatnonzero(good).tolist())
        some = (pair for pair in dict.fromkeys(pairs) if pair[1].strip())
        return {(canonical(label), b" ".join(text.split())): None for label, text in some}

    def _importance(self, rows: TableRows, wrong: Wrong) -> NDArray[np.float32]:
        """Return the importance of each row, 1 where it is missing: float32 (n,)."""
        name = self._recipe.weight
        if name is None or name in self._absent:
            return np.ones(rows.n_rows, np.float32)
        cells = rows.numbers(name)
        assert cells.numbers is not None
        note(wrong, name, cells.wrong)
        values = cells.numbers[:, 0]
        large = values > MOST_IMPORTANCE
        for number, odd in ((parsed.BAD_WEIGHT, values < 0), (parsed.TOO_HEAVY, large)):
            reason, places = parsed.REASONS[number], np.flatnonzero(odd).tolist()
            note(wrong, name, [BadCell(r, reason, str(values[r])) for r in places])
        with np.errstate(over="ignore"):
            return np.nan_to_num(values, nan=1.0).astype(np.float32)

    def _tags(self, rows: TableRows, wrong: Wrong) -> Texts | None:
        name = self._recipe.tag
        if name is None or name in self._absent:
            return None
        cells = rows.strings(name)
        note(wrong, name, [*cells.wrong, *too_long(cells)])
        return Texts.of(b"" if raw is None else canonical(raw) for raw in cells.firsts())

    def _parse(self, frame: Frame) -> Parsed:
        """Return the rows with their features; names that are new are taken in where they may."""
        words, (names, fixed) = self._vocabulary, self._known_names
        every, longest, n_bytes, n_words = (int(n) for n in count_needs(frame))
        text = np.empty(len(names) + n_bytes + PADDING, np.uint8)
        text[: len(names)] = names
        scratch = Scratch(text, np.empty((n_words, 2), np.int64), fixed)
        labels = int(frame.offsets[-1, -1] - frame.offsets[-1, 0])
        out = room_for(len(frame.bad), 0, labels)._replace(
            features=np.empty(every, np.int32), values=np.empty(every, np.float32),
            keys=np.empty((longest, 2), np.uint64), spans=np.empty(longest, np.int64),
        )  # fmt: skip
        code, row = parsed.GROW, 0
        while code == parsed.GROW:
            code, row = read_rows(
                frame, row, scratch, out, words.labels, words.features, words.add_labels,
                words.add_features,
            )  # fmt: skip
            if code == parsed.GROW:
                words.grow()
        return out

    @cached_property
    def _known_names(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The names that are known beforehand, one behind the other, and ``Scratch.fixed``."""
        names: list[bytes] = []  # in the order in which columns refer to them
        for column in self._recipe.columns:
            plain = column.role == "number" and not column.edges
            own = [b"%d" % i for i in range(column.n_number_features)]
            names += [column.name.encode()] if plain else own
        places = ends([*map(len, names)])
        return np.frombuffer(b"".join(names), np.uint8), np.stack([places[:-1], places[1:]], axis=1)

    def _bad_row(self, cell: BadCell, first_row: int) -> BadRow:
        text = clean(cell.text, 60)
        if self._lines is None:
            return BadRow(reason=cell.reason, text=text, line=first_row + cell.row)
        return BadRow(reason=cell.reason, text=text, line=int(self._lines[cell.row]), byte=1)


def _numbers_of(
    columns: list[Column], facts: NDArray[np.int64], every: list[Cells], n_rows: int
) -> NDArray[np.float64]:
    """Return the numbers of all columns, those with bins as the bins that they lie in."""
    out = np.full((n_rows, int(facts[:, N_NUMBERS].sum())), np.nan)
    places = facts[:, [FIRST_NUMBER, N_NUMBERS]].tolist()
    for column, (first, several), cells in zip(columns, places, every, strict=True):
        if cells.numbers is None or not several:
            continue
        found = cells.numbers
        if column.scale:  # what is missing is usual
            found = np.nan_to_num((found - column.center) * column.scale)
            found = np.clip(np.where(found == 0, USUAL, found), -LARGEST, LARGEST)
        if column.edges:
            bins = np.searchsorted(np.array(column.edges), found, side="right")
            found = np.where(np.isnan(found), np.nan, bins)
        out[:, first : first + several] = found
    return out
