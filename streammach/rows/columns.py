"""Feature ids of the columns of a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.rows.layouts import ends
from streammach.rows.names import NO_COLUMNS, Names, TrainedColumns
from streammach.rows.texts import Texts
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError
from streammach.system.jit import Array, kernel

KEPT_COLUMNS = 1 << 22  # ids of more columns are looked up each time, so that memory is bounded
NOT_YET = -2


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
    """Return a store's features' ids, int32 (d,): by name, or by place of columns without one."""
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

    def __init__(
        self, n_columns: int, names: Names | None = None, known: NDArray[np.int32] | None = None
    ) -> None:
        assert names is None or len(names) == n_columns, "a name for each column"
        self._ids = np.full(min(n_columns, KEPT_COLUMNS), NOT_YET, np.int32)
        self._names = names
        self._known = known  # int32 (n,) or None: the features of all columns

    @classmethod
    def of_features(cls, names: Names, vocabulary: Vocabulary) -> Columns:
        """Return columns that are features as a store lists them, ``namespace^name``.

        The vocabulary takes in all of them where it may.
        """
        if vocabulary.add_features:
            vocabulary.take_in("features", names)
        return cls(len(names), known=vocabulary.feature_names().ids_of(names))

    def ids(self, vocabulary: Vocabulary, columns: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return each column's feature id, int32 (n,); new ones are taken in where that may be."""
        if self._known is not None:
            return self._known[columns]
        kept = columns < len(self._ids)
        out = np.full(len(columns), NOT_YET, np.int32)
        out[kept] = self._ids[columns[kept]]
        left = np.flatnonzero(out == NOT_YET)
        if len(left):
            new, first, which = np.unique(columns[left], return_index=True, return_inverse=True)
            order = np.argsort(first)  # ids are given in the order in which columns are met
            found = np.empty(len(new), np.int32)
            found[order] = vocabulary.whole_ids(
                "features", self._texts(new[order]), add=vocabulary.add_features
            )
            out[left] = found[which]
            keep = new < len(self._ids)
            self._ids[new[keep]] = found[keep]
        return out

    def _texts(self, columns: NDArray[np.int64]) -> Texts:
        if self._names is not None:
            return self._names.take(columns)
        digits = columns.astype(bytes)
        data = digits.view(np.uint8)
        return Texts(ends(np.char.str_len(digits)), data[data != 0])


@kernel(fastmath=False)  # fast math may take NaN for 0
def nonzeros(x: Array, indptr: Array, columns: Array, values: Array) -> None:
    """Write what is not 0 in a matrix as sparse rows.

    Parameters
    ----------
    x, indptr, columns, values : float32 (n, d), int64 (n + 1,), int64 (n * d,), float32 (n * d,)
        The matrix; the others receive the rows.
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
