"""Brings rows as they were read into the form that everything else expects: known ids, sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, kernel
from streammach.rows.block import RowBlock
from streammach.rows.words import prefetch

SHORT_ROW = 32  # values; longer rows are sorted, not inserted
COUNTED_ROW = 256  # up to so many values, counting the smaller ids of each is faster than sorting
AHEAD, LINE_VALUES = 6, 16  # rows whose memory is asked for early; ids in a line of the cache
LOW32 = 0xFFFFFFFF
DENSE_SHARE = 16  # a row with more than a 16th of all features is spread out, not sorted


def finished(
    block: RowBlock,
    features: NDArray[np.int32] | None = None,
    classes: NDArray[np.int32] | None = None,
) -> RowBlock:
    """Return rows with other ids: sorted in each row, values of the same feature added up.

    Parameters
    ----------
    block : RowBlock
        The rows; not changed.
    features : int32 (d,), optional
        New id of each feature, -1 to drop it; ids stay otherwise.
    classes : int32 (K,), optional
        New id of each class, -1 where it is unknown; ids stay otherwise.
    """
    old = block.features
    new = old if features is None else features[old]
    keep = new >= 0
    indptr = np.concatenate([[0], np.cumsum(keep)])[block.indptr]
    ids, values = new[keep], block.values[keep].astype(np.float32)
    longest = int(np.diff(indptr).max(initial=0))
    lengths = np.empty(block.n_rows, np.int64)
    order, spare = np.empty(longest, np.int64), np.empty(longest, np.float32)
    finish_rows(indptr, ids, values, order, spare, lengths)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if ends[-1] < len(ids):  # some rows have shrunk
        whole = np.arange(len(ids)) - np.repeat(indptr[:-1], np.diff(indptr))
        kept = whole < np.repeat(lengths, np.diff(indptr))
        ids, values = ids[kept], values[kept]
    own = block.classes
    if classes is not None:
        own = np.where(own >= 0, classes[np.maximum(own, 0)], -1).astype(np.int32)
    return replace(block, indptr=ends, features=ids, values=values, classes=own)


@kernel()
def finish_rows(
    indptr: Array, features: Array, values: Array, order: Array, spare: Array, lengths: Array
) -> None:
    """Sort each row by its ids and add up values of the same feature, in place.

    Parameters
    ----------
    indptr : int64 (n + 1,)
        Row pointers.
    features : int32 (nnz,)
        Ids. A row that shrinks leaves a gap behind it.
    values : float32 (nnz,)
        Values.
    order, spare : int64 and float32 (longest row,)
        Scratch.
    lengths : int64 (n,)
        Receives the length of each row.
    """
    for i in range(lengths.shape[0]):
        a, size = indptr[i], indptr[i + 1] - indptr[i]
        if size <= SHORT_ROW:
            for p in range(a, a + size):
                feature, value, q = features[p], values[p], p
                while q > a and features[q - 1] > feature:
                    features[q], values[q] = features[q - 1], values[q - 1]
                    q -= 1
                features[q], values[q] = feature, value
        else:
            for k in range(size):
                order[k] = (np.int64(features[a + k]) << 32) | k
                spare[k] = values[a + k]
            order[:size].sort()
            for k in range(size):
                features[a + k] = order[k] >> 32
                values[a + k] = spare[order[k] & LOW32]
        kept = 0
        for p in range(a, a + size):
            if kept > 0 and features[a + kept - 1] == features[p]:
                values[a + kept - 1] += values[p]
            else:
                features[a + kept], values[a + kept] = features[p], values[p]
                kept += 1
        lengths[i] = kept


@kernel(fastmath=False)  # fast math may take what is not finite for a number
def merge_repeats(
    indptr: Array, features: Array, values: Array, out_indptr: Array, facts: Array
) -> Any:
    """Add up values of the same feature in each row, in place; the first one's place is kept.

    A row's features are looked up in a small table of its own, which the next row overwrites: an
    array with a place for every feature would miss the cache with every value.

    Parameters
    ----------
    indptr : int64 (n + 1,)
        Row pointers.
    features : int32 (nnz,)
        Ids in any order.
    values : float32 (nnz,)
        Values.
    out_indptr : int64 (n + 1,)
        Receives the new row pointers.
    facts : int64 (2,)
        Counts 1 if some value is no integer of 0 or more, and sums that are not finite.

    Returns
    -------
    float32
        The largest value, at least 0; where some value is no such integer, that of rows before it.
    """
    n = indptr.shape[0] - 1
    longest = np.int64(1)
    for i in range(n):
        longest = max(longest, indptr[i + 1] - indptr[i])
    room = np.int64(2)
    while room < 2 * longest:
        room *= 2
    table = np.zeros(room, np.int64)  # row + 1, and where in the output the feature stands
    out, largest, whole = np.int64(0), np.float32(0), True
    out_indptr[0] = 0
    for i in range(n):
        a, b, start = indptr[i], indptr[i + 1], out
        rising = True
        for p in range(a + 1, b):
            rising = rising & (features[p - 1] < features[p])
        if rising:
            if out < a:
                for p in range(b - a):
                    features[out + p], values[out + p] = features[a + p], values[a + p]
            out += b - a
        else:
            mask = np.int64(1)
            while mask < 2 * (b - a):
                mask *= 2
            mask -= 1
            for p in range(a, b):
                feature, value = features[p], values[p]
                q = ((np.int64(feature) * 0x9E3779B1) >> 12) & mask
                while table[q] >> 32 == i + 1 and features[start + (table[q] & LOW32)] != feature:
                    q = (q + 1) & mask
                if table[q] >> 32 == i + 1:
                    sum_at = start + (table[q] & LOW32)
                    values[sum_at] += value
                    facts[1] += not np.isfinite(values[sum_at])
                else:
                    table[q] = (i + 1) << 32 | (out - start)
                    features[out], values[out] = feature, value
                    out += 1
        out_indptr[i + 1] = out
        if whole:
            other = 0
            for p in range(start, out):
                value = values[p]
                other += not (value >= 0 and value == np.floor(value))
                largest = max(largest, value)
            whole = other == 0
    facts[0] += not whole
    return largest


@kernel()
def take_rows(
    chosen: Array,
    starts: Array,
    groups: Array,
    features: Array,
    values: Array,
    ranks: Array,
    bases: Array,
    d: int,
    indptr: Array,
    out_features: Array,
    out_values: Array,
) -> None:
    """Copy chosen rows in their order, with other ids, each sorted by them.

    Parameters
    ----------
    chosen : int64 (n,)
        The rows.
    starts : int64 (rows,)
        Where each row's values start.
    groups : int8 (rows,)
        Which ids each row has.
    features, values : int32, and uint8 or float32 (nnz,)
        The values; no feature twice in a row.
    ranks : int32
        New ids of the features of all groups.
    bases : int64 (groups,)
        Where each group's begin.
    d : int
        Number of new ids.
    indptr : int64 (n + 1,)
        Where the copies go.
    out_features, out_values : int32, and the type of `values`
        Receive them; one place more than there are values.
    """
    dense = np.empty(d, values.dtype)
    there = np.zeros(d, np.bool_)
    longest = np.int64(0)
    for k in range(chosen.shape[0]):
        longest = max(longest, indptr[k + 1] - indptr[k])
    order, new_ids = np.empty(longest, np.int64), np.empty(longest, np.int32)
    for k in range(chosen.shape[0]):
        if k + 2 * AHEAD < chosen.shape[0]:
            prefetch(starts, chosen[k + 2 * AHEAD])
            soon = starts[chosen[k + AHEAD]]
            prefetch(features, soon)
            prefetch(features, soon + LINE_VALUES)
            prefetch(values, soon)
        a, first, size = starts[chosen[k]], indptr[k], indptr[k + 1] - indptr[k]
        base = bases[groups[chosen[k]]]
        if DENSE_SHARE * size > d:
            for p in range(a, a + size):
                new = ranks[base + features[p]]
                dense[new], there[new] = values[p], True
            q = first
            for new in range(d):  # without a branch: what is not there is written over
                out_features[q], out_values[q] = new, dense[new]
                q += there[new]
                there[new] = False
        elif size <= COUNTED_ROW:
            for p in range(size):
                new_ids[p] = ranks[base + features[a + p]]
            for p in range(size):
                new, smaller = new_ids[p], np.int32(0)
                for q in range(size):
                    smaller += np.int32(new_ids[q] < new)
                out_features[first + smaller], out_values[first + smaller] = new, values[a + p]
        else:
            for p in range(size):
                order[p] = (np.int64(ranks[base + features[a + p]]) << 32) | p
            order[:size].sort()
            for p in range(size):
                out_features[first + p] = order[p] >> 32
                out_values[first + p] = values[a + (order[p] & LOW32)]
