"""Matrices and tables in memory as rows with a model's ids.

Columns of matrices are told by name, or by their place; tables are read by the model's recipe.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRows
from streammach.data.given import NUMBERS, Given
from streammach.data.source_options import SourceOptions
from streammach.data.tables.memory import MemorySource
from streammach.errors import DataError, UsageError
from streammach.model.model import Model
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.columns import ids_by_number
from streammach.rows.known import KnownFeatures
from streammach.rows.names import Label, Names
from streammach.rows.sparse import csr_array, is_sparse
from streammach.rows.trained import TrainedColumns
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.types import Multilabel

NAMES_HINT = "Say what they are: columns=NAMES."


class MatrixRows:
    """Gives the columns of matrices the ids of a model's features."""

    def __init__(self, known: KnownFeatures, trained: TrainedColumns) -> None:
        self._features, self._trained = known, trained
        self._known: tuple[object, NDArray[np.int32]] | None = None  # of the last matrix

    def block(self, rows: Any, columns: Sequence[Label] | None = None) -> RowBlock:
        """Return a matrix as rows without labels; what the model does not know is left out.

        `rows` is scipy sparse matrix or array (n, columns).
        """
        matrix = _checked(rows)
        ids = self._ids(matrix.shape[1], None if columns is None else tuple(columns))
        if matrix.shape[0] == 1:
            return self._features.row(ids[matrix.indices], matrix.data)
        return _with_ids(matrix, ids)

    def named(self, given: Given, unknown: NDArray[np.int64] | None = None) -> RowBlock:
        """Return rows whose features have names, such as dicts; unknown ones are left out.

        `unknown` is int64 (n,).
        """
        assert given.names is not None, "features with names"
        matrix, ids = _checked(given.matrix), self._features.ids_of(given.names)
        if unknown is None and ids.max(initial=-1) < 0 < len(ids):
            warnings.warn("the model knows no feature of these rows by its name", stacklevel=4)
        if unknown is not None:
            before = np.concatenate([[0], np.cumsum(ids[matrix.indices] < 0)])
            unknown[:] = np.diff(before[matrix.indptr])
        return _with_ids(matrix, ids)

    def _ids(self, n_columns: int, columns: tuple[Label, ...] | None) -> NDArray[np.int32]:
        """Return the feature of each column, -1 where it has none: int32 (n_columns,)."""
        wanted = n_columns if columns is None else columns
        if self._known is None or self._known[0] != wanted:
            found = (
                self._by_place(n_columns) if columns is None else self._by_name(n_columns, columns)
            )
            self._known = wanted, found
        return self._known[1]

    def _by_name(self, n_columns: int, columns: tuple[Label, ...]) -> NDArray[np.int32]:
        if len(columns) != n_columns:
            raise DataError(f"{len(columns):,} names for {n_columns:,} columns: columns")
        names = Names.of(columns)
        ids = self._features.ids_of(names)
        remark = self._trained.remark(ids, names, self._features.names)
        if remark:
            warnings.warn(remark, stacklevel=5)
        return ids

    def _by_place(self, n_columns: int) -> NDArray[np.int32]:
        wrong = self._trained.difference(n_columns)
        if wrong:
            raise DataError(wrong, hint=NAMES_HINT)
        ids = self._trained.ids()
        if ids is not None:
            return ids
        if not self._trained.n_columns and self._features.names.kind != "integer":
            raise DataError(
                "the model's features have names, and the matrix's columns none", hint=NAMES_HINT
            )
        return ids_by_number(self._features.names, n_columns)


class _Compressed(NamedTuple):
    """Compressed sparse rows, as scipy has them."""

    shape: tuple[int, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    data: NDArray[np.float32]


def _checked(rows: Any) -> Any:
    """Return a matrix as compressed sparse rows of float32, or raise DataError."""
    matrix = _compressed(rows)
    if len(matrix.shape) != 2:
        raise DataError(f"rows have the shape {matrix.shape}, (rows, columns) is expected")
    if not np.isfinite(matrix.data).all():
        raise DataError("a value is not a finite float32")
    return matrix


def _compressed(rows: Any) -> Any:
    """Return a matrix as compressed sparse rows of float32."""
    # What scipy does for one row takes as long as ranking it.
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in NUMBERS:
        where, columns = np.nonzero(rows)
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.bincount(where, minlength=len(rows)), out=indptr[1:])
        return _Compressed(rows.shape, indptr, columns, rows[where, columns].astype(np.float32))
    if is_sparse(rows) and rows.format == "csr" and rows.dtype == np.float32:
        return rows
    return csr_array(rows, dtype=np.float32)


def _with_ids(matrix: Any, ids: NDArray[np.int32]) -> RowBlock:
    """Return compressed sparse rows with the features of their columns, -1 for those left out."""
    n = matrix.shape[0]
    plain = RowBlock(
        indptr=matrix.indptr.astype(np.int64), features=matrix.indices.astype(np.int32),
        values=matrix.data, classes=np.full(n, -1, np.int32), numbers=np.arange(n),
    )  # fmt: skip
    return canonicalize(plain, ids)


class ModelTables:
    """Gives rows of tables the ids of a model's features."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._vocabulary: Vocabulary | None = None

    def block(
        self, rows: Any, unknown: NDArray[np.int64] | None = None, *, labelled: bool = False,
        bad_rows: BadRows | None = None,
    ) -> RowBlock:  # fmt: skip
        """Return a table as rows with the model's ids; what the model does not know is left out.

        `unknown` is int64 (n,).
        """
        model = self._model
        if model.recipe is None:
            raise no_recipe(None)
        vocabulary = self._vocabulary
        if vocabulary is None or labelled:
            vocabulary = Vocabulary(
                model.labels if labelled else None, model.features, add_labels=False,
                add_features=False, columns=model.columns,
            )  # fmt: skip
            self._vocabulary = None if labelled else vocabulary
        multilabel: Multilabel = "on" if model.listed else "off"
        table = MemorySource(rows, SourceOptions(recipe=model.recipe, multilabel=multilabel))
        return canonicalize(
            table.block(vocabulary, label_needed=labelled, unknown=unknown, bad_rows=bad_rows)
        )


def no_recipe(path: Path | None) -> UsageError:
    """Return what is said where a table is given to a model that was trained on none."""
    return UsageError(
        "the model was trained on no table: it has no recipe to read one",
        path=path,
        hint="Train it on a store that was converted from a table.",
    )
