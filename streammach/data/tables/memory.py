"""Tables in memory: data frames, Arrow tables, lists of dictionaries and of strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRows
from streammach.data.identity import Fingerprint
from streammach.data.source import START, Place
from streammach.data.source_options import SourceOptions, TableOptions
from streammach.data.tables.arrow_files import BatchPiece, distinct, first_of, slices
from streammach.data.tables.arrow_rows import ArrowRows, arrow
from streammach.data.tables.base import HEAD_ROWS, Table, head_of, lacking
from streammach.data.tables.guess import recipe_of
from streammach.data.tables.python_rows import PythonRows, TableRows
from streammach.data.tables.reader import TableReader
from streammach.data.tables.values import text_of
from streammach.errors import DataError, UsageError, clean
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Column, Recipe
from streammach.spec.types import Multilabel

PLACE = Path("rows in memory")
SOME_ROWS = 2048  # Python objects that are read at a time
ONLY_POLARS = ("Object", "Int128", "UInt128")  # types of polars that Arrow does not have
TEXT = "text"  # the column of rows that are strings, where no recipe names it


def is_table(rows: object, *, strings: bool = True) -> bool:
    """Return whether an object is a table in memory."""
    if isinstance(rows, list | tuple):
        kinds: tuple[type, ...] = (Mapping, str) if strings else (Mapping,)
        return bool(rows) and isinstance(rows[0], kinds)
    return _is_frame(rows) or hasattr(rows, "__arrow_c_stream__") or _is_batch(rows)


def rows_of_table(
    table: Any,
    recipe: Recipe,
    vocabulary: Vocabulary,
    *,
    label_needed: bool = False,
    multilabel: Multilabel = "off",
    unknown: NDArray[np.int64] | None = None,
    bad_rows: BadRows | None = None,
) -> RowBlock:
    """Return the rows of a table as they are read, with a vocabulary's ids.

    `unknown` is int64 (n,).
    """
    absent = _absent(table, recipe, label_needed=label_needed)
    reader = TableReader(
        recipe, vocabulary, multilabel=multilabel, label_needed=label_needed, absent=absent
    )
    blocks, first, bad_rows = [], 0, bad_rows or BadRows()
    for rows in batches(table, recipe.names, recipe):
        part = reader.rows(rows, first)
        bad_rows.take(part.bad, PLACE, 0)
        if unknown is not None and part.unknown is not None:
            assert part.block.numbers is not None, "rows of a table"
            unknown[first + part.block.numbers] = part.unknown
        blocks.append(part.block.numbered(first))
        first += rows.n_rows
    return blocks[0] if len(blocks) == 1 else RowBlock.concat(blocks)


def recipe_of_table(
    table: Any, options: TableOptions | None = None, *, labelled: bool = True
) -> Recipe:
    """Return the recipe of a table in memory: what was said of it, and guesses for the rest."""
    options = options or TableOptions()
    if isinstance(table, list | tuple) and table and isinstance(table[0], str):
        return Recipe(
            columns=(Column(name=TEXT, role="text"),), ngrams=options.words,
            chars=options.characters,
        )  # fmt: skip
    return recipe_of(head_of(first_rows(table), PLACE), options, labelled=labelled)


def columns_of(table: Any) -> Sequence[str]:
    """Return the names of a table's columns; of dictionaries those of the first ones."""
    if isinstance(table, list | tuple):
        return PythonRows([row for row in table[:HEAD_ROWS] if isinstance(row, Mapping)]).names
    if _is_frame(table) or _is_frame(table, "polars"):
        return distinct([str(name) for name in table.columns], PLACE)
    return distinct(list(_arrow_table(table).schema.names), PLACE)


def first_rows(table: Any) -> Iterator[TableRows]:
    """Yield the first rows of a table, from which its recipe is guessed."""
    if isinstance(table, list | tuple):
        if table:
            yield PythonRows(_dictionaries(table[:HEAD_ROWS], None))
        return
    every = batches(table, columns_of(table), None)
    yield from first_of((r.batch, r.batch.nbytes) for r in every if isinstance(r, ArrowRows))


def batches(table: Any, names: Sequence[str], recipe: Recipe | None) -> Iterator[TableRows]:
    """Yield some rows of a table at a time, or raise UsageError."""
    if isinstance(table, list | tuple):
        for first in range(0, len(table), SOME_ROWS):
            yield PythonRows(_dictionaries(table[first : first + SOME_ROWS], recipe))
        return
    whole = _arrow_table(table, set(names), head=recipe is None)
    for batch in whole.select([n for n in whole.schema.names if n in set(names)]).to_batches():
        for some, _ in slices(batch):
            yield ArrowRows(some)


class MemorySource(Table):
    """A table in memory as a source; it is read as often as it is asked for."""

    def __init__(self, table: Any, options: SourceOptions) -> None:
        Table.__init__(self, options)
        self.path, self.form = PLACE, "memory"
        self._table = table
        self.names_known = not isinstance(table, list | tuple)

    def files(self) -> list[Path]:
        """Return none."""
        return []

    def fingerprint(self) -> Fingerprint:
        """Return what says that it lies in no file."""
        return Fingerprint(name=PLACE.name, format=self.form, bytes=0, crc32c="00000000")

    def columns_there(self) -> Sequence[str]:
        """Return the names of its columns."""
        return columns_of(self._table)

    def first_rows(self) -> Iterator[TableRows]:
        """Yield the rows that are looked at for its recipe."""
        return first_rows(self._table)

    def pieces(self, begin: Place = START) -> Iterator[BatchPiece]:
        """Yield the rows in their order."""
        first = 0
        for rows in batches(self._table, self.recipe.names, self.recipe):
            if isinstance(rows, PythonRows):
                self.met.names.update(rows.names)
            if first >= begin.at:
                yield BatchPiece(rows, first, 0)
            first += rows.n_rows


def _absent(table: Any, recipe: Recipe, *, label_needed: bool) -> frozenset[str]:
    """Return the columns of a recipe that a table lacks; warn of them."""
    if isinstance(table, list | tuple):
        if table and isinstance(table[0], str):
            return frozenset(recipe.names) - frozenset(recipe.texts[:1])
        names = PythonRows([row for row in table if isinstance(row, Mapping)]).names
    else:
        names = columns_of(table)
    if label_needed and recipe.label not in names:
        raise UsageError(f"there is no column '{clean(recipe.label, 60)}' of labels: label")
    return lacking(recipe, names, None)


def _dictionaries(rows: Sequence[Any], recipe: Recipe | None) -> Sequence[Mapping[str, Any]]:
    """Return rows as dictionaries."""
    if rows and isinstance(rows[0], str):
        columns = (TEXT,) if recipe is None else recipe.texts
        if len(columns) != 1 or not all(isinstance(row, str) for row in rows):
            raise UsageError(
                f"strings are rows where one column of text is read, here it is {len(columns)}: "
                f"{', '.join(clean(name, 40) for name in columns[:8])}",
                hint="Give a list of dictionaries, or a data frame.",
            )
        return [{columns[0]: row} for row in rows]
    if not all(isinstance(row, Mapping) for row in rows):
        raise UsageError("not all rows are dictionaries")
    return rows


def _is_frame(rows: object, library: str = "pandas") -> bool:
    """Return whether an object is a DataFrame of a library."""
    kind = type(rows)
    return kind.__module__.partition(".")[0] == library and kind.__name__ == "DataFrame"


def _is_batch(rows: object) -> bool:
    return type(rows).__module__.partition(".")[0] == "pyarrow" and hasattr(rows, "schema")


def _arrow_table(table: Any, names: set[str] | None = None, *, head: bool = False) -> Any:
    """Return some columns of a table, all of them without `names`, as an Arrow table.

    In the `head`, columns that cannot be read are null: perhaps nobody reads them.
    """
    pa = arrow()
    if not _is_frame(table):
        if isinstance(table, pa.RecordBatch):
            return pa.Table.from_batches([table])
        if isinstance(table, pa.Table):
            return table
        if not hasattr(table, "__arrow_c_stream__"):
            raise UsageError(f"an object of the type {type(table).__name__} is no table")
        odd = []
        if _is_frame(table, "polars"):
            odd = [name for name, kind in table.schema.items() if str(kind) in ONLY_POLARS]
        whole = pa.table(table.drop(odd) if odd else table)
        for name in odd if names is None else set(odd) & names:
            column = _arrow_column(table[name].to_list(), name, head=head)
            whole = whole.append_column(name, column)
        return whole
    columns = {}
    for place, label in enumerate(table.columns):
        name = str(label)
        if names is None or name in names:
            columns[name] = _arrow_column(table.iloc[:, place], name, head=head)
    return pa.table(columns)


def _arrow_column(column: Any, name: str, *, head: bool) -> Any:
    """Return cells of a DataFrame as an Arrow array; values of several types as text."""
    pa = arrow()
    try:
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
