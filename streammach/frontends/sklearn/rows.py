"""Rows of an estimator and their labels of any type: as a data set is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, is_multilabel, type_of_target

from streammach.conversion import memory_labels
from streammach.conversion.memory_labels import kind_of
from streammach.inputs.label_arrays import Labels, label_name
from streammach.inputs.tables.values import is_missing
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MAX_NAME, Names
from streammach.system.errors import DataError, clean

LIBRARY_BYTES = 110_000_000  # of scikit-learn and what it imports (measured)


@dataclass(frozen=True)
class Targets:
    """The labels of rows."""

    classes: NDArray[Any]  # array (K,): all labels, sorted; of an indicator the columns' numbers
    lists: LabelLists  # places of each row's labels among them
    # how several labels a row came: `array`, `sparse` or `lists`; empty where each row has one
    form: str = ""

    @classmethod
    def of(cls, y: Any) -> Targets:
        """Return the labels that scikit-learn's checks let through, or raise ValueError."""
        lists = memory_labels.find_lists(y)
        if lists is not None:
            starts, flat = memory_labels.flatten_lists(lists)
            found = cls.of(flat)
            return cls(found.classes, LabelLists(starts, found.lists.classes).sort(), "lists")
        if isinstance(y, np.ndarray) and y.dtype.hasobject:
            y, _ = memory_labels.to_own_type(np.asarray(y))
            missing = [i for i, label in enumerate(y.tolist()) if is_missing(label)]
            if missing and y.ndim == 1:
                raise DataError(f"row {missing[0]} (counted from 0) has no label", path="y")
        check_classification_targets(y)
        if type_of_target(y) == "multilabel-indicator":
            sets = scipy.sparse.csr_array(y)
            sets.sum_duplicates()
            sets.eliminate_zeros()
            if (sets.data != 1).any():
                raise ValueError("an indicator holds 0 and 1 alone: y")
            own = LabelLists(sets.indptr.astype(np.int64), sets.indices.astype(np.int32))
            form = "sparse" if scipy.sparse.issparse(y) else "array"
            return cls(np.arange(sets.shape[1]), own, form)
        classes, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        return cls(classes, LabelLists.single(codes.astype(np.int32)))

    @property
    def codes(self) -> NDArray[np.int64] | None:
        """Place of each row's label among the classes, int64 (n,); None where it has several."""
        return None if self.form else self.lists.classes.astype(np.int64)

    @property
    def as_labels(self) -> Labels:
        """The labels as a source has them."""
        names, codes, kind = label_names(self.classes), self.codes, kind_of(self.classes)
        if codes is None:
            return Labels.of_lists(self.lists, names, kind)
        return Labels(codes, names, kind=kind)


def indicator(y: Any) -> Any:
    """Return labels as they are; equally long lists of 0 and 1 as the indicator that they are."""
    if not (isinstance(y, list | tuple) and is_multilabel(y)):
        return y
    values = np.asarray(y)
    return values if np.isin(values, (0, 1)).all() else y


def exact(y: Any) -> Any:
    """Return labels of a column or list as they are: scikit-learn makes floats or texts of them."""
    dtype = getattr(y, "dtype", None)
    given = isinstance(y, list) if dtype is None else not isinstance(dtype, np.dtype)
    return memory_labels.labels_to_array(y) if given else y


def label_names(classes: NDArray[Any]) -> list[bytes]:
    """Return a name for each label: what it looks like, or its number where that will not do."""
    names = [label_name(label) for label in classes.tolist()]
    if len(set(names)) < len(names) or not all(0 < len(name) <= MAX_NAME for name in names):
        return [b"%d" % i for i in range(len(names))]
    return names


def in_form(form: str, parts: Iterable[NDArray[np.bool_]], classes: NDArray[Any]) -> Any:
    """Return labels, pieces of bool (n, K), in the form that those of rows had."""
    pieces = [scipy.sparse.csr_array(part, dtype=np.int64) for part in parts]
    chosen = scipy.sparse.vstack(pieces, format="csr")
    if form == "lists":
        ends = zip(chosen.indptr[:-1], chosen.indptr[1:], strict=True)
        return [classes[chosen.indices[a:b]].tolist() for a, b in ends]
    return chosen if form == "sparse" else chosen.toarray()


def places(names: Names, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of a model's labels among the classes of an estimator: int64 (K,)."""
    raws = names.raws(np.arange(len(names)))
    known = {name: place for place, name in enumerate(label_names(classes))}
    return np.array([known[raw] for raw in raws], np.int64)


@dataclass(frozen=True)
class Rows:
    """Labelled rows of a call of `partial_fit`."""

    x: Any  # array or csr_array (n, d): the rows; or a table that is to be read yet
    targets: Targets  # their labels
    # float64 (n,) or None: their weights; None where all are 1
    weights: NDArray[np.float64] | None = None


def sum_duplicates(x: Any) -> Any:
    """Return rows whose values stand once for each column, and none is 0 where they are sparse."""
    if scipy.sparse.issparse(x) and not (x.has_canonical_format and x.data.all()):
        x = x.copy()
        x.sum_duplicates()
        x.eliminate_zeros()
    return x


def by_name(targets: Targets, facts: Any) -> Any:
    """Return weights or names of classes by the names of these, as a training takes them."""
    if not isinstance(facts, Mapping):
        return facts
    names = dict(zip(targets.classes.tolist(), label_names(targets.classes), strict=True))
    return {names.get(label, label): fact for label, fact in facts.items()}


def by_class(
    targets: Targets, weights: NDArray[np.float64] | None, class_weight: Any
) -> NDArray[np.float64] | None:
    """Return the weights of rows times those of their classes, or raise ValueError."""
    if class_weight is None:
        return weights
    codes = targets.codes
    if codes is None:
        raise ValueError("rows have sets of labels: class_weight")
    labels = targets.classes[codes]
    of_classes = compute_class_weight(class_weight, classes=targets.classes, y=labels)
    for label, weight in zip(targets.classes, of_classes, strict=True):
        if not 0 <= weight <= MOST_IMPORTANCE:
            what = f"the weight {weight:g} of class {clean(label, 60)} is no number from 0 to 1e9"
            raise ValueError(f"{what}: class_weight")
    own: NDArray[np.float64] = of_classes[codes].astype(np.float64)
    return own if weights is None else own * weights
