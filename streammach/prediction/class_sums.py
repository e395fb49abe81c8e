"""What is right by class: macro recall, and recall by how frequent classes were in training."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.prediction.id_counts import IdCounts

GROUPS = 10  # of classes by frequency, equally many classes each


@dataclass(frozen=True)
class Decile:
    """A tenth of the classes, by their rank of frequency in training."""

    n_classes: int  # n_classes, n_rows: its classes, and the rows that carry one of them
    n_rows: int
    recall: float | None  # share of those rows whose best class is their label; None without rows


class ClassSums:
    """Adds up rows and right ones by class, block by block."""

    def __init__(self, n_classes: int) -> None:
        self._there, self._right = (np.zeros(n_classes, np.int32) for _ in range(2))

    def add(self, classes: NDArray[np.int32], right: NDArray[np.bool_]) -> None:
        """Add rows; see :meth:`part`."""
        self.take(*self.part(classes, right))

    def part(
        self, classes: NDArray[np.int32], right: NDArray[np.bool_]
    ) -> tuple[IdCounts, IdCounts]:
        """Return what rows add: how often each class is there, and how often it is right.

        `classes` is int32 (n,), `right` is bool (n,).
        """
        known = classes >= 0
        return IdCounts.of(classes[known]), IdCounts.of(classes[right & known])

    def take(self, there: IdCounts, right: IdCounts) -> None:
        """Add what :meth:`part` returned."""
        there.add_to(self._there)
        right.add_to(self._right)

    def macro_recall(self) -> float:
        """Return the mean over the classes that occur of the share of their rows that is right."""
        some = self._there > 0
        return float((self._right[some] / self._there[some]).mean()) if some.any() else float("nan")

    def deciles(self) -> tuple[Decile, ...]:
        """Return recall by the frequency of classes, whose ids fall with it.

        With fewer than ten classes every one is a group.
        """
        n_classes = len(self._there)
        groups = min(GROUPS, n_classes)
        edges = [i * n_classes // groups for i in range(groups + 1)]
        found = []
        for start, stop in itertools.pairwise(edges):
            n = int(self._there[start:stop].sum(dtype=np.int64))
            right = int(self._right[start:stop].sum(dtype=np.int64))
            found.append(Decile(stop - start, n, right / n if n else None))
        return tuple(found)
