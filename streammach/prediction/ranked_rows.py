"""Labelled rows as a model, or another system, ranks them: what metrics are counted of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.model.calibration import CANDIDATES, TINY
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.prediction.scorer_sum import BestLabels
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.system.errors import UsageError


class ClassFacts(NamedTuple):
    """What is known of classes whose scores another system gives; as of a :class:`Model`."""

    labels: Names
    majority: int  # the class with the most rows in training
    label_counts: NDArray[np.int64] | None  # int64 (K,), where rows have lists of labels
    n_rows: int  # rows of training then
    titles: Names | None = None

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class RankedRows:
    """Rows with labels, and their best classes."""

    model: Model | ClassFacts
    block: RowBlock
    best: NDArray[np.int64]  # int64 (n, 5 or more): the best classes, as the model ranks
    candidates: BestLabels  # the 32 best by the calibrated ranking, or all of another system
    predictor: Predictor | None = None  # `None`: another system ranks

    @property
    def multilabel(self) -> bool:
        """Whether rows have lists of labels."""
        return self.model.label_counts is not None

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Number of each row of the input: int64 (n,)."""
        assert self.block.numbers is not None, "it is read with them"
        return self.block.numbers

    @property
    def calibrated(self) -> bool:
        """Whether there are probabilities."""
        return self.candidates.p is not None

    @cached_property
    def hits(self) -> NDArray[np.bool_]:
        """Whether each candidate is a label of its row: bool (n, 32)."""
        return self.block.lists.match(self.candidates.ids)

    @property
    def p(self) -> NDArray[np.float64]:
        """Probabilities of the candidates, or scores that are none: float64 (n, 32)."""
        p, scores = self.candidates.p, self.candidates.scores
        return scores.astype(np.float64) if p is None else p

    @cached_property
    def logs(self) -> NDArray[np.float64]:
        """Logarithms of the probabilities of labels that are known, of rows with one: (m,)."""
        left, known = self.candidates.left, self.block.classes >= 0
        assert left is not None, "rows have one label, and the model probabilities"
        own = np.where(self.hits.any(axis=1), (self.p * self.hits).sum(axis=1), left)
        logs: NDArray[np.float64] = np.log(np.maximum(own[known], TINY))
        return logs

    def predict_labels(
        self, threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return class ids of rows, whether each is predicted, and a label of its row: (n, m) each.

        The best class is predicted, of lists all labels that are so probable.
        """
        if self.multilabel:
            return self.candidates.ids, self.p >= threshold, self.hits
        first = self.best[:, :1]
        return first, first >= 0, self.block.lists.match(first)


def rank_rows(
    predictor: Predictor, block: RowBlock, most: int, path: str | os.PathLike[str]
) -> RankedRows:
    """Return the rows of an input as a model ranks them, `most` classes each, or UsageError."""
    model, calibrated = predictor.model, predictor.model.calibrated_ranking
    if block.labels is not None and not model.listed:
        raise lists_of_labels(path)
    own = predictor.estimator == calibrated
    k = max(CANDIDATES, own * most)
    best = predictor.scorers.topk(block, k, calibrated, probabilities=True)
    first = best.ids if own else predictor.scorers.topk(block, most).ids
    assert best.p is not None, "it is asked for"
    some = slice(0, CANDIDATES)
    candidates = BestLabels(best.ids[:, some], best.scores[:, some], best.p[:, some], best.left)
    return RankedRows(model, block, first, candidates, predictor)


def lists_of_labels(path: str | os.PathLike[str]) -> UsageError:
    """Return the error for an input with lists of labels, where the model knows of none."""
    what = "its rows have lists of labels, those of the model's training had one each"
    hint = "Convert it again with --first-label, or train on lists."
    return UsageError(what, path=path, hint=hint)
