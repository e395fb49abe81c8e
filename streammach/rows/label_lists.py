"""The labels of rows that may have any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.layouts import ends
from streammach.system.jit import Array, kernel

LOW32 = 0xFFFFFFFF
NONE = np.zeros(0, np.float32)  # stands for weights that all are 1


@dataclass(frozen=True)
class LabelLists:
    """A list of classes for each row; a list may be empty."""

    starts: NDArray[np.int64]  # int64 (n + 1,): row i's classes lie in `starts[i]:starts[i + 1]`
    # int32 (m,): class ids, rising within a row, none twice; -1 (unknown), which come first, may
    # repeat
    classes: NDArray[np.int32]
    # float32 (m,) or None: weight of each label, above 0; None where all are 1
    weights: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> LabelLists:
        """Return the lists of the given class ids."""
        starts = ends([*map(len, rows)])
        return cls(starts, np.array([c for row in rows for c in sorted(row)], np.int32))

    @classmethod
    def single(cls, classes: NDArray[np.int32]) -> LabelLists:
        """Return lists of one class each: `classes` int32 (n,)."""
        return cls(np.arange(len(classes) + 1), classes)

    @property
    def n_labels(self) -> int:
        """Labels of all rows."""
        return int(self.starts[-1] - self.starts[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Labels of each row: int64 (n,)."""
        return np.diff(self.starts)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each label: int64 (m,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def shares(self) -> NDArray[np.float64]:
        """What each label has of the weights of its row: float64 (m,)."""
        rows = self.rows
        weights = np.ones(len(rows)) if self.weights is None else self.weights.astype(np.float64)
        return weights / np.bincount(rows, weights, len(self))[rows]

    @property
    def first(self) -> NDArray[np.int32]:
        """The first class of each row, -1 where it has none: int32 (n,)."""
        out = np.full(len(self), -1, np.int32)
        some = self.lengths > 0
        out[some] = self.classes[self.starts[:-1][some]]
        return out

    @property
    def has_known_class(self) -> NDArray[np.bool_]:
        """Whether a row has a class that is known: bool (n,)."""
        out = self.lengths > 0
        out[out] = self.classes[self.starts[1:][out] - 1] >= 0  # they rise
        return out

    def part(self, start: int, stop: int) -> LabelLists:
        """Return rows ``start:stop`` as views, with starts from 0."""
        a, b = int(self.starts[start]), int(self.starts[stop])
        weights = None if self.weights is None else self.weights[a:b]
        return LabelLists(self.starts[start : stop + 1] - a, self.classes[a:b], weights)

    def take(self, chosen: NDArray[np.int64]) -> LabelLists:
        """Return copies of the chosen rows, in that order."""
        starts, places = places_of(self.starts, chosen)
        weights = None if self.weights is None else self.weights[places]
        return LabelLists(starts, self.classes[places], weights)

    def rename(self, classes: NDArray[np.int32]) -> LabelLists:
        """Return the lists with other ids, ``classes[id]``; -1 stays; sorted anew."""
        own = np.where(self.classes >= 0, classes[np.maximum(self.classes, 0)], -1)
        return LabelLists(self.starts, own.astype(np.int32), self.weights).sort()

    def sort(self) -> LabelLists:
        """Return the lists with rising ids, none twice: weights of the same one are added up."""
        rows = self.rows
        keys = (rows << 32) + self.classes  # an unknown class is the last number before its row's
        if (keys[1:] > keys[:-1]).all():  # as matrices often have them
            return self
        order = None if self.weights is None else np.argsort(keys, kind="stable")
        keys = np.sort(keys) if order is None else keys[order]
        new = np.ones(len(keys), np.bool_)
        new[1:] = (keys[1:] != keys[:-1]) | (keys[1:] & LOW32 == LOW32)
        kept = keys[new]
        weights = None
        if self.weights is not None:
            weights = np.zeros(len(kept), np.float32)
            np.add.at(weights, np.cumsum(new) - 1, self.weights[order])
        starts = np.searchsorted(kept, (np.arange(len(self) + 1) << 32) - 1)
        return LabelLists(starts, kept.astype(np.int32), weights)

    def match(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of some ids (n, k) are among a row's labels: bool (n, k)."""
        out = np.zeros(ids.shape, np.bool_)
        find_labels(self.starts, self.classes, np.ascontiguousarray(ids, np.int64), out)
        return out

    def gains_of(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        """Return the weights of some ids (n, k) that are labels of their row, else 0: (n, k)."""
        hits = self.match(ids)
        out = hits.astype(np.float32)
        if self.weights is not None and hits.any():
            n = int(self.classes.max()) + 1  # classes rise within a row, and these with them
            own = self.rows * n + self.classes
            out[hits] = self.weights[np.searchsorted(own, np.nonzero(hits)[0] * n + ids[hits])]
        return out

    def largest_gains(self, k: int) -> NDArray[np.float64]:
        """Return the sum of each row's k largest weights: float64 (n,)."""
        rows = self.rows
        weights = np.ones(len(rows)) if self.weights is None else self.weights.astype(np.float64)
        order = np.lexsort((-weights, rows))
        first = np.arange(len(rows)) - (self.starts - self.starts[0])[rows] < k
        return np.bincount(rows[first], weights[order][first], len(self)).astype(np.float64)

    @classmethod
    def concat(cls, parts: Sequence[LabelLists]) -> LabelLists:
        """Return the lists of all parts, at least one, one after the other."""
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate([
                np.ones(part.n_labels, np.float32) if part.weights is None else part.weights
                for part in parts
            ])  # fmt: skip
        classes = np.concatenate([p.classes[p.starts[0] : p.starts[-1]] for p in parts])
        return cls(ends(np.concatenate([part.lengths for part in parts])), classes, weights)


def places_of(
    starts: NDArray[np.int64], chosen: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where chosen lists start when they are copied, and where their entries are now."""
    lengths = np.diff(starts)[chosen]
    new = ends(lengths)
    return new, np.repeat(starts[chosen] - new[:-1], lengths) + np.arange(int(new[-1]))


@kernel()
def find_labels(starts: Array, classes: Array, ids: Array, out: Array) -> None:
    """Write whether each of `ids` (n, k) is among the labels of its row to `out` bool (n, k)."""
    for i in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            for p in range(starts[i], starts[i + 1]):
                if classes[p] == ids[i, j]:
                    out[i, j] = True
