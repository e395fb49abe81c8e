"""Shares of rows whose label is among the best classes, and all figures of an evaluation."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError, clean
from streammach.figures import Reached
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.prediction.calibrate import (
    CANDIDATES,
    class_probabilities,
    label_probabilities,
    own_logs,
)
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import Ranking
from streammach.prediction.set_metrics import DEFAULT_A, DEFAULT_B, F1Figures, SetFigures
from streammach.prediction.slices import SliceSums
from streammach.prediction.sums import (
    BINS,
    BlockSums,
    Figures,
    IdCounts,
    binned,
    deciles,
    macro_recall,
    reliability,
)
from streammach.rows.block import RowBlock
from streammach.spec.estimators import BLEND, estimators
from streammach.spec.types import Ranker

PLACES = (1, 3, 5)
MOST = PLACES[-1]


def top_k_hits(ids: NDArray[np.int64], classes: NDArray[np.int32], k: int) -> int:
    """Return how many rows have their label among the first k ids."""
    return int((ids[:, :k] == classes[:, None]).any(axis=1).sum())


def reached(rows: RowBlock, ids: NDArray[np.int64]) -> Reached:
    """Return what a ranking of rows reaches, by its first five ids int64 (n, 5)."""
    # Rows count by their importances; where they have lists these are precision at 1 and at 5.
    w = rows.weights.astype(np.float64)
    if rows.labels is None:
        hits, most = ids[:, :5] == rows.classes[:, None], 1
    else:
        hits, most = rows.labels.matched(ids[:, :5]), 5
    n, (first, five) = max(float(w.sum()), 1e-30), (hits[:, :k].sum(axis=1) * w for k in (1, 5))
    return Reached(float(first.sum()) / n, float(five.sum()) / (most * n))


def measure(rows: RowBlock, ranking: Ranking) -> Reached:
    """Return what a ranking reaches on rows held in memory; see :func:`reached`."""
    return reached(rows, ranking(rows, MOST)[0])


class ClassFigures(Figures):
    """Adds up what is reached on rows with one label each."""

    def __init__(self, model: Model) -> None:
        n = model.spec.n_classes
        super().__init__(
            rows=np.zeros(2, np.int64),  # all, and those whose label was never seen
            hits=np.zeros(len(PLACES), np.int64), majority=np.zeros((), np.int64),
            there=np.zeros(n, np.int32), right=np.zeros(n, np.int32),  # by class
            # ln p of labels; stated and calibrated probabilities
            logs=np.zeros(()), before=np.zeros((3, BINS)), after=np.zeros((3, BINS)),
        )  # fmt: skip
        self._model = model

    def block_sums(
        self, predictor: Predictor, block: RowBlock
    ) -> tuple[NDArray[np.int64], BlockSums]:
        """Return the best classes of rows, and what these add."""
        model, (best, ids, scores) = self._model, ranked(predictor, block)
        classes, known, n_classes = block.classes, block.classes >= 0, model.spec.n_classes
        right = (ids[:, 0] == classes)[known]
        before, after = (
            binned(class_probabilities(scores[known], n_classes, map_)[0][:, 0], right)
            for map_ in (Calibration(), model.calibration)
        )
        own = ids[known] == classes[known][:, None]
        logs = own_logs(scores[known], own, n_classes, model.calibration)
        return best, {
            "rows": np.array([block.n_rows, block.n_rows - known.sum()]),
            "hits": np.array([top_k_hits(best, classes, place) for place in PLACES]),
            "logs": logs.sum(), "majority": (classes == model.majority).sum(),
            "there": IdCounts.of(classes[known]),
            "right": IdCounts.of(classes[(best[:, 0] == classes) & known]),
            "before": before, "after": after,
        }  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        sums = self.sums
        n, n_unseen = sums["rows"].tolist()
        known = n - n_unseen
        first, three, five = (sums["hits"] / n).tolist()
        found = {
            "accuracy": first, "top_3_accuracy": three, "top_5_accuracy": five,
            "majority": int(sums["majority"]) / n,
            "log_loss": -float(sums["logs"]) / known if known else float("nan"),
            "macro_recall": macro_recall(sums["there"], sums["right"]),
            "recall_by_decile": deciles(sums["there"], sums["right"]),
        }  # fmt: skip
        if known:
            found["ece"] = reliability(sums["after"]).ece
            found["ece_before"] = reliability(sums["before"]).ece
        return found


class ListFigures(Figures):
    """Adds up what is reached on rows with lists of labels."""

    def __init__(self, model: Model, threshold: float, propensity: tuple[float, float]) -> None:
        assert model.label_counts is not None, "it was trained on lists"
        a, b = propensity
        self._model, self._threshold = model, threshold
        self._sets = SetFigures(model.label_counts, model.n_rows, a=a, b=b)
        self._f1 = F1Figures(model.spec.n_classes)
        super().__init__(sets=self._sets, f1=self._f1, majority=np.zeros((), np.int64))

    def block_sums(
        self, predictor: Predictor, block: RowBlock
    ) -> tuple[NDArray[np.int64], BlockSums]:
        """Return the best classes of rows, and what these add."""
        model, lists = self._model, block.lists
        best, ids, scores = ranked(predictor, block)
        said = label_probabilities(scores, model.calibration) >= self._threshold
        majority = np.full((block.n_rows, 1), model.majority)
        return best, {
            "sets": self._sets.block_sums(best, lists), "f1": self._f1.block_sums(ids, said, lists),
            "majority": lists.matched(majority).sum(),
        }  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        sets = self._sets.result()
        p = sets.precision
        return {
            "accuracy": p[1], "top_3_accuracy": p[3], "top_5_accuracy": p[5],
            "majority": int(self.sums["majority"]) / sets.n_rows, "log_loss": float("nan"),
            "sets": sets, "f1": self._f1.result(), "threshold": self._threshold,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What is asked of an evaluation."""

    # probability from which on a label is predicted, where rows have lists of labels
    threshold: float = 0.5
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B)  # a and B of the propensities then
    estimators: bool = False  # whether rows are ranked by all estimators that the model has, too
    # a namespace, or a column of a table: how many rows are right by its values
    by: str | None = None


class EvaluationSums(Figures):
    """Adds up all figures of an evaluation."""

    def __init__(self, model: Model, wanted: EvaluationRequest) -> None:
        self._listed = model.listed
        self._own: ClassFigures | ListFigures = (
            ListFigures(model, wanted.threshold, wanted.propensity)
            if model.listed
            else ClassFigures(model)
        )
        names = rankings_of(model) if wanted.estimators else []
        self._rankings = {name: np.zeros(2) for name in names}
        self._slices = None if wanted.by is None else SliceSums(model.features, wanted.by)
        super().__init__(own=self._own, rankings=Figures(**self._rankings), by=self._slices)

    def block_sums(
        self, predictor: Predictor, block: RowBlock, path: str | os.PathLike[str]
    ) -> BlockSums:
        """Return what rows of an input add, or raise UsageError."""
        if block.labels is not None and not self._listed:
            raise lists_of_labels(path)
        best, own = self._own.block_sums(predictor, block)
        rankings, alike = dict[str, NDArray[np.float64]](), replace(block, importance=None)
        for name in self._rankings:  # each row counts once
            first = (
                best if name == predictor.estimator else predictor.topk_ids(block, MOST, name)[0]
            )
            found = reached(alike, first)
            rankings[name] = block.n_rows * np.array([found.accuracy, found.top_5_accuracy])
        sums: dict[str, Any] = {"own": own, "rankings": rankings}
        if self._slices is not None:
            sums["by"] = self._slices.block_sums(block, block.lists.matched(best[:, :1])[:, 0])
        return sums

    def figures(self, n_rows: int) -> dict[str, Any]:
        """Return them as fields of an evaluation of so many rows."""
        names = ("accuracy", "top_5_accuracy")
        return {
            **self._own.figures(),
            "estimators": {name: dict(zip(names, (sums / n_rows).tolist(), strict=True))
                           for name, sums in self._rankings.items()},
            "by": None if self._slices is None else self._slices.result(),
        }  # fmt: skip


def lists_of_labels(path: str | os.PathLike[str]) -> UsageError:
    """Return what is said of an input with lists of labels, where the model knows of none."""
    return UsageError(
        "its rows have lists of labels, those of the model's training had one each",
        path=clean(path, 300),
        hint="Convert it again with --first-label, or train on lists.",
    )


def rankings_of(model: Model) -> list[Ranker]:
    """Return the ways to rank classes of a model; with R = 1 all but counts agree."""
    counted: list[Ranker] = [] if model.counts is None else [BLEND]
    if model.spec.unhashed:
        return counted
    return [*counted, *estimators()[: 1 if model.spec.n_repetitions == 1 else None]]


def ranked(
    predictor: Predictor, block: RowBlock
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the best classes (n, 5 or more); candidates and scores of the calibrated ranking."""
    calibrated = predictor.model.calibrated
    ids, scores = predictor.topk_ids(block, CANDIDATES, calibrated)
    if predictor.estimator == calibrated:
        return ids, ids, scores
    return predictor.topk_ids(block, MOST)[0], ids, scores
