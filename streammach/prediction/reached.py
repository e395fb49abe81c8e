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
from streammach.prediction.set_metrics import (
    DEFAULT_A,
    DEFAULT_B,
    MOST,
    PLACES,
    F1Figures,
    SetFigures,
)
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
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import SEPARATOR, Names, in_namespace, namespaces
from streammach.spec.estimators import BLEND, estimators
from streammach.spec.types import Ranker

FREQUENT, WORST = 10, 5  # values of a namespace that are told of
LEAST_ROWS = 20  # of a value that may be among the worst
LIKELY = 0.5  # probability of a label from which on it is said to be there
LEAST_LABELS = (0, 1, 2, 3, 4, 5, 6, 11, 21, 51)  # of a row, that begin a group of rows
# Best classes int64 (n, 5 or more); candidates and scores of the calibrated ranking.
TopClasses = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


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
    n, right = max(float(w.sum()), 1e-30), np.minimum(hits.cumsum(axis=1), most)
    first, five = right[:, 0] * w, right[:, -1] * w
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

    def block_sums(self, block: RowBlock, top: TopClasses) -> BlockSums:
        """Return what rows add."""
        model, (best, ids, scores) = self._model, top
        classes, known, n_classes = block.classes, block.classes >= 0, model.spec.n_classes
        right = (ids[:, 0] == classes)[known]
        before, after = (
            binned(class_probabilities(scores[known], n_classes, map_)[0][:, 0], right)
            for map_ in (Calibration(), model.calibration)
        )
        own = ids[known] == classes[known][:, None]
        logs = own_logs(scores[known], own, n_classes, model.calibration)
        return {
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
        self.sets = SetFigures(model.label_counts, model.n_rows, a=a, b=b)
        self._f1 = F1Figures(model.spec.n_classes)
        super().__init__(
            sets=self.sets, f1=self._f1, majority=np.zeros((), np.int64),
            possible=np.zeros(len(PLACES), np.int64),  # hits of the best ranking
            # of candidates: stated and right; how many are likely, what these state, how many right
            stated=np.zeros((3, BINS)), likely=np.zeros(3),
            groups=np.zeros((len(LEAST_LABELS), 5)),  # sums of row_figures by number of labels
        )  # fmt: skip

    def block_sums(self, block: RowBlock, top: TopClasses) -> BlockSums:
        """Return what rows add."""
        model, lists, (best, ids, scores) = self._model, block.lists, top
        p, some = label_probabilities(scores, model.calibration), np.isfinite(scores)
        stated, right = p[some], lists.matched(ids)[some]
        likely, groups = stated >= LIKELY, np.zeros((len(LEAST_LABELS), 5))
        group = np.searchsorted(LEAST_LABELS, lists.lengths, side="right") - 1
        np.add.at(groups, group, row_figures(best[:, :MOST], lists))
        majority = np.full((block.n_rows, 1), model.majority)
        return {
            "sets": self.sets.block_sums(best, lists),
            "f1": self._f1.block_sums(ids, p >= self._threshold, lists),
            "majority": lists.matched(majority).sum(),
            "possible": np.minimum(lists.lengths[:, None], PLACES).sum(axis=0),
            "stated": binned(stated, right), "groups": groups,
            "likely": np.array([likely.sum(), stated[likely].sum(), right[likely].sum()]),
        }  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        sets = self.sets.result()
        p = sets.precision
        return {
            "accuracy": p[1], "top_3_accuracy": p[3], "top_5_accuracy": p[5],
            "majority": int(self.sums["majority"]) / sets.n_rows, "log_loss": float("nan"),
            "sets": sets, "f1": self._f1.result(), "threshold": self._threshold,
        }  # fmt: skip


def row_figures(best: NDArray[np.int64], lists: LabelLists) -> NDArray[np.float64]:
    """Return 1, P@1, P@5, N@5 and R@5 of each row by `best` int64 (n, k): 0 without labels."""
    hits, n = lists.matched(best), lists.lengths
    discounts = 1 / np.log2(np.arange(2, MOST + 2))
    ideal = np.append(0.0, np.cumsum(discounts))[np.minimum(n, MOST)]
    found = hits.sum(axis=1)
    return np.column_stack([
        np.ones(len(n)), hits[:, 0], found / MOST,
        (hits * discounts[: hits.shape[1]]).sum(axis=1) / np.maximum(ideal, discounts[-1]),
        found / np.maximum(n, 1),
    ])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The rows that have a value."""

    # the feature without its namespace; empty for rows that have none which the model knows
    value: str
    n_rows: int  # rows
    # accuracy, error: share of them whose best class is their label, and its standard error
    accuracy: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Rows by the first feature that they have of a namespace."""

    by: str  # the namespace, or the column of a table
    n_values: int  # values that occur
    without: Slice | None  # rows without any value that the model knows; None where all have one
    frequent: tuple[Slice, ...]  # the ten most frequent values
    # the five values of the lowest accuracy, of those with 20 rows or more
    worst: tuple[Slice, ...]


class SliceSums(Figures):
    """Adds up rows and right ones by value, block by block."""

    def __init__(self, features: Names, by: str) -> None:
        self._features, self._by = features, by
        self._own = np.flatnonzero(in_namespace(features, by.encode())).astype(np.int32)
        if not len(self._own):
            known = ", ".join(namespaces(features)) or "none"
            raise UsageError(
                f"no feature of the model is in the namespace {clean(by)}: --by",
                hint=f"There are: {known}.",
            )
        n = len(self._own) + 1  # the last one stands for rows without any
        super().__init__(there=np.zeros(n, np.int64), right=np.zeros(n, np.int64))

    def block_sums(self, block: RowBlock, right: NDArray[np.bool_]) -> BlockSums:
        """Return how many rows there are by value, and of how many the best class is right."""
        places = np.searchsorted(self._own, block.features)
        places = np.minimum(places, len(self._own) - 1)
        own = np.flatnonzero(self._own[places] == block.features)
        rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))[own]
        with_one, first = np.unique(rows, return_index=True)
        group = np.full(block.n_rows, len(self._own))
        group[with_one] = places[own[first]]
        return {"there": IdCounts.of(group), "right": IdCounts.of(group[right])}

    def result(self) -> Slices:
        """Return the rows by value."""
        there, right = self.sums["there"][:-1], self.sums["right"][:-1]
        some = np.flatnonzero(there)
        frequent = some[np.lexsort((some, -there[some]))][:FREQUENT]
        many = some[there[some] >= LEAST_ROWS]
        shares = right[many] / there[many]
        worst = many[np.lexsort((many, -there[many], shares))][:WORST]
        return Slices(
            by=self._by, n_values=len(some),
            without=self._slice(-1) if self.sums["there"][-1] else None,
            frequent=tuple(map(self._slice, frequent.tolist())),
            worst=tuple(map(self._slice, worst.tolist())),
        )  # fmt: skip

    def _slice(self, place: int) -> Slice:
        n, right = int(self.sums["there"][place]), int(self.sums["right"][place])
        share = right / n
        name = self._features.raw(int(self._own[place])) if place >= 0 else b""
        value = name.partition(bytes([SEPARATOR]))[2].decode("utf-8", "replace")
        return Slice(value=value, n_rows=n, accuracy=share, error=(share * (1 - share) / n) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What to measure."""

    # probability from which on a label is predicted, where rows have lists of labels
    threshold: float = 0.5
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B)  # a and B of the propensities then
    estimators: bool = False  # whether rows are ranked by all estimators that the model has, too
    # a namespace, or a column of a table: how many rows are right by its values
    by: str | None = None


class EvaluationSums(Figures):
    """Adds up all figures of an evaluation."""

    def __init__(self, model: Model, request: EvaluationRequest) -> None:
        self.own: ClassFigures | ListFigures = (
            ListFigures(model, request.threshold, request.propensity)
            if model.listed
            else ClassFigures(model)
        )
        names = rankings_of(model) if request.estimators else []
        self._rankings = {name: np.zeros(2) for name in names}
        self._slices = None if request.by is None else SliceSums(model.features, request.by)
        super().__init__(own=self.own, rankings=Figures(**self._rankings), by=self._slices)

    def block_sums(
        self, predictor: Predictor, block: RowBlock, path: str | os.PathLike[str]
    ) -> BlockSums:
        """Return what rows of an input add, or raise UsageError."""
        if block.labels is not None and not predictor.model.listed:
            raise lists_of_labels(path)
        top = _top_classes(predictor, block)
        rankings, alike = dict[str, NDArray[np.float64]](), replace(block, importance=None)
        for name in self._rankings:  # each row counts once
            same = name == predictor.estimator
            first = top[0] if same else predictor.topk_ids(block, MOST, name)[0]
            found = reached(alike, first)
            rankings[name] = block.n_rows * np.array([found.accuracy, found.top_5_accuracy])
        sums = {"own": self.own.block_sums(block, top), "rankings": rankings}
        if self._slices is not None:
            right = block.lists.matched(top[0][:, :1])[:, 0]
            sums["by"] = self._slices.block_sums(block, right)
        return sums

    def figures(self, n_rows: int) -> dict[str, Any]:
        """Return them as fields of an evaluation of so many rows."""
        names = ("accuracy", "top_5_accuracy")
        return {
            **self.own.figures(),
            "estimators": {name: dict(zip(names, (sums / n_rows).tolist(), strict=True))
                           for name, sums in self._rankings.items()},
            "by": None if self._slices is None else self._slices.result(),
        }  # fmt: skip


def _top_classes(predictor: Predictor, block: RowBlock) -> TopClasses:
    calibrated = predictor.model.calibrated
    ids, scores = predictor.topk_ids(block, CANDIDATES, calibrated)
    own = predictor.estimator == calibrated
    return ids if own else predictor.topk_ids(block, MOST)[0], ids, scores


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
