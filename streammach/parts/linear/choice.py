"""Chooses how linear classifiers are learnt, and learns them, at last from all rows.

Choices are made by rows that the classifiers have not learnt from: by cross-validation where that
takes little time, else by the held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.linear.learner import LinearLearner, LinearOptions, every_row, scale_features
from streammach.linear.scorer import Linear
from streammach.linear.weights import LinearScorer, LinearWeights
from streammach.options.figures import HeldOutMetrics, gain_text, scores_text
from streammach.parts.training_record import Decision, Training
from streammach.prediction.metrics import MOST, f1_of_labels
from streammach.prediction.ranking import Ranking, Top
from streammach.prediction.selection_metrics import measure_ids
from streammach.rows.arrays import best_first
from streammach.rows.block import RowBlock
from streammach.store.holdout import row_folds, unmasked_rows

# What is tried in turn, each with the best of all others so far. C is for rows of length 1: 10 was
# better than 1 only where rows are few; of many rows 5 was, without idf, for columns of categories.
FIRST: dict[str, Any] = {"cost": 1.0, "least": 0.05}  # smaller weights did not matter
WITHOUT_IDF: dict[str, Any] = {"idf": False}
WITH_VALUES: dict[str, Any] = {"valued": True}
FEW_ROWS_COST, MANY_ROWS_COST, MANY_ROWS = 10.0, 5.0, 20_000
TOLD = 5  # rows of a class from which on its F1 says something
FEW_ROWS, FEW_FOLDS, FOLDS = 2000, 5, 3
FOLDED_WORK = 5_000_000  # values times classes up to which choices are made by cross-validation
LOOKED_AT = 100_000  # values
HELD_OUT = "held-out"  # how rows are called that were not learnt from
OWN_ROWS = 1.0  # rows of the whole that stand beside those without a known feature


class LinearDecision(Decision):
    """Linear classifiers and what judged them."""

    def __init__(
        self, learn: Callable[[], Linear], judged: ScoredRows, reasons: tuple[str, ...]
    ) -> None:
        super().__init__(reasons=reasons, figures={"blend": judged.metrics})
        self._learn, self.judged = learn, (judged.rows, judged.ranking)
        self.ranking = judged.ranking

    def learn_held_out(self) -> None:
        """Learn from all rows."""
        self.linear = self._learn()


@dataclass(frozen=True)
class ScoredRows:
    """Rows with scores of classifiers that did not learn from them."""

    rows: RowBlock
    scores: NDArray[np.float32]  # float32 (n, K)

    @property
    def ranking(self) -> Ranking:
        """The ranking of these rows, all of them at once."""

        def rank(rows: RowBlock, k: int) -> Top:
            assert rows.n_rows == len(self.scores), "they are ranked together"
            every = np.broadcast_to(np.arange(self.scores.shape[1]), self.scores.shape)
            return best_first(every, self.scores, min(k, self.scores.shape[1]))

        return rank

    @cached_property
    def score(self) -> float:
        """Accuracy + macro F1 of classes with some rows, by which options are compared."""
        n, ids, true = self.scores.shape[1], self.scores.argmax(axis=1), self.rows.classes
        said, right = np.bincount(ids, minlength=n), np.bincount(true[ids == true], minlength=n)
        own = np.bincount(true[true >= 0], minlength=n)
        some = own >= min(TOLD, own.max())
        f1 = f1_of_labels(right[some], said[some], own[some], 0).macro
        return float(np.average(ids == true, weights=self.rows.weights)) + f1

    @cached_property
    def metrics(self) -> HeldOutMetrics:
        """What they reach."""
        return measure_ids(self.rows, self.ranking(self.rows, MOST)[0])


def decide(training: Training, most_weights: int) -> LinearDecision:
    """Choose by rows that decide; the classifiers of all rows are learnt at the end."""
    fitting = _Fitting(training, most_weights)
    tried: dict[LinearOptions, ScoredRows] = {}

    def best() -> LinearOptions:
        return max(tried, key=lambda options: tried[options].score)

    if len(fitting.all_rows.classes) < MANY_ROWS:
        changes = [FIRST, {"cost": FEW_ROWS_COST}, WITHOUT_IDF]
    else:
        changes = [FIRST, WITHOUT_IDF, {"cost": MANY_ROWS_COST}]
    changes += [WITH_VALUES] * fitting.has_values
    for i, change in enumerate(changes):
        each = training.clock.elapsed_seconds / (1 + len(tried))
        if tried and training.clock.remaining_seconds < 2 * each:
            break
        if change.get("cost") == MANY_ROWS_COST and not _idf_is_wrong(list(tried.values())):
            continue
        training.report_progress(i, 1 + len(changes))
        options = replace(best(), **change) if tried else LinearOptions(**change)
        tried[options] = fitting.judge(options)
    chosen = best()
    figures = scores_text((_options_text(options), one.metrics) for options, one in tried.items())
    reasons = (
        f"linear classifiers, {_options_text(chosen)}: {fitting.how} accuracy / top-5 {figures}",
        report_figure(training, fitting.how, tried[chosen].metrics, fitting.n_judges),
    )
    return LinearDecision(lambda: fitting.learn(chosen, fitting.all_rows), tried[chosen], reasons)


def _idf_is_wrong(tried: list[ScoredRows]) -> bool:
    """Return whether the second of two trials, without idf, is better by half a standard error."""
    first, second = (one.metrics for one in tried)
    return second.accuracy > first.accuracy + first.error(tried[0].rows.n_rows) / 2


def report_figure(training: Training, how: str, own: HeldOutMetrics, n: int) -> str:
    """Report what n rows reached that were not learnt from, with its standard error."""
    training.log_metrics("linear classifiers", own)
    if how != HELD_OUT:
        training.holdout = replace(training.holdout, origin=f"{n:,} rows, {how}")
    data = training.dataset
    return gain_text(how, "accuracy", own, n, data.label_counts.max() / data.n_rows)


def _options_text(options: LinearOptions) -> str:
    more = ("" if options.idf else ", no idf") + (" with values" if options.valued else "")
    return f"C {options.cost:g}{more}"


class _Fitting:
    """The rows of a training, and how classifiers are learnt from some of them."""

    def __init__(self, training: Training, most_weights: int) -> None:
        self._training, self._most = training, most_weights
        data, held = training.dataset, training.holdout
        self._d, self._k = data.n_features, data.n_classes
        self.all_rows = RowBlock.concat(list(unmasked_rows(data, None)))
        folded = held.mask is not None or not held.rows.n_rows
        folded = folded and data.nnz * data.n_classes <= FOLDED_WORK
        n = FEW_FOLDS if data.n_rows < FEW_ROWS else FOLDS
        self._folds = None
        if folded and data.n_rows >= n:
            self._folds, _ = row_folds(data, n, training.options.seed, training.options.hold_out_by)
            self.how, self.n_judges = f"{n}-fold cross-validated", data.n_rows
        else:
            self.how, self.n_judges = HELD_OUT, held.rows.n_rows

    @cached_property
    def has_values(self) -> bool:
        """Whether rows have values that differ."""
        some = self.all_rows.values[:: max(1, len(self.all_rows.values) // LOOKED_AT)]
        return len(np.unique(some)) > 1

    def judge(self, options: LinearOptions) -> ScoredRows:
        """Return the scores of rows by classifiers that did not learn from them."""
        rows, held = self.all_rows, self._training.holdout
        if self._folds is None:
            mask = np.ones(rows.n_rows, np.bool_) if held.mask is None else ~held.mask
            weights = self.learn(options, rows.take(np.flatnonzero(mask)))
            return ScoredRows(held.rows, self._scores(weights, held.rows))
        scores = np.empty((rows.n_rows, self._k), np.float32)
        for fold in np.unique(self._folds):
            self._training.check_stop()
            out = np.flatnonzero(self._folds == fold)
            weights = self.learn(options, rows.take(np.flatnonzero(self._folds != fold)))
            known = rows.take(out)
            known = known.with_values(weights.scale[known.features] > 0)
            scores[out] = self._scores(weights, known)
        return ScoredRows(rows, scores)

    def learn(self, options: LinearOptions, rows: RowBlock) -> LinearWeights:
        """Return the classifiers of rows."""
        threads = self._training.plan.config.placement.threads
        scale = scale_features(rows, self._d, idf=options.idf)
        learner = LinearLearner(rows, scale, options, threads)
        most_each = max(self._most // self._k, 1)
        found = learner.learn(
            self._k, every_row(rows.classes), rows.n_rows, most_each=most_each,
            tell=lambda _: self._training.check_stop(),
        )  # fmt: skip
        return replace(found, empty=self._empty(rows))

    def _scores(self, weights: LinearWeights, rows: RowBlock) -> NDArray[np.float32]:
        threads = self._training.plan.config.placement.threads
        with closing(LinearScorer(weights, threads)) as scorer:
            return scorer.scores(rows)

    def _empty(self, rows: RowBlock) -> NDArray[np.float32]:
        """Return the scores of rows without a known feature: ln of the share of each class.

        Rows to come without one are like rows of which no other row shares a feature.
        """
        often = np.bincount(rows.features, minlength=self._d) > 1
        shared = np.zeros(rows.n_rows, np.int64)
        np.add.at(
            shared, np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr)), often[rows.features]
        )
        weights = rows.weights.astype(np.float64)
        every = np.bincount(rows.classes, weights, self._k)
        lonely = np.bincount(rows.classes, weights * (shared == 0), self._k)
        share = lonely + OWN_ROWS * (every + 1 / self._k) / (every.sum() + 1)
        found: NDArray[np.float32] = np.log(share / share.sum()).astype(np.float32)
        return found
