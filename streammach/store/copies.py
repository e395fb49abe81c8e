"""Writes some rows of a store as a store of their own, with the same ids and names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.store.dataset import Dataset
from streammach.store.root import RootFacts
from streammach.store.row_totals import Occurrences
from streammach.store.writer import StoreWriter


def copy_rows(dataset: Dataset, folder: Path, chosen: NDArray[np.bool_]) -> Path:
    """Write chosen rows, bool (n,), of the first n of a store; return that, or raise DiskError.

    There is at least one, and one value among them. Counts and pairs are those of the rows;
    numbers, importances, ids and names are those of the store, tags are left out.
    """
    lists, data = dataset.lists(0, 1), dataset
    labels = None if lists is None else np.uint8 if lists.weights is None else np.float32
    writer = StoreWriter(
        folder, data.value_type.type, block_rows=data.root.block_rows, weighted=data.weighted,
        labels=labels,
    )  # fmt: skip
    counts = Occurrences(data.n_features, data.n_classes)
    for start, stop in data.block_ranges(len(chosen)):
        some = np.flatnonzero(chosen[start:stop])
        if len(some):
            block = data.rows(start, stop).take(some)
            block = replace(block, numbers=data.numbers(start, stop)[some])
            writer.write(writer.encode(writer.append_rows(block)))
            counts.add(block)
            writer.totals.pairs.add(block)
    writer.add_names("labels", data.labels, counts.labels)
    writer.add_names("features", data.features, counts.features)
    writer.add_columns(data.columns)
    said = {name: getattr(data.root, name) for name in RootFacts.__struct_fields__}
    writer.finish(RootFacts(**said | writer.totals.facts()))
    return folder
