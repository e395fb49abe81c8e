"""Counts and hashed models as one ensemble: fitted on held-out rows, kept where they win there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.counts.footprint import (
    FIT_BYTES,
    FIT_CANDIDATES,
    MAX_GROUPS,
    WEIGHT_BYTES,
    evidence_bytes,
    pair_room,
)
from streammach.counts.learning import GroupWeights, class_logarithms, evidence, weigh
from streammach.counts.pair_learning import PairLearner, scan_pays
from streammach.counts.scores import CountScorer
from streammach.counts.table import CountTable, PairGainModel, count_pairs
from streammach.data.holdout import held_rows, masked_blocks
from streammach.figures import Reached
from streammach.parts.base import Session
from streammach.parts.counts.group_fit import (
    CandidateFeatures,
    fit_groups,
    start_weights,
    top_k_hits,
)
from streammach.parts.counts.groupings import groupings
from streammach.parts.counts.watch import HeldOutLoss, learn_while_it_pays
from streammach.prediction.evaluate import measure
from streammach.prediction.ranking import by_counts, by_hashes, hashed_means
from streammach.rows.block import RowBlock
from streammach.rows.dense import product
from streammach.rows.pairs import CountWeights
from streammach.spec.types import Ranker, Transform

MIN_FIT_ROWS = 50
LESSON_ROWS = 4096  # that are learnt from at once
WATCHED_ROWS = 2048  # held-out rows that say whether to go on
MIN_SLOPE = np.float32(0.01)  # more rows of a pair never make it gain_model less


@dataclass(frozen=True, kw_only=True)
class CountSettings:
    """How weights of counts are fitted.

    Attributes
    ----------
    grouped : bool
        Whether features have weights by group, in the best of several ways to group them.
    pair_weights : bool
        Whether feature and pair weights are learnt, too.
    factors : tuple of float
        Multiples of the hashed models' weight that are tried for the sake of the first five.
    """

    grouped: bool = True
    pair_weights: bool = True
    factors: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Ensemble:
    """What counts brought.

    Attributes
    ----------
    weights : CountWeights or None
        The scores to use beside the hashed models, of rows that are not held out; None where
        hashed models do better alone.
    reasons : tuple of str
        Why, in sentences.
    validation : dict
        What was measured on held-out rows that the fit did not see, by name.
    whole : callable
        Counts the held-out rows too; returns the scores to use then, in place of `weights`.
    """

    weights: CountWeights | None
    reasons: tuple[str, ...]
    validation: dict[Ranker, Reached]
    whole: Callable[[], CountWeights | None] = lambda: None


class CountFitter:
    """Counts the pairs of a store, fits their weights, and says whether they pay.

    Parameters
    ----------
    session : Session
        The training; its backend holds the trained hashed models, its held-out rows are fitted on
        and decide.
    transform : str
        The hashed models' transform.
    settings : CountSettings
        How weights are fitted.
    """

    def __init__(self, session: Session, transform: Transform, settings: CountSettings) -> None:
        self._transform, self._settings = transform, settings
        self._dataset, self._backend = session.dataset, session.backend
        self._held, self._check, self._tell = session.held, session.check, session.tell
        config = session.plan.config
        self._max_pairs = config.size_of("counts")
        self._threads = config.placement.threads
        self._rows = self._held.rows.take(np.flatnonzero(self._held.rows.classes >= 0))
        self._n_fit = min(self._rows.n_rows, FIT_BYTES // evidence_bytes(MAX_GROUPS))

    def run(self) -> Ensemble:
        """Return the counts' weights, or None where hashed models alone do better."""
        if self._n_fit < MIN_FIT_ROWS:
            reason = f"no counts: {self._n_fit:,} held-out rows are too few to weigh them"
            return Ensemble(None, (reason,), {})
        alone = measure(self._rows, by_hashes(self._backend, "logsum", self._transform))
        try:
            table = self._count(self._gain_model())
        except OverflowError:  # six standard errors above the store's estimate, or a false one
            return Ensemble(None, ("no counts: the store holds more pairs than it says",), {})
        grouped = self._choose_grouping(table)
        learnt = self._learn(table, grouped) if self._settings.pair_weights else grouped
        best = max(grouped, learnt, key=lambda fitted: fitted.reached.selection_score)
        better = best.reached.selection_score > alone.selection_score
        reasons = (
            f"counts of {table.n_pairs:,} pairs by {grouped.why}",
            f"feature and pair weights {'kept' if best is learnt else 'left out'}: held-out "
            f"accuracy / top-5 {_text(learnt.reached)} with, {_text(grouped.reached)} without",
            f"counts {'kept' if better else 'left out'}: held-out "
            f"accuracy / top-5 {_text(best.reached)} with, {_text(alone)} without",
        )
        validation: dict[Ranker, Reached] = {"logsum": alone, "blend": best.reached}
        if not better:
            return Ensemble(None, reasons, validation)

        def whole() -> CountWeights:
            for rows in held_rows(self._dataset, self._held):
                self._check()
                table.add(rows)
            return weigh(table, best.weights)

        return Ensemble(weigh(table, best.weights), reasons, validation, whole)

    def _blocks(self, n_rows: int) -> Iterator[tuple[RowBlock, NDArray[np.bool_]]]:
        """Yield the first rows of the store, and which are held out."""
        for block, held in masked_blocks(self._dataset, self._held):
            self._check()
            some = min(n_rows, block.n_rows)
            yield block.part(0, some), held[:some]
            n_rows -= some
            if not n_rows:
                return

    def _gain_model(self) -> PairGainModel | None:
        """Return what decides which pairs are kept, where not all fit.

        Group weights, fitted on counts of so many rows that all of their pairs fit.
        """
        facts, room = self._dataset.facts, self._max_pairs
        if room >= pair_room(facts):
            return None
        n_rows = max(1, facts.n_rows * room // facts.nnz)
        table = self._count(None, n_rows)
        found = self._choose_grouping(table).weights
        slope = np.maximum(found.slope, MIN_SLOPE)
        return PairGainModel(slope[found.group], found.match[found.group])

    def _count(self, gain_model: PairGainModel | None, n_rows: int | None = None) -> CountTable:
        """Count the pairs of the store, or of about its first rows."""
        facts, first = self._dataset.facts, n_rows or self._dataset.n_rows
        table = count_pairs(
            lambda: self._blocks(first), facts.n_features, facts.n_classes,
            max_pairs=self._max_pairs, mark_bytes=WEIGHT_BYTES * self._max_pairs,
            threads=self._threads, gain_model=gain_model,
        )  # fmt: skip
        of = "" if n_rows is None else f" of {n_rows:,} rows, to see which to keep"
        kept = "" if gain_model is None else ", those that add most"
        self._tell(f"counted {table.n_pairs:,} pairs of a feature and a class{of}{kept}")
        return table

    def _choose_grouping(self, table: CountTable) -> _Fitted:
        """Return the weights for the best way to group features, with all figures."""
        ways = {"one": np.zeros(table.n_features, np.int32)}
        if self._settings.grouped:
            ways = groupings(self._dataset, table)
        tried: dict[str, Reached] = {}
        for name, group in ways.items():
            self._check()
            tried[name] = self._screened(table, start_weights(group))
            self._tell(f"by {name}: held-out accuracy / top-5 {_text(tried[name])}")
        best = max(tried, key=lambda name: tried[name].selection_score)
        figures = ", ".join(f"{name} {_text(reached)}" for name, reached in tried.items())
        fitted = self._fit(table, start_weights(ways[best]))
        return replace(fitted, why=f"{best}: held-out accuracy / top-5 {figures}")

    def _screened(self, table: CountTable, start: GroupWeights) -> Reached:
        """Return what weights reach on a half of the rows, fitted on the other half."""
        half = self._n_fit // 2
        found = self._evidence(table, start)
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            weights = fit_groups(found.part(0, half), start, hashed=True, learnt=False)
            first, five = top_k_hits(found.part(half, self._n_fit), weights)
        return Reached(first / (self._n_fit - half), five / (self._n_fit - half))

    def _learn(self, table: CountTable, grouped: _Fitted) -> _Fitted:
        """Learn feature and pair weights on counts alone, then fit everything together."""
        fitted = self._fit(table, self._taught(table, self._counts_alone(table, grouped.weights)))
        self._tell(
            f"with feature and pair weights: held-out accuracy / top-5 {_text(fitted.reached)}"
        )
        return fitted

    def _taught(self, table: CountTable, alone: GroupWeights) -> GroupWeights:
        """Return the weights with those of features and pairs."""
        data = self._dataset
        scorer = CountScorer(weigh(table, alone), self._threads)
        rows, candidates, _ = self._candidates(table, scorer, WATCHED_ROWS)
        found = self._features(table, alone, scorer, rows, candidates)
        watch = HeldOutLoss(table, alone, found, rows=rows, candidates=candidates, each=scorer.each)
        del found
        pairs = float(product(np.diff(table.starts), data.feature_counts)) / data.n_rows
        with PairLearner(table, alone, scan=scan_pays(pairs), threads=self._threads) as learner:
            learn_while_it_pays(
                learner.learn, lambda: watch.of(learner.weights()), self._lessons,
                n_rows=data.n_rows, tell=self._tell,
            )  # fmt: skip
        scorer.close()
        return learner.weights()

    def _counts_alone(self, table: CountTable, weights: GroupWeights) -> GroupWeights:
        """Fit the weights of counts without hashed models, which know the rows to learn from."""
        found = self._evidence(table, weights)
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            return fit_groups(found, weights, hashed=False, learnt=False)

    def _fit(self, table: CountTable, start: GroupWeights) -> _Fitted:
        """Fit the weights on candidates by `start` and by the hashed models.

        Two fits, each on half of the rows, are measured on the others; the third, on all, is kept.
        The loss is that of the first place; for the sake of the first five the hashed models get
        the multiple of their fitted weight that does best on the half that each fit did not see.
        """
        half = self._n_fit // 2
        found = self._evidence(table, start)
        halves = (found.part(0, half), found.part(half, self._n_fit))
        with threadpoolctl.threadpool_limits(1, user_api="blas"):  # the same bits for any threads
            fits = [fit_groups(part, start, hashed=True, learnt=start.theta.size > 0)
                    for part in (*halves, found)]  # fmt: skip
            factor = _best_factor(fits, halves, self._settings.factors)
        del found, halves  # a large part of the memory
        fits = [replace(weights, hashed=weights.hashed * factor) for weights in fits]
        others = (self._rows.part(half, self._rows.n_rows), self._rows.part(0, half))
        reached = _joined(
            (rows.n_rows, self._judge(table, weights, rows))
            for weights, rows in zip(fits[:2], others, strict=True)
        )
        return _Fitted(fits[2], reached, "")

    def _lessons(self) -> Iterator[RowBlock]:
        """Yield the rows of the store that are not held out, some thousands at a time."""
        for block, held in self._blocks(self._dataset.n_rows):
            kept = np.flatnonzero(~held)
            for start in range(0, len(kept), LESSON_ROWS):
                self._check()
                yield block.take(kept[start : start + LESSON_ROWS])

    def _judge(self, table: CountTable, weights: GroupWeights, rows: RowBlock) -> Reached:
        """Return what counts and hashed models reach together."""
        scorer = CountScorer(weigh(table, weights), self._threads)
        try:
            return measure(rows, by_counts(self._backend, scorer, self._transform))
        finally:
            scorer.close()

    def _evidence(self, table: CountTable, weights: GroupWeights) -> CandidateFeatures:
        """Return the candidates of the rows to fit on, by counts and by hashes."""
        scorer = CountScorer(weigh(table, weights), self._threads)
        rows, candidates, number = self._candidates(table, scorer, self._n_fit)
        found = self._features(table, weights, scorer, rows, candidates)
        scorer.close()
        return replace(found, number=number)

    def _candidates(
        self, table: CountTable, scorer: CountScorer, n_rows: int
    ) -> tuple[RowBlock, NDArray[np.int32], NDArray[np.int64]]:
        """Return the first rows whose class is a candidate, their candidates, their numbers."""
        rows = self._rows.part(0, min(n_rows, self._rows.n_rows))
        by_count, _ = scorer.topk(rows, FIT_CANDIDATES // 2)
        ranking = by_hashes(self._backend, "logsum", self._transform)
        by_hash, _ = ranking(rows, FIT_CANDIDATES // 2)
        candidates = _distinct(np.concatenate([by_count, by_hash], axis=1).astype(np.int32))
        kept = np.flatnonzero((candidates == rows.classes[:, None]).any(axis=1))
        return rows.take(kept), candidates[kept], kept

    def _features(
        self, table: CountTable, weights: GroupWeights, scorer: CountScorer, rows: RowBlock,
        candidates: NDArray[np.int32],
    ) -> CandidateFeatures:  # fmt: skip
        """Return what counts and hashed models say of candidates."""
        counted = evidence(table, rows, candidates, weights=weights, each=scorer.each)
        groups = np.zeros((rows.n_rows, weights.n_groups), np.float32)
        row_of = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
        np.add.at(groups, (row_of, weights.group[rows.features]), 1)
        log_rows, log_values = class_logarithms(table)
        there = np.maximum(candidates, 0)
        return CandidateFeatures(
            counted=counted, groups=groups, log_rows=log_rows[there],
            log_values=log_values[there],
            hashed=hashed_means(self._backend, rows, there, self._transform),
            repeated=candidates < 0, number=np.arange(rows.n_rows),
            place=(candidates == rows.classes[:, None]).argmax(axis=1),
        )  # fmt: skip


@dataclass(frozen=True)
class _Fitted:
    """Weights, and what they reach on rows that the fit did not see."""

    weights: GroupWeights
    reached: Reached
    why: str


def _best_factor(
    fits: list[GroupWeights],
    halves: tuple[CandidateFeatures, CandidateFeatures],
    factors: tuple[float, ...],
) -> float:
    """Return the multiple of the hashed models' weight with the best score."""

    def selection_score(factor: float) -> float:
        total = 0.0
        for weights, unseen in zip(fits[:2], reversed(halves), strict=True):
            first, five = top_k_hits(unseen, replace(weights, hashed=weights.hashed * factor))
            total += first + five / 2
        return total

    return max(factors, key=selection_score)


def _joined(parts: Iterable[tuple[int, Reached]]) -> Reached:
    """Return what was reached on several sets of rows together."""
    sizes, found = zip(*parts, strict=True)
    first = np.average([m.accuracy for m in found], weights=sizes)
    return Reached(
        float(first), float(np.average([m.top_5_accuracy for m in found], weights=sizes))
    )


def _text(reached: Reached) -> str:
    return f"{reached.accuracy:.3f} / {reached.top_5_accuracy:.3f}"


def _distinct(candidates: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return each row's different candidates, in their order, then -1: int32 (n, m)."""
    order = np.argsort(candidates, axis=1, kind="stable")
    same = np.diff(np.take_along_axis(candidates, order, axis=1), axis=1, prepend=-1) == 0
    repeated = np.zeros(candidates.shape, bool)
    np.put_along_axis(repeated, order, same, axis=1)
    moved = np.argsort(repeated, axis=1, kind="stable")
    found = np.where(repeated, np.int32(-1), candidates)
    return np.take_along_axis(found, moved, axis=1)
