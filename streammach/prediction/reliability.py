"""Stated probabilities against the share that is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BINS = 15  # of stated probability, equally wide


@dataclass(frozen=True)
class Bin:
    """Rows whose stated probability lies in one range."""

    n_rows: int  # rows in it
    stated: float  # their mean stated probability
    right: float  # share of them whose best class is their label


@dataclass(frozen=True)
class Reliability:
    """Stated probabilities of the best class against the share that is right."""

    bins: tuple[Bin, ...]  # those that hold rows, by rising probability
    ece: float  # mean distance of stated and right over the rows (expected calibration error)

    @property
    def means(self) -> tuple[float, float]:
        """Stated probability and share that is right over all rows, of which there are some."""
        n = sum(b.n_rows for b in self.bins)
        stated = sum(b.n_rows * b.stated for b in self.bins) / n
        return stated, sum(b.n_rows * b.right for b in self.bins) / n


class BinSums(NamedTuple):
    """Of each of 15 bins: how many, the sum of what they state, how many are right."""

    n: NDArray[np.int64]
    stated: NDArray[Any]
    right: NDArray[Any]


class ReliabilitySums:
    """Adds up stated probabilities and what is right, block by block."""

    def __init__(self) -> None:
        self._n = np.zeros(BINS, np.int64)
        self._stated, self._right = np.zeros(BINS), np.zeros(BINS)

    def add(self, stated: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
        """Add probabilities float64 (n,), and whether each is of something right: bool (n,)."""
        self.take(self.part(stated, right))

    def part(self, stated: NDArray[np.float64], right: NDArray[np.bool_]) -> BinSums:
        """Return what they add by bin."""
        place = np.minimum((stated * BINS).astype(np.int64), BINS - 1)
        return BinSums(
            np.bincount(place, minlength=BINS), np.bincount(place, stated, BINS),
            np.bincount(place, right, BINS),
        )  # fmt: skip

    def take(self, part: BinSums) -> None:
        """Add what :meth:`part` returned."""
        self._n += part.n
        self._stated += part.stated
        self._right += part.right

    def result(self) -> Reliability:
        """Return both by bin."""
        n = self._n
        bins = tuple(
            Bin(int(n[i]), float(self._stated[i] / n[i]), float(self._right[i] / n[i]))
            for i in n.nonzero()[0]
        )
        distance = sum(b.n_rows * abs(b.stated - b.right) for b in bins)
        return Reliability(bins, distance / max(int(n.sum()), 1))


def reliability(stated: NDArray[np.float64], right: NDArray[np.bool_]) -> Reliability:
    """Return stated probabilities against the share that is right.

    `stated` is float64 (n,), `right` is bool (n,).
    """
    sums = ReliabilitySums()
    sums.add(stated, right)
    return sums.result()
