"""Labelled rows as a model, or another system, ranks them: what metrics are counted of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError
from streammach.model.calibration import (
    CANDIDATES,
    Calibration,
    class_probabilities,
    label_probabilities,
    own_logs,
)
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.rows.names import Names


class ClassFacts(NamedTuple):
    """What is known of classes whose scores another system gives; as of a :class:`Model`."""

    labels: Names
    majority: int  # the class with the most rows in training
    label_counts: NDArray[np.int64] | None  # int64 (K,), where rows have lists of labels
    n_rows: int  # rows of training then
    calibration: Calibration | None = None  # the scores are no probabilities
    titles: Names | None = None

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.labels)


class PredictedLabels(NamedTuple):
    """Classes of rows, and which of them are predicted."""

    ids: NDArray[np.int64]  # int64 (n, m)
    said: NDArray[np.bool_]  # bool (n, m): whether it is predicted
    hits: NDArray[np.bool_]  # bool (n, m): whether it is a label of the row


@dataclass(frozen=True, eq=False)
class RankedRows:
    """Rows with labels, and their best classes."""

    model: Model | ClassFacts
    block: RowBlock
    best: NDArray[np.int64]  # int64 (n, 5 or more): the best classes, as the model ranks
    # candidates, scores: int64, float (n, 32): the best by the ranking that is calibrated
    candidates: NDArray[np.int64]
    scores: NDArray[Any]
    predictor: Predictor | None = None  # None: another system ranks

    @property
    def multilabel(self) -> bool:
        """Whether rows have lists of labels."""
        return self.model.label_counts is not None

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Number of each row of the input: int64 (n,)."""
        assert self.block.numbers is not None, "it is read with them"
        return self.block.numbers

    @cached_property
    def hits(self) -> NDArray[np.bool_]:
        """Whether each candidate is a label of its row: bool (n, 32)."""
        return self.block.lists.match(self.candidates)

    @cached_property
    def p(self) -> NDArray[np.float64]:
        """Probabilities of the candidates, or scores that are none: float64 (n, 32)."""
        calibration, scores = self.model.calibration, self.scores
        if calibration is None:
            return scores.astype(np.float64)
        if not self.multilabel:
            return class_probabilities(scores, self.model.n_labels, calibration)[0]
        every = scores
        if self.predictor is not None:  # labels may be merged: probabilities go by classes
            every = self.predictor.of_classes(self.block, scores)
        return label_probabilities(scores, calibration, every)

    @cached_property
    def logs(self) -> NDArray[np.float64]:
        """Logarithms of the probabilities of labels that are known, of rows with one: (m,)."""
        assert self.model.calibration is not None, "scores are no probabilities"
        known = self.block.classes >= 0
        some = self.scores[known], self.hits[known]
        return own_logs(*some, self.model.n_labels, self.model.calibration)

    def predict_labels(self, threshold: float) -> PredictedLabels:
        """Return what is predicted: the best class, of lists all labels that are so probable."""
        if self.multilabel:
            return PredictedLabels(self.candidates, self.p >= threshold, self.hits)
        first = self.best[:, :1]
        return PredictedLabels(first, first >= 0, self.block.lists.match(first))


def rank_rows(
    predictor: Predictor, block: RowBlock, most: int, path: str | os.PathLike[str]
) -> RankedRows:
    """Return the rows of an input as a model ranks them, `most` classes each, or UsageError."""
    model, calibrated = predictor.model, predictor.model.calibrated_ranking
    if block.labels is not None and not model.listed:
        raise lists_of_labels(path)
    own = predictor.estimator == calibrated
    best, scores = predictor.topk_ids(block, max(CANDIDATES, own * most), calibrated)
    first = best if own else predictor.topk_ids(block, most)[0]
    candidates = best[:, :CANDIDATES], scores[:, :CANDIDATES]
    return RankedRows(model, block, first, *candidates, predictor)


def lists_of_labels(path: str | os.PathLike[str]) -> UsageError:
    """Return the error for an input with lists of labels, where the model knows of none."""
    what = "its rows have lists of labels, those of the model's training had one each"
    hint = "Convert it again with --first-label, or train on lists."
    return UsageError(what, path=path, hint=hint)
