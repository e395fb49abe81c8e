"""Rows of a matrix as a source: blocks with a vocabulary's ids."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.identity import ChangedError
from streammach.data.label_arrays import Labels, LabelSets
from streammach.data.matrix import ANY_WIDTH, MatrixPiece, OpenMatrix, Piece
from streammach.data.source import START, PieceRows, Place, ReadingBytes, Source
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.errors import DataError, clean
from streammach.rows.block import RowBlock
from streammach.rows.columns import Columns, SpacedColumns, first_bad
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary

LABEL_BYTES = 24  # of the label of a row, as it is read and as the place of its name
OUT_OF_RANGE = "column '{}' is not from 0 to the number of columns - 1"
NOT_FINITE = "value '{}' is not a finite float32"


class MatrixSource(Source[MatrixPiece]):
    """A source whose rows are those of a matrix; its features are named by their columns.

    Attributes
    ----------
    magic : bytes
        The first bytes of such a file; empty for folders.
    is_folder : bool
        Whether it is a folder.
    has_paths : bool
        Whether several matrices may be in it, which paths tell apart.
    """

    magic: bytes = b""
    is_folder: bool = False
    has_paths: bool = False

    def __init__(self, path: Path, options: SourceOptions = GUESSED) -> None:
        self.path = path
        self._options = options
        self.n_rows = 0  # known once a block was read

    @abstractmethod
    def opened(self) -> AbstractContextManager[OpenMatrix]:
        """Open the matrix for as long as a block runs."""

    def held(self) -> ReadingBytes:
        """Return what reading it takes, rows that were read aside."""
        with self.opened() as opened:
            piece, whole = opened.matrix.held
            labels = 0 if opened.labels is None else LABEL_BYTES * _size(opened.labels)
            names = 0 if opened.names is None else 2 * opened.names.n_bytes
        return ReadingBytes(piece, whole + labels + names)

    def pieces(self, begin: Place = START) -> Iterator[MatrixPiece]:
        """Yield the rows in their order."""
        # Rows before `begin` are read too: their digest is compared.
        crc, reached = 0, begin == START
        with self.opened() as opened:
            self.n_rows = opened.matrix.n_rows
            self.columns = opened.columns
            for piece in opened.matrix.pieces():
                for part in (piece.indptr, piece.columns, piece.values):
                    crc = google_crc32c.extend(crc, part.tobytes())
                done = piece.first_row + len(piece.indptr) - 1
                if done == begin.at:
                    reached = crc == begin.crc
                if done > begin.at:
                    if not reached:
                        break
                    n_read = self.n_bytes * done // opened.matrix.n_rows
                    yield MatrixPiece(piece, opened, n_read, Place(done, crc))
        if not reached:
            raise ChangedError("what was read before is not there", path=self.path)

    def column_names(self) -> Names | None:
        """Return the names of the columns; None where these are their numbers."""
        if self.columns is None:
            with self.opened() as opened:
                self.columns = opened.columns
        return self.columns.names

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> MatrixReader:
        """Return something that reads pieces."""
        return MatrixReader(self.path, vocabulary, label_needed=label_needed, strict=strict)


class MatrixReader:
    """Gives rows of a matrix the ids of a vocabulary; one thread at a time may use it.

    Its parameters are those of :meth:`Source.reader`; the path is for messages.
    """

    def __init__(
        self, path: Path, vocabulary: Vocabulary, *, label_needed: bool, strict: bool
    ) -> None:
        self._path = path
        self._vocabulary = vocabulary
        self._label_needed = label_needed
        self._strict = strict
        self._columns: Columns | None = None
        self._ids: NDArray[np.int32] | None = None
        self._width = 0

    def read(self, piece: MatrixPiece) -> PieceRows:
        """Return the rows of a piece, or raise DataError if the labels do not fit."""
        matrix, labels, rows = piece.opened.matrix, piece.opened.labels, piece.rows
        if self._columns is None:
            self._check_labels(labels, matrix.n_rows)
            self._columns = self._columns_of(piece.opened)
        places = rows.first_row + np.arange(len(rows.indptr) - 1)
        good, bad = self._good(rows, self._width, labels)
        if bad and self._strict:
            good[:] = False
        lengths = np.diff(rows.indptr)
        numbers, values = rows.columns, rows.values.copy()  # rows belong to who reads them
        if not good.all():
            kept = np.repeat(good, lengths)
            numbers, values = numbers[kept], values[kept]
            lengths, places = lengths[good], places[good]
        if self._ids is None:
            ids = self._columns.ids(self._vocabulary, numbers)
        else:
            ids = self._ids[numbers]
        known = ids >= 0
        unknown = len(ids) - int(known.sum())
        if unknown:
            owners = np.repeat(np.arange(len(lengths)), lengths)[known]
            lengths = np.bincount(owners, minlength=len(lengths))
            ids, values = ids[known], values[known]
        indptr = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        classes, lists = self._classes(labels, places)
        block = RowBlock(
            indptr=indptr, features=ids, values=values, classes=classes,
            importance=np.ones(len(lengths), np.float32), places=places,
            numbers=places - rows.first_row,
        ).with_labels(lists)  # fmt: skip
        return PieceRows(block, bad, unknown_values=unknown)

    def bad_row(self, piece: MatrixPiece, place: int, reason: str) -> BadRow:
        """Return a row, by its number, as a bad one."""
        return BadRow(reason=reason, line=place)

    def _columns_of(self, opened: OpenMatrix) -> Columns:
        """Return what looks up the columns; those without names are those of the training."""
        trained = self._vocabulary.columns
        self._width = opened.matrix.n_columns
        if opened.names is None:
            if self._width == ANY_WIDTH and trained.n_columns:
                self._width = trained.n_columns
            wrong = trained.difference(self._width)
            if wrong:
                hint = "Columns without names are told by their places."
                raise DataError(wrong, path=self._path, hint=hint)
            self._ids = trained.ids()
        if opened.spaced:
            assert opened.names is not None, "names of features"
            return SpacedColumns(opened.names)
        columns = Columns(self._width, opened.names)
        if opened.names is not None and trained.n_columns:
            ids = columns.ids(self._vocabulary, np.arange(opened.matrix.n_columns))
            remark = None
            if not self._vocabulary.add_features:
                remark = trained.remark(ids, opened.names, self._vocabulary.feature_names())
            if remark:
                warnings.warn(f"{clean(self._path)}: {remark}", stacklevel=2)
        return columns

    def _check_labels(self, labels: Labels | LabelSets | None, n_rows: int) -> None:
        if labels is None and self._label_needed:
            hint = "Name a file with --labels, or where they are with --y-path."
            raise DataError("the rows have no labels", path=self._path, hint=hint)
        if labels is not None and len(labels) != n_rows:
            raise DataError(
                f"{len(labels):,} labels for {n_rows:,} rows",
                path=self._path,
                hint="Give a label for each row.",
            )

    def _classes(
        self, labels: Labels | LabelSets | None, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], LabelLists | None]:
        """Return the vocabulary's ids of the labels of rows, -1 where there is none, as lists too.

        They are lists where rows may have several.
        """
        if labels is None or not len(rows):
            return np.full(len(rows), -1, np.int32), None
        if isinstance(labels, Labels):
            return self._ids_of(labels, labels.codes[rows]), None
        lists = labels.lists.take(rows)
        lists = replace(lists, classes=self._ids_of(labels, lists.classes)).sorted()
        return lists.first, lists

    def _ids_of(self, labels: Labels | LabelSets, codes: NDArray[Any]) -> NDArray[np.int32]:
        """Return the vocabulary's ids of labels by their codes; -1: refused or unknown."""
        found, inverse = np.unique(codes, return_inverse=True)
        refused = labels.refused if isinstance(labels, Labels) else {}
        usable = [c for c in found.tolist() if c not in refused]
        ids_of = dict.fromkeys(found.tolist(), -1)
        given = self._vocabulary.label_ids(labels.raws(usable)).tolist()
        ids_of.update(zip(usable, given, strict=True))
        return np.array([ids_of[c] for c in found.tolist()], np.int32)[inverse]

    def _good(
        self, piece: Piece, n_columns: int, labels: Labels | LabelSets | None
    ) -> tuple[NDArray[np.bool_], list[BadRow]]:
        """Return which rows can be taken, and the others."""
        n = len(piece.indptr) - 1
        bad = np.empty(n, np.int64)
        first_bad(piece.indptr, piece.columns, piece.values, n_columns, bad)
        good = bad < 0
        if isinstance(labels, Labels) and labels.refused:
            codes = labels.codes[piece.first_row : piece.first_row + n]
            good &= ~np.isin(codes, list(labels.refused))
        refused = []
        for row in np.flatnonzero(~good).tolist():
            if bad[row] < 0:
                assert isinstance(labels, Labels)
                reason, text = labels.refused[int(labels.codes[piece.first_row + row])]
            elif not 0 <= piece.columns[bad[row]] < n_columns:
                reason, text = OUT_OF_RANGE, str(piece.columns[bad[row]])
            else:
                reason, text = NOT_FINITE, str(piece.values[bad[row]])
            refused.append(BadRow(reason=reason, text=text, line=piece.first_row + row))
        return good, refused


def _size(labels: Labels | LabelSets) -> int:
    """Return how many labels there are, of all rows."""
    return len(labels) if isinstance(labels, Labels) else labels.lists.n_labels
