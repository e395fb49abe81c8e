"""What all sources of tables have in common: a recipe, columns that are there, what was met."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from streammach.inputs.source import TEXT_PIECE_BYTES, ReadingBytes, Source
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.tables.cells import TableRows
from streammach.inputs.tables.guess import no_column, no_label, recipe_of, some_of
from streammach.inputs.tables.head import Head
from streammach.inputs.tables.table_reader import TableCounts, TableReader
from streammach.inputs.tokenizers import STEM_BYTES
from streammach.options.recipe import Recipe
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, clean
from streammach.system.forks import ForkSafeLock

T = TypeVar("T", str, bytes)
MOST_KEYS = 1 << 13  # of the first objects: a cell of each in each row takes 64 MB


class Table(Source[Any]):
    """A table as a source of rows; `counts` says what was met in it."""

    names_known = True  # whether its columns are known before its rows
    _names: Sequence[str]  # these, where they are
    labelled = True  # whether one of them holds the labels
    index: frozenset[str] = frozenset()  # columns that were the index of a DataFrame

    def __init__(self, options: SourceOptions) -> None:
        self.options, self.counts = options, TableCounts()
        self._recipe = options.recipe
        self._lock = ForkSafeLock()
        self._absent: frozenset[str] | None = None

    @abstractmethod
    def first_rows(self) -> Iterable[TableRows]:
        """Yield the rows from its start on, some at a time, or raise DataError or DiskError."""

    def errors(self) -> AbstractContextManager[None]:
        """Return what turns errors of a library that reads it into DataError and DiskError."""
        return nullcontext()

    def rows_of(self, piece: Any) -> TableRows:
        """Return the rows of a piece, as they are looked at by their columns; note their names."""
        rows = self._rows(piece)
        if not self.names_known:
            names, needed = self.counts.names, {*self.recipe.names}
            names.update(name for name in rows.names if name in needed or len(names) < MOST_KEYS)
        return rows

    def _rows(self, piece: Any) -> TableRows:
        rows: TableRows = piece.rows
        return rows

    @property
    def recipe(self) -> Recipe:
        """How its rows become features, or UsageError, DataError or DiskError."""
        if self._recipe is None:
            self._recipe = recipe_for([self])
        return self._recipe

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def reading_bytes(self) -> ReadingBytes:
        known = self._recipe or self.options.table
        piece = TEXT_PIECE_BYTES if known.chars is None else 3 * TEXT_PIECE_BYTES
        return ReadingBytes(piece, 0 if known.language is None else STEM_BYTES)

    def columns_there(self) -> Sequence[str]:
        """Return the names of its columns; none where it holds nothing."""
        return self._names if self.names_known else [*self.recipe.names, *self.recipe.ignored]

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> TableReader:
        """Return something that reads pieces, or raise UsageError or DataError."""
        del strict
        with self._lock:
            if self._absent is None:
                self._absent = self._lacking(label_needed=label_needed)
        return TableReader(
            self.recipe, vocabulary, multilabel=self.options.multilabel,
            label_needed=label_needed, counts=self.counts, absent=self._absent,
            rows_of=self.rows_of,
        )  # fmt: skip

    def _lacking(self, *, label_needed: bool) -> frozenset[str]:
        """Return the columns of the recipe that are not there; warn of them."""
        recipe = self.recipe
        names = self.columns_there()
        if not names:
            return frozenset(recipe.names)
        if label_needed and recipe.label is None:
            raise no_label(names, self.path)
        if not self.names_known:
            return frozenset()
        if label_needed and recipe.label not in names:
            raise no_column(recipe.label or "", "label", names, self.path)
        return lacking(recipe, names, self.path)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Warn of columns that no row had, and of unknown ones, where only rows name them."""
        del n_lines
        if n_rows + n_bad and not self.names_known:
            lacking(self.recipe, sorted(self.counts.names), self.path)

    def remarks(self) -> list[str]:
        """Return what is said of the table after it was read: missing cells by column."""
        return [
            f"{self.counts.missing[column.name]:,} of {self.counts.rows:,} rows have no "
            f"{clean(column.name, 40)}"
            for column in self.recipe.columns
            if self.counts.missing[column.name]
        ]


def recipe_for(tables: Sequence[Table]) -> Recipe:
    """Return how rows of tables become features, by the first rows of all in their order."""
    head, told = Head(), tables[0]
    for table in tables:
        before = head.n_rows
        with table.errors():
            for rows in table.first_rows():
                if head.take(rows):
                    break
        told = table if not before and head.n_rows else told
        if head.full:
            break
    index = frozenset[str]().union(*(table.index for table in tables))
    return recipe_of(
        head.cells(told.path), told.options.table, told.path, labelled=told.labelled, index=index
    )


def lacking(recipe: Recipe, names: Sequence[str], path: Path) -> frozenset[str]:
    """Return the columns of a recipe that a table lacks; warn of them, and of other ones."""
    there = set(names)
    place = f": {clean(path, 300)}"
    needed = [column.name for column in recipe.columns]
    lost = [name for name in needed if name not in there]
    if len(lost) == len(needed):
        hint = f"They are {some_of(needed)}; it has {some_of(names) or 'none'}."
        raise DataError("it has none of the columns of the recipe", path=path, hint=hint)
    if lost:
        verbs = ("is", "counts") if len(lost) == 1 else ("are", "count")
        what = f"{_columns(lost)} of the recipe {verbs[0]} not there and {verbs[1]} as missing in"
        warnings.warn(f"{what} all rows{place}", stacklevel=2)
    known = {"", *recipe.names, *recipe.ignored}
    more = [name for name in names if name not in known]
    if more:
        verbs = ("was", "is") if len(more) == 1 else ("were", "are")
        what = f"{_columns(more)} {verbs[0]} not there in training and {verbs[1]} not used"
        warnings.warn(f"{what}{place}", stacklevel=2)
    beside = {name for name in recipe.beside if name not in there}
    return frozenset(lost) | beside


def _columns(names: list[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {some_of(names)}"


def distinct(names: list[T], path: Path, line: int | None = None) -> list[T]:
    """Return names of columns, or raise DataError if two are the same."""
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise DataError(f"two columns are called '{clean(twice, 60)}'", path=path, line=line)
    return names
