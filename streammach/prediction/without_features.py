"""Rows without a feature that a model knows: classes go by how many training rows have them.

Weights say little of such rows. Those of counts are fitted beside features: what a class has before
any feature may be less for frequent classes, since each feature gives them more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.prediction.ranking import CandidateRanking, Ranking, Top
from streammach.rows.arrays import best_first
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists
from streammach.spec.estimators import BLEND, ESTIMATORS
from streammach.spec.types import Ranker

LEAST_ROWS = 0.5  # of a class that no training row has
FREQUENCY_BYTES = 24  # of a class: its score and its place, and what makes them


@dataclass(frozen=True)
class WithoutFeatures:
    """The scores of rows without features by a ranking, in place of its own."""

    scores: NDArray[np.float32]  # float32 (K,)

    @classmethod
    def of(cls, model: Model, ranker: Ranker) -> Self | None:
        """Return them; None where rows are dense, or the model does not know the training rows.

        They are shares of the training rows, or where scores are logarithms, logarithms by the
        scale of the calibration, so that probabilities differ as the shares do. Of a model of rows
        with one label the shares of their values stand for those of the rows.
        """
        if model.dense:
            return None
        if model.label_counts is not None:
            rows, total = model.label_counts.astype(np.float64), float(model.n_rows)
        elif model.counts is not None:
            rows = np.exp(model.counts.log_values.astype(np.float64))
            total = float(rows.sum())
        else:
            return None
        shares = np.maximum(rows, LEAST_ROWS) / max(total, 1.0)
        if ranker == BLEND or ESTIMATORS[ranker].logarithms:
            shares = np.log(shares) / model.calibration.beta
        return cls(shares.astype(np.float32))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """All classes, best first: int64 (K,)."""
        return np.argsort(-self.scores, kind="stable")

    def all_classes(self, ranking: Ranking) -> Ranking:
        """Return a ranking with these scores of rows without features."""

        def rank(block: RowBlock, k: int) -> Top:
            ids, scores = ranking(block, k)
            empty = _empty(block)
            if len(empty):
                ids[empty] = self.order[: ids.shape[1]]
                scores[empty] = self.scores[ids[empty]]
            return ids, scores

        return rank

    def some_classes(self, ranking: CandidateRanking) -> CandidateRanking:
        """Return the same of listed classes."""

        def rank(block: RowBlock, k: int, lists: CandidateLists) -> Top:
            ids, scores = ranking(block, k, lists)
            for i in _empty(block):
                some = slice(lists.first[i], lists.last[i])
                own = self.scores[lists.classes[some]]
                labels, own = best_first(lists.labels[None, some], own[None], len(own))
                first = np.sort(np.unique(labels, return_index=True)[1])[:k]  # each once
                there = slice(0, len(first))
                ids[i, there], scores[i, there] = labels[0, first], own[0, first]
            return ids, scores

        return rank


def _empty(block: RowBlock) -> NDArray[Any]:
    """Return the rows without features: int64 (m,)."""
    return np.flatnonzero(block.indptr[1:] == block.indptr[:-1])
