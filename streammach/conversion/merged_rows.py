"""Few rows that are equal, as one row each: a row that is there twice counts for two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streammach.conversion.memory_labels import take_rows
from streammach.conversion.memory_rows import IteratorRows, MemoryRows

MOST_ROWS, MOST_COLUMNS = 100, 10_000  # that are compared with one another


def merge_equal_rows(data: MemoryRows | IteratorRows) -> MemoryRows | IteratorRows:
    """Return rows of numbers of which few are one where they and their labels are equal.

    Then a row that is there twice is one of twice its weight, to the last bit: where some rows are
    equal, or all weights are whole numbers, the order in which they came does not count either.
    """
    if isinstance(data, IteratorRows):
        return data
    (n, d), labels = data.rows.shape, data.labels
    # Bins and weights of classes go by which rows there are.
    counted = data.recipe is not None or data.label_facts.weights is not None
    if n > MOST_ROWS or d > MOST_COLUMNS or counted or labels.lists is not None:
        return data
    if len(labels.codes) != n:  # which is refused where rows are taken in
        return data
    x = data.rows.matrix
    x = np.asarray(x.toarray() if data.rows.sparse else x, np.float64)
    if not np.isfinite(x).all():  # a row that cannot be read is told by its number
        return data
    _, codes = np.unique(np.array(labels.raws(labels.codes.tolist()), object), return_inverse=True)
    rows = np.column_stack([codes, x])
    _, kept, places = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    weights = np.ones(n) if data.weights is None else data.weights.astype(np.float64)
    whole = data.weights is not None and (weights == np.floor(weights)).all()
    if len(kept) == n and not whole:
        return data
    own = np.bincount(places.reshape(-1), weights).astype(np.float32)
    return replace(
        data, rows=take_rows(data.rows, kept),
        labels=replace(labels, codes=labels.codes[kept]),
        weights=None if (own == 1).all() else own,
        numbers=kept if data.numbers is None else data.numbers[kept],
    )  # fmt: skip
