"""Matrices, dense or compressed sparse, that are read in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels, LabelSets
from streammach.data.source import Large, MatrixColumns, Place, ReadingBytes
from streammach.errors import BudgetError, DataError, clean
from streammach.machine import memory_limit, size_text
from streammach.rows.columns import nonzeros
from streammach.rows.names import Names

PIECE_VALUES = 1 << 20  # read at a time
PIECE_ROWS = 1 << 18
DENSE_BYTES, SPARSE_BYTES = 42, 50  # of a value of a piece: as it is read, its column, ids
ROW_BYTES = 60  # of a row of a piece
CACHE_BYTES = 64 << 20  # of what libraries keep of a file
MAX_PIECE_BYTES = 256 << 20
ANY_WIDTH = int(np.iinfo(np.int64).max)  # columns of a matrix that does not say how many it has
MOST_COLUMNS = 2**48  # what a store can say

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
    def held(self) -> ReadingBytes:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in their order."""
        ...


def check_numbers(dtype: np.dtype[Any], path: Path, what: str, kinds: str = "biuf") -> None:
    """Raise DataError if items are not real numbers (or, for `kinds` "iu", integers)."""
    if dtype.kind not in kinds:
        wanted = "integers are" if kinds == "iu" else "real numbers are"
        hint = "Objects are pickles and are never read." if dtype.hasobject else None
        raise DataError(
            f"{clean(what)} has the type {dtype}, {wanted} expected", path=path, hint=hint
        )


def check_held(n_bytes: int, path: Path, what: str) -> None:
    """Raise BudgetError if an array that must be in memory as a whole does not fit it."""
    limit = memory_limit()
    if n_bytes > limit.n_bytes:
        raise BudgetError(
            f"{clean(what)} needs {size_text(n_bytes)} of memory, {size_text(limit.n_bytes)} may "
            f"be used ({limit.source})",
            path=path,
        )


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
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
            x = as_float32(self._read(start, min(start + self._step, self.n_rows)))
            indptr = np.zeros(len(x) + 1, np.int64)
            columns, values = np.empty(x.size, np.int64), np.empty(x.size, np.float32)
            nonzeros(x, indptr, columns, values)
            yield Piece(start, indptr, columns[: indptr[-1]], values[: indptr[-1]])


class Sparse:
    """Compressed sparse rows; a stored zero stays.

    `indptr` is integers (n + 1,).
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
            raise DataError(wrong, path=path, hint=hint)

    @property
    def held(self) -> ReadingBytes:
        """Bytes of a piece on its way, and of what is kept for all of them."""
        longest = int(np.diff(self._indptr).max(initial=0))
        values = min(max(PIECE_VALUES, longest), int(self._indptr[-1]))
        rows = min(PIECE_ROWS, self.n_rows)
        piece = values * SPARSE_BYTES + rows * ROW_BYTES
        return ReadingBytes(piece, CACHE_BYTES + 3 * self._indptr.nbytes)

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
class OpenMatrix:
    """A matrix, its labels if it has any, and the names of its columns if not their numbers.

    Names that are `spaced` are those of features as a store lists them, ``namespace^name``: places
    of such columns mean nothing.
    """

    matrix: Matrix
    labels: Labels | LabelSets | None
    names: Names | None = None
    spaced: bool = False

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
