"""What an object in memory is: rows of a table, a matrix of numbers, or nothing that has rows."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import PLACE
from streammach.inputs.label_arrays import column_names, raw_name
from streammach.inputs.source_options import TableOptions
from streammach.inputs.tables.arrow_rows import arrow, arrow_column, check_buffers
from streammach.inputs.tables.table_source import distinct
from streammach.inputs.tables.values import is_missing
from streammach.rows.arrays import csr_array, fetch_array, is_sparse
from streammach.rows.names import Label, Names
from streammach.system.errors import DataError, UsageError, clean, type_name

NUMBERS = "biuf"
FORMS = (
    "a matrix, a DataFrame, an Arrow table, a dict of columns, or a list of dicts or strings "
    "is expected"
)
STREAM, ARRAY = "__arrow_c_stream__", "__array__"  # what tables and arrays of any library have
CELLS = ("to_pylist", "tolist", "to_list")  # what gives the cells of a column
# what gives the rows of an object that has none yet, or has them elsewhere
LAZY = ("collect", "compute", "to_table", "to_pandas", "execute")
IN_TURN = ("collect_batches", "to_batches")  # what gives them some at a time: of polars, of Arrow
SOME_ROWS = 2048  # that are taken from such an object at a time
ANNDATA = ("X", "obs", "var", "var_names")  # by which AnnData is told


@dataclass(frozen=True)
class NamedMatrix:
    """Rows as they were given, and the names of their columns if these are not their numbers."""

    matrix: Any  # csr_array or array (n, columns): the values, of any type of real numbers
    names: Names | None = None  # the columns' names
    # whether these are names of features as stores list them, `namespace^name`: those of a table.
    # Otherwise they are features without a namespace
    spaced: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        shape: tuple[int, int] = self.matrix.shape
        return shape

    @property
    def sparse(self) -> bool:
        """Whether the matrix is one of compressed sparse rows."""
        return is_sparse(self.matrix)

    @cached_property
    def nnz(self) -> int:
        """Number of values that are not 0, or that are stored."""
        return int(self.matrix.nnz if self.sparse else np.count_nonzero(self.matrix))

    @property
    def n_bytes(self) -> int:
        """Bytes of the matrix."""
        m = self.matrix
        return sum(a.nbytes for a in ((m.data, m.indices, m.indptr) if self.sparse else (m,)))


def as_rows(rows: Any) -> Any:
    """Return rows in a plain form: the one place that tells what an object is; or DataError.

    The forms are a DataFrame, an Arrow table, a list of dicts or of strings, empty ones where they
    are missing, a sparse matrix, an array (n, columns), and :class:`NamedMatrix` for AnnData. An
    image or a cube of numbers is a row of all its cells, as in a file.
    """
    rows = fetch_array(rows)
    if isinstance(rows, list | tuple):
        return _of_list(rows)
    if isinstance(rows, np.ndarray):
        return _of_array(rows)
    if is_sparse(rows) or isinstance(rows, NamedMatrix) or is_frame(rows):
        return rows
    if isinstance(rows, Mapping):
        return _of_columns(rows)
    if _is_anndata(rows):
        matrix = to_matrix(rows.X.to_memory() if hasattr(rows.X, "to_memory") else rows.X).matrix
        names = column_names(rows.var_names, matrix.shape[1], PLACE, "var_names")
        return NamedMatrix(matrix, names)
    if isinstance(rows, type) or not any(hasattr(rows, name) for name in (STREAM, ARRAY, *CELLS)):
        raise _no_rows(rows)
    if len(getattr(rows, "shape", (0,))) == 1 and not hasattr(rows, "schema"):
        cells = cells_of(rows, None)
        if cells is not None:
            return _of_list(cells, rows)
    found: Any = None
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if hasattr(rows, STREAM):
            return arrow().table(rows)
        if hasattr(rows, ARRAY) and not hasattr(rows, "columns"):
            found = np.asarray(rows)
    if found is None:
        raise _no_rows(rows)
    return _of_array(found, rows)


def rows_in_turn(rows: Any, *, whole: bool = False) -> Iterator[Any] | None:
    """Return the items of what gives rows some at a time; None for rows that are there.

    Such as an iterator, a loader of PyTorch, a data set of Hugging Face, lazy rows of polars and
    Arrow; and what has Arrow's C stream, unless it is wanted as a `whole`.
    """
    if isinstance(rows, io.IOBase | type) or is_frame(rows):  # a file gives lines
        return None
    found, streamed = rows, hasattr(rows, STREAM)
    there = (ARRAY, *CELLS) if streamed else (ARRAY, "__getitem__", "shape", *LAZY)
    if hasattr(rows, "with_format"):
        plain = getattr(rows, "format", {}).get("type") is None
        found = (rows.with_format("arrow") if plain else rows).iter(SOME_ROWS)
    elif way := next((name for name in IN_TURN if hasattr(rows, name)), None):
        found = getattr(rows, way)()
    elif not isinstance(rows, Iterator) and any(hasattr(rows, name) for name in there):
        return None
    elif streamed:
        found = None if whole else arrow().RecordBatchReader.from_stream(rows)
    return iter(found) if isinstance(found, Iterable) else None


def is_row(item: object) -> bool:
    """Return whether an item is one row of a table: a dict whose values are no columns."""
    return isinstance(item, Mapping) and -1 in map(_n_cells, item.values())


def _of_list(rows: Sequence[Any], came: Any = None) -> Any:
    """Return a list of dicts or strings, or an array of rows of numbers."""
    came = rows if came is None else came
    if rows and isinstance(rows[0], Mapping):
        return rows if isinstance(rows, list) else [*rows]
    if rows and (isinstance(rows[0], str) or is_missing(rows[0])):
        first = next((cell for cell in rows if not is_missing(cell)), None)
        strings = came is rows and isinstance(rows[0], str)  # and no cells of one row
        if isinstance(first, str | Mapping) and (strings or not any(map(_is_value, rows))):
            empty: Any = "" if isinstance(first, str) else {}
            return [empty if is_missing(cell) else cell for cell in rows]
    try:
        array = np.asarray(rows)
    except (TypeError, ValueError):  # such as of rows of several lengths
        raise _no_rows(came) from None
    return _of_array(array, came)


def _of_array(rows: NDArray[Any], came: Any = None) -> Any:
    """Return an array (n, columns), or what an array of objects or of texts holds."""
    if rows.dtype.names is not None:
        return _of_columns({name: rows[name] for name in rows.dtype.names})
    if rows.ndim == 1 and rows.dtype.kind in "OU" and came is None:
        return _of_list(rows.tolist())
    if rows.ndim < 2:
        came = type_name(rows if came is None else came)
        what = f"rows are expected, in {came} {rows.shape} here is one, or none: {FORMS}"
        hint = "Give a list of rows, for one row: [row]. Reshape your data otherwise."
        raise DataError(what, path=PLACE, hint=hint)
    if rows.dtype.kind == "O" and came is not None:
        raise _no_rows(came)
    plain: Any = rows
    if np.ma.is_masked(rows):
        plain = plain.astype(np.float64).filled(np.nan)
    rows = np.asarray(plain)
    return rows if rows.ndim == 2 else rows.reshape(len(rows), int(np.prod(rows.shape[1:])))


def _of_columns(columns: Mapping[Any, Any]) -> Any:
    """Return columns by their names as an Arrow table."""
    sizes = {_n_cells(cells) for cells in columns.values()}
    if not sizes or -1 in sizes:
        hint = "Give a list of cells for each column, or a list of rows, for one row: [row]."
        raise DataError("a dict holds no columns", path=PLACE, hint=hint)
    if len(sizes) > 1:
        lengths = ", ".join(f"{size:,}" for size in sorted(sizes)[:8])
        raise DataError(f"columns of a dict have several lengths: {lengths}", path=PLACE)
    names = distinct([str(name) for name in columns], PLACE)
    arrays = [arrow_column(own, name) for own, name in zip(columns.values(), names, strict=True)]
    return arrow().table(arrays, names=list(names))


def _n_cells(cells: Any) -> int:
    """Return how many cells a column has, -1 where it is none."""
    one = isinstance(cells, str | bytes | Mapping) or getattr(cells, "ndim", 1) == 0
    return -1 if one or not hasattr(cells, "__len__") else len(cells)


def _no_rows(rows: Any) -> DataError:
    """Return what is said of an object that has no rows, or none yet."""
    method = next((name for name in LAZY if callable(getattr(rows, name, None))), None)
    hint = f"{FORMS[0].upper()}{FORMS[1:]}."
    if isinstance(rows, str | os.PathLike):
        hint = "Give a list of rows, for one row: [row]. Files are for convert, predict, evaluate."
    elif isinstance(rows, type):
        pass
    elif method is not None:
        hint = f"Give what its {method}() returns."
    elif hasattr(rows, "read") and hasattr(rows, "name"):
        hint = "Give its path."
    elif isinstance(rows, Iterator):
        hint = "Give all of its rows together: list(rows)."
    return DataError(f"rows of the type {type_name(rows)} are not read", path=PLACE, hint=hint)


def rows_and_labels(rows: Any, labels: Any) -> tuple[Any, Any]:
    """Return rows in a plain form with their labels, which may be a column of AnnData's obs."""
    if isinstance(labels, str) and _is_anndata(rows):
        if labels not in rows.obs.columns:
            there = ", ".join(clean(name, 40) for name in rows.obs.columns[:8])
            raise UsageError(f"obs has no column '{clean(labels, 60)}', it has: {there}")
        labels = rows.obs[labels].to_numpy()
    return as_rows(rows), labels


def group_column(rows: Any) -> str | None:
    """Return the only column of AnnData's obs that groups rows, None for others; or UsageError."""
    if not _is_anndata(rows):
        return None
    groups = [name for name, kind in rows.obs.dtypes.items() if str(kind) == "category"]
    if len(groups) != 1:
        there = ", ".join(clean(name, 40) for name in groups or rows.obs.columns)
        raise UsageError(f"the labels may be {there or 'none'}", hint="Name one: label.")
    return str(groups[0])


def is_pair(given: Any) -> bool:
    """Return whether an object is a pair of rows and labels, and not two rows."""
    two = isinstance(given, tuple | list) and len(given) == 2
    return two and not any(all(isinstance(one, kind) for one in given) for kind in (Mapping, str))


def named_files(sources: Any) -> tuple[list[Path] | None, list[Any]]:
    """Return the files that a user names, one or several; None where it is something else.

    And the items that were taken from an iterator of something else: the first one, if there is.
    """
    if isinstance(sources, str | os.PathLike):
        return [Path(sources)], []
    if hasattr(sources, "read") or hasattr(sources, STREAM):
        return None, []
    first = list(itertools.islice(sources, 1)) if isinstance(sources, Iterator) else []
    if first and isinstance(first[0], str | os.PathLike):
        first += sources
        sources = first
    elif not isinstance(sources, list | tuple | set | frozenset):
        return None, first
    if not all(isinstance(one, str | os.PathLike) for one in sources):
        return None, []
    return [Path(one) for one in sources], []


def is_frame(rows: object) -> bool:
    """Return whether an object is a DataFrame of pandas or polars, or an Arrow table."""
    libraries = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
    return any(_is_a(rows, library, name) for library, name in libraries.items())


def is_table(rows: object) -> bool:
    """Return whether rows in a plain form are a table: with names, or strings."""
    return isinstance(rows, list) or is_frame(rows)


def is_recipe_table(rows: Any, labels: Any, options: TableOptions) -> bool:
    """Return whether rows in a plain form are read by a recipe and not as a matrix of numbers.

    So are strings, and tables with more than their numbers: where labels are one of
    the columns, a role was named, or a column is not of numbers, or lacks some. Dicts without any
    of that are features by name.
    """
    if not is_table(rows):
        return False
    if isinstance(labels, str) or options != TableOptions():
        return True
    if isinstance(rows, list):
        return isinstance(rows[0], str)
    if not _all_numbers(rows):
        return True
    values = _of_frame(rows)[1]
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def _all_numbers(frame: Any) -> bool:
    """Return whether the columns of a frame all hold numbers or truth values."""
    if _is_a(frame, "pyarrow", "Table"):
        known = arrow().types
        tests = known.is_integer, known.is_floating, known.is_boolean
        return all(any(test(field.type) for test in tests) for field in frame.schema)
    kinds = [str(getattr(dtype, "kind", "")) for dtype in frame.dtypes]
    if all(kinds):
        return all(kind in NUMBERS for kind in kinds)
    return all(hasattr(dtype, "is_numeric") and dtype.is_numeric() for dtype in frame.dtypes)


def cells_of(column: Any, usual: Any) -> Any:
    """Return the values of a column of any library as a list of Python's; else what is usual."""
    if type(column).__module__.startswith("pyarrow"):
        for batch in arrow().table({"cells": column}).to_batches():
            check_buffers(batch, PLACE)
    ways = (getattr(column, way, None) for way in CELLS)
    return next((way() for way in ways if way is not None), usual)


def _is_value(cell: object) -> bool:
    """Return whether an object is a number, so that others beside it are cells of one row."""
    return isinstance(cell, int | float | np.number) and not np.isnan(cell)


def _is_a(rows: object, library: str, name: str) -> bool:
    kinds = type(rows).__mro__
    return any(k.__name__ == name and k.__module__.partition(".")[0] == library for k in kinds)


def _is_anndata(rows: object) -> bool:
    return all(hasattr(type(rows), name) for name in ANNDATA)


def to_matrix(rows: Any, columns: Sequence[Label] | None = None) -> NamedMatrix:
    """Return what people gave as rows: a matrix, array, DataFrame, or sequence of dicts."""
    rows, names = as_rows(rows), columns
    if isinstance(rows, NamedMatrix):
        if columns is None:
            return rows
        matrix = rows.matrix
    elif isinstance(rows, list):
        if columns is not None:
            raise UsageError("dicts name their values: columns")
        return _of_dicts(rows)
    elif is_frame(rows):
        own, matrix = _of_frame(rows)
        names = own if columns is None else columns
    else:
        matrix = rows.tocsr() if is_sparse(rows) else rows
    if len(matrix.shape) != 2 or matrix.dtype.kind not in NUMBERS:
        what = f"rows have the type {clean(matrix.dtype)}, numbers are expected"
        raise DataError(what, path=PLACE, hint="Give numbers: rows.astype(float).")
    if names is not None and len(names) != matrix.shape[1]:
        raise UsageError(f"{len(names):,} names for {matrix.shape[1]:,} columns: columns")
    return NamedMatrix(matrix, None if names is None else _names(names))


def _of_frame(frame: Any) -> tuple[list[Any] | None, NDArray[Any]]:
    """Return the names of a frame's columns, None if they are their places, and its numbers."""
    if _is_a(frame, "pyarrow", "Table"):
        cells = [column.to_numpy() for column in frame.columns]
        return frame.column_names, np.stack(cells, axis=1) if cells else np.zeros((len(frame), 0))
    found, values = list(frame.columns), frame.to_numpy()
    if values.dtype.kind == "O" and _all_numbers(frame):  # such as of truth values and integers
        values = frame.astype(float).to_numpy()
    named = all(isinstance(name, str) for name in found) or _moved(found)
    return found if named else None, values


def _moved(columns: list[Any]) -> bool:
    """Return whether columns have numbers that are not their places."""
    whole = all(isinstance(name, int | np.integer) for name in columns)
    return whole and len({*columns}) == len(columns) and columns != [*range(len(columns))]


def _of_dicts(rows: Sequence[Mapping[Label, Any]]) -> NamedMatrix:
    """Return dicts as a matrix with a column for each name, in the order in which they come."""
    places: dict[bytes, int] = {}
    indptr, indices, data = [0], list[int](), list[float]()
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            what = f"row {number:,} (counted from 0) is no dict: {clean(type(row).__name__)}"
            raise DataError(what, path=PLACE)
        for name, value in row.items():
            own, one = raw_name(name), 1.0
            if isinstance(value, str):
                own += b"=" + value.encode("utf-8", "surrogatepass")
            else:
                try:
                    one = float(value)
                except (TypeError, ValueError):
                    what = f"'{clean(value, 40)}' of '{clean(name, 40)}' in row {number:,} "
                    what += "(counted from 0) is no number and no string"
                    raise DataError(what, path=PLACE) from None
            indices.append(places.setdefault(own, len(places)))
            data.append(one)
        indptr.append(len(indices))
    shape = (len(rows), len(places))
    arrays = (np.array(data, np.float64), np.array(indices, np.int32), np.array(indptr, np.int64))
    return NamedMatrix(csr_array(arrays, shape=shape), _names(places))


def _names(names: Iterable[Any]) -> Names:
    raws = distinct([raw_name(name) for name in names], PLACE)
    return column_names(raws, len(raws), PLACE, "columns")
