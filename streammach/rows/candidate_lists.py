"""Classes that are scored for each row, in place of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import lower_bound, ranges_that_fit
from streammach.rows.layouts import ends
from streammach.system.jit import Array, Number, kernel


class CandidateLists(NamedTuple):
    """Which classes are scored for each of n rows; rows may share a list."""

    first: Array  # int64 (n,): row i's classes lie in `classes[first[i]:last[i]]`
    last: Array  # int64 (n,)
    classes: Array  # int32 (m,): class ids, rising within a row, none twice
    labels: Array  # int32 (m,): the class by whose label each is said

    @classmethod
    def repeat(cls, n: int, classes: NDArray[Any], labels: NDArray[Any]) -> CandidateLists:
        """Return one list for n rows."""
        ends = np.zeros(n, np.int64), np.full(n, len(classes))
        return cls(*ends, classes.astype(np.int32), labels.astype(np.int32))

    def part(self, start: int, stop: int) -> CandidateLists:
        """Return the lists of rows ``start:stop``."""
        return self._replace(first=self.first[start:stop], last=self.last[start:stop])

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each class, of lists that are not shared: int64 (m,)."""
        return np.repeat(np.arange(len(self.first)), self.last - self.first)

    def cut(self, most: int, most_rows: int) -> Iterator[slice]:
        """Yield ranges of rows, so many at most, with so many classes, but for a longer list."""
        n_rows = len(self.first)
        if n_rows == 1:  # a query has no time for more
            yield slice(0, 1)
            return
        limits = (ends(self.last - self.first), most), (np.arange(n_rows + 1), most_rows)
        yield from (slice(*one) for one in ranges_that_fit(*limits))

    def spread(self) -> CandidateLists:
        """Return lists one behind the other, none of which is shared."""
        if len(self.first) == 1 and self.last[0] - self.first[0] == len(self.classes):
            return self
        starts = ends(self.last - self.first)
        at = np.arange(starts[-1]) + np.repeat(self.first - starts[:-1], self.last - self.first)
        return CandidateLists(starts[:-1], starts[1:], self.classes[at], self.labels[at])

    def places(self, rows: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
        """Return where classes int (m,) stand in the lists of rows int (m,), -1 where they do not.

        They stand in `classes`: int64 (m,).
        """
        out = np.empty(len(rows), np.int64)
        find_classes(self, rows.astype(np.int64), classes.astype(np.int64), out)
        return out


@kernel()
def find_classes(lists: CandidateLists, rows: Array, classes: Array, out: Array) -> None:
    """Write where classes stand in the lists of their rows, -1 where they do not.

    Parameters
    ----------
    lists : CandidateLists
        The lists.
    rows, classes, out : int64 (m,)
        Rows and a class of each; receives the places.
    """
    for i in range(rows.shape[0]):
        end = lists.last[rows[i]]
        low = lower_bound(lists.classes, lists.first[rows[i]], end, classes[i])
        out[i] = low if low < end and lists.classes[low] == classes[i] else -1


@kernel(inline=True)
def offer_label(s: Number, label: Number, scores: Array, ids: Array) -> None:
    """Insert a label with a score into the k best, if it belongs there, with its best score."""
    # `scores` float32 (k,) and `ids` int64 (k,) are sorted, best first; of equal scores the first
    # that came stays first.
    k = scores.shape[0]
    if s > scores[k - 1]:
        j, better = k - 1, False
        for q in range(k):
            if ids[q] == label:
                j, better = q, not s > scores[q]
        if not better:
            while j > 0 and s > scores[j - 1]:
                scores[j], ids[j] = scores[j - 1], ids[j - 1]
                j -= 1
            scores[j], ids[j] = s, label


@kernel()
def offer_listed(
    s: Array, lists: CandidateLists, scores: Array, ids: Array, first: int, last: int
) -> None:  # fmt: skip
    """Write the k best labels of rows ``first:last``, best first; -1 where there are no more.

    Parameters
    ----------
    s, lists : float32 (m,), CandidateLists
        The scores of listed classes, where they stand.
    scores, ids, first, last : float32 (n, k), int64 (n, k), int, int
        Receive the labels and their scores; which rows.
    """
    for i in range(first, last):
        scores[i], ids[i] = -np.inf, -1
        for z in range(lists.first[i], lists.last[i]):
            offer_label(s[z], lists.labels[z], scores[i], ids[i])
