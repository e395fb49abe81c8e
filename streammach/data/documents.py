"""Rows of one document, user or file: by a namespace that looks like its name, or by likeness."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from streammach.data.near_rows import Signatures
from streammach.data.store.dataset import Dataset
from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, namespace_ids

NAMESPACES, FEW = 32, 32  # that are looked at; fewer values are no documents' names
NEARLY = 0.9  # of the rows have a value of such a namespace, which other rows share
TELLS = 0.5  # of what chance leaves open of a row's class, what its document says
ALIKE = 0.1  # more of what rows hold is in both if they are of one document, not of one class
USUAL, FLATTERS = 0.05, 0.02  # of the rows: those with like ones; what their classes would add
ROUNDS, ENDS = 4, 0.05  # of a search around a cluster's rows; what the last one adds at most
CLUSTERS_STREAM = 4

Masked = Callable[[NDArray[np.bool_]], tuple[RowBlock, NDArray[np.int64]]]


def names_of_documents(dataset: Dataset, most: int) -> Iterator[bytes]:
    """Yield namespaces of which nearly every row has one value, as few to `most` other rows do."""
    ids, counts = namespace_ids(dataset.features, NAMESPACES), dataset.feature_counts
    for number in range(1, NAMESPACES):
        inside = np.flatnonzero(ids == number)
        shared = counts[inside][counts[inside] > 1]
        if (
            len(shared) >= FEW and shared.max() <= most and counts[inside].sum() <= dataset.n_rows
            and shared.sum() >= NEARLY * dataset.n_rows
        ):  # fmt: skip
            yield dataset.features.raw(int(inside[0])).partition(bytes([SEPARATOR]))[0]


def are_documents(dataset: Dataset, rows: RowBlock, groups: NDArray[np.integer]) -> bool:
    """Return whether groups of rows, each whole, tell classes, are none, and are alike beside that.

    Rows of a column that decides the class, as a product's name does, share nothing more.
    """
    _, of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    alike = _of_class(dataset, groups, rows.classes, np.ones(len(groups)))
    told = _beyond_chance(dataset, alike, sizes[of])
    if told.mean() < TELLS or _mostly(dataset, rows.classes, alike).mean() > TELLS:
        return False
    order = np.lexsort((groups, rows.classes))
    signs, total = Signatures(dataset, rows).of(rows.take(order))
    equal = (signs[1:] == signs[:-1]).mean(1) * (total[1:] > 0)
    together, same = (np.diff(ids[order]) == 0 for ids in (groups, rows.classes))
    apart = np.append(equal[same & ~together], 0.0).mean()
    return bool(equal[together].mean() - apart >= ALIKE)


def _of_class(
    dataset: Dataset, groups: NDArray[np.integer], classes: NDArray[np.int32],
    each: NDArray[np.number],
) -> NDArray[np.float64]:  # fmt: skip
    """Return the sum of what stands for each row over those of its group and class: (n,)."""
    pairs = groups.astype(np.int64) * (dataset.n_classes + 1) + classes
    _, of = np.unique(pairs, return_inverse=True)
    return np.bincount(of, each).astype(np.float64)[of]


def _beyond_chance(
    dataset: Dataset, alike: NDArray[np.float64], sizes: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return how many others of a row's group have its class: 1 for all, 0 for as by chance."""
    counts = dataset.label_counts
    chance = float(((counts / max(counts.sum(), 1)) ** 2).sum())
    same = (alike - 1) / np.maximum(sizes - 1, 1)
    return np.where(sizes > 1, (same - chance) / max(1 - chance, 1e-9), 0.0)


def _mostly(
    dataset: Dataset, classes: NDArray[np.int32], alike: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether most rows of a row's class are in its group, which then stands for it."""
    return (classes >= 0) & (2 * alike > dataset.label_counts[classes])


def clusters(
    dataset: Dataset, masked: Masked, random: tuple[RowBlock, NDArray[np.int64]], seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], float] | None:
    """Return whole clusters of rows that are alike, as many rows as some random ones.

    They are those around random rows, each with the chance that a single row has. A cluster of more
    rows than are wanted is what rows to come are like, too: its rows count as single ones. One that
    has most rows of its classes is left to the training. A document ends: where rows around those
    of clusters lead to ever more rows, they are a continuum, as the views of a thing are.

    `random` is RowBlock, int64 (p,). Returns `mask, cluster, share` bool (n_rows,), int64
    (n_rows,), float.
    """
    (rows, numbers), p = random, len(random[1])
    signatures = Signatures(dataset, rows)
    near = signatures.near(rows, numbers, usual=USUAL)
    roots, n = near.roots, dataset.n_rows
    sizes = np.bincount(roots, near.sizes)[roots]
    alike = _of_class(dataset, roots, rows.classes, near.alike)
    several, own = (sizes > 1) & (sizes <= p), np.bincount(roots)[roots]
    is_class = several & (
        2 * np.bincount(roots, _mostly(dataset, rows.classes, alike))[roots] > own
    )
    several &= ~is_class
    told = _beyond_chance(dataset, alike, sizes)[several].sum()
    if several.mean() < USUAL or told < FLATTERS * p or several.sum() < is_class.sum():
        return None
    cluster = np.where(several, roots, np.arange(p))
    first = np.flatnonzero((cluster == np.arange(p)) & ~is_class)
    weights = np.where(several, sizes, 1)[first]  # by which a cluster is found more often
    order = np.argsort(keys(seed, CLUSTERS_STREAM, numbers[first]) * weights, kind="stable")
    n_chosen = int(np.searchsorted(np.cumsum(weights[order]), p)) + 1
    chosen = np.isin(cluster, first[order[:n_chosen]])
    mask, groups = np.zeros(n, bool), np.arange(n)
    mask[numbers[chosen & several]] = True
    share = float(several.mean())
    for _ in range(ROUNDS):  # around the random rows, then around those that were found
        before, (known, at) = mask.sum(), masked(mask)
        found = signatures.near(known, at)
        if len(found.rows) > min(2 * p, n // 2):
            break
        mask[found.rows], groups[found.rows] = True, at[found.like]
        if mask.sum() <= (1 + ENDS) * before:
            mask[numbers[chosen & ~several]] = True
            return mask, groups, share
    return np.zeros(n, bool), groups, share
