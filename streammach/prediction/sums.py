"""What blocks of rows add to figures: made of each block, and added up in the order of the rows."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock

if TYPE_CHECKING:
    from streammach.prediction.predictor import Predictor

BINS = 15  # of stated probability, equally wide
GROUPS = 10  # of classes by frequency, equally many classes each
# What a block of rows adds, by name: an array, a number, IdCounts, or sums of their own.
BlockSums = Mapping[str, Any]


class IdCounts(NamedTuple):
    """How often each of some ids occurs."""

    ids: NDArray[np.int64]  # ids, n: int64 (m,): the ids, rising, and how often each is there
    n: NDArray[np.int64]

    @classmethod
    def of(cls, ids: NDArray[np.integer[Any]]) -> IdCounts:
        """Return the counts of ids (n,), none of them negative."""
        found, n = np.unique(ids, return_counts=True)
        return cls(found.astype(np.int64), n.astype(np.int64))


class RankedRows(NamedTuple):
    """Rows of an input, and how a model ranks them."""

    predictor: Predictor | None  # None: another system does
    block: RowBlock
    best: NDArray[np.int64]  # int64 (n, 5 or more): the best classes, as the model ranks
    # candidates, scores: int64, float (n, 32): the best by the ranking that is calibrated
    candidates: NDArray[np.int64]
    scores: NDArray[Any]

    @property
    def of_classes(self) -> NDArray[Any]:
        """Scores of the best classes, whichever say labels: float (n, 32)."""
        model = self.predictor
        return self.scores if model is None else model.of_classes(self.block, self.scores)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Number of each row of the input: int64 (n,)."""
        assert self.block.numbers is not None, "it is read with them"
        return self.block.numbers


class Summed(ABC):
    """What blocks of rows add up to."""

    @abstractmethod
    def take(self, more: Any) -> None:
        """Add what a block of rows adds."""


class Figures(Summed):
    """Figures of an evaluation: what a block of rows adds to their sums, and what these come to.

    `sums` are arrays by name, or sums of their own. What blocks add may be made in several
    processes: of what is counted by id it holds the ids that occur. Added up in the order of their
    rows it gives the same figures, to the last digit, as in one.
    """

    def __init__(self, **sums: Any) -> None:
        self.sums = sums

    @abstractmethod
    def block_sums(self, rows: RankedRows) -> BlockSums:
        """Return what rows add."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return what the sums come to, as fields of an evaluation."""

    def details(self) -> dict[str, Any]:
        """Return what a diagnosis has beside that, as fields of it."""
        return {}

    def take(self, more: BlockSums) -> None:
        """Add what a block of rows adds; the order of the rows decides the last digits."""
        for name, added in more.items():
            own = self.sums[name]
            if isinstance(own, Summed):
                own.take(added)
            elif isinstance(added, IdCounts):
                own[added.ids] += added.n.astype(own.dtype)
            else:
                own += added


@dataclass(frozen=True)
class Decile:
    """A tenth of the classes, by their rank of frequency in training."""

    n_classes: int  # n_classes, n_rows: its classes, and the rows that carry one of them
    n_rows: int
    recall: float | None  # share of those rows whose best class is their label; None without rows


def macro_recall(there: NDArray[np.int32], right: NDArray[np.int32]) -> float:
    """Return the mean over the classes that occur of the share of their rows that is right.

    `there` and `right` are int32 (K,): how often each class is there, and how often it is right.
    """
    some = there > 0
    return float((right[some] / there[some]).mean()) if some.any() else float("nan")


def deciles(there: NDArray[np.int32], right: NDArray[np.int32]) -> tuple[Decile, ...]:
    """Return recall by the frequency of classes, whose ids fall with it, from such sums.

    With fewer than ten classes every one is a group.
    """
    n_classes, groups = len(there), min(GROUPS, len(there))
    found = []
    for start, stop in itertools.pairwise(i * n_classes // groups for i in range(groups + 1)):
        n = int(there[start:stop].sum(dtype=np.int64))
        n_right = int(right[start:stop].sum(dtype=np.int64))
        found.append(Decile(stop - start, n, n_right / n if n else None))
    return tuple(found)


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
        """Stated probability and share that is right over all rows, one at least."""
        n = sum(b.n_rows for b in self.bins)
        stated = sum(b.n_rows * b.stated for b in self.bins) / n
        return stated, sum(b.n_rows * b.right for b in self.bins) / n


def binned(stated: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return of each of 15 bins how many, the sum of what they state, how many are right.

    `stated` and `right` are (n,). Returns float64 (3, 15), which may be added up.
    """
    place = np.minimum((stated * BINS).astype(np.int64), BINS - 1)
    return np.stack([np.bincount(place, weights, BINS) for weights in (None, stated, right)])


def reliability(sums: NDArray[np.float64]) -> Reliability:
    """Return stated probabilities against the share that is right, by sums of :func:`binned`."""
    n, stated, right = sums.tolist()
    bins = tuple(Bin(int(n[i]), stated[i] / n[i], right[i] / n[i]) for i in range(BINS) if n[i])
    distance = sum(b.n_rows * abs(b.stated - b.right) for b in bins)
    return Reliability(bins, distance / max(sum(n), 1))
