"""Labels that people hold in memory, and how they are given back in the type that they had."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels
from streammach.data.label_sets import LabelSets
from streammach.data.store.held import PLACE
from streammach.errors import DataError
from streammach.rows.names import values_of
from streammach.rows.sparse import is_sparse

WHAT = "the labels"
OBJECTS: tuple[tuple[tuple[type, ...], type, str], ...] = (
    ((bool, np.bool_), np.bool_, "bool"),
    ((int, np.integer), np.int64, "int"),
    ((int, np.integer, float, np.floating), np.float64, "float"),
)
KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "S": "bytes"}


@dataclass(frozen=True)
class GivenLabels:
    """The labels of rows, as a source has them, and of which type they were.

    Attributes
    ----------
    labels : Labels or LabelSets
        The labels.
    kind : str
        ``bool``, ``int``, ``uint`` (from 2^63 on), ``float``, ``str`` or ``bytes``; of sets,
        columns are numbers: ``int``.
    """

    labels: Labels | LabelSets
    kind: str

    @property
    def n_labels(self) -> int:
        """Labels of all rows where these have lists of them, else 0."""
        return self.labels.lists.n_labels if isinstance(self.labels, LabelSets) else 0


def given_labels(y: Any) -> GivenLabels:
    """Return what people gave as labels: the one place that tells what it is.

    Parameters
    ----------
    y : array (n,), or array or scipy sparse matrix (n, labels)
        A label for each row: integers, booleans, whole floats, strings, or an array of objects that
        are all of one of these types. Or sets of labels, a column for each label.

    Raises
    ------
    DataError
        If it is none of these, or a row of the first kind has no label.
    """
    if is_sparse(y):
        matrix = y.tocsr()
        sets = LabelSets.of_csr(matrix.indptr, matrix.indices, matrix.data, PLACE, WHAT)
        return GivenLabels(sets, "int")
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf":
        return GivenLabels(LabelSets.of_dense(values, PLACE, WHAT), "int")
    values, kind = of_objects(values) if values.dtype.kind == "O" else (values, kind_of(values))
    labels = Labels.of(values, PLACE, WHAT)
    for code, (reason, text) in labels.refused.items():
        row = int(np.argmax(labels.codes == code))
        raise DataError(f"{reason.format(text)}: row {row:,} (counted from 0)", path=PLACE)
    return GivenLabels(labels, kind)


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
    """Return an array of objects as one of their own type, and what that is.

    Parameters
    ----------
    values : array of objects
        The objects; strings, or what is not all of one type, stay as they are.
    """
    found = values.tolist()
    if values.ndim > 1:
        return values, "str"
    for types, dtype, kind in OBJECTS:
        if found and all(isinstance(value, types) for value in found):
            values = whole_numbers(found) if kind == "int" else np.array(found, dtype)
            return values, kind_of(values)
    return values, "bytes" if all(isinstance(value, bytes) for value in found) else "str"


def label_values(raws: list[bytes], kind: str, listed: str) -> NDArray[Any]:
    """Return names of labels in the type that they had: an array (n,).

    Parameters
    ----------
    raws : list of bytes
        The names.
    kind : str
        The type; empty for what the names look like: int64, or strings in an array of objects.
    listed : str
        The kind of the list that they are of: what its names look like.
    """
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
