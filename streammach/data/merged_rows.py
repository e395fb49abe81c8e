"""Few rows that are equal, as one row each: a row that is there twice counts for two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streammach.data.given import some_of
from streammach.data.label_arrays import LabelSets
from streammach.data.memory_rows import Labelled
from streammach.rows.arrays import csr_array

MOST_ROWS = 100  # that are compared with one another


def merged(data: Labelled) -> Labelled:
    """Return rows of numbers of which few are one where they and their labels are equal.

    Then a row that is there twice is one of twice its weight, to the last bit: where some rows are
    equal, or all weights are whole numbers, the order in which they came does not count either.
    """
    n, labels = data.rows.shape[0], data.labels.labels
    read = data.recipe is not None or data.class_weights is not None  # which count rows as they are
    if n > MOST_ROWS or read or not _finite(data):
        return data
    weights = np.ones(n) if data.weights is None else data.weights.astype(np.float64)
    first: dict[bytes, int] = {}
    totals: dict[bytes, float] = {}
    for row, key in enumerate(_keys(data)):
        first.setdefault(key, row)
        totals[key] = totals.get(key, 0.0) + float(weights[row])
    if len(first) == n and (data.weights is None or (weights != np.floor(weights)).any()):
        return data
    kept = np.array([first[key] for key in sorted(first)], np.int64)
    own = np.array([totals[key] for key in sorted(first)], np.float32)
    if isinstance(labels, LabelSets):
        some = replace(data.labels, labels=replace(labels, lists=labels.lists.take(kept)))
    else:
        some = replace(data.labels, labels=replace(labels, codes=labels.codes[kept]))
    return replace(
        data, rows=some_of(data.rows, kept), labels=some,
        weights=None if (own == 1).all() else own,
        numbers=kept if data.numbers is None else data.numbers[kept],
    )  # fmt: skip


def _finite(data: Labelled) -> bool:
    """Return whether all values can be read; a row that cannot is told by its number."""
    matrix = data.rows.matrix
    return bool(np.isfinite(matrix.data if data.rows.sparse else matrix).all())


def _keys(data: Labelled) -> list[bytes]:
    """Return what equal rows have alike: columns and values that are not 0, names of labels."""
    matrix = data.rows.matrix
    values = csr_array(matrix if data.rows.sparse else np.asarray(matrix, np.float64))
    values = values.astype(np.float64, copy=True)
    values.sum_duplicates()
    values.eliminate_zeros()
    return [
        b" ".join([
            values.indices[a:b].astype(np.int64).tobytes(), values.data[a:b].tobytes(),
            *_names(data, row),
        ])
        for row, (a, b) in enumerate(zip(values.indptr[:-1], values.indptr[1:], strict=True))
    ]  # fmt: skip


def _names(data: Labelled, row: int) -> list[bytes]:
    """Return the names of a row's labels, and the bytes of their weights."""
    labels = data.labels.labels
    if not isinstance(labels, LabelSets):
        return labels.raws([int(labels.codes[row])])
    own = slice(int(labels.lists.starts[row]), int(labels.lists.starts[row + 1]))
    weights = labels.lists.weights
    more = [] if weights is None else [weights[own].tobytes()]
    return labels.raws(labels.lists.classes[own].tolist()) + more
