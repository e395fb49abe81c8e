"""Rows of Arrow record batches: cells as they lie there, without a Python object for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.tables.cells import NO_LIST, NO_NUMBER, Cells, Wrong, parsed_numbers
from streammach.data.tables.python_rows import lists_of, pairs_of, strings_of, vectors_of
from streammach.errors import UsageError


def arrow() -> Any:
    """Return pyarrow, or raise UsageError where it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.compute  # a part of it that it does not load
    except ImportError as error:
        raise UsageError(
            f"Parquet, Arrow and data frames are read with pyarrow ({error})",
            hint="Install it: pip install 'streammach[tables]'",
        ) from None
    return pa


class ArrowRows:
    """Rows of a record batch.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        The rows.
    """

    refused: Sequence[Wrong] = ()

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.n_rows: int = batch.num_rows
        self.names: list[str] = list(batch.schema.names)
        self._places = {name: i for i, name in enumerate(self.names)}

    def strings(self, name: str) -> Cells:
        """Return the cells of a column as one string each."""
        return texts_of(self._column(name))

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column as one number each."""
        types, column = arrow().types, self._column(name)
        kind = column.type
        if types.is_boolean(kind):
            column = column.cast("uint8")
        elif types.is_decimal(kind):
            column = column.cast("float64")
        elif not (types.is_integer(kind) or types.is_floating(kind)):
            if not _is_text(types, kind):
                rows = np.flatnonzero(_there(column)).tolist()
                wrong = [Wrong(row, NO_NUMBER, _shown(column, row)) for row in rows[:1]]
                more = [Wrong(row, NO_NUMBER) for row in rows[1:]]
                return Cells.of_numbers(np.full((self.n_rows, 1), math.nan), wrong + more)
            return parsed_numbers(texts_of(column))
        values = np.array(column.to_numpy(zero_copy_only=False), np.float64)
        values[~_there(column)] = math.nan
        return Cells.of_numbers(values[:, None], [])

    def lists(self, name: str) -> tuple[Cells, NDArray[np.bool_]]:
        """Return the cells of a column as strings, several or one; whether they were lists."""
        types, column = arrow().types, self._column(name)
        if types.is_null(column.type):
            return Cells.none(self.n_rows), np.zeros(self.n_rows, np.bool_)
        if not _is_list(types, column.type):
            return texts_of(column), np.zeros(self.n_rows, np.bool_)
        if _is_nested(types, column.type.value_type):
            return lists_of(column.to_pylist())
        return _of_items(column), _there(column)

    def pairs(self, name: str) -> Cells:
        """Return the cells of a column as names with values."""
        column = self._column(name)
        values = column.to_pylist()
        types = arrow().types
        if _is_list(types, column.type) and types.is_struct(column.type.value_type):
            values = [None if v is None else [tuple(d.values()) for d in v] for v in values]
        return pairs_of(values)

    def vectors(self, name: str, width: int) -> Cells:
        """Return the cells of a column as so many numbers each."""
        types, column = arrow().types, self._column(name)
        if not _is_list(types, column.type):
            rows = np.flatnonzero(_there(column)).tolist()
            wrong = [Wrong(row, NO_LIST, _shown(column, row)) for row in rows[:1]]
            wrong += [Wrong(row, NO_LIST) for row in rows[1:]]
            return Cells.of_numbers(np.full((self.n_rows, width), math.nan), wrong)
        there, items = _there(column), column.flatten()
        numeric = types.is_floating(items.type) or types.is_integer(items.type)
        if not numeric or items.null_count or len(items) != width * int(there.sum()):
            return vectors_of(column.to_pylist(), width)
        lengths = _lengths(column, width)
        if (lengths != width).any():
            return vectors_of(column.to_pylist(), width)
        out = np.full((self.n_rows, width), math.nan)
        out[there] = items.to_numpy(zero_copy_only=False).reshape(-1, width)
        return Cells.of_numbers(out, [])

    def _column(self, name: str) -> Any:
        column = self.batch.column(self._places[name])
        pa = arrow()
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        if pa.types.is_run_end_encoded(column.type):
            column = pa.compute.run_end_decode(column)
        return column


def texts_of(column: Any) -> Cells:
    """Return the cells of an Arrow array as one string each.

    Parameters
    ----------
    column : pyarrow.Array
        Strings, bytes, whole numbers, truth values, or what Arrow can write as text.
    """
    pa = arrow()
    types, kind = pa.types, column.type
    there = _there(column)
    if types.is_null(kind):
        return Cells.none(len(column))
    if types.is_dictionary(kind):
        words = texts_of(column.dictionary)
        firsts = np.append(words.offsets[:-1], 0)
        empty = np.append(np.diff(words.offsets) == 0, True)
        codes = np.where(there, column.indices.fill_null(0).to_numpy(zero_copy_only=False), -1)
        there = there & ~empty[codes]
        items = firsts[codes[there]]
        offsets = np.concatenate([[0], np.cumsum(there)])
        return Cells(offsets, words.starts[items], words.stops[items], words.data)
    if types.is_floating(kind) or types.is_boolean(kind) or _is_nested(types, kind):
        return strings_of(column.to_pylist())
    if not _is_text(types, kind):
        try:
            column = column.cast(pa.string())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return strings_of(column.to_pylist())
    elif types.is_string_view(kind) or types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
    elif types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    starts, stops, data = _spans(column)
    return Cells.spans(data, np.where(there, starts, 0), np.where(there, stops, 0))


def _spans(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return where the cells of an array of strings start and stop, and the bytes."""
    types = arrow().types
    large = types.is_large_string(column.type) or types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    n = len(column)
    if offsets is None or data is None:
        return np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(0, np.uint8)
    raw: NDArray[Any] = np.frombuffer(offsets, np.int64 if large else np.int32)
    ends: NDArray[np.int64] = raw[column.offset : column.offset + n + 1].astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if n else (0, 0)
    ends -= first
    return ends[:-1], ends[1:], np.frombuffer(data, np.uint8)[first:last]


def _of_items(column: Any) -> Cells:
    """Return the items of an array of lists as strings."""
    items = texts_of(column.flatten())
    lengths = _lengths(column, 0)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    items.offsets = items.offsets[ends]
    return items


def _lengths(column: Any, null: int) -> NDArray[np.int64]:
    """Return how many items each list has, `null` where there is no list: int64 (n,)."""
    lengths = arrow().compute.list_value_length(column).fill_null(null)
    return np.asarray(lengths).astype(np.int64)


def _there(column: Any) -> NDArray[np.bool_]:
    """Return which cells are not null: bool (n,)."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid())


def _is_text(types: Any, kind: Any) -> bool:
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        or types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind) or types.is_dictionary(kind)
    )  # fmt: skip


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_nested(types: Any, kind: Any) -> bool:
    return bool(types.is_nested(kind))


def _shown(column: Any, row: int) -> str:
    return str(column[row])[:80]
