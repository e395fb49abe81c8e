"""Final ids: those of a store that is given, then by falling frequency."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.dataset import Dataset
from streammach.rows.names import NO_COLUMNS, Names, TrainedColumns
from streammach.rows.vocabulary import Vocabulary, by_frequency, permuted


@dataclass(frozen=True)
class RankedNames:
    """Names by final id, how often each occurs, and the final id of each provisional one."""

    names: Names
    counts: NDArray[np.int64]
    rank: NDArray[np.int32]

    @classmethod
    def of(cls, names: Names, counts: NDArray[np.int64], first: int = 0) -> RankedNames:
        """Return names of which the first so many keep their ids."""
        new = names
        if first:
            start = names.offsets[first]
            new = Names(names.offsets[first:] - start, names.data[start:], "")
        order = by_frequency(new, counts[first:])
        if first:
            order = np.concatenate([np.arange(first), first + order])
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(permuted(names, order), counts[order], rank)


@dataclass(frozen=True)
class Known:
    """The labels and features that ids must agree with, if any."""

    labels: Names | None = None
    features: Names | None = None
    digest: str = ""
    columns: TrainedColumns = NO_COLUMNS

    @classmethod
    def of(cls, like: str | os.PathLike[str] | None) -> Known:
        """Return those of a store."""
        if like is None:
            return cls()
        with Dataset.open(like) as dataset:
            return cls(dataset.labels, dataset.features, dataset.digest, dataset.columns)

    def vocabulary(self) -> Vocabulary:
        """Return a vocabulary that holds them; it takes in new labels, and features if none are."""
        return Vocabulary(
            self.labels, self.features, add_features=self.features is None, columns=self.columns
        )

    def ranked_labels(self, names: Names, counts: NDArray[np.int64]) -> RankedNames:
        """Return the final list of labels, of which each occurs so often."""
        return RankedNames.of(names, counts, 0 if self.labels is None else len(self.labels))

    def ranked_features(self, names: Names, counts: NDArray[np.int64]) -> RankedNames:
        """Return the final list of features, of which each occurs so often."""
        if self.features is not None:
            return RankedNames(names, counts, np.arange(len(names), dtype=np.int32))
        return RankedNames.of(names, counts)
