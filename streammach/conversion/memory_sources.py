"""Rows in memory as a source: a table, a matrix with labels, or an iterator of one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.conversion.memory_labels import to_labels
from streammach.inputs.identity import PLACE
from streammach.inputs.label_arrays import Labels
from streammach.inputs.matrices.matrix import (
    PIECE_VALUES,
    SPARSE_BYTES,
    DenseMatrix,
    Matrix,
    SparseMatrix,
)
from streammach.inputs.matrices.matrix_source import MatrixPiece, MatrixReader, OpenMatrix
from streammach.inputs.matrices.named_arrays import MemoryArray
from streammach.inputs.source import START, MatrixColumns, Place, ReadingBytes, Source
from streammach.inputs.source_options import SourceOptions, TableOptions
from streammach.inputs.tables.memory_objects import (
    SOME_ROWS,
    NamedMatrix,
    as_rows,
    group_column,
    is_pair,
    is_recipe_table,
    is_row,
    is_table,
    rows_and_labels,
    rows_in_turn,
    to_matrix,
)
from streammach.inputs.tables.memory_tables import MemorySource, MemoryTables, check_no_file
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, UsageError, type_name

READING = ReadingBytes(PIECE_VALUES * SPARSE_BYTES, 0)  # of the matrices of an iterator
ITEMS = (
    "Give pairs (X, y), DataFrames, Arrow tables, record batches, dicts or lists of them; or all "
    "rows together: list(rows)."
)
PLACES = "Columns without names are told by their places."


def memory_source(
    rows: Any, options: SourceOptions, first: Sequence[Any] = ()
) -> tuple[Source[Any], SourceOptions]:
    """Return rows in memory as the source of a conversion, and its options without their labels.

    They are a table with a column of labels, AnnData with one of obs, a pair of a matrix and
    labels, or an iterator of tables or pairs, from which the `first` items were taken.
    """
    own = options.table
    items = rows_in_turn(rows)
    if items is not None:
        return iterator_source(items, options, type_name(rows), first), options
    pair = isinstance(rows, tuple) and is_pair(rows)
    rows, y = rows if pair else (rows, own.label or group_column(rows))
    name = type_name(rows)
    rows, y = rows_and_labels(rows, y)
    named = y is None or isinstance(y, str)
    if is_table(rows) and named:
        return MemorySource(rows, options), options
    if named:
        check_no_file(options)
        hint = "Give a pair of both: (rows, labels)."
        raise DataError(f"rows of the type {name} have no labels", path=PLACE, hint=hint)
    matrix, labels = _matrix_and_labels(rows, y, options)
    if isinstance(rows, NamedMatrix):
        options = replace(options, table=replace(own, label=None))
    return matrix_source(matrix, labels), options


def iterator_source(
    items: Iterator[Any], options: SourceOptions, name: str, first: Sequence[Any] = ()
) -> Source[Any]:
    """Return an iterator as a source, or raise DataError; its first item says what all are."""
    check_no_file(options)
    first = first or list(itertools.islice(items, 1))
    if not first:
        raise DataError(f"a {name} has no items", path=PLACE, hint=ITEMS)
    every = itertools.chain(first, items)
    lists = iter(lambda: list(itertools.islice(every, SOME_ROWS)), [])
    numbered = enumerate(lists if is_row(first[0]) else every)
    if is_pair(first[0]):
        return MemoryMatrices(_pairs(numbered, name, options), READING)
    return MemoryTables(_tables(numbered, name), options)


def _pairs(
    items: Iterator[tuple[int, Any]], name: str, options: SourceOptions
) -> Iterator[OpenMatrix]:
    for number, item in items:
        if not is_pair(item):
            raise _wrong_item(number, name, item)
        yield open_matrix(*_matrix_and_labels(as_rows(item[0]), item[1], options))


def _tables(items: Iterator[tuple[int, Any]], name: str) -> Iterator[Any]:
    for number, item in items:
        try:
            rows = None if is_pair(item) else as_rows(item)
        except DataError as error:
            raise _wrong_item(number, name, item) from error
        if not is_table(rows) or (isinstance(rows, list) and isinstance(rows[0], str)):
            raise _wrong_item(number, name, item)
        yield rows


def _wrong_item(number: int, name: str, item: object) -> DataError:
    what = f"item {number:,} (counted from 0) of a {name} has the type {type_name(item)}"
    what += "" if number == 0 else ", unlike those before"
    return DataError(what, path=PLACE, hint=ITEMS)


def _matrix_and_labels(
    rows: Any, y: Any, options: SourceOptions
) -> tuple[NamedMatrix, Labels]:  # fmt: skip
    """Return rows in a plain form as a matrix, and labels; or raise UsageError or DataError."""
    if is_table(rows) and is_recipe_table(rows, None, TableOptions()):
        raise UsageError("the labels of a table are a column: label", path=PLACE)
    check_no_file(options)
    labels = to_labels(y, strict=False).choose_form(options.multilabel, PLACE, "the labels")
    return to_matrix(rows), labels


def matrix_source(
    rows: NamedMatrix, labels: Labels, weights: NDArray[np.float32] | None = None
) -> MemoryMatrices:
    """Return one matrix in memory as a source."""
    opened = open_matrix(rows, labels, weights)
    return MemoryMatrices([opened], opened.matrix.reading_bytes, rows.n_bytes)


def open_matrix(
    rows: NamedMatrix, labels: Labels | None, weights: NDArray[np.float32] | None = None
) -> OpenMatrix:
    """Return rows in memory as what is read in pieces; weights are float32 (n,) or None."""
    m = rows.matrix
    matrix: Matrix
    if rows.sparse:
        data, indices, indptr = map(MemoryArray, (m.data, m.indices, m.indptr))
        matrix = SparseMatrix((data, indices, indptr), m.shape, PLACE)
    else:
        matrix = DenseMatrix(MemoryArray(m))
    return OpenMatrix(matrix, labels, rows.names, spaced=rows.spaced, weights=weights)


class MemoryMatrices(Source[MatrixPiece]):
    """Matrices in memory with their labels, one after the other."""

    form = "memory"
    label_kind = ""  # the type of the labels, once some were read

    def __init__(
        self, matrices: Iterable[OpenMatrix], reading: ReadingBytes, n_bytes: int = 0
    ) -> None:
        self.path, self._matrices, self._reading = PLACE, matrices, reading
        self._n_bytes = n_bytes  # of all of them; 0 of an iterator

    @property
    def n_bytes(self) -> int:
        return self._n_bytes

    def files(self) -> list[Path]:
        return []

    def content(self) -> str:
        """Return nothing: rows in memory are not read again."""
        return ""

    def reading_bytes(self) -> ReadingBytes:
        return self._reading

    def pieces(self, begin: Place = START) -> Iterator[MatrixPiece]:
        before = 0
        for number, opened in enumerate(self._matrices):
            self._compare_columns(number, opened.columns)
            if opened.labels is not None:
                self.label_kind = self.label_kind or opened.labels.kind
            matrix, end = opened.matrix, 0
            while end < matrix.n_rows:
                start, end = end, matrix.find_end(end)
                rows, n_read = matrix.rows(start, end), self.n_bytes * end // matrix.n_rows
                place = Place(before + end)
                yield MatrixPiece(rows=rows, matrix=opened, n_read=n_read, end=place, before=before)
            before += matrix.n_rows

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> MatrixReader:
        return MatrixReader(PLACE, vocabulary, label_needed=label_needed, strict=strict)

    def _compare_columns(self, number: int, columns: MatrixColumns) -> None:
        """Forget what columns are called where items differ; DataError where they have no names."""
        known, self.columns = self.columns or columns, columns
        if (known.n_columns, known.digest) == (columns.n_columns, columns.digest):
            return
        if known.names is None and columns.names is None:
            what = f"item {number:,} (counted from 0) has {columns.n_columns:,} columns"
            what += f", those before {known.n_columns:,}"
            raise DataError(what, path=PLACE, hint=PLACES)
        self.columns = MatrixColumns(0, None)
