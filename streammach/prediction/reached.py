"""Shares of rows whose label is among the best classes, and all figures of an evaluation."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError, clean
from streammach.figures import Reached
from streammach.model.calibration import CANDIDATES, Calibration, class_probabilities, own_logs
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import Ranking
from streammach.prediction.set_metrics import (
    DEFAULT_A,
    DEFAULT_B,
    MOST,
    PLACES,
    LabelFigures,
    SetFigures,
)
from streammach.prediction.sums import (
    BINS,
    BlockSums,
    Figures,
    IdCounts,
    RankedRows,
    binned,
    deciles,
    macro_recall,
    reliability,
)
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, Names, in_namespace, namespaces
from streammach.spec.estimators import BLEND, estimators
from streammach.spec.types import Ranker

FREQUENT, WORST = 10, 5  # values of a namespace that are told of
LEAST_ROWS = 20  # of a value that may be among the worst


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
    """What is reached on rows with one label each."""

    def __init__(self, model: Model) -> None:
        n = model.spec.n_classes
        super().__init__(
            n_rows=np.zeros((), np.int64), hits=np.zeros(len(PLACES), np.int64),
            there=np.zeros(n, np.int32), right=np.zeros(n, np.int32),  # by class
            # ln p of labels; stated and calibrated probabilities
            logs=np.zeros(()), before=np.zeros((3, BINS)), after=np.zeros((3, BINS)),
        )  # fmt: skip
        self._model = model

    def block_sums(self, rows: RankedRows) -> BlockSums:
        """Return what rows add."""
        model, classes, best = self._model, rows.block.classes, rows.best
        known, n_classes = classes >= 0, model.n_labels
        own = rows.candidates[known] == classes[known][:, None]
        before, after = (
            binned(class_probabilities(rows.scores[known], n_classes, map_)[0][:, 0], own[:, 0])
            for map_ in (Calibration(), model.calibration)
        )
        return {
            "n_rows": len(classes),
            "hits": np.array([top_k_hits(best, classes, place) for place in PLACES]),
            "logs": own_logs(rows.scores[known], own, n_classes, model.calibration).sum(),
            "there": IdCounts.of(classes[known]),
            "right": IdCounts.of(classes[(best[:, 0] == classes) & known]),
            "before": before, "after": after,
        }  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Return accuracy, log loss, calibration errors and recall by class."""
        sums, known = self.sums, int(self.sums["after"][0].sum())
        first, three, five = (sums["hits"] / sums["n_rows"]).tolist()
        found = {
            "accuracy": first, "top_3_accuracy": three, "top_5_accuracy": five,
            "log_loss": -float(sums["logs"]) / known if known else float("nan"),
            "macro_recall": macro_recall(sums["there"], sums["right"]),
            "recall_by_decile": deciles(sums["there"], sums["right"]),
        }  # fmt: skip
        if known:
            after, before = self.details().values()
            found |= {"ece": after.ece, "ece_before": before.ece}
        return found

    def details(self) -> dict[str, Any]:
        """Return how true probabilities are, after and before calibration."""
        return {name: reliability(self.sums[sums])
                for name, sums in (("reliability", "after"), ("before", "before"))}  # fmt: skip


class RankingFigures(Figures):
    """What each ranking reaches that a model has; each row counts once."""

    def __init__(self, model: Model) -> None:
        super().__init__(**{name: np.zeros(3) for name in rankings_of(model)})

    def block_sums(self, rows: RankedRows) -> BlockSums:
        """Return rows, and the sums of their figures, by ranking."""
        predictor, alike, sums = rows.predictor, replace(rows.block, importance=None), {}
        for name in self.sums:
            same = name == predictor.estimator
            best = rows.best if same else predictor.topk_ids(rows.block, MOST, name)[0]
            found = reached(alike, best)
            sums[name] = alike.n_rows * np.array([1, found.accuracy, found.top_5_accuracy])
        return sums

    def fields(self) -> dict[str, Any]:
        """Return the figures by ranking."""
        names = ("accuracy", "top_5_accuracy")
        return {"estimators": {
            name: dict(zip(names, (sums[1:] / sums[0]).tolist(), strict=True))
            for name, sums in self.sums.items()
        }}  # fmt: skip


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
    """Rows and right ones by the values of a namespace."""

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

    def block_sums(self, rows: RankedRows) -> BlockSums:
        """Return how many rows there are by value, and of how many the best class is right."""
        block = rows.block
        places = np.searchsorted(self._own, block.features)
        places = np.minimum(places, len(self._own) - 1)
        own = np.flatnonzero(self._own[places] == block.features)
        owners = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))[own]
        with_one, first = np.unique(owners, return_index=True)
        group = np.full(block.n_rows, len(self._own))
        group[with_one] = places[own[first]]
        right = block.lists.matched(rows.best[:, :1])[:, 0]
        return {"there": IdCounts.of(group), "right": IdCounts.of(group[right])}

    def fields(self) -> dict[str, Any]:
        """Return the rows by value."""
        there, right = self.sums["there"][:-1], self.sums["right"][:-1]
        some = np.flatnonzero(there)
        frequent = some[np.lexsort((some, -there[some]))][:FREQUENT]
        many = some[there[some] >= LEAST_ROWS]
        shares = right[many] / there[many]
        worst = many[np.lexsort((many, -there[many], shares))][:WORST]
        return {"by": Slices(
            by=self._by, n_values=len(some),
            without=self._slice(-1) if self.sums["there"][-1] else None,
            frequent=tuple(map(self._slice, frequent.tolist())),
            worst=tuple(map(self._slice, worst.tolist())),
        )}  # fmt: skip

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
    """All figures of an evaluation. A further one is a class of :class:`Figures` and a line here.

    `rows` are rows, labels that training never saw, and rows with the most frequent class of it.
    """

    def __init__(self, model: Model, request: EvaluationRequest) -> None:
        self._majority, self._listed = model.majority, model.listed
        if model.listed:
            assert model.label_counts is not None, "it was trained on lists"
            a, b = request.propensity
            own: list[Figures] = [
                SetFigures(model.label_counts, model.n_rows, a=a, b=b),
                LabelFigures(model.spec.n_classes, model.calibration, request.threshold),
            ]
        else:
            own = [ClassFigures(model)]
        if request.estimators:
            own.append(RankingFigures(model))
        if request.by is not None:
            own.append(SliceSums(model.features, request.by))
        self._all = {type(figures).__name__: figures for figures in own}
        super().__init__(rows=np.zeros(3, np.int64), **self._all)

    def sums_of(self, predictor: Predictor, block: RowBlock, path: str | os.PathLike[str]) -> Any:
        """Return what the rows of an input add once a model ranks them, or raise UsageError."""
        if block.labels is not None and not self._listed:
            raise lists_of_labels(path)
        calibrated = predictor.model.calibrated
        best, scores = predictor.topk_ids(block, CANDIDATES, calibrated)
        own = predictor.estimator == calibrated
        first = best if own else predictor.topk_ids(block, MOST)[0]
        return self.block_sums(RankedRows(predictor, block, first, best, scores))

    def block_sums(self, rows: RankedRows) -> BlockSums:
        """Return what rows add."""
        lists = rows.block.lists
        majority = lists.matched(np.full((len(lists), 1), self._majority))
        unseen = (lists.classes < 0).sum()
        sums = {name: figures.block_sums(rows) for name, figures in self._all.items()}
        return {"rows": np.array([len(lists), unseen, majority.sum()]), **sums}

    def fields(self) -> dict[str, Any]:
        """Return all of them."""
        n, unseen, majority = self.sums["rows"].tolist()
        found = {"n_rows": n, "n_unseen": unseen, "majority": majority / n}
        for figures in self._all.values():
            found |= figures.fields()
        return found

    def details(self) -> dict[str, Any]:
        """Return all of them."""
        return {k: v for figures in self._all.values() for k, v in figures.details().items()}


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
