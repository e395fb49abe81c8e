"""Rows of a matrix, dense or compressed sparse, as blocks with a vocabulary's ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels
from streammach.data.text import BadRows
from streammach.errors import BudgetError, DataError, clean
from streammach.machine import memory_limit, size_text
from streammach.rows.block import RowBlock
from streammach.rows.columns import Columns, first_bad, nonzeros
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary

PIECE_VALUES = 1 << 20  # read at a time
MAX_PIECE_BYTES = 256 << 20
OUT_OF_RANGE = "column '{}' is not from 0 to the number of columns - 1"
NOT_FINITE = "value '{}' is not a finite float32"
SKIP_HINT = "Correct the row, or let --on-bad-row skip leave such rows out."

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
        if len(indptr) != self.n_rows + 1:
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

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        start = 0
        while start < self.n_rows:
            a = int(self._indptr[start])
            fits = int(np.searchsorted(self._indptr, a + PIECE_VALUES, "right")) - 1
            stop = min(max(start + 1, fits), start + PIECE_VALUES, self.n_rows)
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


class MatrixSource(ABC):
    """A source whose rows are those of a matrix; its features are named by their columns.

    Parameters
    ----------
    path : Path
        The file or folder.
    """

    form: str
    note: str = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_rows = 0  # known once a block was read
        self._crc = google_crc32c.Checksum()

    @abstractmethod
    def opened(self) -> AbstractContextManager[Opened]:
        """Open the matrix for as long as a block runs."""

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    @property
    def fingerprint(self) -> dict[str, str | int]:
        """Name, format, bytes, and crc32c of the rows as they were read."""
        return {
            "name": self.path.name,
            "format": self.form,
            "bytes": self.n_bytes,
            "crc32c": self._crc.digest().hex(),
        }

    def blocks(
        self,
        vocabulary: Vocabulary,
        bad_rows: BadRows,
        *,
        label_needed: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[RowBlock]:
        """Yield the rows in their order.

        Parameters
        ----------
        vocabulary : Vocabulary
            Gives the ids; takes in new names where it may.
        bad_rows : BadRows
            The policy; counts what was left out.
        label_needed : bool
            Whether labels must be there.
        progress : callable, optional
            Told about how many of the file's bytes are read.

        Yields
        ------
        RowBlock
            Values float32; places are row numbers.

        Raises
        ------
        DataError
            For a bad row, unless these are skipped, and for a file that is damaged or in a form
            that is not read.
        DiskError
            If the file cannot be read.
        """
        self._crc = google_crc32c.Checksum()
        with self.opened() as opened:
            matrix, labels = opened.matrix, opened.labels
            self.n_rows = matrix.n_rows
            if labels is None and label_needed:
                hint = "Name a file with --labels, or where they are with --y-path."
                raise DataError("the rows have no labels", path=clean(self.path, 300), hint=hint)
            if labels is not None and len(labels.codes) != matrix.n_rows:
                raise DataError(
                    f"{len(labels.codes):,} labels for {matrix.n_rows:,} rows",
                    path=clean(self.path, 300),
                    hint="Give a label for each row.",
                )
            columns = Columns(matrix.n_columns, opened.names)
            for piece in matrix.pieces():
                for part in (piece.indptr, piece.columns, piece.values):
                    self._crc.update(part.tobytes())
                yield self._named(piece, matrix, labels, columns, vocabulary, bad_rows)
                if progress is not None:
                    done = piece.first_row + len(piece.indptr) - 1
                    progress(self.n_bytes * done // matrix.n_rows)

    def _named(
        self,
        piece: Piece,
        matrix: Matrix,
        labels: Labels | None,
        columns: Columns,
        vocabulary: Vocabulary,
        bad_rows: BadRows,
    ) -> RowBlock:
        """Return the good rows of a piece with the vocabulary's ids."""
        places = piece.first_row + np.arange(len(piece.indptr) - 1)
        codes = None if labels is None else labels.codes[places]
        good = self._good(piece, matrix.n_columns, labels, bad_rows)
        lengths = np.diff(piece.indptr)
        numbers, values = piece.columns, piece.values
        if not good.all():
            kept = np.repeat(good, lengths)
            numbers, values = numbers[kept], values[kept]
            lengths, places = lengths[good], places[good]
            codes = None if codes is None else codes[good]
        ids = columns.ids(vocabulary, numbers)
        if not vocabulary.add_features and (ids < 0).any():
            known = ids >= 0
            bad_rows.unknown_values += int((~known).sum())
            rows = np.repeat(np.arange(len(lengths)), lengths)[known]
            lengths = np.bincount(rows, minlength=len(lengths))
            ids, values = ids[known], values[known]
        indptr = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        classes = np.full(len(lengths), -1, np.int32)
        if labels is not None and codes is not None and len(codes):
            found, inverse = np.unique(codes, return_inverse=True)
            usable = [c for c in found.tolist() if c not in labels.refused]
            ids_of = dict.fromkeys(found.tolist(), -1)
            ids_of.update(
                zip(
                    usable,
                    vocabulary.label_ids([labels.names[c] for c in usable]).tolist(),
                    strict=True,
                )
            )
            classes = np.array([ids_of[c] for c in found.tolist()], np.int32)[inverse]
        weights = np.ones(len(lengths), np.float32)
        return RowBlock(indptr, ids, values, classes, weights, places)

    def _good(
        self, piece: Piece, n_columns: int, labels: Labels | None, bad_rows: BadRows
    ) -> NDArray[np.bool_]:
        """Return which rows can be taken; count the others, or refuse the first one."""
        n = len(piece.indptr) - 1
        bad = np.empty(n, np.int64)
        first_bad(piece.indptr, piece.columns, piece.values, n_columns, bad)
        good = bad < 0
        if labels is not None and labels.refused:
            codes = labels.codes[piece.first_row : piece.first_row + n]
            good &= ~np.isin(codes, list(labels.refused))
        for row in np.flatnonzero(~good).tolist():
            if bad[row] < 0:
                assert labels is not None
                reason, text = labels.refused[int(labels.codes[piece.first_row + row])]
            elif not 0 <= piece.columns[bad[row]] < n_columns:
                reason, text = OUT_OF_RANGE, str(piece.columns[bad[row]])
            else:
                reason, text = NOT_FINITE, str(piece.values[bad[row]])
            if not bad_rows.skip:
                raise DataError(
                    f"row {piece.first_row + row:,} (counted from 0): {reason.format(text)}",
                    path=clean(self.path, 300),
                    hint=SKIP_HINT,
                )
            bad_rows.reasons[reason.replace("'{}'", "...")] += 1
        return good
