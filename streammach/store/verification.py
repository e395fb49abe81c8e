"""Compares a store with what it says of itself: its files, every chunk, every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.names import Names
from streammach.store.blobs import damage_error
from streammach.store.row_totals import Occurrences
from streammach.store.stored_arrays import ArrayReader, ReadArray
from streammach.system.errors import StoreError
from streammach.system.progress import ProgressBar, Told, Wanted

MOST_LEFT_OUT = 16  # rows of the sources for each that is there, in a list that is kept


def find_damage(
    dataset: Any, arrays: Mapping[str, ReadArray], *, deep: bool, progress: Wanted
) -> list[str]:
    """Return a line for each thing that is wrong with an open store, a Dataset, and its arrays."""
    with ProgressBar(progress, "", {"files": 1.0, "rows": 3.0}) as told:
        found = list[str]()
        sizes = [array.n_values * array.dtype.itemsize for array in arrays.values()]
        for i, array in enumerate(arrays.values()):
            told("files", sum(sizes[:i]), sum(sizes))
            if isinstance(array, ArrayReader):  # memory has no checksums
                found += array.verify(deep=deep)
        return found if found or not deep else list(_wrong_content(dataset, told))


def _wrong_content(dataset: Any, told: Told) -> Iterator[str]:
    """Yield a line for each thing that is wrong in what was decoded; all rows are read."""
    try:
        _ = dataset.columns, dataset.stored_names
        for group, names in (("labels", dataset.labels), ("features", dataset.features)):
            try:  # what is looked up by name would be one of two that are the same
                names.ids_of(Names.of([]))
            except StoreError:
                raise damage_error(dataset.path, f"a name of {group} is there twice") from None
        yield from _wrong_rows(dataset, told)
    except StoreError as error:
        yield error.finding


def _wrong_rows(dataset: Any, told: Told) -> Iterator[str]:
    """Yield a line for each thing that a store says of its rows and is not so."""
    path, root, most, labels = dataset.path, dataset.root, 0, 0
    counts = Occurrences(len(dataset.features), len(dataset.labels))
    # A root may promise any number of rows that were left out.
    n, n_numbers = root.rows, root.source_rows
    there = np.zeros(n_numbers if n_numbers <= MOST_LEFT_OUT * n else 0, bool)
    few = list[NDArray[np.int64]]()
    for start, stop in dataset.block_ranges():
        told("rows", start, n)
        block = dataset.rows(start, stop)
        counts.add(block)
        labels, most = max(labels, block.lists.n_labels), max(most, block.nnz)
        numbers, _ = dataset.origins(start, stop)
        if len(there):
            there[numbers] = True
        else:
            few.append(numbers)
    for name, said in (("features", dataset.feature_counts), ("labels", dataset.label_counts)):
        if not np.array_equal(getattr(counts, name), said):
            yield f"damaged: {path}/{name}/count does not agree with the rows"
    if n != (int(there.sum()) if len(there) else len(np.unique(np.concatenate(few)))):
        yield f"damaged: {path}/row: two rows have one number"
    if most > root.max_block_nnz:
        yield f"damaged: {path}: a block has more values than the root says"
    if dataset.listed and labels > root.max_block_labels:
        yield f"damaged: {path}: a block has more labels than the root says"
