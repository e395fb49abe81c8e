"""Brings rows as they were read into the form that everything else expects: known ids, sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import sort_numbers
from streammach.rows.block import RowBlock
from streammach.rows.layouts import ends
from streammach.system.jit import Array, kernel
from streammach.system.simd import prefetch

COUNTED_ROW = 256  # up to so many values, counting the smaller ids of each is faster than sorting
AHEAD, LINE_VALUES = 6, 16  # rows whose memory is asked for early; ids in a line of the cache
LOW32 = 0xFFFFFFFF
DENSE_SHARE = 16  # a row with more than a 16th of all features is spread out, not sorted


def canonicalize(
    block: RowBlock, features: NDArray[np.int32] | None = None,
    classes: NDArray[np.int32] | None = None,
) -> RowBlock:  # fmt: skip
    """Return rows with other ids: sorted in each row, values of a feature added up, none is 0.

    New ids by old ones are `features` int32 (d,) and `classes` int32 (K,).
    """
    old = block.features
    new = old if features is None else features[old]
    keep = new >= 0
    before = ends(keep)[block.indptr]
    ids, values = new[keep], block.values[keep].astype(np.float32)
    indptr = np.empty_like(before)
    merge_repeats(before, ids, values, indptr, np.zeros(3, np.int64))
    sort_rows(indptr, ids, values, 0)
    own, labels = block.classes, block.labels
    if classes is not None:
        own = np.where(own >= 0, classes[np.maximum(own, 0)], -1).astype(np.int32)
        labels = None if labels is None else labels.rename(classes)
    nnz = int(indptr[-1])
    return replace(
        block, indptr=indptr, features=ids[:nnz], values=values[:nnz], classes=own
    ).with_labels(labels)


@kernel(fastmath=False, allocates=True)  # fast math may take what is not finite for a number
def merge_repeats(
    indptr: Array, features: Array, values: Array, out_indptr: Array, facts: Array
) -> Any:
    """Add up values of the same feature in each row, in place, and leave out what is 0 then.

    Of the same features the first one's place is kept.

    A row's features are looked up in a small table of its own, which the next row overwrites: an
    array with a place for every feature would miss the cache with every value.

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
        The rows, ids in any order.
    out_indptr : int64 (n + 1,)
        Receives the new row pointers.
    facts : int64 (3,)
        Counts 1 if some value is no integer of 0 or more, sums that are not finite, and zeros.

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
        zeros = 0
        for p in range(start, out):
            zeros += values[p] == 0
        if zeros > 0:
            out = start + without_zeros(features[start:out], values[start:out])
            facts[2] += zeros
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


@kernel(fastmath=False, inner=True)
def without_zeros(features: Array, values: Array) -> Any:
    """Leave out values float32 (n,) that are 0, and their features, in place; return the others."""
    n = np.int64(0)
    for p in range(values.shape[0]):
        if values[p] != 0:
            features[n], values[n] = features[p], values[p]
            n += 1
    return n


@kernel()
def copy_rows(
    chosen: Array, starts: Array, groups: Array, features: Array, values: Array, ids: Array,
    bases: Array, indptr: Array, out_features: Array, out_values: Array,
) -> None:  # fmt: skip
    """Copy chosen rows in their order, with other ids.

    Parameters
    ----------
    chosen, starts, groups : int64 (n,), int64 (rows,), int8 (rows,)
        The rows that are copied; where each row's values start, and which ids it has.
    features, values : int32, and uint8 or float32 (nnz,)
        The values.
    ids, bases : int32, int64 (groups,)
        New ids of the features of all groups, and where each group's begin.
    indptr, out_features, out_values : int64 (n + 1,), int32, and the type of `values`
        Where the copies go; receive them.
    """
    for k in range(chosen.shape[0]):
        if k + 2 * AHEAD < chosen.shape[0]:
            prefetch(starts, chosen[k + 2 * AHEAD])
            soon = starts[chosen[k + AHEAD]]
            prefetch(features, soon)
            prefetch(features, soon + LINE_VALUES)
            prefetch(values, soon)
        a, q, base = starts[chosen[k]], indptr[k], bases[groups[chosen[k]]]
        for p in range(indptr[k + 1] - q):
            out_features[q + p] = ids[base + features[a + p]]
            out_values[q + p] = values[a + p]


@kernel(allocates=True)
def sort_rows(indptr: Array, features: Array, values: Array, d: int) -> None:
    """Sort each row by its ids, in place.

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32, and uint8 or float32 (nnz,)
        The values, no feature twice in a row; with `d`, one place more than there are.
    d : int
        Number of ids, over which long rows are spread out; 0 where rows are few for that.
    """
    dense, there = np.empty(d, values.dtype), np.zeros(d, np.bool_)
    longest = np.int64(0)
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    order, spare_ids = np.empty(longest, np.int64), np.empty(longest, np.int32)
    spare = np.empty(longest, values.dtype)
    for i in range(indptr.shape[0] - 1):
        a, size = indptr[i], indptr[i + 1] - indptr[i]
        rising = True
        for p in range(a + 1, a + size):
            rising = rising & (features[p - 1] < features[p])
        if rising:
            continue
        if DENSE_SHARE * size > d > 0:
            for p in range(a, a + size):
                dense[features[p]], there[features[p]] = values[p], True
            following, its_value = features[a + size], values[a + size]
            q = a
            for new in range(d):  # without a branch: what is not there is written over
                features[q], values[q] = new, dense[new]
                q += there[new]
                there[new] = False
            features[a + size], values[a + size] = following, its_value
            continue
        for p in range(size):  # a loop: Numba compiles a slice's assignment for many seconds
            spare_ids[p], spare[p] = features[a + p], values[a + p]
        if size <= COUNTED_ROW:
            for p in range(size):
                new, smaller = spare_ids[p], np.int32(0)
                for q in range(size):
                    smaller += np.int32(spare_ids[q] < new)
                features[a + smaller], values[a + smaller] = new, spare[p]
        else:
            for p in range(size):
                order[p] = (np.int64(spare_ids[p]) << 32) | p
            sort_numbers(order[:size])
            for p in range(size):
                features[a + p] = order[p] >> 32
                values[a + p] = spare[order[p] & LOW32]
