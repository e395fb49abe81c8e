"""What all sources of tables have in common: a recipe, columns that are there, what was met."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from streammach.data.source import ReadingBytes, Source
from streammach.data.source_options import SourceOptions
from streammach.data.tables.cells import TableRows
from streammach.data.tables.guess import Head, no_column, no_label, recipe_of, some_of
from streammach.data.tables.table_reader import TableCounts, TableReader
from streammach.data.tokenizers import STEM_BYTES
from streammach.errors import DataError, clean
from streammach.forks import Turn
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Recipe

T = TypeVar("T", str, bytes)
HEAD_ROWS, HEAD_BYTES = 1000, 4 << 20  # of a table that are looked at for its recipe


class Table(Source[Any]):
    """A table as a source of rows; `counts` says what was met in it."""

    names_known = True  # whether its columns are known before its rows
    labelled = True  # whether one of them holds the labels
    index: frozenset[str] = frozenset()  # columns that were the index of a DataFrame

    def __init__(self, options: SourceOptions) -> None:
        self.options, self.counts = options, TableCounts()
        self._recipe = options.recipe
        self._lock = Turn()
        self._absent: frozenset[str] | None = None
        self._head: Head | None = None

    @abstractmethod
    def first_rows(self) -> Iterable[TableRows]:
        """Yield the rows that are looked at for its recipe, or raise DataError or DiskError."""

    def rows_of(self, piece: Any) -> TableRows:
        """Return the rows of a piece, as they are looked at by their columns."""
        rows: TableRows = piece.rows
        return rows

    def head(self) -> Head:
        """Return the first cells of each column, or raise DataError or DiskError."""
        if self._head is not None:
            return self._head
        found: dict[str, list[Any]] = {}
        n_rows = 0
        for rows in self.first_rows():
            for name in rows.names:
                found.setdefault(name, [None] * n_rows).extend(rows.look(name))
            n_rows += rows.n_rows
            for cells in found.values():
                cells.extend([None] * (n_rows - len(cells)))
        if not (n_rows or found):
            raise DataError("it holds no rows", path=self.path)
        self._head = found
        return found

    @property
    def recipe(self) -> Recipe:
        """How its rows become features, or UsageError, DataError or DiskError."""
        if self._recipe is None:
            self._recipe = recipe_of(
                self.head(), self.options.table, self.path, labelled=self.labelled, index=self.index
            )
        return self._recipe

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None:
        self._recipe = recipe

    @property
    def piece_bytes(self) -> int:
        """Bytes that a piece takes with its rows."""
        known = self._recipe
        chars = self.options.table.chars if known is None else known.chars
        return (24 << 20) if chars is None else (72 << 20)

    @property
    def word_bytes(self) -> int:
        """Bytes of the stems of words that are kept."""
        known = self.options.table if self._recipe is None else self._recipe
        return 0 if known.language is None else STEM_BYTES

    def held(self) -> ReadingBytes:
        return ReadingBytes(self.piece_bytes, self.word_bytes)

    def columns_there(self) -> Sequence[str]:
        """Return the names of its columns."""
        return list(self.head())

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
        names = self.columns_there() if self.names_known else recipe.names
        if label_needed and recipe.label is None:
            raise no_label(names, self.path)
        if not self.names_known:
            return frozenset()
        if label_needed and recipe.label not in names:
            raise no_column(recipe.label or "", "label", names, self.path)
        return lacking(recipe, names, self.path)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Warn of columns that no row had, and of unknown ones, where only rows name them."""
        del n_rows, n_bad, n_lines
        if not self.names_known:
            lacking(self.recipe, sorted(self.counts.names), self.path)

    def remarks(self) -> list[str]:
        """Return what is said of the table after it was read: missing cells by column."""
        return [
            f"{self.counts.missing[column.name]:,} of {self.counts.rows:,} rows have no "
            f"{clean(column.name, 40)}"
            for column in self.recipe.columns
            if self.counts.missing[column.name]
        ]


def lacking(recipe: Recipe, names: Sequence[str], path: Path) -> frozenset[str]:
    """Return the columns of a recipe that a table lacks; warn of them, and of other ones."""
    there = set(names)
    place = f": {clean(path, 300)}"
    needed = [column.name for column in recipe.columns]
    lost = [name for name in needed if name not in there]
    if len(lost) == len(needed):
        hint = f"They are {some_of(needed)}; it has {some_of(names)}."
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
