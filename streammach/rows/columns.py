"""Feature ids of the columns of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DataError
from streammach.jit import Array, kernel
from streammach.rows.name_table import NameTable, find, find_or_add, hash_name, padded
from streammach.rows.names import NO_COLUMNS, Names, TrainedColumns
from streammach.rows.vocabulary import Vocabulary

KEPT_COLUMNS = 1 << 22  # ids of more columns are looked up each time, so that memory is bounded
NOT_YET = -2
DIGITS = 20  # of the largest int64


def trained_columns(features: Names, n_columns: int, names: Names | None) -> TrainedColumns:
    """Return what is remembered of the columns of a matrix.

    Columns that share a name cannot be told by their places: then nothing is remembered.
    """
    if names is None:
        return TrainedColumns(n_columns)
    vocabulary = Vocabulary(features=features, add_features=False)
    ids = Columns(n_columns, names).ids(vocabulary, np.arange(n_columns))
    positions = np.full(len(features), -1, np.int32)
    known = np.flatnonzero(ids >= 0)
    positions[ids[known]] = known
    if np.count_nonzero(positions >= 0) < len(known):
        return NO_COLUMNS
    return TrainedColumns(n_columns, positions)


def ids_by_number(features: Names, n_columns: int) -> NDArray[np.int32]:
    """Return the ids of the features that are named by the numbers of columns: int32 (n,)."""
    vocabulary = Vocabulary(features=features, add_features=False)
    return Columns(n_columns).ids(vocabulary, np.arange(n_columns))


def ids_of_features(
    known: Names, trained: TrainedColumns, others: Names, columns: TrainedColumns
) -> NDArray[np.int32]:
    """Return the ids of a store's features: by name, or by place where its columns have no names.

    Returns int32 (len(others),).
    """
    if not columns.n_columns or columns.positions is not None:
        return known.ids_of(others)
    wrong = trained.difference(columns.n_columns)
    if wrong:
        raise DataError(wrong, hint="Columns without names are told by their places.")
    places = trained.ids()
    if places is None:
        return known.ids_of(others)
    numbers = np.array([int(others.raw(i)) for i in range(len(others))], np.int64)
    return places[numbers]


class Columns:
    """Looks up the columns of a matrix in a vocabulary, as features without a namespace."""

    def __init__(self, n_columns: int, names: Names | None = None) -> None:
        assert names is None or len(names) == n_columns, "a name for each column"
        self._ids = np.full(min(n_columns, KEPT_COLUMNS), NOT_YET, np.int32)
        self._digits = np.zeros(DIGITS + 8, np.uint8)
        self._offsets = np.zeros(1, np.int64) if names is None else names.offsets
        self._names = self._digits if names is None else padded(names.data)

    def ids(self, vocabulary: Vocabulary, columns: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the feature id of each column; the vocabulary takes in new ones where it may.

        `columns` is int64 (n,). Returns int32 (n,).
        """
        out = np.empty(len(columns), np.int32)
        done = 0
        while done < len(columns):
            done = _column_ids(
                columns, done, self._ids, self._digits, self._offsets, self._names,
                vocabulary.features, vocabulary.add_features, out,
            )  # fmt: skip
            if done < len(columns):
                vocabulary.grow()
        return out


class SpacedColumns(Columns):
    """Looks up columns that are features as a store lists them, ``namespace^name``."""

    def __init__(self, names: Names) -> None:
        super().__init__(len(names))
        self._listed = names
        self._found: NDArray[np.int32] | None = None

    def ids(self, vocabulary: Vocabulary, columns: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the feature id of each column; the vocabulary takes in all where it may."""
        if self._found is None:
            if vocabulary.add_features:
                vocabulary.take_in("features", self._listed)
            self._found = vocabulary.feature_names().ids_of(self._listed)
        return self._found[columns]


@kernel()
def _column_ids(
    columns: Array, first: int, known: Array, digits: Array, offsets: Array, names: Array,
    table: NameTable, add: bool, out: Array,
) -> Any:  # fmt: skip
    """Write the ids of the columns from `first` on; return where the table was full, or the end.

    With one entry in `offsets` int64 (1 or d + 1,), columns are named by their numbers.
    """
    for i in range(first, columns.shape[0]):
        column = columns[i]
        if column < known.shape[0] and known[column] != NOT_YET:
            out[i] = known[column]
            continue
        if offsets.shape[0] > 1:
            start, stop, text = offsets[column], offsets[column + 1], names
        else:
            start, stop, text = np.int64(DIGITS), np.int64(DIGITS), digits
            rest = column
            while rest > 0 or start == DIGITS:
                start -= 1
                digits[start] = 48 + rest % 10
                rest //= 10
        size = stop - start
        state = hash_name(text, start, size, 0)
        if add:
            found = find_or_add(table, text, start, size, 0, state)
            if found < 0:
                return i
        else:
            found = find(table, text, start, size, 0, state)[0]
        out[i] = found
        if column < known.shape[0]:
            known[column] = found
    return columns.shape[0]


@kernel(fastmath=False)  # fast math may take NaN for 0
def nonzeros(x: Array, indptr: Array, columns: Array, values: Array) -> None:
    """Write what is not 0 in a matrix as sparse rows.

    Parameters
    ----------
    x : float32 (n, d)
        The matrix.
    indptr : int64 (n + 1,)
        Receives the row pointers.
    columns, values : int64 and float32 (n * d,)
        Receive the columns and values.
    """
    n = np.int64(0)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] != 0:
                columns[n], values[n] = j, x[i, j]
                n += 1
        indptr[i + 1] = n


@kernel(fastmath=False)
def first_bad(indptr: Array, columns: Array, values: Array, n_columns: int, bad: Array) -> None:
    """Write the place of each row's first value that is bad into `bad` int64 (n,), or -1."""
    # Bad is a column which is not in the matrix, or a value which is not finite.
    for i in range(bad.shape[0]):
        bad[i] = -1
        for p in range(indptr[i], indptr[i + 1]):
            if not 0 <= columns[p] < n_columns or not np.isfinite(values[p]):
                bad[i] = p
                break
