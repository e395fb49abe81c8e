"""Brings rows as they were read into the form that everything else expects: known ids, sorted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, kernel
from streammach.rows.block import RowBlock

SHORT_ROW = 32  # values; longer rows are sorted, not inserted


def finished(
    block: RowBlock,
    features: NDArray[np.int32] | None = None,
    labels: NDArray[np.int32] | None = None,
) -> RowBlock:
    """Return rows with other ids: sorted in each row, values of the same feature added up.

    Parameters
    ----------
    block : RowBlock
        The rows; not changed.
    features : int32 (d,), optional
        New id of each feature, -1 to drop it; ids stay otherwise.
    labels : int32 (K,), optional
        New id of each class, -1 where it is unknown; ids stay otherwise.
    """
    old = block.features
    new = old if features is None else features[old]
    keep = new >= 0
    indptr = np.concatenate([[0], np.cumsum(keep)])[block.indptr]
    ids, values = new[keep], block.values[keep].astype(np.float32)
    longest = int(np.diff(indptr).max(initial=0))
    lengths = np.empty(block.n_rows, np.int64)
    identity = np.arange(int(ids.max(initial=0)) + 1, dtype=np.int32)
    finish_rows(
        indptr, ids, values, identity, np.empty(longest, np.int64), np.empty(longest, np.float32),
        lengths, np.zeros(2, np.int64),
    )  # fmt: skip
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if ends[-1] < len(ids):  # some rows have shrunk
        whole = np.arange(len(ids)) - np.repeat(indptr[:-1], np.diff(indptr))
        kept = whole < np.repeat(lengths, np.diff(indptr))
        ids, values = ids[kept], values[kept]
    classes = block.labels
    if labels is not None:
        classes = np.where(classes >= 0, labels[np.maximum(classes, 0)], -1).astype(np.int32)
    return RowBlock(ends, ids, values, classes, block.weights, block.places)


@kernel()
def finish_rows(
    indptr: Array,
    features: Array,
    values: Array,
    rank: Array,
    order: Array,
    spare: Array,
    lengths: Array,
    facts: Array,
) -> None:
    """Renumber and sort each row by its new ids and add up values of the same feature, in place.

    Parameters
    ----------
    indptr : int64 (n + 1,)
        Row pointers.
    features : int32 (nnz,)
        Old ids; replaced. A row that shrinks leaves a gap behind it.
    values : float32 (nnz,)
        Values; replaced.
    rank : int32 (d,)
        New id of each old one.
    order, spare : int64 and float32 (longest row,)
        Scratch.
    lengths : int64 (n,)
        Receives the length of each row.
    facts : int64 (2,)
        Counts values that are no integer of 0 or more, and values above 255.
    """
    for i in range(lengths.shape[0]):
        a, size = indptr[i], indptr[i + 1] - indptr[i]
        if size <= SHORT_ROW:
            for p in range(a, a + size):
                feature, value, q = rank[features[p]], values[p], p
                while q > a and features[q - 1] > feature:
                    features[q], values[q] = features[q - 1], values[q - 1]
                    q -= 1
                features[q], values[q] = feature, value
        else:
            for k in range(size):
                order[k] = (np.int64(rank[features[a + k]]) << 32) | k
                spare[k] = values[a + k]
            order[:size].sort()
            for k in range(size):
                features[a + k] = order[k] >> 32
                values[a + k] = spare[order[k] & 0xFFFFFFFF]
        kept = 0
        for p in range(a, a + size):
            if kept > 0 and features[a + kept - 1] == features[p]:
                values[a + kept - 1] += values[p]
            else:
                features[a + kept], values[a + kept] = features[p], values[p]
                kept += 1
        for p in range(a, a + kept):
            facts[0] += not (values[p] >= 0 and values[p] == np.floor(values[p]))
            facts[1] += values[p] > 255
        lengths[i] = kept
