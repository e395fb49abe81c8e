"""The best labels of rows by a model: by scores or by probabilities, of all labels or of some."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.protocol import Backend
from streammach.counts.scores import CountScorer
from streammach.errors import DataError, UsageError
from streammach.linear.scorer import open_scorer
from streammach.linear.weights import LinearScorer
from streammach.model.calibration import CANDIDATES, class_probabilities, label_probabilities
from streammach.model.model import Model
from streammach.prediction.allowed import Allowed, KnownLabels
from streammach.prediction.ranking import (
    ListRanking,
    Ranking,
    Top,
    by_classifiers,
    by_counts,
    by_hashes,
    by_linear,
)
from streammach.prediction.without_features import WithoutFeatures
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists
from streammach.spec.annotated import check_options
from streammach.spec.estimators import BLEND
from streammach.spec.types import Ranker
from streammach.threads import Workers, pieces_of

PIECES_A_THREAD = 4  # of rows whose lists of classes are scored


class BestLabels:
    """Ranks the classes of rows, on one thread at a time that calls it."""

    def __init__(self, model: Model, backend: Backend, named: Ranker | None, threads: int) -> None:
        self.known = KnownLabels(model)
        self._model, self._backend, self._named = model, backend, named
        self._workers = Workers(threads, "labels")
        self._scorer = None if model.counts is None else CountScorer(model.counts, threads)
        self._linear = None if model.linear is None else open_scorer(model.linear, threads)
        self._rankings: dict[Ranker, ListRanking] = {}
        self._late = None if model.late is None else LinearScorer(model.late.classifiers, threads)

    def ranking(
        self, *, threshold: float | None = None, probabilities: bool = False,
        estimator: Ranker | None = None, allowed: Allowed | None = None,
    ) -> Ranking:  # fmt: skip
        """Return how rows are ranked, or raise UsageError."""
        named, calibrated = estimator or self._named, self._model.calibrated_ranking
        if (probabilities or threshold is not None) and named not in (None, calibrated):
            raise UsageError(
                f"probabilities are those of the ranking {calibrated}, not of {named}: --estimator",
                hint=f"Leave it out, or name {calibrated}.",
            )
        if threshold is not None:
            check_options({"threshold": "float"}, {"threshold": threshold})
            if not 0 <= threshold <= 1:
                raise UsageError(f"{threshold} is no share from 0 to 1: --threshold")
        if probabilities or threshold is not None:
            return partial(self._probable_ids, threshold=threshold, allowed=allowed)
        return partial(self.topk_ids, estimator=estimator, allowed=allowed)

    def topk_ids(
        self, block: RowBlock, k: int, estimator: Ranker | None = None,
        allowed: Allowed | None = None,
    ) -> Top:  # fmt: skip
        """Return class ids int64 (n, k) and scores, best first, or raise DataError."""
        rank = self._of(estimator or self._named or self._model.estimator)
        allowed = allowed or self.known.usual
        return rank(block, k) if allowed is None else allowed.best(block, k, rank)

    def rank(self, name: Ranker, block: RowBlock, k: int) -> Top:
        """Return the k best of all classes by an estimator."""
        return self._of(name)(block, k)

    def _probable_ids(
        self, block: RowBlock, k: int, threshold: float | None = None,
        allowed: Allowed | None = None,
    ) -> Top:  # fmt: skip
        """Return the k best class ids by the calibrated ranking and their probabilities.

        A label has the probability that it has among all of them, whichever may be said. Classes
        are ranked once, as many as any of these asks for. With a threshold less likely labels are
        left out.
        """
        model, usual, n = self._model, self.known.usual, max(k, CANDIDATES)
        every = self._of(model.calibrated_ranking)
        asked = [n, *(one.n_to_rank(m) for one, m in ((usual, n), (allowed, k)) if one is not None)]
        top = every(block, max(asked))

        def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
            return (top[0][:, :k], top[1][:, :k]) if lists is None else every(rows, k, lists)

        ids, scores = rank(block, n) if usual is None else usual.best(block, n, rank)
        found, own = (ids[:, :k], scores) if allowed is None else allowed.best(block, k, rank)
        if model.listed:
            best = scores if usual is None else top[1][:, :CANDIDATES]
            p = label_probabilities(own, model.calibration, best)
        else:
            p, left = class_probabilities(scores, model.n_labels, model.calibration)
            if allowed is not None:  # the same labels come first among the best of all
                n = min(CANDIDATES, ids.shape[1])
                first, own = allowed.pack_best(ids[:, :n], p[:, :n], found.shape[1])
                p = np.where(first >= 0, own, left[:, None])
        said = np.where(found >= 0, p[:, : found.shape[1]], 0).astype(np.float32)
        if threshold is None:
            return found, said
        likely = said >= threshold
        return np.where(likely, found, -1), np.where(likely, said, np.float32(0))

    def of_classes(self, block: RowBlock, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of rows' best classes, where labels have `scores` of some of them.

        Probabilities of labels go by these, so that no change of labels changes another's.
        """
        if self.known.usual is None:
            return scores
        return self._of(self._model.calibrated_ranking)(block, CANDIDATES)[1]

    def _of(self, name: Ranker) -> ListRanking:
        """Return how classes are ranked."""
        if name not in self._rankings:
            model, backend = self._model, self._backend
            transform = model.training.transform
            if name != BLEND:
                ranking = by_hashes(backend, name, transform, self._each)
            elif self._linear is not None:
                ranking = by_linear(self._linear)
            else:
                assert self._scorer is not None
                ranking = by_counts(backend, self._scorer, transform)
            ranking = _check_numbers(ranking)
            if (
                model.late is not None
                and self._late is not None
                and name == model.calibrated_ranking
            ):
                ranking = by_classifiers(ranking, model.late, self._late)
            without = WithoutFeatures.of(model, name)
            self._rankings[name] = ranking if without is None else without.change(ranking)
        return self._rankings[name]

    def _each(self, work: Callable[[int, int], None], n: int) -> None:
        threads = self._workers.n_threads
        self._workers.each(work, pieces_of(n, threads, a_thread=PIECES_A_THREAD))

    def close(self) -> None:
        """Stop the threads."""
        for one in (self._workers, self._scorer, self._linear, self._late):
            if one is not None:
                one.close()


def _check_numbers(ranking: ListRanking) -> ListRanking:
    """Return a ranking that raises DataError where scores are no numbers."""

    # Weights and values that are finite may have sums that are not: no class is the best then. Of
    # lists that are shorter than k the rest scores 0.
    def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
        ids, scores = ranking(rows, k, lists)
        if lists is not None:
            wrong = (lists.last > lists.first) & (ids[:, 0] < 0)
            if wrong.any():
                _refuse(rows, wrong)
            return ids, np.where(ids < 0, np.float32(0), scores)
        if ids.min(initial=0) < 0 or np.isnan(scores).any():
            _refuse(rows, (ids < 0).any(axis=1) | np.isnan(scores).any(axis=1))
        return ids, scores

    return rank


def _refuse(block: RowBlock, wrong: Any) -> None:
    row = int(np.flatnonzero(wrong)[0])
    number = row if block.numbers is None else int(block.numbers[row])
    raise DataError(
        f"the scores of row {number:,} (counted from 0) are no numbers: its values or the model's "
        "weights are too large",
        hint="Scale the values as they were for the training.",
    )
