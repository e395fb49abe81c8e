"""Rows of one document, user or file: by a namespace that looks like its name, or equal ones.

Each feature tells as many bits as chance takes to name it: log2(rows / rows that hold it); one that
no other row holds tells nothing. Equal rows of few or frequent features repeat by nature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.options.facts import DataFacts
from streammach.rows.arrays import csr_array, keys, sum_lists
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, namespace_ids
from streammach.store.dataset import Dataset
from streammach.system.clock import Clock

SURE = 3.0  # times log2(rows) bits name a row; twice would do if features were independent
FREQUENT, SOME = 16, 64  # one row in so many holds a frequent feature, and no fewer rows
VALUES = 1 << 16  # hashes of frequent features' values
STREAM = 17
NAMESPACES, FEW = 32, 32  # that are looked at; fewer values are no documents' names
NEARLY = 0.9  # of the rows have a value of such a namespace, which other rows share
TELLS = 0.5  # of what chance leaves open of a row's class, what its document says
ALIKE = 0.1  # more of what rows hold is in both if they are of one document, not of one class
KEY_BYTES = 8


def names_of_documents(dataset: Dataset, most: int) -> Iterator[bytes]:
    """Yield namespaces that give nearly every row one value, as few to `most` other rows have."""
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

    Rows of a column that decides the class, as a product's name does, share nothing more. Of a list
    each label is told where another row of the group has it.
    """
    _, of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    own, classes = rows.lists.rows, rows.lists.classes
    groups = groups[own]
    alike = _of_class(dataset, groups, classes)
    others = sizes[of][own] - 1
    if dataset.listed:
        chance = 1 - (1 - dataset.label_counts[classes] / dataset.n_rows) ** others
        told = ((alike > 1) - chance).sum() / max((1 - chance).sum(), 1e-9)
    else:
        told = _beyond_chance(dataset, alike, others + 1).mean()
    if told < TELLS or _mostly(dataset, classes, alike).mean() > TELLS:
        return False
    order = np.lexsort((groups, classes))
    in_both = _shares_of_neighbours(dataset, rows, own[order])
    together, same = (np.diff(ids[order]) == 0 for ids in (groups, classes))
    apart = np.append(in_both[same & ~together], 0.0).mean()
    return bool(in_both[together].mean() - apart >= ALIKE)


def _shares_of_neighbours(
    dataset: Dataset, rows: RowBlock, order: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return how much of the bits of a row and the next one in an order is in both: (n - 1,)."""
    bits = _feature_bits(dataset)[rows.features]
    held = csr_array((bits, rows.features, rows.indptr), (rows.n_rows, dataset.n_features))
    one, next_one = held[order[:-1]], held[order[1:]]
    both = one.minimum(next_one).sum(axis=1)
    either = one.sum(axis=1) + next_one.sum(axis=1) - both
    return np.asarray(both / np.maximum(either, 1e-9), np.float64).ravel()


def _feature_bits(dataset: Dataset) -> NDArray[np.float64]:
    """Return how many bits it tells that a row holds each feature: float64 (d,)."""
    counts = dataset.feature_counts
    bits = np.log2(dataset.n_rows / np.maximum(counts, 1))
    bits[counts < 2] = 0  # no other row holds it
    bits[: dataset.n_common_features] = 0  # like rows have other embeddings
    return bits


def _of_class(
    dataset: Dataset, groups: NDArray[np.integer], classes: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return how many rows of its group have the class of each row: (n,)."""
    pairs = groups.astype(np.int64) * (dataset.n_classes + 1) + classes
    _, of, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    found: NDArray[np.float64] = counts[of].astype(np.float64)
    return found


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


def equal_rows(
    dataset: Dataset, rows: RowBlock, numbers: NDArray[np.int64], clock: Clock
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64]]:
    """Return a key of each row that has equals, and where these lie.

    Keys are uint64 (n,), 0 of a row without equals. Places in the store, int64 (m,), rise, with the
    key of each, uint64 (m,); the rows themselves are among them. The store is read once; TimeOver
    ends that. What no other row holds makes no difference. Rows that chance makes equal have no
    key, nor has one whose equals are most rows of its class.
    """
    counts = dataset.feature_counts
    counted = (counts > 1) & (np.arange(len(counts)) >= dataset.n_common_features)
    names = np.where(_are_sure(dataset, rows, counted), row_keys(rows, counted), np.uint64(0))
    known = np.unique(names[names > 0])
    places, of = [numbers[:0]], [known[:0]]
    for start, stop in dataset.block_ranges() if len(known) else ():
        clock.check()
        own = row_keys(dataset.rows(start, stop), counted)
        found = np.flatnonzero(np.isin(own, known))
        places.append(start + found)
        of.append(own[found])
    where, every = np.concatenate(places), np.concatenate(of)
    sizes = np.bincount(np.searchsorted(known, every), minlength=len(known) + 1)
    size = np.where(names > 0, sizes[np.searchsorted(known, names)], 0)
    names[(size < 2) | (2 * size > dataset.label_counts[np.maximum(rows.classes, 0)])] = 0
    kept = np.isin(every, names[names > 0])
    return names, where[kept], every[kept]


def row_keys(rows: RowBlock, counted: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return a key of what each row holds of the features that count: uint64 (n,), 0 of nothing."""
    each = keys(STREAM, rows.features, _codes(rows))
    each[~counted[rows.features]] = 0
    return sum_lists(rows.indptr, each)


def _are_sure(
    dataset: Dataset, rows: RowBlock, counted: NDArray[np.bool_]
) -> NDArray[np.bool_]:  # fmt: skip
    """Return which rows hold too much for chance to repeat it: bool (n,).

    Of a frequent feature its values tell, by how many of these rows have each.
    """
    n, counts = dataset.n_rows, dataset.feature_counts
    bits = _feature_bits(dataset)[rows.features]
    often = counts[rows.features] > max(n / FREQUENT, SOME)
    values = (keys(STREAM, rows.features[often], _codes(rows)[often]) % VALUES).astype(np.int64)
    seen = np.bincount(values, minlength=VALUES)
    bits[often] = np.log2(rows.n_rows / seen[values])
    bits[~counted[rows.features]] = 0
    told: NDArray[np.bool_] = sum_lists(rows.indptr, bits) >= SURE * math.log2(max(n, 2))
    return told


def _codes(rows: RowBlock) -> NDArray[np.unsignedinteger]:
    """Return what tells values from one another: uint8, or uint32 (nnz,) of float32."""
    values: NDArray[Any] = rows.values
    return values if values.dtype == np.uint8 else values.view(np.uint32)


def equal_rows_bytes(facts: DataFacts) -> int:
    """Return the bytes of a search for equal rows: a block of the store, and its keys."""
    block = facts.max_block_nnz * (4 + facts.value_bytes + 3 * KEY_BYTES)
    return block + 3 * KEY_BYTES * facts.block_rows + (KEY_BYTES + 1) * facts.n_features
