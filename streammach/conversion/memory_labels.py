"""Labels of any type and weights of rows in memory, and rows of any kind by their numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import PLACE
from streammach.inputs.label_arrays import Labels
from streammach.inputs.tables.memory_objects import NamedMatrix, cells_of
from streammach.inputs.tables.values import canonical, is_missing
from streammach.options.recipe import Recipe
from streammach.rows.arrays import MOST_IMPORTANCE, fetch_array, is_sparse
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import values_of
from streammach.system.errors import DataError, clean, type_name

WHAT = "the array of labels"
OBJECTS: tuple[tuple[tuple[type, ...], type, str], ...] = (
    ((bool, np.bool_), np.bool_, "bool"),
    ((int, np.integer), np.int64, "int"),
    ((int, np.integer, float, np.floating), np.float64, "float"),
)
LISTS = (list, tuple, set, frozenset, np.ndarray)  # that are the labels of a row
KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "S": "bytes"}


def drop_weightless(
    rows: Any, labels: Any, weights: Any
) -> tuple[Any, Any, Any, NDArray[np.int64] | None]:
    """Return rows, labels and weights of any form without rows of weight 0.

    And the places of those that stay, None where all do. Raises DataError where none does.
    """
    if weights is None:
        return rows, labels, weights, None
    n = int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
    found = to_weights(weights, n)
    if found is None or found.all():
        return rows, labels, weights, None
    if not found.any():
        raise DataError("all weights of rows are 0: nothing can be learnt")
    kept = np.flatnonzero(found)
    rows, labels = take_rows(rows, kept), take_rows(labels, kept)
    return rows, labels, np.asarray(weights)[kept], kept


def take_rows(values: Any, chosen: NDArray[np.int64]) -> Any:
    """Return some rows, labels or weights; a column's name stays one."""
    if values is None or isinstance(values, str):
        return values
    if isinstance(values, list | tuple):
        return [values[i] for i in chosen.tolist()]
    if isinstance(values, NamedMatrix):
        return replace(values, matrix=values.matrix[chosen])
    if hasattr(values, "iloc"):
        return values.iloc[chosen]
    if hasattr(values, "to_pylist"):  # of Arrow
        return values.take(chosen)
    if hasattr(values, "tocsr"):
        return values.tocsr()[chosen]
    return (values if hasattr(values, "shape") else np.asarray(values))[chosen]


def to_weights(weights: Any, n_rows: int) -> NDArray[np.float32] | None:
    """Return a weight for each row, of an array or a number; None where all are 1; or DataError."""
    if weights is None:
        return None
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.asarray(weights, np.float32)
    except (TypeError, ValueError):
        hint = "A column of a table with them is named by weight."
        raise DataError("weights of rows are no numbers: sample_weight", hint=hint) from None
    if found.ndim == 0:
        found = np.full(n_rows, found)
    if found.shape != (n_rows,):
        raise DataError(f"weights have the shape {found.shape}, ({n_rows:,},) is expected")
    if not ((found >= 0) & (found <= MOST_IMPORTANCE)).all():
        what = "a weight of a row is not a number from 0 to 1e9"
        raise DataError(what, hint="Divide all weights by one number.")
    return None if (found == 1).all() else found


def to_labels(y: Any, *, strict: bool = True) -> Labels:
    """Return labels and their type: of an array (n,), n lists, an array or matrix (n, labels)."""
    y = fetch_array(y)
    check_labels(y)
    lists, starts = find_lists(y), None
    if lists is not None:
        starts, y = flatten_lists(lists)
    if is_sparse(y):
        matrix = y.tocsr()
        columns = Labels.of_csr(matrix.indptr, matrix.indices, matrix.data, PLACE, WHAT)
        return replace(columns, kind="int")
    values = labels_to_array(y)
    if values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf":
        return replace(Labels.of_dense(values, PLACE, WHAT), kind="int")
    values, missing = _fill_missing(values)
    values, kind = to_own_type(values) if values.dtype.kind == "O" else (values, kind_of(values))
    labels = Labels.of(
        values if missing is np.ma.nomask else np.ma.MaskedArray(values, missing), PLACE, WHAT
    )
    for code, (reason, text) in labels.refused.items() if strict else ():
        row = _row_of(int(np.argmax(labels.codes == code)), starts)
        raise DataError(f"{reason.format(text)}: row {row:,} (counted from 0)", path=PLACE)
    if starts is None:
        return replace(labels, kind=kind)
    own = LabelLists(starts, labels.codes.astype(np.int32)).sort()
    return Labels.of_lists(own, labels.names, kind)


def check_labels(y: Any) -> None:
    """Raise DataError for an object that holds no labels of rows."""
    sized = hasattr(y, "__len__") or hasattr(y, "__array__") or is_sparse(y)
    other = isinstance(y, str | bytes | Mapping | Set | Iterator | type)
    if other or not sized or getattr(y, "shape", None) == ():
        what = f"labels of the type {type_name(y)} are not read: y"
        raise DataError(what, hint="Give an array or a list with a label, or labels, for each row.")


def name_as_cells(labels: Labels, recipe: Recipe) -> Labels:
    """Return labels of an array as those of a recipe's column of labels are called."""
    if recipe.label is None or labels.names is None:
        return labels
    return replace(labels, names=[*map(canonical, labels.names)])


def labels_to_array(y: Any) -> NDArray[Any]:
    """Return labels as an array: of objects where NumPy makes texts of NaN, floats of integers."""
    if np.ma.is_masked(y) and y.ndim == 1:
        found: NDArray[Any] = y.data.astype(object)
        found[np.ma.getmaskarray(y)] = None
        return found
    values = np.asarray(y)
    odd = values.ndim == 1 and values.dtype.kind in "Uf" and isinstance(y, list | tuple)
    if odd and (any(map(is_missing, y)) or not any(isinstance(x, float | str) for x in y)):
        return np.fromiter(y, object, len(y))
    return values


def _fill_missing(values: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    """Return labels with another one in place of those that are missing, and which these are."""
    nothing = values, np.ma.nomask
    if values.dtype.kind != "O" or values.ndim != 1 or len({*map(type, values.tolist())}) == 1:
        return nothing
    missing = np.fromiter(map(is_missing, values), np.bool_, len(values))
    if missing.all() or not missing.any():
        return nothing
    filled = values.copy()
    filled[missing] = values[np.argmin(missing)]
    return filled, missing


def _row_of(place: int, starts: NDArray[np.int64] | None) -> int:
    return place if starts is None else int(np.searchsorted(starts, place, "right")) - 1


def find_lists(y: Any) -> Sequence[Any] | None:
    """Return lists of labels, one a row, or raise DataError; None where it is something else."""
    if getattr(y, "shape", ())[1:] == (1,) and not is_sparse(y):
        y = np.asarray(y)[:, 0]
    if getattr(y, "ndim", 1) != 1 or getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return None
    rows = cells_of(y, y)
    if not isinstance(rows, list | tuple) or not any(isinstance(row, LISTS) for row in rows):
        return None
    odd = next((i for i, row in enumerate(rows) if not isinstance(row, LISTS)), None)
    if odd is not None:
        what = f"row {odd:,} (counted from 0) has no list of labels: '{clean(rows[odd], 40)}'"
        raise DataError(what, path=PLACE, hint="An empty list says that a row has no label.")
    return rows


def flatten_lists(lists: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return where each row's labels start, int64 (n + 1,), and all in their type, or DataError."""
    starts = np.cumsum([0, *(len(row) for row in lists)])
    flat = np.fromiter((label for row in lists for label in row), object, int(starts[-1]))
    values, _ = to_own_type(flat)
    plain = values.dtype.kind != "O"
    odd = next((i for i, x in enumerate(flat) if not (plain or isinstance(x, str | bytes))), None)
    if odd is not None:
        what = f"row {_row_of(odd, starts):,} (counted from 0) has '{clean(flat[odd], 40)}'"
        raise DataError(f"labels are all numbers or all strings: {what}", path=PLACE)
    return starts, values


def kind_of(values: NDArray[Any]) -> str:
    """Return the type of labels in an array."""
    kind = KINDS.get(values.dtype.kind, "str")
    return "uint" if values.dtype == np.uint64 and values.max(initial=0) >= 1 << 63 else kind


def to_integers(found: list[int]) -> NDArray[Any]:
    """Return whole numbers as int64, as uint64 where one is 2^63 or more, or as objects."""
    for dtype in (np.int64, np.uint64):
        with contextlib.suppress(OverflowError):
            return np.array(found, dtype)
    return np.array(found, object)


def to_own_type(values: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return an array of objects as one of their own type, and what that is."""
    found = values.tolist()
    if values.ndim != 1:
        return values, "str"
    for types, dtype, kind in OBJECTS:
        if found and all(isinstance(value, types) for value in found):
            values = to_integers(found) if kind == "int" else np.array(found, dtype)
            return values, kind_of(values)
    return values, "bytes" if all(isinstance(value, bytes) for value in found) else "str"


def label_values(raws: list[bytes], kind: str, listed: str) -> NDArray[Any]:
    """Return names of labels in the type that they had: an array (n,)."""
    if kind == "bool":
        return np.array([raw not in (b"0", b"False") for raw in raws], np.bool_)
    if kind in ("int", "uint", "float") or (not kind and listed == "integer"):
        numbers = to_integers([int(raw) for raw in raws])
        as_kind = {"uint": np.uint64, "float": np.float64}.get(kind, numbers.dtype)
        return numbers.astype(as_kind)
    found = np.empty(len(raws), object)
    known = kind in ("", "bytes")
    texts = (raw.decode("utf-8", "surrogatepass") for raw in raws)
    found[:] = values_of(raws, kind or listed) if known else list(texts)
    return found
