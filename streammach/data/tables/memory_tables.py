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
from streammach.data.source_options import GUESSED, SourceOptions, TableOptions
from streammach.data.store.held import PLACE
from streammach.data.tables.arrow_files import BatchPiece, slices, some_rows
from streammach.data.tables.arrow_rows import ArrowRows, arrow, check_buffers
from streammach.data.tables.cells import PythonRows, TableRows
from streammach.data.tables.head import HEAD_ROWS
from streammach.data.tables.table_source import Table, distinct
from streammach.data.tables.values import is_missing, text_of
from streammach.errors import DataError, UsageError, clean
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Column, Recipe

SOME_ROWS = 2048  # Python objects that are read at a time
ONLY_POLARS = ("Object", "Int128", "UInt128")  # types of polars that Arrow does not have
OF_FILES = {  # options of files alone, and what they are called
    "form": "a format", "layout": "quotes, a header and names of columns without one",
    "x_path": "paths inside (x_path)", "y_path": "paths inside (y_path)",
    "first_label": "rows with a first label (first_label)",
}  # fmt: skip
TEXT = "text"  # the column of rows that are strings, where no recipe names it


def is_table(rows: object, *, strings: bool = True) -> bool:
    """Return whether an object is a table in memory."""
    if isinstance(rows, list | tuple):
        kinds: tuple[type, ...] = (Mapping, str) if strings else (Mapping,)
        return bool(rows) and isinstance(rows[0], kinds)
    known = hasattr(rows, "__arrow_c_stream__") or _is_a(rows, "pyarrow", "RecordBatch")
    return known or _is_a(rows, "pandas")


def cells_of(column: Any, usual: Any) -> Any:
    """Return the values of a column of any library as a list of Python's; else what is usual."""
    if type(column).__module__.startswith("pyarrow"):
        for batch in arrow().table({"cells": column}).to_batches():
            check_buffers(batch, PLACE)
    ways = (getattr(column, way, None) for way in ("to_pylist", "tolist", "to_list"))
    return next((way() for way in ways if way is not None), usual)


def as_rows(rows: Any) -> Any:
    """Return rows as they are; strings or dicts of any column as a list, missing ones empty."""
    found: Sequence[Any] = ()
    if isinstance(rows, list | tuple):
        found = rows if rows and (isinstance(rows[0], str) or is_missing(rows[0])) else ()
    elif len(getattr(rows, "shape", (0,))) == 1 and not hasattr(rows, "schema"):
        found = cells_of(rows, ())
    first = next((cell for cell in found if not is_missing(cell)), None)
    if not isinstance(first, str | dict) or any(map(_is_value, found)):
        return rows
    empty: Any = "" if isinstance(first, str) else {}
    return [empty if is_missing(cell) else cell for cell in found]


def _is_value(cell: object) -> bool:
    """Return whether an object is a number, so that others beside it are cells of one row."""
    return isinstance(cell, int | float | np.number) and not np.isnan(cell)


def is_recipe_table(rows: Any, labels: Any, options: TableOptions) -> bool:
    """Return whether rows are read by a recipe and not as a matrix of numbers.

    So are strings, and tables with more than their numbers: where labels are one of
    the columns, a role was named, or a column is not of numbers. Dicts without any of that are
    features by name.
    """
    if not is_table(rows):
        return False
    if isinstance(labels, str) or options != TableOptions():
        return True
    if isinstance(rows, list | tuple):
        return isinstance(rows[0], str)
    return not all_numbers(rows)


def all_numbers(frame: Any) -> bool:
    """Return whether an object is a data frame whose columns all hold numbers."""
    if hasattr(frame, "to_numpy") and hasattr(frame, "dtypes"):
        kinds = [str(getattr(dtype, "kind", "")) for dtype in frame.dtypes]
        if all(kinds):
            return all(kind in "biuf" for kind in kinds)
        return all(hasattr(dtype, "is_numeric") and dtype.is_numeric() for dtype in frame.dtypes)
    return False


class MemorySource(Table):
    """A table in memory as a source; it is read as often as it is asked for."""

    def __init__(self, table: Any, options: SourceOptions, *, labelled: bool = True) -> None:
        super().__init__(options)
        for name, said in OF_FILES.items():
            if getattr(options, name) != getattr(GUESSED, name):
                raise UsageError(f"only files have {said}: rows in memory were given", path=PLACE)
        self.path, self.form, self.labelled = PLACE, "memory", labelled
        self._table = table
        self._listed = isinstance(table, list | tuple)
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
            block = part.block.numbered(piece.first_row)
            if unknown is not None and part.unknown is not None:
                unknown[block.numbers] = part.unknown
            blocks.append(block)
        return blocks[0] if len(blocks) == 1 else RowBlock.concat(blocks)

    def _some_rows(self) -> Iterator[TableRows]:
        if not self._listed:
            yield from map(ArrowRows, self._batches(self.recipe.names))
            return
        for first in range(0, len(self._table), SOME_ROWS):
            some = self._table[first : first + SOME_ROWS]
            yield PythonRows(_dictionaries(some, self.recipe.texts))

    @cached_property
    def _columns(self) -> list[tuple[str, Any]]:
        """The columns of a frame, or the fields of a table of Arrow, with their names."""
        table = self._table
        if _is_a(table, "pandas"):
            return [(str(label), table.iloc[:, i]) for i, label in enumerate(table.columns)]
        if _is_a(table, "polars"):
            return [(name, table[name]) for name in table.columns]
        pa = arrow()
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        elif not hasattr(table, "__arrow_c_stream__"):
            raise UsageError(f"an object of the type {type(table).__name__} is no table")
        self._table = table if isinstance(table, pa.Table) else pa.table(table)
        return [(field.name, field) for field in self._table.schema]

    def _batches(self, names: Collection[str], *, head: bool = False) -> Iterator[Any]:
        """Yield columns; those of a `head` that cannot be read are null: perhaps nobody does."""
        pa, chosen = arrow(), [one for one in self._columns if one[0] in set(names)]
        if isinstance(self._table, pa.Table):
            some = self._table.select([name for name, _ in chosen])
        else:
            some = pa.table({name: _arrow_column(it, name, head=head) for name, it in chosen})
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


def _is_a(rows: object, library: str, name: str = "DataFrame") -> bool:
    kind = type(rows)
    return kind.__module__.partition(".")[0] == library and kind.__name__ == name


def _arrow_column(column: Any, name: str, *, head: bool) -> Any:
    """Return cells of a DataFrame as an Arrow array; values of several types as text."""
    pa = arrow()
    if str(column.dtype) in ONLY_POLARS:
        column = column.to_list()
    try:
        if hasattr(column, "to_arrow"):  # of polars, whose texts are copied by that
            return pa.table(column.to_frame()).column(0)
        return pa.Array.from_pandas(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        pass
    try:
        return pa.array([text_of(value) for value in column], pa.large_binary())
    except (TypeError, ValueError):
        if head:
            return pa.nulls(len(column))
        what = f"the column '{clean(name, 60)}' holds values of several types"
        raise DataError(what, path=PLACE, hint="Make them all strings, or all lists.") from None
