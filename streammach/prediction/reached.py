"""Shares of rows whose label is among the best classes, and sums of all that is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.figures import Reached
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.prediction.calibrate import (
    CANDIDATES,
    label_probabilities,
    log_probabilities,
    stated_probabilities,
)
from streammach.prediction.class_sums import ClassSums
from streammach.prediction.id_counts import IdCounts
from streammach.prediction.inputs import Seen
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import Ranking
from streammach.prediction.reliability import BinSums, ReliabilitySums
from streammach.prediction.set_metrics import F1Figures, F1Sums, SetFigures, SetSums
from streammach.prediction.slices import SliceSums
from streammach.rows.block import RowBlock
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


class ClassPart(NamedTuple):
    """What some rows with one label each add."""

    hits: tuple[int, ...]
    logs: float
    majority: int
    by_class: tuple[IdCounts, IdCounts]
    stated: tuple[BinSums, ...]


class ClassFigures:
    """Adds up what is reached on rows with one label each."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._hits, self._loss, self._majority = dict.fromkeys(PLACES, 0), 0.0, 0
        self._by_class = ClassSums(model.spec.n_classes)
        self._stated = tuple((map_, ReliabilitySums()) for map_ in (
            model.calibration, Calibration()
        ))  # fmt: skip

    def part(self, predictor: Predictor, block: RowBlock) -> tuple[NDArray[np.int64], ClassPart]:
        """Return the best classes of rows, and what these add."""
        model, (best, ids, scores) = self._model, ranked(predictor, block)
        known, n_classes = block.classes >= 0, self._model.spec.n_classes
        right = (ids[:, 0] == block.classes)[known]
        logs = log_probabilities(
            ids[known], scores[known], block.classes[known], n_classes=n_classes,
            calibration=model.calibration,
        )  # fmt: skip
        return best, ClassPart(
            hits=tuple(top_k_hits(best, block.classes, place) for place in PLACES),
            logs=float(logs.sum()), majority=int((block.classes == model.majority).sum()),
            by_class=self._by_class.part(block.classes, best[:, 0] == block.classes),
            stated=tuple(
                sums.part(stated_probabilities(scores[known], n_classes, map_), right)
                for map_, sums in self._stated
            ),
        )  # fmt: skip

    def take(self, part: ClassPart) -> None:
        """Add what :meth:`part` returned; the order of the rows decides the last digits."""
        for place, hits in zip(PLACES, part.hits, strict=True):
            self._hits[place] += hits
        self._loss -= part.logs
        self._majority += part.majority
        self._by_class.take(*part.by_class)
        for (_, sums), stated in zip(self._stated, part.stated, strict=True):
            sums.take(stated)

    def figures(self, seen: Seen) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        n, known = seen.rows, seen.rows - seen.unseen_labels
        errors = [sums.result().ece for _, sums in self._stated]
        return {
            "accuracy": self._hits[1] / n, "top_3_accuracy": self._hits[3] / n,
            "top_5_accuracy": self._hits[5] / n, "majority": self._majority / n,
            "log_loss": self._loss / known if known else float("nan"),
            "macro_recall": self._by_class.macro_recall(),
            "recall_by_decile": self._by_class.deciles(),
        } | (dict(zip(("ece", "ece_before"), errors, strict=True)) if known else {})  # fmt: skip


class ListPart(NamedTuple):
    """What some rows with lists of labels add."""

    sets: SetSums
    f1: F1Sums
    majority: int


class ListFigures:
    """Adds up what is reached on rows with lists of labels."""

    def __init__(self, model: Model, threshold: float, propensity: tuple[float, float]) -> None:
        assert model.label_counts is not None, "it was trained on lists"
        a, b = propensity
        self._model, self._threshold, self._majority = model, threshold, 0
        self._sets = SetFigures(model.label_counts, model.n_rows, a=a, b=b)
        self._f1 = F1Figures(model.spec.n_classes)

    def part(self, predictor: Predictor, block: RowBlock) -> tuple[NDArray[np.int64], ListPart]:
        """Return the best classes of rows, and what these add."""
        model, lists = self._model, block.lists
        best, ids, scores = ranked(predictor, block)
        said = label_probabilities(scores, model.calibration) >= self._threshold
        majority = np.full((block.n_rows, 1), model.majority)
        return best, ListPart(
            self._sets.part(best, lists), self._f1.part(ids, said, lists),
            int(lists.matched(majority).sum()),
        )  # fmt: skip

    def take(self, part: ListPart) -> None:
        """Add what :meth:`part` returned; the order of the rows decides the last digits."""
        self._sets.take(part.sets)
        self._f1.take(part.f1)
        self._majority += part.majority

    def figures(self, seen: Seen) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        sets = self._sets.result()
        p = sets.precision
        return {
            "accuracy": p[1], "top_3_accuracy": p[3], "top_5_accuracy": p[5],
            "majority": self._majority / seen.rows, "log_loss": float("nan"), "sets": sets,
            "f1": self._f1.result(), "threshold": self._threshold,
        }  # fmt: skip


class BesidesPart(NamedTuple):
    """What some rows add to what is told where it is asked for."""

    by_ranking: dict[Ranker, NDArray[np.float64]]
    by_value: tuple[IdCounts, IdCounts] | None


class Besides:
    """Adds up what is told where it is asked for."""

    def __init__(self, model: Model, names: Sequence[Ranker], by: str | None) -> None:
        self._sums = {name: np.zeros(2) for name in names}
        self._slices = None if by is None else SliceSums(model.features, by)

    def part(self, predictor: Predictor, block: RowBlock, best: NDArray[np.int64]) -> BesidesPart:
        """Return what rows with their best classes add."""
        by_ranking, block = {}, replace(block, importance=None)  # each row counts once
        for name in self._sums:
            own = name == predictor.estimator
            found = reached(block, best if own else predictor.topk_ids(block, MOST, name)[0])
            by_ranking[name] = block.n_rows * np.array([found.accuracy, found.top_5_accuracy])
        if self._slices is None:
            return BesidesPart(by_ranking, None)
        right = block.lists.matched(best[:, :1])[:, 0]
        return BesidesPart(by_ranking, self._slices.part(block, right))

    def take(self, part: BesidesPart) -> None:
        """Add what :meth:`part` returned; the order of the rows decides the last digits."""
        for name, sums in part.by_ranking.items():
            self._sums[name] += sums
        if self._slices is not None and part.by_value is not None:
            self._slices.take(*part.by_value)

    def figures(self, n_rows: int) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        names = ("accuracy", "top_5_accuracy")
        return {
            "estimators": {name: dict(zip(names, (sums / n_rows).tolist(), strict=True))
                           for name, sums in self._sums.items()},
            "by": None if self._slices is None else self._slices.result(),
        }  # fmt: skip


def ranked(
    predictor: Predictor, block: RowBlock
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the best classes (n, 5 or more); candidates and scores of the calibrated ranking."""
    calibrated = predictor.model.calibrated
    ids, scores = predictor.topk_ids(block, CANDIDATES, calibrated)
    if predictor.estimator == calibrated:
        return ids, ids, scores
    return predictor.topk_ids(block, MOST)[0], ids, scores
