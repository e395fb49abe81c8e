"""Rows in folds, so that each row can be judged by a model that did not learn from it."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from streammach.data.holdout import groups_of
from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError
from streammach.rows.arrays import keys
from streammach.rows.names import in_namespace
from streammach.spec.training import AUTO, RANDOM

FOLDS_STREAM = 5


def row_folds(
    dataset: Dataset, n_folds: int, seed: int, by: str | None
) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Return the fold of each row, int8 (n,), and its group, int32 (n,), or raise UsageError.

    The rows of a class lie evenly in all folds, so that few classes are new to a fold's model. Rows
    of one group, which share a feature of a namespace, are in one fold; -1 stands for no group.
    """
    n, what = dataset.n_rows, "rows"
    folds, groups = np.empty(n, np.int8), np.full(n, -1, np.int32)
    order = np.argsort(_classes(dataset), kind="stable")  # a class's rows are in random order
    folds[order] = np.arange(n) % n_folds
    if by not in (None, AUTO, RANDOM):
        namespace = os.fsencode(by or "")
        groups = groups_of(dataset, in_namespace(dataset.features, namespace), namespace)
        inside = groups >= 0
        there, where, sizes = np.unique(groups[inside], return_inverse=True, return_counts=True)
        place = np.empty(len(there), np.int8)
        place[np.lexsort((keys(seed, FOLDS_STREAM, there), -sizes))] = (
            np.arange(len(there)) % n_folds
        )
        folds[inside] = place[where]
        n, what = len(there) + n - int(inside.sum()), "groups"
    if n < n_folds:
        raise UsageError(f"{n:,} {what} are fewer than {n_folds} folds: --folds")
    return folds, groups


def _classes(dataset: Dataset) -> NDArray[np.int32]:
    """Return the first class of each row: int32 (n,)."""
    n, step = dataset.n_rows, dataset.facts.block_rows
    lists = (dataset.lists(start, min(start + step, n)) for start in range(0, n, step))
    return np.concatenate([dataset.array("y")] if not dataset.listed else
                          [own.first for own in lists if own is not None])  # fmt: skip
