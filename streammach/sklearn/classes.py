"""Classes of an estimator: labels of any type, and their numbers in a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from streammach.data.given_labels import GivenLabels, flattened, kind_of, listed, of_objects
from streammach.data.label_arrays import Labels, LabelSets
from streammach.data.store.held import PLACE
from streammach.model.packed_names import LabelNames
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MAX_NAME


@dataclass(frozen=True)
class Targets:
    """The labels of rows."""

    # array (K,): all labels, sorted; of an indicator the numbers of its columns
    classes: NDArray[Any]
    # int64 (n,) or None: place of each row's label among them; None for sets
    codes: NDArray[np.int64] | None
    sets: Any = None  # which labels each row has; None where each has one
    # how sets came: `array`, `sparse` or `lists`; empty where each row has one label
    form: str = ""

    @classmethod
    def of(cls, y: Any) -> Targets:
        """Return the labels that scikit-learn's checks let through, or raise ValueError."""
        lists = listed(y)
        if lists is not None:
            starts, flat = flattened(lists)
            found = cls.of(flat)
            assert found.codes is not None, "a label each"
            own = LabelLists(starts, found.codes.astype(np.int32)).sorted()
            ones = np.ones(own.n_labels, np.float32)
            shape = (len(lists), len(found.classes))
            sets = scipy.sparse.csr_array((ones, own.classes, own.starts), shape=shape)
            return cls(found.classes, None, sets, "lists")
        if isinstance(y, np.ndarray) and y.dtype.hasobject:
            y, _ = of_objects(np.asarray(y))
        check_classification_targets(y)
        if type_of_target(y) == "multilabel-indicator":
            sets = scipy.sparse.csr_array(y, dtype=np.float32)
            sets.sum_duplicates()
            form = "sparse" if scipy.sparse.issparse(y) else "array"
            return cls(np.arange(sets.shape[1]), None, sets, form)
        y = column_or_1d(y, warn=True)
        classes, codes = np.unique(y, return_inverse=True)
        return cls(classes, codes.astype(np.int64))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.sets.shape[0]) if self.codes is None else len(self.codes)

    def take(self, rows: NDArray[np.int64]) -> Targets:
        """Return those of some rows."""
        if self.codes is None:
            return Targets(self.classes, None, self.sets[rows], self.form)
        return Targets(self.classes, self.codes[rows])

    def key(self, row: int) -> bytes:
        """Return what tells the labels of a row from others."""
        if self.codes is not None:
            return bytes(self.codes[row].tobytes())
        some = slice(self.sets.indptr[row], self.sets.indptr[row + 1])
        return bytes(self.sets.indices[some].tobytes())

    @property
    def given(self) -> GivenLabels:
        """The labels as a source has them."""
        names, kind = label_names(self.classes), kind_of(self.classes)
        if self.codes is not None:
            return GivenLabels(Labels(self.codes, names), kind)
        m = self.sets
        sets = LabelSets.of_csr(m.indptr, m.indices, m.data, PLACE, "y")
        return GivenLabels(LabelSets(sets.lists, names), kind)


def exact(y: Any) -> Any:
    """Return labels of a column of pandas as NumPy's: scikit-learn would make floats of them."""
    dtype = getattr(y, "dtype", None)
    return y if dtype is None or isinstance(dtype, np.dtype) else np.asarray(y)


def label_names(classes: NDArray[Any]) -> list[bytes]:
    """Return a name for each label: what it looks like, or its number where that will not do."""
    names = [_name(label) for label in classes.tolist()]
    if len(set(names)) < len(names) or not all(0 < len(name) <= MAX_NAME for name in names):
        return [b"%d" % i for i in range(len(names))]
    return names


def _name(label: Any) -> bytes:
    if isinstance(label, bytes):
        return label
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).encode("utf-8", "surrogatepass")


def places(names: LabelNames, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of a model's labels among the classes of an estimator: int64 (K,)."""
    raws = names.raws(np.arange(len(names)))
    known = {name: place for place, name in enumerate(label_names(classes))}
    return np.array([known[raw] for raw in raws], np.int64)
