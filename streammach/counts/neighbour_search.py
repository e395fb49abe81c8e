"""Finds the training rows most like a row, and what their labels gain by it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import offer_any, sort_numbers
from streammach.rows.candidate_lists import CandidateLists
from streammach.rows.layouts import ends
from streammach.rows.neighbours import Neighbours
from streammach.system.jit import Array, kernel

MOST = 10  # neighbours of a row
STEEP = np.float32(10)  # of the logarithm by which labels gain
JOINED, JOINED_BYTES = 1 << 17, 64  # labels of neighbours of rows that are ranked together; of each


class NeighbourLists(NamedTuple):
    """The arrays of :class:`streammach.rows.neighbours.Neighbours`, and what features are worth."""

    starts: Array
    rows: Array
    norms: Array
    label_starts: Array
    labels: Array
    idf: Array  # float32 (d,)


class NeighbourRoom(NamedTuple):
    """A thread's scratch; zeros before and after."""

    products: Array  # float32 (n,): of the row and each training row
    seen: Array  # int32 (n,): training rows with a product
    sums: Array  # float32 (K,): what the neighbours with a label say


class NeighbourSearch:
    """Finds neighbours of rows, on all threads.

    With the cosines s_j of a row and its ten neighbours a label gains ``weight * ln(1 + 10 sum_j
    s_j^3)``, where the sum is over those that have it.
    """

    def __init__(self, found: Neighbours, n_classes: int) -> None:
        self._lists = NeighbourLists(**found.arrays(""), idf=found.idf())
        self._n_classes = n_classes
        self._weight, self._scratch = np.float32(found.weight), threading.local()
        longest = int(np.diff(found.label_starts).max(initial=1))
        self.most_rows = max(1, JOINED // (MOST * longest))  # that are ranked together

    @staticmethod
    def footprint(n_rows: int, n_classes: int, threads: int) -> int:
        """Return the bytes of scratch."""
        return threads * (8 * n_rows + 4 * n_classes) + JOINED * JOINED_BYTES

    def gains(
        self, indptr: NDArray[np.int64], features: NDArray[np.int32],
        each: Callable[[int, Callable[[int, int], None]], None],
    ) -> tuple[CandidateLists, NDArray[np.float32]]:  # fmt: skip
        """Return the labels of each row's neighbours, and what they gain: float32 (m,), above 0.

        Rows are int64 (n + 1,) and int32 (nnz,); `each` calls work with ranges of n, on threads.
        """
        n, lists = len(indptr) - 1, self._lists
        who, alike = np.full((n, MOST), -1, np.int32), np.zeros((n, MOST), np.float32)

        def search(first: int, last: int) -> None:
            find_neighbours(indptr, features, first, last, lists, self._room(), who, alike)

        each(n, search)
        lengths = lists.label_starts[who + 1] - lists.label_starts[who]
        most = np.where(who >= 0, lengths, 0).sum(axis=1)
        first = np.cumsum(most) - most
        last = first.copy()
        classes, sums = (np.empty(int(most.sum()), kind) for kind in (np.int32, np.float32))
        each(n, lambda a, b: add_labels(who, alike, a, b, lists, self._room(), last, classes, sums))
        starts = ends(last - first)
        places = np.arange(starts[-1]) + np.repeat(first - starts[:-1], last - first)
        classes, gains = classes[places], self._weight * np.log1p(STEEP * sums[places])
        return CandidateLists(starts[:-1], starts[1:], classes, classes), gains

    def gains_of(self, features: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what classes int64 (k,) gain for a row with features int64 (m,): float32 (k,)."""
        row = np.array([0, len(features)]), features.astype(np.int32)
        lists, gains = self.gains(*row, lambda n, work: work(0, n))
        at = lists.places(np.zeros(len(ids), np.int64), ids)
        return np.where(at >= 0, np.append(gains, np.float32(0))[at], np.float32(0))

    def _room(self) -> NeighbourRoom:
        if not hasattr(self._scratch, "room"):
            products = np.zeros(len(self._lists.norms), np.float32)
            seen, sums = np.empty(len(products), np.int32), np.zeros(self._n_classes, np.float32)
            self._scratch.room = NeighbourRoom(products, seen, sums)
        room: NeighbourRoom = self._scratch.room
        return room


@kernel()
def find_neighbours(
    indptr: Array, features: Array, first: int, last: int, lists: NeighbourLists,
    room: NeighbourRoom, who: Array, alike: Array,
) -> None:  # fmt: skip
    """Write the training rows most like rows ``first:last``.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    lists, room : NeighbourLists, NeighbourRoom
        The training rows; scratch.
    who, alike : int32 (n, 10), float32 (n, 10)
        Receive them, the most alike first, and their cosines; -1 and 0 stay where there are fewer.
    """
    products, seen = room.products, room.seen
    for i in range(first, last):
        m, total = 0, np.float32(0)
        for z in range(indptr[i], indptr[i + 1]):
            f = features[z]
            worth = lists.idf[f] * lists.idf[f]
            total += worth
            for p in range(lists.starts[f], lists.starts[f + 1]):
                r = lists.rows[p]
                if products[r] == 0:
                    seen[m] = r
                    m += 1
                products[r] += worth
        norm = np.float32(1 / np.sqrt(total)) if total > 0 else np.float32(0)
        for q in range(m):
            r = seen[q]
            offer_any(np.float32(products[r] * lists.norms[r] * norm), r, alike[i], who[i])
            products[r] = 0


@kernel()
def add_labels(
    who: Array, alike: Array, first: int, last: int, lists: NeighbourLists, room: NeighbourRoom,
    after: Array, classes: Array, sums: Array,
) -> None:  # fmt: skip
    """Write the labels of the neighbours of rows ``first:last``, and the cubes of the cosines.

    Parameters
    ----------
    who, alike : int32 (n, 10), float32 (n, 10)
        What :func:`find_neighbours` wrote.
    lists, room : NeighbourLists, NeighbourRoom
        The training rows; scratch.
    after, classes, sums : int64 (n,), int32 (m,), float32 (m,)
        Where each row's labels go; receive where they end, the labels, rising, and their sums.
    """
    for i in range(first, last):
        start, end = after[i], after[i]
        for j in range(who.shape[1]):
            r = who[i, j]
            s = alike[i, j] * alike[i, j] * alike[i, j]
            if s == 0:
                break
            for p in range(lists.label_starts[r], lists.label_starts[r + 1]):
                c = lists.labels[p]
                if room.sums[c] == 0:
                    classes[end] = c
                    end += 1
                room.sums[c] += s
        sort_numbers(classes[start:end])
        for p in range(start, end):
            sums[p] = room.sums[classes[p]]
            room.sums[classes[p]] = 0
        after[i] = end
