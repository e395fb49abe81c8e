"""Tables in memory: data frames, Arrow tables, lists of dictionaries and of strings."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.identity import PLACE
from streammach.inputs.source import NamedLabels
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.inputs.tables.arrow_rows import arrow, arrow_column, check_buffers
from streammach.inputs.tables.batches import BatchTable
from streammach.inputs.tables.cells import MOST_CELLS, PythonRows
from streammach.inputs.tables.head import HEAD_ROWS
from streammach.inputs.tables.memory_objects import SOME_ROWS
from streammach.inputs.tables.table_source import distinct
from streammach.options.recipe import Column, Recipe
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import UsageError, clean

OF_FILES = {  # options of files alone, and what they are called
    "form": "a format", "layout": "quotes, a header and names of columns without one",
    "x_path": "paths inside (x_path)", "y_path": "paths inside (y_path)",
    "first_label": "rows with a first label (first_label)",
}  # fmt: skip
TEXT = "text"  # the column of rows that are strings, where no recipe names it


def check_no_file(options: SourceOptions) -> None:
    """Raise UsageError for an option that only files have."""
    for name, said in OF_FILES.items():
        if getattr(options, name) != getattr(GUESSED, name):
            raise UsageError(f"only files have {said}: rows in memory were given", path=PLACE)


class MemoryTables(BatchTable):
    """Tables in memory in a plain form, one after the other; an iterator is gone through once."""

    form, names_known = "memory", False

    def __init__(self, tables: Iterable[Any], options: SourceOptions) -> None:
        super().__init__(options)
        check_no_file(options)
        self.path, self._tables = PLACE, tables

    def files(self) -> list[Path]:
        return []

    def batches(
        self, columns: Collection[str] | None, *, head: bool = False
    ) -> Iterator[tuple[Any, int]]:
        tables, texts = self._tables, () if columns is None else self.recipe.texts
        if head and isinstance(tables, Iterator):  # what was looked at comes again
            tables, self._tables = itertools.tee(tables)
        for table in tables:
            yield from ((batch, 0) for batch in batches_of(table, columns, texts, head=head))


class MemorySource(MemoryTables):
    """A table in memory as a source, in a plain form; it is read as often as it is asked for."""

    names_known = True

    def __init__(self, table: Any, options: SourceOptions, *, labelled: bool = True) -> None:
        super().__init__([table], options)
        self._table, self.labelled = table, labelled
        self.named_labels: NamedLabels = {}  # what labels are called, of the rows that were read
        self._strings = isinstance(table, list) and bool(table) and isinstance(table[0], str)
        if self._strings and self._recipe is None:
            text = Column(name=TEXT, role="text")
            self._recipe = Recipe.of(columns=(text,), **options.table.of_texts)

    def columns_there(self) -> Sequence[str]:
        return self.recipe.names if self._strings else names_of(self._table)

    def block(
        self, vocabulary: Vocabulary, *, label_needed: bool, bad_rows: BadRows | None = None,
        unknown: NDArray[np.int64] | None = None,
    ) -> RowBlock:  # fmt: skip
        """Return all rows, with a vocabulary's ids.

        `unknown`, int64 (n,), receives how many values of each row are not in the vocabulary.
        """
        reader = self.reader(vocabulary, label_needed=label_needed, strict=False)
        blocks, bad_rows = [], bad_rows or BadRows()
        for piece in self.pieces():
            part = reader.read(piece)
            bad_rows.take(part.bad, PLACE, 0)
            self.named_labels |= part.named_labels
            block = part.block.add_to_numbers(piece.first_row)
            if unknown is not None and part.unknown is not None:
                unknown[block.numbers] = part.unknown
            blocks.append(block)
        return blocks[0] if len(blocks) == 1 else RowBlock.concat(blocks)


def names_of(table: Any) -> Sequence[str]:
    """Return the names of the columns of a table in a plain form, or raise DataError."""
    if isinstance(table, list):
        return PythonRows([row for row in table if isinstance(row, Mapping)]).names
    names = table.column_names if hasattr(table, "column_names") else table.columns
    return distinct([str(name) for name in names], PLACE)


def batches_of(
    table: Any, columns: Collection[str] | None, texts: Sequence[str], *, head: bool
) -> Iterator[Any]:
    """Yield a table in a plain form as record batches, a list as some rows at a time.

    All columns without `columns`. Strings are the one column of `texts`. Columns of a `head` that
    cannot be read are null: perhaps nobody reads them.
    """
    if isinstance(table, list):
        rows = table[:HEAD_ROWS] if head else table
        step = min(SOME_ROWS, max(1, MOST_CELLS // max(len(columns or ()), 1)))
        for first in range(0, len(rows), step):
            yield PythonRows(_dictionaries(rows[first : first + step], texts))
        return
    pa, names = arrow(), names_of(table)
    chosen = [i for i, name in enumerate(names) if columns is None or name in columns]
    if isinstance(table, pa.Table):
        some = table.select(chosen)
    else:
        cells = [table.iloc[:, i] if hasattr(table, "iloc") else table[names[i]] for i in chosen]
        own = [(names[i], column) for i, column in zip(chosen, cells, strict=True)]
        some = pa.table({name: arrow_column(column, name, head=head) for name, column in own})
    yield from (check_buffers(batch, PLACE) for batch in some.to_batches())


def _dictionaries(rows: Sequence[Any], columns: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Return rows as dictionaries; strings are the texts of the one column of text."""
    if rows and isinstance(rows[0], str):
        if not all(isinstance(row, str) for row in rows):
            raise UsageError("not all rows are strings")
        if len(columns) != 1:
            raise UsageError(
                f"strings are rows where one column of text is read, here it is {len(columns)}: "
                f"{', '.join(clean(name, 40) for name in columns[:8])}",
                hint="Give a list of dictionaries, or a data frame.",
            )
        return [{columns[0]: row} for row in rows]
    if not all(isinstance(row, Mapping) for row in rows):
        raise UsageError("not all rows are dictionaries")
    return rows
