"""Writes some rows of a store as a store of their own, with the same ids and names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.rows.distinct import PairSketch
from streammach.store.dataset import Dataset
from streammach.store.root import RootFacts
from streammach.store.writer import StoreWriter


def copy_rows(dataset: Dataset, folder: Path, chosen: NDArray[np.bool_]) -> Path:
    """Write chosen rows, bool (n,), of the first n of a store; return that, or raise DiskError.

    There is at least one, and one value among them. Counts and pairs are those of the rows;
    numbers, importances, ids and names are those of the store, tags are left out.
    """
    lists, data = dataset.lists(0, 1), dataset
    labels = None if lists is None else np.uint8 if lists.weights is None else np.float32
    writer = StoreWriter(folder, data.value_type.type, weighted=data.weighted, labels=labels)
    features, classes = np.zeros(data.n_features, np.int64), np.zeros(data.n_classes, np.int64)
    pairs, sizes = PairSketch(), list[NDArray[np.int64]]()
    for start, stop in data.block_ranges(len(chosen)):
        some = np.flatnonzero(chosen[start:stop])
        if len(some):
            block = data.rows(start, stop).take(some)
            block = replace(block, numbers=data.numbers(start, stop)[some])
            writer.write(writer.encode(writer.append_rows(block)))
            features += np.bincount(block.features, minlength=len(features))
            classes += np.bincount(block.lists.classes, minlength=len(classes))
            pairs.add(block)
            sizes.append(np.stack([np.diff(block.indptr), block.lists.lengths]))
    writer.add_names("labels", data.labels, classes)
    writer.add_names("features", data.features, features)
    writer.add_columns(data.columns)
    said = {name: getattr(data.root, name) for name in RootFacts.__struct_fields__}
    lengths = np.concatenate(sizes, axis=1)
    said["rows"] = n = lengths.shape[1]
    for name, own in zip(["nnz", "labels"][: 1 + data.listed], lengths, strict=False):
        blocks = np.add.reduceat(own, np.arange(0, n, data.root.block_rows))
        said |= {name: int(own.sum()), f"max_row_{name}": max(int(own.max()), 1),
                 f"max_block_{name}": max(int(blocks.max()), 1)}  # fmt: skip
    most = said["nnz"] * max(1, said["max_row_labels"])
    writer.finish(RootFacts(**said | {"pairs": min(pairs.estimate(), most)}))
    return folder
