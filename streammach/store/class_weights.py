"""Weights of classes: what the rows of each class count for in the loss."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.label_arrays import label_name
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.names import Names
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, UsageError, clean
from streammach.system.files.raw_text import numbered_lines

BALANCED = "balanced"
Entry = tuple[int | None, bytes, Any]  # line of a file, label, weight
ClassWeights = str | os.PathLike[str] | Mapping[Any, float]


def weigh_classes(dataset: Dataset, weights: ClassWeights) -> Dataset:
    """Return a view of a store whose rows also count by their class."""
    if dataset.listed:
        raise UsageError("rows have lists of labels: --class-weight")
    if weights == BALANCED:
        counts = np.maximum(dataset.label_counts, 1)
        return dataset.weigh_classes(
            (dataset.n_rows / (dataset.n_classes * counts)).astype(np.float32)
        )
    if not isinstance(weights, Mapping):
        return dataset.weigh_classes(_by_class(dataset, _entries_in(Path(weights)), Path(weights)))
    named = {label_name(label): value for label, value in weights.items()}
    entries: list[Entry] = [(None, label, value) for label, value in named.items()]
    return dataset.weigh_classes(_by_class(dataset, [entries], None))


def _entries_in(path: Path) -> Iterator[list[Entry]]:
    """Yield the lines of a file that are not empty, or raise DataError or DiskError."""
    for lines in numbered_lines(path):
        entries = list[Entry]()
        for number, line in lines:
            label, tab, value = line.rpartition(b"\t")
            if not tab:
                what = f"it is no label, tab and weight: '{clean(line, 60)}'"
                raise DataError(what, path=path, line=number)
            entries.append((number, label, value))
        yield entries


def _by_class(
    dataset: Dataset, pieces: Iterable[list[Entry]], path: Path | None
) -> NDArray[np.float32]:
    """Return the weight of each class: float32 (K,)."""
    weights, named = np.ones(dataset.n_classes, np.float32), np.zeros(dataset.n_classes, np.bool_)
    index = dataset.labels.index()
    for entries in pieces:
        ids = dataset.labels.labels_of(Names.of([label for _, label, _ in entries]), index)
        for (line, label, value), i in zip(entries, ids.tolist(), strict=True):
            what = f"no row has the label '{clean(label, 60)}'" if i < 0 else ""
            if i >= 0 and named[i]:
                what = f"a label is there twice: '{clean(label, 60)}'"
            elif i >= 0:
                named[i], weights[i] = True, _number_of(value)
                if not 0 <= weights[i] <= MOST_IMPORTANCE:
                    what = (
                        f"the weight '{clean(value, 30)}' of '{clean(label, 60)}' is no number "
                        "from 0 to 1e9"
                    )
            if what:
                raise DataError(f"{what}: --class-weight", path=path, line=line)
    if not weights.any():
        what = "all classes have the weight 0: nothing can be learnt: --class-weight"
        raise DataError(what, path=path)
    return weights


def _number_of(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
