"""Rows of matrices, dense or compressed sparse: pieces, and blocks with a vocabulary's ids."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.identity import ChangedError
from streammach.data.label_arrays import Labels, LabelSets
from streammach.data.source import (
    START,
    Large,
    MatrixColumns,
    PieceRows,
    Place,
    ReadingBytes,
    Source,
)
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.errors import BudgetError, DataError, clean
from streammach.machine import memory_limit, size_text
from streammach.rows.block import RowBlock
from streammach.rows.columns import Columns, SpacedColumns, first_bad, nonzeros
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary

PIECE_VALUES = 1 << 20  # read at a time
PIECE_ROWS = 1 << 18
DENSE_BYTES, SPARSE_BYTES = 42, 50  # of a value of a piece: as it is read, its column, ids
ROW_BYTES = 60  # of a row of a piece
CACHE_BYTES = 64 << 20  # of what libraries keep of a file
MAX_PIECE_BYTES = 256 << 20
ANY_WIDTH = int(np.iinfo(np.int64).max)  # columns of a matrix that does not say how many it has
MOST_COLUMNS = 2**48  # what a store can say

LABEL_BYTES = 24  # of the label of a row, as it is read and as the place of its name
LABELS_A_ROW = 32  # of a matrix of rows x labels that is kept with all of its cells
TEXT_BYTES = 64  # of a string in memory
MOST_PACKED = 1100  # deflate makes no byte from less than a thousandth of one
OUT_OF_RANGE = "column '{}' is not from 0 to the number of columns - 1"
NOT_FINITE = "value '{}' is not a finite float32"

Reader = Callable[[int, int], NDArray[Any]]
AnyLabels = Labels | LabelSets | None


@dataclass(frozen=True)
class Piece:
    """Some rows as a source holds them: row pointers from 0, columns, values."""

    first_row: int
    indptr: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]


def check_numbers(dtype: np.dtype[Any], path: Path, what: str, kinds: str = "biuf") -> None:
    """Raise DataError if items are not real numbers (for `kinds` "iu": integers)."""
    if dtype.kind not in kinds:
        wanted = "integers are" if kinds == "iu" else "real numbers are"
        hint = "Objects are pickles and are never read." if dtype.hasobject else None
        raise DataError(
            f"{clean(what)} has the type {dtype}, {wanted} expected", path=path, hint=hint
        )


def check_held(n_bytes: int, path: Path, what: str) -> None:
    """Raise BudgetError if what must be in memory as a whole does not fit it."""
    limit = memory_limit()
    if n_bytes > limit.n_bytes:
        raise BudgetError(
            f"{clean(what)} needs {size_text(n_bytes)} of memory, {size_text(limit.n_bytes)} may "
            f"be used ({limit.source})",
            path=path,
        )


def check_stored(n_bytes: int, stored: int, path: Path, what: str) -> None:
    """Raise DataError if a header claims more bytes than those that are stored can hold."""
    if n_bytes > MOST_PACKED * stored + MAX_PIECE_BYTES:
        claim = f"claims {size_text(n_bytes)} of values, of which {size_text(stored)} are stored"
        hint = "Write it again with all of its values, or as a sparse matrix."
        raise DataError(f"{clean(what)} {claim}", path=path, hint=hint)


def whole_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes that an array of labels, names or row pointers takes while it is read."""
    cells, rows = math.prod(shape), math.prod(shape[:1])
    labels = min(cells, LABELS_A_ROW * rows)
    return cells * (TEXT_BYTES if dtype.hasobject else dtype.itemsize) + labels * LABEL_BYTES


def _as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return the nearest float32 of each number; infinite where there is none."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, np.float32)


class Dense:
    """A matrix that holds every value; zeros are left out."""

    def __init__(self, read: Reader, shape: tuple[int, int], unit: int = 1) -> None:
        self._read = read
        self.n_rows, self.n_columns = shape
        most = max(1, PIECE_VALUES // max(1, self.n_columns))
        whole = unit * max(1, most // unit)
        self._step = whole if whole * self.n_columns * 8 <= MAX_PIECE_BYTES else most

    @property
    def held(self) -> ReadingBytes:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        rows = min(self._step, self.n_rows)
        return ReadingBytes(rows * (self.n_columns * DENSE_BYTES + ROW_BYTES), CACHE_BYTES)

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        for start in range(0, self.n_rows, self._step):
            x = _as_float32(self._read(start, min(start + self._step, self.n_rows)))
            indptr = np.zeros(len(x) + 1, np.int64)
            columns, values = np.empty(x.size, np.int64), np.empty(x.size, np.float32)
            nonzeros(x, indptr, columns, values)
            yield Piece(start, indptr, columns[: indptr[-1]], values[: indptr[-1]])


class Sparse:
    """Compressed sparse rows.

    `indptr` is integers (n + 1,).
    """

    def __init__(
        self, indptr: NDArray[Any], indices: Reader, data: Reader, sizes: tuple[int, int],
        shape: tuple[int, int], path: Path,
    ) -> None:  # fmt: skip
        self._indptr = indptr.astype(np.int64)
        self._indices, self._data = indices, data
        self.n_rows, self.n_columns = shape
        falls, wrong = np.diff(self._indptr) < 0, ""
        if not 0 <= self.n_columns <= MOST_COLUMNS and self.n_columns != ANY_WIDTH:
            wrong = f"{self.n_columns:,} columns, 0 to {MOST_COLUMNS:,} are possible"
        elif self.n_rows < 0 or len(indptr) != self.n_rows + 1:
            wrong = f"{len(indptr):,} row pointers for {self.n_rows:,} rows, one more is expected"
        elif sizes[0] != sizes[1]:
            wrong = f"{sizes[0]:,} indices and {sizes[1]:,} values, as many are expected"
        elif self._indptr[0] != 0 or self._indptr[-1] != sizes[0]:
            wrong = (
                f"row pointers run from {self._indptr[0]:,} to {self._indptr[-1]:,}, "
                f"0 to {sizes[0]:,} is expected"
            )
        elif falls.any():
            wrong = f"row pointers fall after row {int(np.argmax(falls))} (counted from 0)"
        if wrong:
            hint = "Write the matrix again, in compressed sparse rows (CSR)."
            raise DataError(wrong, path=path, hint=hint)

    @property
    def held(self) -> ReadingBytes:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        indptr = self._indptr
        piece = sparse_piece(lambda a, b: indptr[a:b], len(indptr), int(indptr[-1]))
        return ReadingBytes(piece, CACHE_BYTES + 3 * indptr.nbytes)

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        start = 0
        while start < self.n_rows:
            a = int(self._indptr[start])
            fits = int(np.searchsorted(self._indptr, a + PIECE_VALUES, "right")) - 1
            stop = min(max(start + 1, fits), start + PIECE_ROWS, self.n_rows)
            b = int(self._indptr[stop])
            yield Piece(
                start, self._indptr[start : stop + 1] - a, self._indices(a, b).astype(np.int64),
                _as_float32(self._data(a, b)),
            )  # fmt: skip
            start = stop


def sparse_piece(indptr: Reader, n_pointers: int, n_values: int) -> int:
    """Return the bytes of a piece of compressed sparse rows on its way, at most."""
    longest = last = 0
    for start in range(0, n_pointers, PIECE_VALUES):
        ends = indptr(start, min(start + PIECE_VALUES, n_pointers)).astype(np.int64)
        longest = max(longest, int(np.diff(ends, prepend=last).max()))
        last = ends[-1]
    values = min(max(PIECE_VALUES, longest), n_values)
    return values * SPARSE_BYTES + min(PIECE_ROWS, n_pointers) * ROW_BYTES


Matrix = Dense | Sparse


@dataclass(frozen=True)
class OpenMatrix:
    """A matrix, its labels if it has any, and the names of its columns if not their numbers."""

    matrix: Matrix
    labels: AnyLabels
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


@dataclass(frozen=True)
class MatrixPiece:
    """Some rows, and the matrix that they are from."""

    rows: Piece
    opened: OpenMatrix
    n_read: int
    end: Place
    large: Large | None = None


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
    def opened(self) -> AbstractContextManager[OpenMatrix]:
        """Open the matrix for as long as a block runs."""

    def held(self) -> ReadingBytes:
        with self.opened() as opened:
            return opened.matrix.held

    def pieces(self, begin: Place = START) -> Iterator[MatrixPiece]:
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
        if self.columns is None:
            with self.opened() as opened:
                self.columns = opened.columns
        return self.columns.names

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> MatrixReader:
        return MatrixReader(self.path, vocabulary, label_needed=label_needed, strict=strict)


class MatrixReader:
    """Gives rows of a matrix the ids of a vocabulary; one thread at a time may use it.

    Its parameters are those of :meth:`Source.reader`; the path is for messages.
    """

    def __init__(
        self, path: Path, vocabulary: Vocabulary, *, label_needed: bool, strict: bool
    ) -> None:
        self._path, self._vocabulary = path, vocabulary
        self._label_needed, self._strict = label_needed, strict
        self._columns: Columns | None = None  # known with the first piece
        self._ids: NDArray[np.int32] | None = None  # of columns that are told by their places
        self._width = 0

    def read(self, piece: MatrixPiece) -> PieceRows:
        """Return the rows of a piece, or raise DataError if the labels do not fit."""
        labels, weights, rows = piece.opened.labels, piece.opened.weights, piece.rows
        if self._columns is None:
            self._check_labels(labels, piece.opened.matrix.n_rows)
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
            importance=np.ones(len(places), np.float32) if weights is None else weights[places],
            places=places, numbers=places - rows.first_row,
        ).with_labels(lists)  # fmt: skip
        return PieceRows(block, bad, unknown_values=unknown)

    def bad_row(self, piece: MatrixPiece, place: int, reason: str) -> BadRow:
        """Return a row, by its number, as a bad one."""
        return BadRow(reason=reason, line=place)

    def _columns_of(self, opened: OpenMatrix) -> Columns:
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
            ids = columns.ids(self._vocabulary, np.arange(self._width))
            known = None if self._vocabulary.add_features else self._vocabulary.feature_names()
            if known is not None and (remark := trained.remark(ids, opened.names, known)):
                warnings.warn(f"{clean(self._path)}: {remark}", stacklevel=2)
        return columns

    def _check_labels(self, labels: AnyLabels, n_rows: int) -> None:
        if labels is None and self._label_needed:
            hint = "Name a file with --labels, or where they are with --y-path."
            raise DataError("the rows have no labels", path=self._path, hint=hint)
        if labels is not None and len(labels) != n_rows:
            what = f"{len(labels):,} labels for {n_rows:,} rows"
            raise DataError(what, path=self._path, hint="Give a label for each row.")

    def _classes(
        self, labels: AnyLabels, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], LabelLists | None]:
        """Return the ids of the labels of rows, -1 where there is none; lists where they may be."""
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
        ids = np.full(len(found), -1, np.int32)
        ids[np.isin(found, usable)] = self._vocabulary.label_ids(labels.raws(usable))
        return ids[inverse]

    def _good(
        self, piece: Piece, n_columns: int, labels: AnyLabels
    ) -> tuple[NDArray[np.bool_], list[BadRow]]:
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
