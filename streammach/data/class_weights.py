"""Weights of classes: what the rows of each class count for in the loss."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import label_name
from streammach.data.store.dataset import Dataset
from streammach.errors import DataError, UsageError, clean
from streammach.files.reading import lines_in
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.names import Names

BALANCED = "balanced"
ClassWeights = str | os.PathLike[str] | Mapping[Any, float]


def weighed(dataset: Dataset, weights: ClassWeights) -> Dataset:
    """Return a view of a store whose rows also count by their class."""
    if dataset.listed:
        raise UsageError("rows have lists of labels: --class-weight")
    if weights == BALANCED:
        counts = np.maximum(dataset.label_counts, 1)
        return dataset.weighed((dataset.n_rows / (dataset.n_classes * counts)).astype(np.float32))
    place = ""
    if isinstance(weights, Mapping):
        named = {label_name(label): value for label, value in weights.items()}
    else:
        place = clean(weights, 300)
        named = _of_file(Path(weights))
    return dataset.weighed(_by_class(dataset, named, place))


def _of_file(path: Path) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for number, line in enumerate(lines_in(path), 1):
        if not line:
            continue
        label, tab, value = line.rpartition(b"\t")
        if not tab or label in found:
            what = "a label is there twice" if tab else "it is no label, tab and weight"
            raise DataError(f"{what}: '{clean(line, 60)}'", path=path, line=number)
        found[label] = value
    return found


def _by_class(dataset: Dataset, named: dict[bytes, Any], place: str) -> NDArray[np.float32]:
    """Return the weight of each class: float32 (K,)."""
    weights = np.ones(dataset.n_classes, np.float32)
    ids = dataset.labels.labels_of(Names.of(list(named)))
    for (label, value), i in zip(named.items(), ids.tolist(), strict=True):
        if i < 0:
            what = f"no row has the label '{clean(label, 60)}': --class-weight"
            raise DataError(what, path=place or None)
        try:
            weights[i] = float(value)
        except (TypeError, ValueError):
            weights[i] = np.nan
        if not 0 <= weights[i] <= MOST_IMPORTANCE:
            raise DataError(
                f"the weight '{clean(value, 30)}' of '{clean(label, 60)}' is no number from 0 to "
                "1e9: --class-weight", path=place or None,
            )  # fmt: skip
    if not weights.any():
        what = "all classes have the weight 0: nothing can be learnt: --class-weight"
        raise DataError(what, path=place or None)
    return weights
