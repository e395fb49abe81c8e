"""Shares of rows whose label is among the best classes, and all figures of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError
from streammach.figures import Reached
from streammach.model.calibration import CANDIDATES, Calibration, class_probabilities, own_logs
from streammach.model.model import Model
from streammach.prediction.by_class import (
    EACH_BYTES,
    MOST_PAIRS,
    PAIR_BYTES,
    WAITING,
    ByClass,
    ClassAnswers,
    SliceSums,
)
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import Ranking
from streammach.prediction.set_metrics import (
    DEFAULT_A,
    DEFAULT_B,
    MOST,
    PLACES,
    LabelFigures,
    SetFigures,
    discounts,
    precision_and_recall,
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
from streammach.rows.names import Names
from streammach.spec.estimators import BLEND, estimators
from streammach.spec.types import Ranker

MOST_AT = 1000  # places at which figures are told


def reached(rows: RowBlock, ids: NDArray[np.int64]) -> Reached:
    """Return what a ranking of rows reaches, by its first five ids int64 (n, 5)."""
    return reached_by(rows, hit_sums(rows.lists.gained(ids[:, :MOST]), rows.weights))


def hit_sums(gained: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return what rows count together whose first class is right, all right ones, their weights.

    `gained` float32 (n, 5) are the weights of the first five, 0 for those that are wrong; `weights`
    float32 (n,) what each row counts.
    """
    w, hits = weights.astype(np.float64), gained > 0
    each = np.stack([hits[:, 0], hits.sum(axis=1), gained.sum(axis=1, dtype=np.float64)])
    sums: NDArray[np.float64] = (each * w).sum(axis=1)
    return sums


def reached_by(rows: RowBlock, sums: NDArray[np.float64]) -> Reached:
    """Return what rows reach by :func:`hit_sums` of them.

    Where they have lists: precision at 1 and at 5, and PSP@5 if labels have weights.
    """
    w, lists = rows.weights.astype(np.float64), rows.labels
    first, five, gained = (sums / max(float(w.sum()), 1e-30)).tolist()
    if lists is None:
        return Reached(first, five)
    if lists.weights is None:
        return Reached(first, five / MOST)
    possible = float(np.average(lists.most_gained(MOST), weights=w)) if w.any() else 1.0
    return Reached(first, five / MOST, min(gained / max(possible, 1e-30), 1.0))


def scores_of_rows(rows: RowBlock, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return by how much each row counts in the score that choices of lists go by, float64 (n,).

    `ids` int64 (n, 5) are the first of a ranking. The mean is that of :func:`reached`.
    """
    gained, w = rows.lists.gained(ids[:, :MOST]), rows.weights.astype(np.float64)
    each = gained.sum(axis=1, dtype=np.float64)
    if rows.lists.weights is None:
        each = (gained[:, 0] > 0) + each / MOST / 2
    else:
        each /= max(float(np.average(rows.lists.most_gained(MOST), weights=w)), 1e-30)
    scores: NDArray[np.float64] = each * w / w.mean()
    return scores


def measure(rows: RowBlock, ranking: Ranking) -> Reached:
    """Return what a ranking reaches on rows held in memory; see :func:`reached`."""
    return reached(rows, ranking(rows, MOST)[0])


class ClassFigures(Figures):
    """What is reached on rows with one label each."""

    def __init__(
        self, n: int, calibration: Calibration | None, at: Sequence[int] = (),
        by_class: ByClass | None = None, n_labels: int | None = None, threshold: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__(
            n_rows=np.zeros((), np.int64),
            # rows whose label stands at each of the first places
            hits=np.zeros(max(*PLACES, *at), np.int64),
            there=np.zeros(n, np.int32), right=np.zeros(n, np.int32),  # by class
            # ln p of labels; stated and calibrated probabilities
            logs=np.zeros(()), before=np.zeros((3, BINS)), after=np.zeros((3, BINS)),
            told=np.zeros(2),  # how many best classes are likely enough and right, and enough
            **({} if by_class is None else {"said": np.zeros(n, np.int32), "by_class": by_class}),
        )  # fmt: skip
        self._n = n if n_labels is None else n_labels  # fewer where some were merged
        self._calibration, self._at, self._by_class = calibration, at, by_class
        self._threshold = threshold

    def block_sums(self, rows: RankedRows) -> BlockSums:
        classes, best = rows.block.classes, rows.best
        known, first, hits = classes >= 0, best[:, 0], np.zeros_like(self.sums["hits"])
        hits[: best.shape[1]] = (best[:, : len(hits)] == classes[:, None]).sum(axis=0)
        right, p = first == classes, None
        sums = {
            "n_rows": len(classes), "hits": hits, "there": IdCounts.of(classes[known]),
            "right": IdCounts.of(classes[right & known]),
        }  # fmt: skip
        if self._calibration is not None:
            own = rows.candidates[known] == classes[known][:, None]
            logs = own_logs(rows.scores[known], own, self._n, self._calibration)
            sums["logs"], p = logs.sum(), np.exp(logs)
            for name, map_ in (("before", Calibration()), ("after", self._calibration)):
                stated, _ = class_probabilities(rows.scores, self._n, map_)
                sums[name] = binned(stated[known, 0], own[:, 0])
            likely = stated[:, 0] >= self._threshold
            sums["told"] = np.array([(likely[known] & own[:, 0]).sum(), likely.sum()])
        if self._by_class is not None:
            answers = ClassAnswers(
                classes[known], ~right[known], p, first[known], rows.numbers[known]
            )
            sums["said"] = IdCounts.of(first[first >= 0])
            sums["by_class"] = self._by_class.block_sums(answers)
        return sums

    def fields(self) -> dict[str, Any]:
        sums, known = self.sums, int(self.sums["after"][0].sum())
        there, right, shares = sums["there"], sums["right"], sums["hits"].cumsum() / sums["n_rows"]
        first, three, five = (float(shares[k - 1]) for k in PLACES)
        found = {
            "accuracy": first, "top_3_accuracy": three, "top_5_accuracy": five,
            "log_loss": -float(sums["logs"]) / known if known else float("nan"),
            "macro_recall": macro_recall(there, right), "recall_by_decile": deciles(there, right),
            "at": self._places(shares), "threshold": self._threshold,
        }  # fmt: skip
        if self._calibration is not None:
            n_right, said = sums["told"].tolist()
            found |= precision_and_recall(n_right, said, int(sums["n_rows"]))
        if known:
            after, before = self.details().values()
            found |= {"ece": after.ece, "ece_before": before.ece}
        if self._by_class is not None:
            found |= self._by_class.fields(there, sums["said"], right)
        return found

    def _places(self, shares: NDArray[np.float64]) -> dict[str, float]:
        """Return the figures of lists of one label, by the share of rows with it among k."""
        k, gains = np.array(self._at, np.int64), np.diff(shares, prepend=0)
        among, ndcg = shares[k - 1], (gains * discounts(len(shares))).cumsum()[k - 1]
        found = {"P": among / k, "N": ndcg, "R": among, "F1": 2 * among / (k + 1)}
        return {
            f"{name}@{place}": own
            for name, figures in found.items()
            for place, own in zip(self._at, figures.tolist(), strict=True)
        }

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
        assert predictor is not None, "it has a model"
        for name in self.sums:
            same = name == predictor.estimator
            best = rows.best if same else predictor.topk_ids(rows.block, MOST, name)[0]
            found = reached(alike, best)
            sums[name] = alike.n_rows * np.array([1, found.accuracy, found.top_5_accuracy])
        return sums

    def fields(self) -> dict[str, Any]:
        names = ("accuracy", "top_5_accuracy")
        return {"estimators": {
            name: dict(zip(names, (sums[1:] / sums[0]).tolist(), strict=True))
            for name, sums in self.sums.items()
        }}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What to measure."""

    # probability from which on a label is predicted, or the best one of rows with one label
    threshold: float = 0.5
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B)  # a and B of the propensities then
    estimators: bool = False  # whether rows are ranked by all estimators that the model has, too
    # a namespace, or a column of a table: how many rows are right by its values
    by: str | None = None
    at: tuple[int, ...] = ()  # places at which figures of lists are told, beside 1, 3 and 5
    by_class: bool = False  # whether all is told of each class, too
    confusions: int = 0  # how many of the most frequent confusions are told

    def __post_init__(self) -> None:
        wrong = [k for k in self.at if not 1 <= k <= MOST_AT]
        if wrong:
            raise UsageError(f"{wrong[0]} is not a number from 1 to {MOST_AT:,}: --at")

    @property
    def best(self) -> int:
        """The best classes of a row that are held, in the room of their figures."""
        return max([CANDIDATES, *(2 * k for k in self.at)])

    @property
    def classes(self) -> bool:
        """Whether classes are counted one by one."""
        return self.by_class or self.confusions > 0

    def beside(self, n_classes: int) -> dict[str, int]:
        """Return what is held of so many classes beside an evaluation without them, by name."""
        if not self.classes:
            return {}
        pairs = min(MOST_PAIRS, n_classes**2) + WAITING
        return {"figures by class": EACH_BYTES * n_classes + PAIR_BYTES * pairs}


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
        """How many labels are said."""
        return len(self.labels)


class EvaluationSums(Figures):
    """All figures of an evaluation. Of a model there may be more than of the scores of others.

    A further one is a class of :class:`Figures` and a line here.

    `rows` are rows, labels that training never saw, and rows with the most frequent class of it.
    """

    def __init__(self, model: Model | ClassFacts, request: EvaluationRequest) -> None:
        self._majority, self._request = model.majority, request
        titled = (model.labels, request.confusions, model.titles)
        by_class = ByClass(*titled) if request.classes else None
        if model.label_counts is not None:
            a, b = request.propensity
            own: list[Figures] = [
                SetFigures(model.label_counts, model.n_rows, a=a, b=b, at=request.at),
                LabelFigures(len(model.labels), model.calibration, request.threshold, by_class),
            ]
        else:
            own = [ClassFigures(
                len(model.labels), model.calibration, request.at, by_class, model.n_labels,
                request.threshold,
            )]  # fmt: skip
        if request.estimators and isinstance(model, Model):
            own.append(RankingFigures(model))
        if request.by is not None and isinstance(model, Model):
            own.append(SliceSums(model.features, request.by))
        self._all = {type(figures).__name__: figures for figures in own}
        super().__init__(rows=np.zeros(3, np.int64), **self._all)

    def ranked(
        self, predictor: Predictor, block: RowBlock, path: str | os.PathLike[str]
    ) -> RankedRows:
        """Return the rows of an input as a model ranks them, or raise UsageError."""
        if block.labels is not None and not predictor.model.listed:
            raise lists_of_labels(path)
        calibrated, most = predictor.model.calibrated, max(MOST, *self._request.at, 0)
        own = predictor.estimator == calibrated
        best, scores = predictor.topk_ids(block, max(CANDIDATES, own * most), calibrated)
        first = best if own else predictor.topk_ids(block, most)[0]
        candidates = best[:, :CANDIDATES], scores[:, :CANDIDATES]
        return RankedRows(predictor, block, first, *candidates)

    def block_sums(self, rows: RankedRows) -> BlockSums:
        lists = rows.block.lists
        majority = lists.matched(np.full((len(lists), 1), self._majority))
        unseen = (lists.classes < 0).sum()
        sums = {name: figures.block_sums(rows) for name, figures in self._all.items()}
        return {"rows": np.array([len(lists), unseen, majority.sum()]), **sums}

    def fields(self) -> dict[str, Any]:
        n, unseen, majority = self.sums["rows"].tolist()
        found = {"n_rows": n, "n_unseen": unseen, "majority": majority / n}
        for figures in self._all.values():
            found |= figures.fields()
        return found

    def details(self) -> dict[str, Any]:
        return {k: v for figures in self._all.values() for k, v in figures.details().items()}


def lists_of_labels(path: str | os.PathLike[str]) -> UsageError:
    """Return what is said of an input with lists of labels, where the model knows of none."""
    what = "its rows have lists of labels, those of the model's training had one each"
    hint = "Convert it again with --first-label, or train on lists."
    return UsageError(what, path=path, hint=hint)


def rankings_of(model: Model) -> list[Ranker]:
    """Return the ways to rank classes of a model; with R = 1 all but counts agree."""
    counted: list[Ranker] = [BLEND] if model.calibrated == BLEND else []
    if model.spec.unhashed:
        return counted
    return [*counted, *estimators()[: 1 if model.spec.n_repetitions == 1 else None]]
