"""A matrix as a source of rows: its blocks get a vocabulary's ids, labels and importances."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRow
from streammach.inputs.identity import ChangedError
from streammach.inputs.label_arrays import Labels
from streammach.inputs.matrices.matrix import ANY_WIDTH, Matrix, MatrixRows
from streammach.inputs.source import (
    START,
    MatrixColumns,
    Piece,
    PieceRows,
    Place,
    ReadingBytes,
    RowReader,
    Source,
)
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.rows.block import RowBlock
from streammach.rows.columns import Columns, first_bad
from streammach.rows.label_lists import LabelLists, places_of
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, clean

OUT_OF_RANGE = "column '{}' is not from 0 to the number of columns - 1"
NOT_FINITE = "value '{}' is not a finite float32"


@dataclass(frozen=True)
class OpenMatrix:
    """A matrix, its labels if it has any, and the names of its columns if not their numbers."""

    matrix: Matrix
    labels: Labels | None
    names: Names | None = None
    # whether names are those of features as a store lists them, ``namespace^name``: places of such
    # columns mean nothing
    spaced: bool = False
    weights: NDArray[np.float32] | None = None  # (n,): the importance of each row; 1 without any

    @property
    def columns(self) -> MatrixColumns:
        """The columns; none where the matrix does not say how many there are."""
        n = self.matrix.n_columns
        return MatrixColumns(0 if n == ANY_WIDTH or self.spaced else n, self.names)


@dataclass(kw_only=True)
class MatrixPiece(Piece):
    """Some rows, and the matrix that they are from."""

    rows: MatrixRows
    matrix: OpenMatrix
    before: int = 0  # rows of the matrices that come before, where there are several


class MatrixSource(Source[MatrixPiece]):
    """A source whose rows are those of a matrix; its features are named by their columns."""

    magic: bytes = b""  # the first bytes of such a file; empty for folders
    is_folder: bool = False
    has_paths: bool = False  # whether several matrices may be in it, which paths tell apart

    def __init__(self, path: Path, options: SourceOptions = GUESSED) -> None:
        self.path = path
        self._options = options
        self.n_rows = 0  # known once a block was read

    @abstractmethod
    def open_matrix(self) -> AbstractContextManager[OpenMatrix]:
        """Open the matrix for as long as a block runs."""

    def reading_bytes(self) -> ReadingBytes:
        with self.open_matrix() as opened:
            return opened.matrix.reading_bytes

    def pieces(self, begin: Place = START) -> Iterator[MatrixPiece]:
        # Rows before `begin` are read too: their digest is compared.
        crc, end = 0, 0
        with self.open_matrix() as opened:
            matrix, self.columns = opened.matrix, opened.columns
            self.n_rows = matrix.n_rows
            while end < self.n_rows:
                start, end = end, matrix.find_end(end)
                rows = matrix.rows(start, end)
                for part in (rows.indptr, rows.columns, rows.values):
                    crc = google_crc32c.extend(crc, part.tobytes())
                if start < begin.at <= end and (end, crc) != (begin.at, begin.crc):
                    raise ChangedError("what was read before is not there", path=self.path)
                if end > begin.at:
                    n_read = self.n_bytes * end // self.n_rows
                    yield MatrixPiece(rows=rows, matrix=opened, n_read=n_read, end=Place(end, crc))
        if end < begin.at:
            raise ChangedError("what was read before is not there", path=self.path)

    def column_names(self) -> Names | None:
        if self.columns is None:
            with self.open_matrix() as opened:
                self.columns = opened.columns
        return self.columns.names

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> MatrixReader:
        return MatrixReader(self.path, vocabulary, label_needed=label_needed, strict=strict)


class MatrixReader(RowReader[MatrixPiece]):
    """Gives rows of a matrix the ids of a vocabulary; one thread at a time may use it.

    Its parameters are those of :meth:`Source.reader`; the path is for messages.
    """

    def __init__(
        self, path: Path, vocabulary: Vocabulary, *, label_needed: bool, strict: bool
    ) -> None:
        self._path, self._vocabulary = path, vocabulary
        self._label_needed, self._strict = label_needed, strict
        self._columns: Columns | None = None  # known with the first piece of a matrix
        self._opened: OpenMatrix | None = None  # the matrix
        self._width = 0

    def read(self, piece: MatrixPiece) -> PieceRows:
        matrix, rows = piece.matrix, piece.rows
        labels, weights = matrix.labels, matrix.weights
        if self._columns is None or self._opened is not matrix:
            self._check_labels(labels, matrix.matrix.n_rows)
            self._columns, self._opened = self._match_columns(matrix), matrix
        good, bad = self._find_good(rows, labels, piece.before)
        if bad and self._strict:
            good[:] = False
        numbers = np.flatnonzero(good)
        places = rows.first_row + numbers
        indptr, columns, values = rows.indptr, rows.columns, rows.values.copy()
        if len(numbers) < len(good):
            indptr, kept = places_of(indptr, numbers)
            columns, values = columns[kept], values[kept]
        ids = self._columns.ids(self._vocabulary, columns)
        classes, lists = self._find_classes(labels, places)
        block = RowBlock(
            indptr=indptr, features=ids, values=values, classes=classes,
            importance=np.ones(len(places), np.float32) if weights is None else weights[places],
            places=piece.before + places, numbers=numbers,
        ).with_labels(lists)  # fmt: skip
        known = ids >= 0
        if not known.all():
            block = block.with_values(known)
        return PieceRows(block, bad, unknown_values=len(ids) - block.nnz)

    def _match_columns(self, opened: OpenMatrix) -> Columns:
        trained, places = self._vocabulary.columns, None
        self._width = opened.matrix.n_columns
        if opened.names is None:
            if self._width == ANY_WIDTH and trained.n_columns:
                self._width = trained.n_columns
            wrong = trained.difference(self._width)
            if wrong:
                hint = "Columns without names are told by their places."
                raise DataError(wrong, path=self._path, hint=hint)
            places = trained.ids()
        elif opened.spaced:
            return Columns.of_features(opened.names, self._vocabulary)
        columns = Columns(self._width, opened.names, places)
        if opened.names is not None and trained.n_columns:
            ids = columns.ids(self._vocabulary, np.arange(self._width))
            known = None if self._vocabulary.add_features else self._vocabulary.feature_names()
            if known is not None and (remark := trained.remark(ids, opened.names, known)):
                warnings.warn(f"{clean(self._path)}: {remark}", stacklevel=2)
        return columns

    def _check_labels(self, labels: Labels | None, n_rows: int) -> None:
        if labels is None and self._label_needed:
            hint = "Name a file with --labels, or where they are with --y-path."
            raise DataError("the rows have no labels", path=self._path, hint=hint)
        if labels is not None and len(labels) != n_rows:
            what = f"{len(labels):,} labels for {n_rows:,} rows"
            raise DataError(what, path=self._path, hint="Give a label for each row.")

    def _find_classes(
        self, labels: Labels | None, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], LabelLists | None]:
        """Return the ids of the labels of rows, -1 where there is none; lists where they may be."""
        if labels is None or not len(rows):
            return np.full(len(rows), -1, np.int32), None
        if labels.lists is None:
            return self._find_ids(labels, labels.codes[rows]), None
        lists = labels.lists.take(rows)
        lists = replace(lists, classes=self._find_ids(labels, lists.classes)).sort()
        return lists.first, lists

    def _find_ids(self, labels: Labels, codes: NDArray[Any]) -> NDArray[np.int32]:
        """Return the vocabulary's ids of labels by their codes; -1: refused or unknown."""
        found, inverse = np.unique(codes, return_inverse=True)
        usable = [c for c in found.tolist() if c not in labels.refused]
        ids = np.full(len(found), -1, np.int32)
        ids[np.isin(found, usable)] = self._vocabulary.label_ids(labels.raws(usable))
        return ids[inverse]

    def _find_good(
        self, piece: MatrixRows, labels: Labels | None, before: int
    ) -> tuple[NDArray[np.bool_], list[BadRow]]:
        """Return which rows can be taken, bool (n,), and the others."""
        n = len(piece.indptr) - 1
        bad = np.empty(n, np.int64)
        first_bad(piece.indptr, piece.columns, piece.values, self._width, bad)
        good = bad < 0
        if labels is not None and labels.refused:
            codes = labels.codes[piece.first_row : piece.first_row + n]
            good &= ~np.isin(codes, list(labels.refused))
        refused = []
        for row in np.flatnonzero(~good).tolist():
            if bad[row] < 0:
                assert labels is not None, "a row is good, or its label is refused"
                reason, text = labels.refused[int(labels.codes[piece.first_row + row])]
            elif not 0 <= piece.columns[bad[row]] < self._width:
                reason, text = OUT_OF_RANGE, str(piece.columns[bad[row]])
            else:
                reason, text = NOT_FINITE, str(piece.values[bad[row]])
            number = before + piece.first_row + row
            refused.append(BadRow(reason=reason, text=text, line=number))
        return good, refused
