"""Where the pairs of a few classes lie in the lists of a row's features.

Short lists are read whole, beside a table that says which classes are wanted. The longest lists
have a bit for each class and, beside each 32 bits, the number of classes before them, so that a
pair's place is one look. The others are searched, from each wanted class to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, Number, kernel
from streammach.rows.pairs import PairTable, places

READ_WHOLE = 400  # pairs of a list that is read rather than searched
MARKED_SHARE = 64  # lists of fewer classes than this part of all are not marked
INDEX_BYTES = 4  # of marks, at most, for each pair of the table
WORD = 32  # classes of a mark


@dataclass(frozen=True)
class PairPlaces:
    """Marks of the longest lists of a table."""

    mark_of: NDArray[np.int64]  # int64 (d,): where the marks of each feature begin, or -1
    # uint32 (n, 2): for each 32 classes of such a feature: a bit for each that its list holds, and
    # how many the list holds before them
    marks: NDArray[np.uint32]

    @classmethod
    def of(cls, table: PairTable, n_classes: int) -> PairPlaces:
        """Mark the longest lists, within :data:`INDEX_BYTES` a pair."""
        lengths, words = np.diff(table.starts), -(-n_classes // WORD)
        most = INDEX_BYTES * len(table.classes) // (8 * words)
        longest = np.argsort(-lengths, kind="stable")[:most]
        longest = longest[lengths[longest] >= max(n_classes / MARKED_SHARE, READ_WHOLE)]
        features = np.sort(longest)
        marks = np.zeros((len(features) * words, 2), np.uint32)
        mark_lists(features, table.starts, table.classes, words, marks)
        order = places(features, table.n_features).astype(np.int64)
        return cls(np.where(order < 0, order, order * words), marks)


@kernel()
def mark_lists(features: Array, starts: Array, classes: Array, words: int, marks: Array) -> None:
    """Mark the classes of some features' lists: `marks` uint32 (n * words, 2), zeros before."""
    for j in range(features.shape[0]):
        first = j * words
        for z in range(starts[features[j]], starts[features[j] + 1]):
            c = classes[z]
            marks[first + (c >> 5), 0] |= np.uint32(1) << np.uint32(c & 31)
        before = np.uint32(0)
        for w in range(first, first + words):
            marks[w, 1] = before
            before += bits(marks[w, 0])


@kernel(inline=True)
def bits(word: Number) -> Any:
    """Return how many bits of a uint32 are set: uint32."""
    word = word - ((word >> np.uint32(1)) & np.uint32(0x55555555))
    word = (word & np.uint32(0x33333333)) + ((word >> np.uint32(2)) & np.uint32(0x33333333))
    word = (word + (word >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
    return np.uint32(word * np.uint32(0x01010101)) >> np.uint32(24)


@kernel(inline=True)
def marked_place(marks: Array, first: int, c: int) -> Any:
    """Return the number of a class within a marked list, or -1."""
    w = first + (c >> 5)
    word, bit = marks[w, 0], np.uint32(c & 31)
    if not (word >> bit) & np.uint32(1):
        return -1
    return np.int64(marks[w, 1] + bits(word & ((np.uint32(1) << bit) - np.uint32(1))))


@kernel(fastmath=False)
def find_places(
    row: Array, wanted: Array, n: int, starts: Array, classes: Array, mark_of: Array, marks: Array,
    slot: Array, place: Array,
) -> None:  # fmt: skip
    """Write where the pairs of a row's features and of some classes lie.

    Parameters
    ----------
    row : int32 (v,)
        The features.
    wanted, n : int32 (m,), int
        Classes; the first n, at most 255, are different ones, the others are not read.
    starts, classes : int64 (d + 1,), int32 (Z,)
        The table.
    mark_of, marks : int64 (d,), uint32 (w, 2)
        Those of :class:`PairPlaces`.
    slot : uint8 (K,)
        Scratch; zeros before and after.
    place : int32 (v, m)
        Receives each pair's number within its feature's list, or -1.
    """
    rising = np.sort(wanted[:n])
    for k in range(n):
        slot[wanted[k]] = k + 1
    for j in range(row.shape[0]):
        f, found = row[j], place[j]
        found[:] = -1
        first, last = starts[f], starts[f + 1]
        if last - first <= READ_WHOLE:
            for z in range(first, last):
                k = slot[classes[z]]
                if k > 0:
                    found[k - 1] = z - first
        elif mark_of[f] >= 0:
            for k in range(n):
                found[k] = marked_place(marks, mark_of[f], wanted[k])
        else:
            low = first
            for c in rising:
                high = last
                while low < high:
                    middle = (low + high) >> 1
                    if classes[middle] < c:
                        low = middle + 1
                    else:
                        high = middle
                if low < last and classes[low] == c:
                    found[slot[c] - 1] = low - first
    for k in range(n):
        slot[wanted[k]] = 0
