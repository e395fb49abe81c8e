"""The best classes of rows that have a model's ids, by its ways to rank, and their labels."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streammach.backends.base import Backend
from streammach.counts.scores import CountScorer
from streammach.data.given import label_values
from streammach.errors import DataError, UsageError
from streammach.model.model import Model
from streammach.prediction.calibrate import CANDIDATES, class_probabilities, label_probabilities
from streammach.prediction.ranking import Ranking, by_counts, by_hashes
from streammach.rows.block import RowBlock
from streammach.spec.types import Ranker

FEW_IDS = 256  # whose labels are looked up one by one


class Ranks:
    """Ranks the classes of rows."""

    def __init__(
        self, model: Model, asked: str | None, backend: Backend, scorer: CountScorer | None
    ) -> None:
        self.model = model  # the model
        self.estimator: Ranker = asked or model.estimator  # how classes are ranked
        self._asked, self._backend, self._scorer = asked, backend, scorer
        self._rankings: dict[Ranker, Ranking] = {}

    def topk_ids(
        self, block: RowBlock, k: int, estimator: Ranker | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids of each row and their scores, best first, or raise DataError.

        Returns `ids` int64 (n, min(k, K)), `scores` float32 (n, min(k, K)).
        """
        ids, scores = self._ranking(estimator or self.estimator)(block, k)
        # Weights and values that are finite may have sums that are not: no class is the best then.
        if ids.min(initial=0) < 0 or np.isnan(scores).any():
            wrong = np.flatnonzero((ids < 0).any(axis=1) | np.isnan(scores).any(axis=1))
            row = int(wrong[0]) if block.numbers is None else int(block.numbers[wrong[0]])
            raise DataError(
                f"the scores of row {row:,} (counted from 0) are no numbers: its values or the "
                "model's weights are too large",
                hint="Scale the values as they were for the training.",
            )
        return ids, scores

    def _ranking(self, name: Ranker) -> Ranking:
        """Return a way to rank, which is kept."""
        if name not in self._rankings:
            transform = self.model.training.transform
            if name == "blend":
                assert self._scorer is not None
                self._rankings[name] = by_counts(self._backend, self._scorer, transform)
            else:
                self._rankings[name] = by_hashes(self._backend, name, transform)
        return self._rankings[name]

    def ranking(self, *, threshold: float | None, probabilities: bool) -> Ranking:
        """Return how rows are ranked for :meth:`stream`, which says what is raised."""
        if threshold is not None and not self.model.listed:
            raise UsageError("rows have one label each: --threshold")
        if probabilities:
            self._check_calibrated()
        if threshold is not None:
            return partial(self.likely_ids, threshold=threshold)
        return self._probable_ids if probabilities else self.topk_ids

    def likely_ids(
        self, block: RowBlock, k: int, threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the labels of each row with at least a probability, the likeliest first.

        Each label has a probability of its own (:class:`streammach.model.document.Calibration`);
        those of a row need not add up to 1.

        Returns `ids` int64 (n, min(k, K)), `probabilities` float32 (n, min(k, K)).
        """
        ids, p = self._probable_ids(block, k)
        likely = p >= threshold
        return np.where(likely, ids, -1), np.where(likely, p, np.float32(0))

    def most(self, k: int) -> int:
        """Return how many classes there are of k, or raise UsageError for less than one."""
        if k < 1:
            raise UsageError(f"k is {k}: 1 or more labels are asked for")
        return min(k, self.model.spec.n_classes)

    def labels(self, ids: NDArray[np.int64], kind: str = "") -> NDArray[Any]:
        """Return the labels of class ids, in the type of the training data, or in another kind."""
        if kind:
            some, places = np.unique(ids, return_inverse=True)
            own = label_values(self.model.labels.raws(some), kind, self.model.labels.kind)
            return own[places].reshape(ids.shape)
        # Of the id -1 it is the empty string, in an array of objects.
        names, few = self.model.labels, ids.size <= FEW_IDS
        unique, where = (ids.reshape(-1), ...) if few else np.unique(ids, return_inverse=True)
        there = unique >= 0
        whole = names.kind == "integer" and there.all()
        found = np.full(len(unique), 0 if whole else "", np.int64 if whole else object)
        found[there] = names.values(unique[there])
        return found[where].reshape(ids.shape)

    def _check_calibrated(self, estimator: Ranker | None = None) -> None:
        """Refuse probabilities of a ranking that was asked for and is not the calibrated one."""
        asked, known = estimator or self._asked, self.model.calibrated
        if asked not in (None, known):
            raise UsageError(
                f"probabilities are those of the ranking {known}, not of {asked}: --estimator",
                hint=f"Leave it out, or name {known}.",
            )

    def _probable_ids(
        self, block: RowBlock, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids by the calibrated ranking and their probabilities."""
        model = self.model
        ids, scores = self.topk_ids(block, max(k, CANDIDATES), model.calibrated)
        if model.listed:
            p = label_probabilities(scores, model.calibration)
        else:
            p, _ = class_probabilities(scores, model.spec.n_classes, model.calibration)
        return ids[:, :k], p[:, :k].astype(np.float32)

    def close(self) -> None:
        """Stop the threads."""
        self._backend.close()
        if self._scorer is not None:
            self._scorer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
