"""Loops that look at numbers which were read: the largest of them, and whether they rise.

Numbers are compared as integers of a word, many at a time.
"""

from __future__ import annotations

import numpy as np

from streammach.jit import Array, Number, kernel

ALL, NO_SIGN = np.uint32(0xFFFFFFFF), np.uint32(0x7FFFFFFF)  # of the bits of a word
MOST_IMPORTANCE = 1e9  # of a row: as often as any row is there, and its square fits float32
INFINITE = 0x7F800000  # what a float32 that is no finite number has there at least


@kernel()
def look_at_ids(ids: Array, seen: Array) -> None:
    """Take ids int32 (n,) into `seen` int64 (2,): their largest, and where they do not rise."""
    # Negative ids count as large ones.
    falls, largest = np.uint32(0), np.uint32(ids[0])
    for p in range(1, ids.shape[0]):
        falls += np.uint32(ids[p] <= ids[p - 1])
        largest = max(largest, np.uint32(ids[p]))
    seen[0] = max(seen[0], np.int64(largest))
    seen[1] += falls


@kernel()
def look_at_numbers(numbers: Array, kept: Number, seen: Array) -> None:
    """Take some float32 into `seen` int64 (1,): the largest of their bits, of those in `kept`."""
    words, largest = numbers.view(np.uint32), np.uint32(0)
    for p in range(words.shape[0]):
        largest = max(largest, words[p] & kept)
    seen[0] = max(seen[0], np.int64(largest))
