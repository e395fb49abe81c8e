"""Matrices, dense or compressed sparse, in a file or in memory: read in blocks of sparse rows."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.matrices.named_arrays import (
    MAX_CHUNK_BYTES,
    SPARSE_PARTS,
    MemoryArray,
    StoredArray,
    check_numbers,
    find_missing,
)
from streammach.inputs.source import ReadingBytes
from streammach.rows.arrays import csr_array
from streammach.rows.columns import nonzeros
from streammach.system.errors import DataError

PIECE_VALUES = 1 << 20  # read at a time
PIECE_ROWS = 1 << 18
DENSE_BYTES, SPARSE_BYTES = 42, 50  # of a value of a block: as it is read, its column, ids
ROW_BYTES = 60  # of a row of a block
POINTER_BYTES = 32  # of a row's pointer, as it is read, kept and compared
BOTH_WAYS_BYTES = 44  # of a value of a matrix by columns, as it is read, by columns and by rows
CACHE_BYTES = 64 << 20  # of what libraries keep of a file
ANY_WIDTH = int(np.iinfo(np.int64).max)  # columns of a matrix that does not say how many it has
MOST_COLUMNS = 2**48  # what a store can say


class MatrixRows(NamedTuple):
    """Some rows as a matrix holds them."""

    first_row: int
    indptr: NDArray[np.int64]  # from 0
    columns: NDArray[np.int64]
    values: NDArray[np.float32]


class DenseMatrix:
    """A matrix that holds every value; zeros and values that stand for missing ones are left out.

    An image or a cube of numbers is a row of all its cells, in the order of NumPy (C).
    """

    def __init__(self, array: StoredArray, fills: list[Any] | None = None) -> None:
        self._array, self._fills = array, fills
        self.n_rows, self.n_columns = array.shape[0], count_cells(array.shape)
        most = max(1, PIECE_VALUES // max(1, self.n_columns))
        whole = array.unit * max(1, most // array.unit)
        self._step = whole if whole * self.n_columns * 8 <= MAX_CHUNK_BYTES else most

    @property
    def reading_bytes(self) -> ReadingBytes:
        """Bytes of a block of rows on its way, and of what is kept for all of them."""
        n_rows = min(self._step, self.n_rows)
        return ReadingBytes(n_rows * (self.n_columns * DENSE_BYTES + ROW_BYTES), CACHE_BYTES)

    def find_end(self, begin: int) -> int:
        """Return where the block of rows ends that begins at a row."""
        return min(begin + self._step, self.n_rows)

    def rows(self, begin: int, end: int) -> MatrixRows:
        """Return rows, or raise DataError or DiskError."""
        values = self._array.read(begin, end).reshape(end - begin, self.n_columns)
        if self._fills:
            values = np.where(find_missing(values, self._fills), 0, values)
        x = _to_float32(values)
        indptr = np.zeros(len(x) + 1, np.int64)
        columns, kept = np.empty(x.size, np.int64), np.empty(x.size, np.float32)
        nonzeros(x, indptr, columns, kept)
        return MatrixRows(begin, indptr, columns[: indptr[-1]], kept[: indptr[-1]])


class SparseMatrix:
    """Compressed sparse rows: `parts` are data, indices and indptr; `shape` may be unknown."""

    def __init__(
        self, parts: tuple[StoredArray, StoredArray, StoredArray], shape: tuple[int, int] | None,
        path: Path,
    ) -> None:  # fmt: skip
        for name, array in zip(SPARSE_PARTS, parts, strict=True):
            array.check()
            check_numbers(array.dtype, path, name, "biuf" if name == "data" else "iu")
            if len(array.shape) != 1:
                what = f"{name} has the shape {array.shape}, one axis is expected"
                raise DataError(what, path=path)
        self._path, (self.data, self.indices, self.indptr) = path, parts
        n_pointers = self.indptr.shape[0]
        self.n_rows, self.n_columns = shape or (n_pointers - 1, ANY_WIDTH)
        n_indices, n_values = self.indices.shape[0], self.data.shape[0]
        if not 0 <= self.n_columns <= MOST_COLUMNS and self.n_columns != ANY_WIDTH:
            raise self._error(f"{self.n_columns:,} columns, 0 to {MOST_COLUMNS:,} are possible")
        if self.n_rows < 0 or n_pointers != self.n_rows + 1:
            pointers = f"{n_pointers:,} row pointers for {self.n_rows:,} rows"
            raise self._error(f"{pointers}, one more is expected")
        if n_indices != n_values:
            raise self._error(
                f"{n_indices:,} indices and {n_values:,} values, as many are expected"
            )

    @property
    def reading_bytes(self) -> ReadingBytes:
        """Bytes of a block of rows on its way, and of what is kept for all of them."""
        n_pointers, n_values = self.indptr.shape[0], self.indices.shape[0]
        longest = last = 0
        for start in range(0, n_pointers, PIECE_VALUES):  # they may be more than fit the memory
            ends = self.indptr.read(start, min(start + PIECE_VALUES, n_pointers)).astype(np.int64)
            longest = max(longest, int(np.diff(ends, prepend=last).max()))
            last = ends[-1]
        values = min(max(PIECE_VALUES, longest), n_values)
        block = values * SPARSE_BYTES + min(PIECE_ROWS, n_pointers) * ROW_BYTES
        return ReadingBytes(block, CACHE_BYTES + n_pointers * POINTER_BYTES)

    @cached_property
    def _pointers(self) -> NDArray[np.int64]:
        pointers = self.indptr.read(0, self.indptr.shape[0]).astype(np.int64, copy=False)
        first, last, end = int(pointers[0]), int(pointers[-1]), self.indices.shape[0]
        if first != 0 or last != end:
            raise self._error(
                f"row pointers run from {first:,} to {last:,}, 0 to {end:,} is expected"
            )
        falls = pointers[1:] < pointers[:-1]
        if falls.any():
            row = int(np.argmax(falls))
            raise self._error(f"row pointers fall after row {row} (counted from 0)")
        return pointers

    def _error(self, what: str) -> DataError:
        hint = "Write the matrix again, in compressed sparse rows (CSR)."
        return DataError(what, path=self._path, hint=hint)

    def find_end(self, begin: int) -> int:
        """Return where the block of rows ends that begins at a row."""
        ends = self._pointers
        fits = int(np.searchsorted(ends, ends[begin] + PIECE_VALUES, "right")) - 1
        return min(max(begin + 1, fits), begin + PIECE_ROWS, self.n_rows)

    def rows(self, begin: int, end: int) -> MatrixRows:
        """Return rows, or raise DataError or DiskError."""
        start, stop = int(self._pointers[begin]), int(self._pointers[end])
        columns = self.indices.read(start, stop).astype(np.int64)
        values = _to_float32(self.data.read(start, stop))
        return MatrixRows(begin, self._pointers[begin : end + 1] - start, columns, values)


class MatrixByColumns(SparseMatrix):
    """Compressed sparse columns, which are brought into rows in memory, whole."""

    def __init__(self, columns: SparseMatrix) -> None:
        self.__dict__ |= columns.__dict__  # whose rows are the columns
        self._columns, self.n_rows, self.n_columns = columns, columns.n_columns, columns.n_rows

    @property
    def reading_bytes(self) -> ReadingBytes:
        """Bytes of a block of rows on its way, and of what is kept for all of them."""
        (piece, whole), n_values = self._columns.reading_bytes, self._columns.data.shape[0]
        own = n_values * BOTH_WAYS_BYTES + self.n_rows * POINTER_BYTES
        return ReadingBytes(piece, whole + own)

    @cached_property
    def _pointers(self) -> NDArray[np.int64]:
        _, indptr, rows, values = self._columns.rows(0, self.n_columns)
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.n_rows:
            raise self._error(f"a column has a row that is none of {self.n_rows:,}")
        m = csr_array((values, rows, indptr), shape=(self.n_columns, self.n_rows)).T.tocsr()
        self.data, self.indices = MemoryArray(m.data), MemoryArray(m.indices)
        return np.asarray(m.indptr, np.int64)


Matrix = DenseMatrix | SparseMatrix


def count_cells(shape: tuple[int, ...]) -> int:
    """Return how many numbers a row has: of an image all of its cells."""
    return math.prod(shape[1:])


def _to_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return the nearest float32 of each number; infinite where there is none."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, np.float32)
