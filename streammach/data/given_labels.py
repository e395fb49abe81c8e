"""Labels that people hold in memory, and how they are given back in the type that they had."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels, LabelSets
from streammach.data.store.held import PLACE
from streammach.errors import DataError, clean
from streammach.rows.arrays import is_sparse
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import values_of

WHAT = "the labels"
OBJECTS: tuple[tuple[tuple[type, ...], type, str], ...] = (
    ((bool, np.bool_), np.bool_, "bool"),
    ((int, np.integer), np.int64, "int"),
    ((int, np.integer, float, np.floating), np.float64, "float"),
)
LISTS = (list, tuple, set, frozenset, np.ndarray)  # that are the labels of a row
KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "S": "bytes"}


@dataclass(frozen=True)
class GivenLabels:
    """The labels of rows, as a source has them, and of which type they were."""

    labels: Labels | LabelSets  # the labels
    # `bool`, `int`, `uint` (from 2^63 on), `float`, `str` or `bytes`; of an indicator, whose
    # columns are numbers, `int`
    kind: str

    @property
    def n_labels(self) -> int:
        """Labels of all rows where these have lists of them, else 0."""
        return self.labels.lists.n_labels if isinstance(self.labels, LabelSets) else 0


def given_labels(y: Any, *, strict: bool = True) -> GivenLabels:
    """Return what people gave as labels: the one place that tells what it is.

    `y` is array (n,), n lists, or array or scipy sparse matrix (n, labels).
    """
    lists, starts = listed(y), None
    if lists is not None:
        starts, y = flattened(lists)
    if is_sparse(y):
        matrix = y.tocsr()
        sets = LabelSets.of_csr(matrix.indptr, matrix.indices, matrix.data, PLACE, WHAT)
        return GivenLabels(sets, "int")
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf":
        return GivenLabels(LabelSets.of_dense(values, PLACE, WHAT), "int")
    values, kind = of_objects(values) if values.dtype.kind == "O" else (values, kind_of(values))
    labels = Labels.of(values, PLACE, WHAT)
    for code, (reason, text) in labels.refused.items() if strict else ():
        row = _row_of(int(np.argmax(labels.codes == code)), starts)
        raise DataError(f"{reason.format(text)}: row {row:,} (counted from 0)", path=PLACE)
    if starts is None:
        return GivenLabels(labels, kind)
    own = LabelLists(starts, labels.codes.astype(np.int32)).sorted()
    return GivenLabels(LabelSets(own, labels.names), kind)


def _row_of(place: int, starts: NDArray[np.int64] | None) -> int:
    """Return the row of a label; where rows have lists, their starts say that."""
    return place if starts is None else int(np.searchsorted(starts, place, "right")) - 1


def listed(y: Any) -> Sequence[Any] | None:
    """Return lists of labels, one a row, or raise DataError; None where it is something else."""
    if getattr(y, "shape", ())[1:] == (1,) and not is_sparse(y):
        y = np.asarray(y)[:, 0]
    if getattr(y, "ndim", 1) != 1 or getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return None
    ways = (getattr(y, way, None) for way in ("to_pylist", "to_list", "tolist"))
    rows = next((way() for way in ways if way is not None), y)
    if not isinstance(rows, list | tuple) or not any(isinstance(row, LISTS) for row in rows):
        return None
    odd = next((i for i, row in enumerate(rows) if not isinstance(row, LISTS)), None)
    if odd is not None:
        what = f"row {odd:,} (counted from 0) has no list of labels: '{clean(rows[odd], 40)}'"
        raise DataError(what, path=PLACE, hint="An empty list says that a row has no label.")
    return rows


def flattened(lists: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return where each row's labels start, int64 (n + 1,), and all in their type, or DataError."""
    starts = np.cumsum([0, *(len(row) for row in lists)])
    flat = np.fromiter((label for row in lists for label in row), object, int(starts[-1]))
    values, _ = of_objects(flat)
    plain = values.dtype.kind != "O"
    odd = next((i for i, x in enumerate(flat) if not (plain or isinstance(x, str | bytes))), None)
    if odd is not None:
        what = f"row {_row_of(odd, starts):,} (counted from 0) has '{clean(flat[odd], 40)}'"
        raise DataError(f"labels are all numbers or all strings: {what}", path=PLACE)
    return starts, values


def kind_of(values: NDArray[Any]) -> str:
    """Return of which type labels in an array are."""
    kind = KINDS.get(values.dtype.kind, "str")
    return "uint" if values.dtype == np.uint64 and values.max(initial=0) >= 1 << 63 else kind


def whole_numbers(found: list[int]) -> NDArray[Any]:
    """Return whole numbers as int64, as uint64 where one is 2^63 or more, or as objects."""
    for dtype in (np.int64, np.uint64):
        with contextlib.suppress(OverflowError):
            return np.array(found, dtype)
    return np.array(found, object)


def of_objects(values: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return an array of objects as one of their own type, and what that is."""
    found = values.tolist()
    if values.ndim > 1:
        return values, "str"
    for types, dtype, kind in OBJECTS:
        if found and all(isinstance(value, types) for value in found):
            values = whole_numbers(found) if kind == "int" else np.array(found, dtype)
            return values, kind_of(values)
    return values, "bytes" if all(isinstance(value, bytes) for value in found) else "str"


def label_values(raws: list[bytes], kind: str, listed: str) -> NDArray[Any]:
    """Return names of labels in the type that they had: an array (n,)."""
    if kind == "bool":
        return np.array([raw not in (b"0", b"False") for raw in raws], np.bool_)
    if kind in ("int", "uint", "float") or (not kind and listed == "integer"):
        numbers = whole_numbers([int(raw) for raw in raws])
        as_kind = {"uint": np.uint64, "float": np.float64}.get(kind, numbers.dtype)
        return numbers.astype(as_kind)
    found = np.empty(len(raws), object)
    known = kind in ("", "bytes")
    found[:] = values_of(raws, kind or listed) if known else [_text(raw) for raw in raws]
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
