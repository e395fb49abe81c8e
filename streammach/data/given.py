"""What people hold in memory as rows: matrices, tables of numbers, and dicts of names to values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.held import PLACE
from streammach.errors import DataError, UsageError, clean
from streammach.rows.arrays import MOST_IMPORTANCE, csr_array, is_sparse
from streammach.rows.names import MAX_NAME, Label, Names

NUMBERS = "biuf"
FORMS = "a matrix, a DataFrame of numbers or a list of dicts is expected"


@dataclass(frozen=True)
class Given:
    """Rows as they were given, and the names of their columns if these are not their numbers."""

    matrix: Any  # csr_array or array (n, columns): the values, of any type of real numbers
    names: Names | None = None  # the columns' names
    # whether these are names of features as stores list them, `namespace^name`: those of a table.
    # Otherwise they are features without a namespace
    spaced: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether the matrix is one of compressed sparse rows."""
        return is_sparse(self.matrix)

    @cached_property
    def nnz(self) -> int:
        """Number of values that are not 0, or that are stored."""
        return int(self.matrix.nnz if self.sparse else np.count_nonzero(self.matrix))

    @property
    def n_bytes(self) -> int:
        """Bytes of the matrix."""
        m = self.matrix
        return sum(a.nbytes for a in ((m.data, m.indices, m.indptr) if self.sparse else (m,)))


def given_rows(rows: Any, columns: Sequence[Label] | None = None) -> Given:
    """Return what people gave as rows: the one place that tells what it is.

    `rows` is scipy sparse matrix, array (n, columns), DataFrame, or sequence of dicts.
    """
    if _are_dicts(rows):
        return _of_dicts(rows)
    names = columns
    if hasattr(rows, "to_numpy") and hasattr(rows, "columns"):
        found = list(rows.columns)
        if names is None and all(isinstance(name, str) for name in found):
            names = found
        rows = rows.to_numpy()
    matrix = rows.tocsr() if is_sparse(rows) else np.asarray(rows)
    if matrix.ndim < 2:
        what = f"rows are expected, here is one, or none: {FORMS}"
        raise DataError(what, path=PLACE, hint="Give a list of rows, for one row: [row].")
    if matrix.ndim != 2:
        raise DataError(f"rows have the shape {matrix.shape}: {FORMS}", path=PLACE)
    if matrix.dtype.kind not in NUMBERS:
        raise DataError(f"rows have the type {matrix.dtype}: {FORMS}", path=PLACE)
    if names is not None and len(names) != matrix.shape[1]:
        raise UsageError(f"{len(names):,} names for {matrix.shape[1]:,} columns: columns")
    return Given(matrix, None if names is None else _names(list(names)))


def _are_dicts(rows: Any) -> bool:
    if isinstance(rows, np.ndarray) and rows.dtype == object and rows.ndim == 1:
        rows = rows.tolist()
    if not isinstance(rows, list | tuple) or not rows:
        return False
    return isinstance(rows[0], Mapping)


def _of_dicts(rows: Sequence[Mapping[Label, Any]]) -> Given:
    """Return dicts as a matrix with a column for each name, in the order in which they come."""
    places: dict[bytes, int] = {}
    indptr, indices, data = [0], list[int](), list[float]()
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            what = f"row {number:,} (counted from 0) is no dict: {clean(type(row).__name__)}"
            raise DataError(what, path=PLACE)
        for name, value in row.items():
            own, one = _feature(name, value, number)
            indices.append(places.setdefault(own, len(places)))
            data.append(one)
        indptr.append(len(indices))
    shape = (len(rows), len(places))
    arrays = (np.array(data, np.float64), np.array(indices, np.int32), np.array(indptr, np.int64))
    return Given(csr_array(arrays, shape=shape), _names(list(places)))


def _feature(name: Label, value: Any, row: int) -> tuple[bytes, float]:
    """Return the feature of an entry of a dict, and its value."""
    own = _raw(name)
    if isinstance(value, str):
        return own + b"=" + value.encode("utf-8", "surrogatepass"), 1.0
    try:
        return own, float(value)
    except (TypeError, ValueError):
        what = f"'{clean(value, 40)}' of '{clean(name, 40)}' in row {row:,} (counted from 0)"
        raise DataError(f"{what} is no number and no string", path=PLACE) from None


def _names(names: list[Any]) -> Names:
    raws = [_raw(name) for name in names]
    for raw in raws:
        if not 0 < len(raw) <= MAX_NAME:
            what = f"the name of a column has {len(raw):,} bytes, 1 to {MAX_NAME:,} are possible"
            raise DataError(what, path=PLACE)
    if len(set(raws)) < len(raws):
        twice = next(name for i, name in enumerate(raws) if name in raws[:i])
        raise DataError(f"two columns are called '{clean(twice, 60)}'", path=PLACE)
    return Names.of(raws)


def _raw(name: Label) -> bytes:
    return name if isinstance(name, bytes) else str(name).encode("utf-8", "surrogatepass")


def without_weightless(rows: Any, labels: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights, given in any form, without rows of weight 0."""
    n = int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
    found = given_weights(weights, n)
    if found is None or found.all():
        return rows, labels, weights
    kept = np.flatnonzero(found)
    if not len(kept):
        raise DataError("all weights of rows are 0: nothing can be learnt")
    weights = np.broadcast_to(weights, n)
    return some_of(rows, kept), some_of(labels, kept), some_of(weights, kept)


def some_of(given: Any, chosen: NDArray[np.int64]) -> Any:
    """Return some rows, labels or weights; a column's name stays one."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list | tuple):
        return [given[i] for i in chosen.tolist()]
    if hasattr(given, "iloc"):
        return given.iloc[chosen]
    if hasattr(given, "to_pylist"):  # of Arrow
        return given.take(chosen)
    if hasattr(given, "tocsr"):
        return given.tocsr()[chosen]
    return (given if hasattr(given, "shape") else np.asarray(given))[chosen]


def given_weights(weights: Any, n_rows: int) -> NDArray[np.float32] | None:
    """Return a weight for each row, None where all are 1, or raise DataError.

    `weights` is array (n,), number or None.
    """
    if weights is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(weights, np.float32)
    if found.ndim == 0:
        found = np.full(n_rows, found)
    if found.shape != (n_rows,):
        raise DataError(f"weights have the shape {found.shape}, ({n_rows:,},) is expected")
    if not ((found >= 0) & (found <= MOST_IMPORTANCE)).all():
        what = "a weight of a row is not a number from 0 to 1e9"
        raise DataError(what, hint="Divide all weights by one number.")
    return None if (found == 1).all() else found
