"""Matrices and tables in memory as rows with a model's ids."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.identity import PLACE
from streammach.inputs.source_options import SourceOptions, TableOptions
from streammach.inputs.tables import memory_objects
from streammach.inputs.tables.memory_objects import as_rows, is_table
from streammach.inputs.tables.memory_tables import MemorySource
from streammach.inputs.tables.word_places import Places, add_places
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.options.types import Multilabel
from streammach.rows.arrays import csr_array, is_sparse
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.columns import ids_by_number
from streammach.rows.known import KnownFeatures
from streammach.rows.names import Label, Names
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, UsageError


class ModelRows:
    """Gives rows in memory the ids of a model's features; what it does not know is left out."""

    def __init__(self, model: Model) -> None:
        self._model, self.features = model, KnownFeatures(model.features)
        self._last: tuple[object, NDArray[np.int32]] | None = None  # columns of the last matrix
        self._vocabulary: Vocabulary | None = None

    def block(
        self, rows: Any, columns: Sequence[Label] | None = None,
        unknown: NDArray[np.int64] | None = None, bad_rows: BadRows | None = None,
    ) -> RowBlock:  # fmt: skip
        """Return rows of any kind; `unknown` int64 (n,) counts what is left out of each row.

        `bad_rows` says whether rows of a table that cannot be read are left out.
        """
        rows = as_rows(rows)
        if is_sparse(rows) or columns is not None:
            return self.matrix(rows, columns)
        if self._model.recipe is not None and is_table(rows):
            return self.table(rows, unknown, bad_rows=bad_rows)
        if memory_objects.is_recipe_table(rows, None, TableOptions()):
            raise no_recipe(None)
        given = memory_objects.to_matrix(rows)
        if given.names is None:
            return self.matrix(given.matrix)
        if not isinstance(rows, list):
            return self.matrix(given.matrix, given.names.raws(np.arange(given.shape[1])))
        matrix, ids = _check_matrix(given.matrix), self.features.ids_of(given.names)  # dicts
        if unknown is None and ids.max(initial=-1) < 0 < len(ids):
            warnings.warn("the model knows no feature of these rows by its name", stacklevel=3)
        if unknown is not None:
            before = np.concatenate([[0], np.cumsum(ids[matrix.indices] < 0)])
            unknown[:] = np.diff(before[matrix.indptr])
        return _with_ids(matrix, ids)

    def matrix(self, rows: Any, columns: Sequence[Label] | None = None) -> RowBlock:
        """Return a scipy sparse matrix or an array (n, columns)."""
        matrix = _check_matrix(rows)
        if columns is not None:
            check_options({"columns": "Sequence[Label]"}, {"columns": columns})
        names = matrix.shape[1] if columns is None else tuple(columns)
        if self._last is None or self._last[0] != names:
            self._last = names, self._ids(matrix.shape[1], columns)
        ids = self._last[1]
        if matrix.shape[0] == 1:
            return self.features.row(ids[matrix.indices], matrix.data)
        return _with_ids(matrix, ids)

    def _ids(self, n_columns: int, columns: Sequence[Label] | None) -> NDArray[np.int32]:
        """Return the feature of each column, by name or place; -1 where it has none."""
        trained, known = self._model.columns, self.features.names
        if columns is not None:
            if len(columns) != n_columns:
                raise DataError(f"{len(columns):,} names for {n_columns:,} columns: columns")
            names = Names.of(columns)
            ids = self.features.ids_of(names)
            remark = trained.remark(ids, names, known)
            if remark:
                warnings.warn(remark, stacklevel=5)
            return ids
        wrong, own = trained.difference(n_columns), trained.ids()
        if not wrong and own is None and not trained.n_columns and known.kind != "integer":
            wrong = "the model's features have names, and the matrix's columns none"
        if wrong:
            raise DataError(wrong, hint="Say what they are: columns=NAMES.")
        return ids_by_number(known, n_columns) if own is None else own

    def places(self, rows: Any, reasons: NDArray[Any]) -> list[Places]:
        """Return where the features of reasons (n, k) stand in texts of a table; nothing else."""
        recipe = self._model.recipe
        if recipe is None or isinstance(rows, RowBlock) or not is_table(rows := as_rows(rows)):
            return []
        every = (np.unique(own[own >= 0]) for own in reasons["features"])
        found: list[Places] = [{str(f): [] for f in self._model.features.values(i)} for i in every]
        add_places(rows, recipe, found)
        return found

    def table(
        self, rows: Any, unknown: NDArray[np.int64] | None = None, *, labelled: bool = False,
        bad_rows: BadRows | None = None,
    ) -> RowBlock:  # fmt: skip
        """Return a table, which the model's recipe reads."""
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
        block = table.block(vocabulary, label_needed=labelled, unknown=unknown, bad_rows=bad_rows)
        return canonicalize(block, None, model.says)


class _Compressed(NamedTuple):
    """Compressed sparse rows, as scipy has them."""

    shape: tuple[int, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    data: NDArray[np.float32]


def _check_matrix(rows: Any) -> Any:
    """Return a matrix as compressed sparse rows of float32, or raise DataError."""
    # What scipy does for one row takes as long as ranking it.
    if isinstance(rows, np.ndarray) and rows.dtype.kind in memory_objects.NUMBERS:
        where, columns = np.nonzero(rows)
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.bincount(where, minlength=len(rows)), out=indptr[1:])
        data = rows[where, columns].astype(np.float32)
        matrix: Any = _Compressed(rows.shape, indptr, columns, data)
    elif is_sparse(rows) and rows.format == "csr" and rows.dtype == np.float32:
        matrix = rows
    else:
        try:
            matrix = csr_array(rows, dtype=np.float32)
        except (TypeError, ValueError):
            raise DataError("rows are no matrix of numbers") from None
    finite = np.isfinite(matrix.data)
    if not finite.all():
        place = int(np.argmin(finite))
        row = int(np.searchsorted(matrix.indptr, place, "right")) - 1
        what = f"value '{matrix.data[place]}' is not a finite float32"
        raise DataError(f"row {row:,} (counted from 0): {what}", path=PLACE)
    return matrix


def _with_ids(matrix: Any, ids: NDArray[np.int32]) -> RowBlock:
    """Return compressed sparse rows with the features of their columns, -1 for those left out."""
    n = matrix.shape[0]
    plain = RowBlock(
        indptr=matrix.indptr.astype(np.int64), features=matrix.indices.astype(np.int32),
        values=matrix.data, classes=np.full(n, -1, np.int32), numbers=np.arange(n),
    )  # fmt: skip
    return canonicalize(plain, ids)


def no_recipe(path: Path | None) -> UsageError:
    """Return what is said where a table is given to a model that was trained on none."""
    what = "the model was trained on no table: it has no recipe to read one"
    return UsageError(what, path=path, hint="Train it on a store that was converted from a table.")
