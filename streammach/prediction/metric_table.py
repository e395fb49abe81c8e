"""All metrics of an evaluation: what rows of a block add to sums, and what the sums come to.

A further metric is a function and a line in `METRICS`, with another function where it needs other
sums. Blocks may be counted in several processes: what each adds never grows with the
number of classes. Added up in the order of their rows they give the same figures, to the last
digit, as in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from streammach.model.calibration import CANDIDATES, Calibration, class_probabilities
from streammach.model.model import Model
from streammach.options.estimators import BLEND, estimators
from streammach.options.types import Ranker
from streammach.prediction import metrics
from streammach.prediction.by_class import EachClass, NamespaceValues
from streammach.prediction.metrics import DEFAULT_A, DEFAULT_B, MOST, PLACES, IdCounts
from streammach.prediction.ranked_rows import ClassFacts, RankedRows
from streammach.prediction.room import Task
from streammach.prediction.selection_metrics import measure_ids
from streammach.system.errors import UsageError

MOST_AT = 1000  # largest k of a metric
NAN = float("nan")
# What a block of rows adds, by name: an array or a number; IdCounts of classes, which are summed in
# an array, or of another kind (`hits`); or what `EachClass` and `NamespaceValues` take.
BlockSums = Mapping[str, Any]
Fields = Mapping[str, Any]  # of an evaluation


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What to measure."""

    task: ClassVar[Task] = "evaluate"
    some_labels: ClassVar[bool] = False  # whether only some of the labels may be said
    # probability from which on a label is predicted, or the best one of rows with one label
    threshold: float = metrics.LIKELY
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B)  # a and B of the propensities then
    estimators: bool = False  # whether rows are ranked by all estimators that the model has, too
    # a namespace, or a column of a table: how many rows are right by its values
    by: str | None = None
    at: tuple[int, ...] = ()  # k of metrics, beside 1, 3 and 5
    by_class: bool = False  # whether each class has its metrics, too
    confusions: int = 0  # how many of the most frequent confusions are listed

    def __post_init__(self) -> None:
        wrong = [k for k in self.at if not 1 <= k <= MOST_AT]
        if wrong:
            raise UsageError(f"{wrong[0]} is not a number from 1 to {MOST_AT:,}: --at")

    def cells(self) -> int:
        """Return how many best classes of a row the memory has to hold, with their metrics."""
        return max([CANDIDATES, *(2 * k for k in self.at)])

    @property
    def most(self) -> int:
        """How many best classes of a row are ranked."""
        return max(MOST, *self.at, 0)

    @property
    def classes(self) -> bool:
        """Whether classes are counted one by one."""
        return self.by_class or self.confusions > 0

    def beside(self, n_classes: int) -> dict[str, int]:
        """Return the bytes that so many classes take beside an evaluation without them, by name."""
        return {"figures by class": EachClass.footprint(n_classes)} if self.classes else {}


def _count_rows(rows: RankedRows, sums: MetricSums) -> BlockSums:
    lists = rows.block.lists
    majority = lists.match(np.full((len(lists), 1), rows.model.majority)).sum()
    unseen = (lists.classes < 0).sum()
    return {"rows": np.array([len(lists), unseen, majority, lists.n_labels])}


def _row_shares(sums: MetricSums) -> Fields:
    n, unseen, majority, _ = sums["rows"].tolist()
    return {"n_rows": n, "n_unseen": unseen, "majority": majority / n}


def _count_hits(rows: RankedRows, sums: MetricSums) -> BlockSums:
    return {"hits": metrics.count_hits(rows.best, rows.block.lists, sums.request.most)}


def _accuracies(sums: MetricSums) -> Fields:
    named, word = metrics.metrics_at(sums["hits"], PLACES), "P" if sums.multilabel else "R"
    first, three, five = (named[f"{word}@{k}"] for k in PLACES)
    return {"accuracy": first, "top_3_accuracy": three, "top_5_accuracy": five}


def _hit_metrics(sums: MetricSums) -> Fields:
    return {"at": metrics.metrics_at(sums["hits"], sums.request.at)}


def _count_gains(rows: RankedRows, sums: MetricSums) -> BlockSums:
    model, (a, b) = rows.model, sums.request.propensity
    assert model.label_counts is not None, "rows have lists of labels"
    gain = partial(metrics.label_gains, counts=model.label_counts, n_rows=model.n_rows, a=a, b=b)
    best, lists = rows.best[:, :MOST], rows.block.lists
    return {
        "gains": metrics.count_gains(rows.best, lists, gain, sums.request.most),
        "among five": IdCounts.of(best[lists.match(best)]),
    }


def _set_metrics(sums: MetricSums) -> Fields:
    n_rows, _, _, n_labels = sums["rows"].tolist()
    at = sorted({*PLACES, *sums.request.at})
    named = metrics.metrics_at(sums["hits"], at) | metrics.gain_metrics_at(sums["gains"], at)
    by_k = {own: {k: named[f"{name}@{k}"] for k in at} for name, own in metrics.SET_FIELDS.items()}
    recalls = tuple(tenth.recall for tenth in _tenths(sums)["tenths"])
    found = metrics.SetMetrics(n_rows=n_rows, n_labels=n_labels, decile_recall=recalls, **by_k)
    return {"log_loss": NAN, "sets": found}


def _count_probabilities(rows: RankedRows, sums: MetricSums) -> BlockSums:
    """Count the stated probabilities of the best class, of lists of the ten best labels."""
    if not rows.calibrated:
        return {}
    some, p, hits = np.isfinite(rows.candidates.scores), rows.p, rows.hits
    more: dict[str, Any] = {}
    if rows.multilabel:
        likely = some & (p >= metrics.LIKELY)
        more["likely"] = np.array([likely.sum(), p[likely].sum(), hits[likely].sum()])
        some, first = some[:, : metrics.FIRST], metrics.FIRST
    else:
        scores = rows.candidates.scores
        before, _ = class_probabilities(scores, rows.model.n_labels, Calibration())
        some, first = (rows.block.classes >= 0)[:, None], 1
        more["before"] = metrics.count_bins(before[:, :1][some], hits[:, :1][some])
        more["logs"] = rows.logs.sum()
    return more | {"stated": metrics.count_bins(p[:, :first][some], hits[:, :first][some])}


def _calibration_errors(sums: MetricSums) -> Fields:
    n = int(sums["stated"][0].sum()) if "stated" in sums else 0
    if not n:
        return {"log_loss": NAN}
    found = {"ece": metrics.reliability(sums["stated"]).ece}
    if "before" in sums:
        found["ece_before"] = metrics.reliability(sums["before"]).ece
        found["log_loss"] = -float(sums["logs"]) / n
    return found


def _count_predicted(rows: RankedRows, sums: MetricSums) -> BlockSums:
    """Count predicted labels; of rows with one label each the best class, if it is so probable."""
    if rows.multilabel:
        _, said, hits = rows.predict_labels(sums.request.threshold)
    elif not rows.calibrated:
        return {}
    else:
        said, hits = rows.p[:, :1] >= sums.request.threshold, rows.hits[:, :1]
    return {"predicted": np.array([(said & hits).sum(), said.sum()])}


def _threshold_metrics(sums: MetricSums) -> Fields:
    found: dict[str, float] = {"threshold": sums.request.threshold}
    if "predicted" in sums:
        (right, said), there = sums["predicted"].tolist(), sums["rows"][3].item()
        found["precision"] = right / said if said else NAN
        found["recall"] = right / there if there else NAN
    return found


def _count_classes(rows: RankedRows, sums: MetricSums) -> BlockSums:
    (ids, said, hits), lists = rows.predict_labels(sums.request.threshold), rows.block.lists
    there = IdCounts.of(lists.classes[lists.classes >= 0])
    more = {"said": IdCounts.of(ids[said])} if "said" in sums else {}
    return {"there": there, "right": IdCounts.of(ids[said & hits])} | more


def _class_recalls(sums: MetricSums) -> Fields:
    there, right = sums["there"], sums["right"]
    return {
        "macro_recall": metrics.macro_recall(there, right),
        "recall_by_decile": metrics.deciles(there, right),
    }


def _f1(sums: MetricSums) -> Fields:
    n_unseen = int(sums["rows"][1])
    return {"f1": metrics.f1_of_labels(sums["right"], sums["said"], sums["there"], n_unseen)}


def _count_by_class(rows: RankedRows, sums: MetricSums) -> BlockSums:
    return {"by_class": EachClass.count(rows, sums.request.threshold)}


def _by_class(sums: MetricSums) -> Fields:
    each: EachClass = sums["by_class"]
    each.rows, each.predictions, each.hits = (sums[x] for x in ("there", "said", "right"))
    return {"by_class": each, "confusions": each.confusions(sums.request.confusions)}


def _count_rankings(rows: RankedRows, sums: MetricSums) -> BlockSums:
    """Count the hits of all rankings that the model has; each row counts once."""
    predictor, alike, more = rows.predictor, replace(rows.block, importance=None), {}
    assert predictor is not None, "it has a model"
    for name in rankings_of(predictor.model):
        same = name == predictor.estimator
        best = rows.best if same else predictor.scorers.topk(rows.block, MOST, name).ids
        found = measure_ids(alike, best)
        shares = np.array([1, found.accuracy, found.top_5_accuracy])
        more[f"by {name}"] = alike.n_rows * shares
    return more


def _ranking_metrics(sums: MetricSums) -> Fields:
    found = {}
    for name in [] if isinstance(sums.model, ClassFacts) else rankings_of(sums.model):
        first, five = (sums[f"by {name}"][1:] / sums[f"by {name}"][0]).tolist()
        found[name] = {"accuracy": first, "top_5_accuracy": five}
    return {"estimators": found}


def _count_values(rows: RankedRows, sums: MetricSums) -> BlockSums:
    return {"values": sums["values"].count(rows)}


def _value_shares(sums: MetricSums) -> Fields:
    return {"by": sums["values"].slices()}


def _reliabilities(sums: MetricSums) -> Fields:
    found = {"reliability": metrics.reliability(sums["stated"])}
    return found | ({"before": metrics.reliability(sums["before"])} if "before" in sums else {})


def _tenths(sums: MetricSums) -> Fields:
    counts = sums.model.label_counts
    assert counts is not None, "rows have lists of labels"
    return {"tenths": metrics.tenths(sums["there"], sums["among five"], counts)}


def _row_groups(sums: MetricSums) -> Fields:
    n, stated, right = sums["likely"].tolist()
    return {
        "possible": metrics.best_precisions(sums["hits"]),
        "by_labels": metrics.group_rows(sums["hits"]),
        "likely": metrics.Bin(int(n), stated / n, right / n) if n else None,
    }


@dataclass(frozen=True)
class Metric:
    """Fields of an evaluation, and what they are made of."""

    fields: Callable[[MetricSums], Fields]
    # Returns what a block of rows adds; `None` if another metric's does.
    count: Callable[[RankedRows, MetricSums], BlockSums] | None = None
    when: str = "model"  # what of `MetricSums` is true, if it is measured
    diagnosed: bool = False  # whether it is of diagnoses alone


METRICS = [
    Metric(_row_shares, _count_rows),
    Metric(_accuracies, _count_hits),
    Metric(_hit_metrics, None, "one_label"),
    Metric(_set_metrics, _count_gains, "multilabel"),
    Metric(_threshold_metrics, _count_predicted),
    Metric(_calibration_errors, _count_probabilities),
    Metric(_class_recalls, _count_classes, "one_label"),
    Metric(_f1, _count_classes, "multilabel"),
    Metric(_by_class, _count_by_class, "request.classes"),
    Metric(_ranking_metrics, _count_rankings, "request.estimators"),
    Metric(_value_shares, _count_values, "request.by"),
    Metric(_reliabilities, diagnosed=True),
    Metric(_tenths, None, "multilabel", diagnosed=True),
    Metric(_row_groups, None, "multilabel", diagnosed=True),
]


class MetricSums:
    """What blocks of rows add up to, by name, and the metrics of that.

    Of a model there may be more metrics than of the scores of another system.
    """

    def __init__(self, model: Model | ClassFacts, request: EvaluationRequest) -> None:
        self.model, self.request = model, request
        self.multilabel = model.label_counts is not None
        self.one_label = not self.multilabel
        names = ["there", "right", *["said"] * (self.multilabel or request.classes)]
        names += ["among five"] * self.multilabel
        n, whole = len(model.labels), np.int64 if self.multilabel else np.int32
        self._sums: dict[str, Any] = {name: np.zeros(n, whole) for name in names}
        if request.classes:
            self._sums["by_class"] = EachClass(model.labels, model.titles)
        if request.by is not None and isinstance(model, Model):
            self._sums["values"] = NamespaceValues(model.features, request.by)
        self._metrics = [metric for metric in METRICS if attrgetter(metric.when)(self)]

    def __getitem__(self, name: str) -> Any:
        return self._sums[name]

    def __contains__(self, name: str) -> bool:
        return name in self._sums

    def count(self, rows: RankedRows) -> BlockSums:
        """Return what rows add."""
        each = [metric.count(rows, self) for metric in self._metrics if metric.count]
        return {name: added for more in each for name, added in more.items()}

    def add(self, more: BlockSums) -> None:
        """Add what a block of rows adds; the order of the rows decides the last digits."""
        for name, added in more.items():
            own = self._sums.get(name)
            if own is None:
                self._sums[name] = added
            elif isinstance(own, EachClass | NamespaceValues):
                own.take(added)
            elif isinstance(own, IdCounts):
                self._sums[name] = own.plus(added)
            elif isinstance(added, IdCounts):
                own[added.ids] += added.n.astype(own.dtype)
            else:
                self._sums[name] = own + added

    def fields(self, *, diagnosed: bool = False) -> dict[str, Any]:
        """Return the metrics as fields of an evaluation, or also those of a diagnosis."""
        every = [x.fields(self) for x in self._metrics if diagnosed or not x.diagnosed]
        return {name: value for fields in every for name, value in fields.items()}


def rankings_of(model: Model) -> list[Ranker]:
    """Return the ways to rank classes of a model; with R = 1 all but counts agree."""
    counted: list[Ranker] = [BLEND] if model.calibrated_ranking == BLEND else []
    if model.spec.unhashed:
        return counted
    return [*counted, *estimators()[: 1 if model.spec.n_repetitions == 1 else None]]
