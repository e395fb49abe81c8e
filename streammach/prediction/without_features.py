"""Rows without a feature that a model knows: classes go by how many training rows have them.

Weights say little of such rows. Those of counts are fitted beside features: what a class has before
any feature may be less for frequent classes, since each feature gives them more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.prediction.ranking import ListRanking, Top
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

    _model: Model
    _ranker: Ranker

    @classmethod
    def of(cls, model: Model, ranker: Ranker) -> Self | None:
        """Return them; None where rows are dense, or the model does not know the training rows."""
        unknown = model.label_counts is None and model.counts is None
        return None if model.dense or unknown or model.linear is not None else cls(model, ranker)

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """Scores of all classes, made when the first such row comes: float32 (K,).

        They are shares of the training rows, or where scores are logarithms, logarithms by the
        scale of the calibration, so that probabilities differ as the shares do. Of a model of rows
        with one label the shares of their values stand for those of the rows.
        """
        model = self._model
        if model.label_counts is not None:
            rows, total = model.label_counts.astype(np.float64), float(model.n_rows)
        else:
            assert model.counts is not None, "of() asks for one of both"
            rows = np.exp(model.counts.log_values.astype(np.float64))
            total = float(rows.sum())
        shares = np.maximum(rows, LEAST_ROWS) / max(total, 1.0)
        if self._ranker == BLEND or ESTIMATORS[self._ranker].logarithms:
            shares = np.log(shares) / model.calibration.beta
        return shares.astype(np.float32)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """All classes, best first: int64 (K,)."""
        return np.argsort(-self.scores, kind="stable")

    def change(self, ranking: ListRanking) -> ListRanking:
        """Return a ranking with these scores of rows without features."""

        def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
            ids, scores = ranking(rows, k, lists)
            empty = rows.empty
            if lists is None:
                if len(empty):
                    ids[empty] = self.order[: ids.shape[1]]
                    scores[empty] = self.scores[ids[empty]]
                return ids, scores
            for i in empty:
                some = slice(lists.first[i], lists.last[i])
                own = self.scores[lists.classes[some]]
                labels, own = best_first(lists.labels[None, some], own[None], len(own))
                first = np.sort(np.unique(labels, return_index=True)[1])[:k]  # each once
                there = slice(0, len(first))
                ids[i, there], scores[i, there] = labels[0, first], own[0, first]
            return ids, scores

        return rank
