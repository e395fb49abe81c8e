"""Rows of a matrix, dense or compressed sparse, as blocks with a vocabulary's ids."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.identity import ChangedError
from streammach.data.label_arrays import Labels
from streammach.data.source import START, Held, MatrixColumns, Part, Place, Source
from streammach.errors import BudgetError, DataError, clean
from streammach.machine import memory_limit, size_text
from streammach.rows.block import RowBlock
from streammach.rows.columns import Columns, first_bad, nonzeros
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary

PIECE_VALUES = 1 << 20  # read at a time
PIECE_ROWS = 1 << 18
DENSE_BYTES, SPARSE_BYTES = 42, 50  # of a value of a piece: as it is read, its column, ids
LABEL_BYTES = 24  # of the label of a row, as it is read and as the place of its name
ROW_BYTES = 60  # of a row of a piece
CACHE_BYTES = 64 << 20  # of what libraries keep of a file
MAX_PIECE_BYTES = 256 << 20
ANY_WIDTH = int(np.iinfo(np.int64).max)  # columns of a matrix that does not say how many it has
MOST_COLUMNS = 2**48  # what a store can say
OUT_OF_RANGE = "column '{}' is not from 0 to the number of columns - 1"
NOT_FINITE = "value '{}' is not a finite float32"

Reader = Callable[[int, int], NDArray[Any]]


@dataclass(frozen=True)
class Piece:
    """Some rows as a source holds them: row pointers from 0, columns, values."""

    first_row: int
    indptr: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]


class Matrix(Protocol):
    """Rows that are read in pieces."""

    n_rows: int
    n_columns: int

    @property
    def held(self) -> Held:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        ...


def check_numbers(dtype: np.dtype[Any], path: Path, what: str, kinds: str = "biuf") -> None:
    """Refuse an array whose items are not real numbers (or, for kinds "iu", integers).

    Raises
    ------
    DataError
        If they are not.
    """
    if dtype.kind not in kinds:
        wanted = "integers are" if kinds == "iu" else "real numbers are"
        hint = "Objects are pickles and are never read." if dtype.hasobject else None
        raise DataError(
            f"{clean(what)} has the type {dtype}, {wanted} expected",
            path=clean(path, 300),
            hint=hint,
        )


def check_held(n_bytes: int, path: Path, what: str) -> None:
    """Refuse an array that must be in memory as a whole and does not fit it.

    Raises
    ------
    BudgetError
        If it does not.
    """
    limit = memory_limit()
    if n_bytes > limit.n_bytes:
        raise BudgetError(
            f"{clean(what)} needs {size_text(n_bytes)} of memory, {size_text(limit.n_bytes)} may "
            f"be used ({limit.source})",
            path=clean(path, 300),
        )


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return the nearest float32 of each number; infinite where there is none."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, np.float32)


class Dense:
    """A matrix that holds every value; zeros are left out.

    Parameters
    ----------
    read : callable
        ``read(start, stop)`` returns these rows.
    shape : (int, int)
        Rows and columns.
    unit : int
        Rows that should be read together, such as those of a chunk.
    """

    def __init__(self, read: Reader, shape: tuple[int, int], unit: int = 1) -> None:
        self._read = read
        self.n_rows, self.n_columns = shape
        most = max(1, PIECE_VALUES // max(1, self.n_columns))
        whole = unit * max(1, most // unit)
        self._step = whole if whole * self.n_columns * 8 <= MAX_PIECE_BYTES else most

    @property
    def held(self) -> Held:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        rows = min(self._step, self.n_rows)
        return Held(rows * (self.n_columns * DENSE_BYTES + ROW_BYTES), CACHE_BYTES)

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        for start in range(0, self.n_rows, self._step):
            x = as_float32(self._read(start, min(start + self._step, self.n_rows)))
            indptr = np.zeros(len(x) + 1, np.int64)
            columns, values = np.empty(x.size, np.int64), np.empty(x.size, np.float32)
            nonzeros(x, indptr, columns, values)
            yield Piece(start, indptr, columns[: indptr[-1]], values[: indptr[-1]])


class Sparse:
    """Compressed sparse rows; a stored zero stays.

    Parameters
    ----------
    indptr : integers (n + 1,)
        Row pointers.
    indices, data : callable
        ``read(start, stop)`` returns these columns, these values; called in rising order.
    sizes : (int, int)
        How many columns and values there are.
    shape : (int, int)
        Rows and columns.
    path : Path
        For messages.

    Raises
    ------
    DataError
        If the row pointers do not fit the rest.
    """

    def __init__(
        self,
        indptr: NDArray[Any],
        indices: Reader,
        data: Reader,
        sizes: tuple[int, int],
        shape: tuple[int, int],
        path: Path,
    ) -> None:
        self._indptr = indptr.astype(np.int64)
        self._indices, self._data = indices, data
        self.n_rows, self.n_columns = shape
        wrong = ""
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
        elif (np.diff(self._indptr) < 0).any():
            row = int(np.argmax(np.diff(self._indptr) < 0))
            wrong = f"row pointers fall after row {row} (counted from 0)"
        if wrong:
            hint = "Write the matrix again, in compressed sparse rows (CSR)."
            raise DataError(wrong, path=clean(path, 300), hint=hint)

    @property
    def held(self) -> Held:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        longest = int(np.diff(self._indptr).max(initial=0))
        values = min(max(PIECE_VALUES, longest), int(self._indptr[-1]))
        rows = min(PIECE_ROWS, self.n_rows)
        piece = values * SPARSE_BYTES + rows * ROW_BYTES
        return Held(piece, CACHE_BYTES + 3 * self._indptr.nbytes)

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        start = 0
        while start < self.n_rows:
            a = int(self._indptr[start])
            fits = int(np.searchsorted(self._indptr, a + PIECE_VALUES, "right")) - 1
            stop = min(max(start + 1, fits), start + PIECE_ROWS, self.n_rows)
            b = int(self._indptr[stop])
            yield Piece(
                start,
                self._indptr[start : stop + 1] - a,
                self._indices(a, b).astype(np.int64),
                as_float32(self._data(a, b)),
            )
            start = stop


@dataclass(frozen=True)
class Opened:
    """A matrix, its labels if it has any, and the names of its columns if not their numbers."""

    matrix: Matrix
    labels: Labels | None
    names: Names | None = None

    @property
    def columns(self) -> MatrixColumns:
        """The columns; none where the matrix does not say how many there are."""
        n = self.matrix.n_columns
        return MatrixColumns(0 if n == ANY_WIDTH else n, self.names)


@dataclass(frozen=True)
class MatrixPiece:
    """Some rows, and the matrix that they are from."""

    rows: Piece
    opened: Opened
    n_read: int
    end: Place


class MatrixSource(Source[MatrixPiece]):
    """A source whose rows are those of a matrix; its features are named by their columns.

    Parameters
    ----------
    path : Path
        The file or folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_rows = 0  # known once a block was read

    @abstractmethod
    def opened(self) -> AbstractContextManager[Opened]:
        """Open the matrix for as long as a block runs."""

    def held(self) -> Held:
        """Return what reading it takes, rows that were read aside."""
        with self.opened() as opened:
            piece, whole = opened.matrix.held
            labels = 0 if opened.labels is None else LABEL_BYTES * len(opened.labels.codes)
            names = 0 if opened.names is None else 2 * opened.names.n_bytes
        return Held(piece, whole + labels + names)

    def pieces(self, begin: Place = START) -> Iterator[MatrixPiece]:
        """Yield the rows in their order.

        Rows before `begin` are read too: their digest is compared.
        """
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
            raise ChangedError("what was read before is not there", path=clean(self.path, 300))

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

    Parameters
    ----------
    path : Path
        The source, for messages.
    vocabulary : Vocabulary
        Gives the ids; takes in new names where it may.
    label_needed : bool
        Whether labels must be there.
    strict : bool
        Whether to stop at the first bad row of a piece.
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

    def read(self, piece: MatrixPiece) -> Part:
        """Return the rows of a piece.

        Raises
        ------
        DataError
            If there are no labels, or not one for each row.
        """
        matrix, labels, rows = piece.opened.matrix, piece.opened.labels, piece.rows
        if self._columns is None:
            self._check_labels(labels, matrix.n_rows)
            self._columns = self._columns_of(piece.opened)
        places = rows.first_row + np.arange(len(rows.indptr) - 1)
        codes = None if labels is None else labels.codes[places]
        good, bad = self._good(rows, self._width, labels)
        if bad and self._strict:
            good[:] = False
        lengths = np.diff(rows.indptr)
        numbers, values = rows.columns, rows.values.copy()  # rows belong to who reads them
        if not good.all():
            kept = np.repeat(good, lengths)
            numbers, values = numbers[kept], values[kept]
            lengths, places = lengths[good], places[good]
            codes = None if codes is None else codes[good]
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
        classes = self._classes(labels, codes, len(lengths))
        importance = np.ones(len(lengths), np.float32)
        return Part(
            RowBlock(indptr, ids, values, classes, importance, places, places - rows.first_row),
            bad, unknown_values=unknown,
        )  # fmt: skip

    def found_bad(self, piece: MatrixPiece, place: int, reason: str) -> BadRow:
        """Return a row, by its number, as a bad one."""
        return BadRow(reason, "", place, None)

    def _columns_of(self, opened: Opened) -> Columns:
        """Return what looks up the columns; those without names are the ones that were trained on.

        Raises
        ------
        DataError
            If they cannot be: there are more or fewer.
        """
        trained = self._vocabulary.columns
        self._width = opened.matrix.n_columns
        if opened.names is None:
            if self._width == ANY_WIDTH and trained.n_columns:
                self._width = trained.n_columns
            wrong = trained.difference(self._width)
            if wrong:
                hint = "Columns without names are told by their places."
                raise DataError(wrong, path=clean(self._path, 300), hint=hint)
            self._ids = trained.ids()
        columns = Columns(self._width, opened.names)
        if opened.names is not None and trained.n_columns:
            every = np.arange(opened.matrix.n_columns)
            remark = trained.remark(columns.ids(self._vocabulary, every))
            if remark and not self._vocabulary.add_features:
                warnings.warn(f"{clean(self._path)}: {remark}", stacklevel=2)
        return columns

    def _check_labels(self, labels: Labels | None, n_rows: int) -> None:
        if labels is None and self._label_needed:
            hint = "Name a file with --labels, or where they are with --y-path."
            raise DataError("the rows have no labels", path=clean(self._path, 300), hint=hint)
        if labels is not None and len(labels.codes) != n_rows:
            raise DataError(
                f"{len(labels.codes):,} labels for {n_rows:,} rows",
                path=clean(self._path, 300),
                hint="Give a label for each row.",
            )

    def _classes(
        self, labels: Labels | None, codes: NDArray[np.integer] | None, n: int
    ) -> NDArray[np.int32]:
        """Return the vocabulary's ids of the labels of `n` rows, -1 where there is none."""
        if labels is None or codes is None or not n:
            return np.full(n, -1, np.int32)
        found, inverse = np.unique(codes, return_inverse=True)
        usable = [c for c in found.tolist() if c not in labels.refused]
        ids_of = dict.fromkeys(found.tolist(), -1)
        given = self._vocabulary.label_ids([labels.names[c] for c in usable]).tolist()
        ids_of.update(zip(usable, given, strict=True))
        return np.array([ids_of[c] for c in found.tolist()], np.int32)[inverse]

    def _good(
        self, piece: Piece, n_columns: int, labels: Labels | None
    ) -> tuple[NDArray[np.bool_], list[BadRow]]:
        """Return which rows can be taken, and the others."""
        n = len(piece.indptr) - 1
        bad = np.empty(n, np.int64)
        first_bad(piece.indptr, piece.columns, piece.values, n_columns, bad)
        good = bad < 0
        if labels is not None and labels.refused:
            codes = labels.codes[piece.first_row : piece.first_row + n]
            good &= ~np.isin(codes, list(labels.refused))
        refused = []
        for row in np.flatnonzero(~good).tolist():
            if bad[row] < 0:
                assert labels is not None
                reason, text = labels.refused[int(labels.codes[piece.first_row + row])]
            elif not 0 <= piece.columns[bad[row]] < n_columns:
                reason, text = OUT_OF_RANGE, str(piece.columns[bad[row]])
            else:
                reason, text = NOT_FINITE, str(piece.values[bad[row]])
            refused.append(BadRow(reason, text, piece.first_row + row, None))
        return good, refused
