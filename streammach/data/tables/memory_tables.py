"""Tables in memory: data frames, Arrow tables, lists of dictionaries and of strings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRows
from streammach.data.source import START, Place
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.data.store.memory_store import PLACE
from streammach.data.tables.arrow_files import BatchPiece, slices, some_rows
from streammach.data.tables.arrow_rows import ArrowRows, arrow, check_buffers
from streammach.data.tables.cells import MOST_CELLS, PythonRows, TableRows
from streammach.data.tables.head import HEAD_ROWS
from streammach.data.tables.memory_objects import arrow_column
from streammach.data.tables.table_source import Table, distinct
from streammach.errors import UsageError, clean
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Column, Recipe

SOME_ROWS = 2048  # Python objects that are read at a time
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


class MemorySource(Table):
    """A table in memory as a source, in a plain form; it is read as often as it is asked for."""

    def __init__(self, table: Any, options: SourceOptions, *, labelled: bool = True) -> None:
        super().__init__(options)
        check_no_file(options)
        self.path, self.form, self.labelled = PLACE, "memory", labelled
        self._table = table
        self._listed = isinstance(table, list)
        self._strings = bool(self._listed and table) and isinstance(table[0], str)
        if self._strings and self._recipe is None:
            text = Column(name=TEXT, role="text")
            self._recipe = Recipe.of(columns=(text,), **options.table.of_texts)

    def files(self) -> list[Path]:
        return []

    def columns_there(self) -> Sequence[str]:
        if self._strings:
            return self.recipe.names
        if self._listed:
            return PythonRows([row for row in self._table if isinstance(row, Mapping)]).names
        return distinct([name for name, _ in self._columns], PLACE)

    def first_rows(self) -> Iterator[TableRows]:
        if self._listed:
            yield PythonRows(_dictionaries(self._table[:HEAD_ROWS], ()))
        else:
            yield from some_rows(self._batches(self.columns_there(), head=True))

    def pieces(self, begin: Place = START) -> Iterator[BatchPiece]:
        first = 0
        for rows in self._some_rows():
            if first >= begin.at:
                yield BatchPiece(rows, first, 0)
            first += rows.n_rows

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
            block = part.block.add_to_numbers(piece.first_row)
            if unknown is not None and part.unknown is not None:
                unknown[block.numbers] = part.unknown
            blocks.append(block)
        return blocks[0] if len(blocks) == 1 else RowBlock.concat(blocks)

    def _some_rows(self) -> Iterator[TableRows]:
        if not self._listed:
            yield from map(ArrowRows, self._batches(self.recipe.names))
            return
        step = min(SOME_ROWS, max(1, MOST_CELLS // len(self.recipe.names)))
        for first in range(0, len(self._table), step):
            some = self._table[first : first + step]
            yield PythonRows(_dictionaries(some, self.recipe.texts))

    @cached_property
    def _columns(self) -> list[tuple[str, Any]]:
        """The columns of a frame, or of a table of Arrow, with their names."""
        table = self._table
        if hasattr(table, "iloc"):  # of pandas
            return [(str(label), table.iloc[:, i]) for i, label in enumerate(table.columns)]
        if hasattr(table, "column_names"):  # of Arrow
            return [(name, None) for name in table.column_names]
        return [(name, table[name]) for name in table.columns]

    def _batches(self, names: Collection[str], *, head: bool = False) -> Iterator[Any]:
        """Yield columns; those of a `head` that cannot be read are null: perhaps nobody does."""
        pa, chosen = arrow(), [one for one in self._columns if one[0] in set(names)]
        if isinstance(self._table, pa.Table):
            some = self._table.select([name for name, _ in chosen])
        else:
            some = pa.table({name: arrow_column(it, name, head=head) for name, it in chosen})
        for batch in some.to_batches():
            yield from (part for part, _ in slices(check_buffers(batch, PLACE)))


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
