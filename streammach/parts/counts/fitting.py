"""Fits of count weights on held-out rows, of counts alone or beside hashed models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.backends.protocol import Backend
from streammach.counts.learning import class_logarithms, evidence, weigh
from streammach.counts.scores import CountScorer
from streammach.counts.table import CountTable, GroupWeights
from streammach.options.figures import HeldOutMetrics
from streammach.options.types import Amount, Transform
from streammach.parts.counts.count_bytes import (
    FIT_BYTES,
    FIT_CANDIDATES,
    MAX_GROUPS,
    evidence_bytes,
)
from streammach.parts.counts.group_fit import fit_groups, top_k_hits
from streammach.parts.counts.group_kernels import CandidateFeatures
from streammach.parts.counts.neighbour_fit import CANDIDATES, WeightFit, judging_rows
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import (
    Ranking,
    by_counts,
    by_hashes,
    hashed_means,
    largest_discount,
)
from streammach.prediction.selection_metrics import measure_hits, measure_ids, score_rows
from streammach.rows.arrays import find_repeated
from streammach.rows.block import RowBlock, evenly
from streammach.system.errors import ModelError
from streammach.system.threads import Workers

# For the first five places are tried: multiples of the hashed models' weight; of rows with lists
# what is added to the weight of what was learnt of labels, since the loss of the first place asks
# for less of it than they profit from.
FACTORS, LABEL_STEPS = (1.0, 1.5, 2.0, 3.0), (0.0, 0.25, 0.5, 1.0)
# How much less rows may reach with classifiers of labels, in standard errors of P@1: two rankings
# of the same rows differ by a third of one by chance.
NEAR = 0.5
# A fit is done again where classes that were no candidates take so much of the score. With 2,000
# classes and bins of numbers they took all of it, of hypernyms at most 0.0002; once is enough.
STRANGERS = 0.05
BY_GROUP = "slope", "match", "penalty"  # weights
# What is tried for the weight of ln n_i, beside what the fit took. Below 0 frequent labels gain:
# those are among a row's candidates, as rare labels that would gain are not. No more than two
# steps: the weights were fitted on the rows that judge.
BACK = (-0.1, -0.05, 0.0)
BACK_ERRORS = 1.0  # of the mean difference of the same rows, by which a tilt is worse
TILT_ROWS = 8000  # that judge how little frequent labels weigh


class HashedModels(NamedTuple):
    """Trained hashed models beside which counts are fitted: where they are, and their transform."""

    backend: Backend
    transform: Transform


class Fitted(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True,
    rename={"metrics": "reached"},  # as files of format 1 have it
):  # fmt: skip
    """The numbers of fitted weights, and what they reach on rows that the fit did not see."""

    slope: tuple[float, ...]
    match: tuple[float, ...]
    penalty: tuple[float, ...]
    prior: float
    learnt: float
    hashed: float
    metrics: HeldOutMetrics
    seconds: Amount = 0.0  # of the fit
    best: Amount = 0.0  # of rows with lists: the best score with any weight of ``ln n_i``

    @classmethod
    def of(cls, w: GroupWeights, metrics: HeldOutMetrics) -> Fitted:
        """Return the numbers of weights."""
        by_group: dict[str, Any] = {name: tuple(getattr(w, name).tolist()) for name in BY_GROUP}
        return cls(**by_group, prior=w.prior, learnt=w.learnt, hashed=w.hashed, metrics=metrics)

    @property
    def score(self) -> float:
        """By which weights are chosen: what the weight of ``ln n_i`` gave away does not count."""
        return max(self.best, self.metrics.selection_score)

    def weights(self, start: GroupWeights) -> GroupWeights:
        """Return the weights, with the groups and the learnt weights that the fit started from."""
        own: dict[str, Any] = {name: np.array(getattr(self, name), np.float32) for name in BY_GROUP}
        if any(len(array) != start.n_groups for array in own.values()):
            raise ModelError("damaged: fitted weights are of other groups", hint="Train again.")
        return replace(start, **own, prior=self.prior, learnt=self.learnt, hashed=self.hashed)


class Fitting:
    """Fits weights of counts on held-out rows.

    Rows of one group lie together, so that halves share no group but one, and rows that are
    fitted on are taken evenly from all groups.
    """

    def __init__(
        self, rows: RowBlock, n_fit: int, *, threads: int, hashed: HashedModels | None = None
    ) -> None:
        self._known, self.threads, self.hashed = rows, threads, hashed
        self.workers = Workers(threads, "weights")
        self.limit(n_fit)

    def limit(self, n_fit: int, measured: int | None = None) -> None:
        """Fit on so many rows at most; measure on all, or on so many."""
        n = self._known.n_rows
        self.n_fit, held = min(n_fit, n), np.minimum(np.diff(self._known.indptr), MAX_GROUPS)
        while True:
            spare = n - self.n_fit if measured is None else max(min(measured, n) - self.n_fit, 0)
            places, self._first = _in_halves(n, self.n_fit, spare)
            n_groups = int(held[places[self._first : self._first + self.n_fit]].sum())
            n_bytes = evidence_bytes(self.n_fit, n_groups)
            if n_bytes <= FIT_BYTES:
                break
            self.n_fit = self.n_fit * FIT_BYTES // n_bytes
        self.rows = self._known.take(places)

    def screen(self, table: CountTable, start: GroupWeights) -> HeldOutMetrics:
        """Return what weights reach on a half of the rows, fitted on the other half."""
        half = self.n_fit // 2
        found = self._evidence(table, start)
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            weights = fit_groups(
                found.part(0, half), start, hashed=self.hashed is not None, learnt=False,
                workers=self.workers,
            )  # fmt: skip
        hits = top_k_hits(found.part(half, self.n_fit), weights, self.workers)
        return measure_hits(self.rows.part(self._first + half, self._first + self.n_fit), hits)

    def once(self, training: Training, name: str, table: CountTable, start: GroupWeights) -> Fitted:
        """Return a fit by its name; one that was done before is read."""

        def fit() -> Fitted:
            began = time.monotonic()
            found = self.fit(table, start)
            return msgspec.structs.replace(found, seconds=time.monotonic() - began)

        return training.findings.once(name, Fitted, fit, of=self.n_fit)

    def fit(self, table: CountTable, start: GroupWeights) -> Fitted:
        """Fit the weights on candidates by `start` and by the hashed models.

        Two fits, each on half of the rows, are measured on the others; the third, on all, is kept.
        The loss is that of the first place; for the sake of the first five the hashed models, and
        what was learnt of labels, weigh more than fitted if that does better on the half that each
        fit did not see. Where rows have lists of labels, as much is taken from the weight of a
        class's rows as the ranking of all classes, on the other half, cannot tell from the best: of
        rankings that are as good, rare labels profit most.

        Rare classes that are no candidates may come first by the fitted weights, since the loss
        does not see them. Then it is fitted again, with these among the candidates.
        """
        fitted, seen = self._fitted_once(table, start)
        if self.hashed is None and self.rows.labels is None and fitted.score < seen - STRANGERS:
            again, _ = self._fitted_once(table, start, fitted.weights(start))
            fitted = max(fitted, again, key=lambda one: one.score)
        return fitted

    def _fitted_once(
        self, table: CountTable, start: GroupWeights, rivals: GroupWeights | None = None
    ) -> tuple[Fitted, float]:
        """Return a fit, and the score of unseen rows if candidates alone are ranked.

        Half of the candidates are the best classes by `rivals`, if there are any.
        """
        half, beside = self.n_fit // 2, self.hashed is not None
        found = self._evidence(table, start, rivals)
        halves = (found.part(0, half), found.part(half, self.n_fit))
        with threadpoolctl.threadpool_limits(1, user_api="blas"):  # the same bits for any threads
            fits = [
                fit_groups(
                    part, start, hashed=beside, learnt=start.theta.size > 0, workers=self.workers
                )
                for part in (*halves, found)
            ]
        rows = self.rows.part(self._first, self._first + self.n_fit)
        fits = _adjust(fits, *_best_adjustment(fits, halves, rows, self.workers))
        listed = found.listed
        seen = _unseen_score(fits, halves, rows, self.workers)
        del found, halves  # a large part of the memory
        middle = self._first + half
        others = (self.rows.part(middle, self.rows.n_rows), self.rows.part(0, middle))
        best = 0.0
        if listed:  # candidates say too little: rare classes that are none of them would come first
            some = [
                rows.take(evenly(rows.n_rows, min(rows.n_rows, TILT_ROWS // 2))) for rows in others
            ]
            both = RowBlock.concat(some)

            def scores(tilt: float) -> NDArray[np.float64]:
                pairs = zip(_discount_prior(fits[:2], tilt), some, strict=True)
                return score_rows(both, np.concatenate([self._top(table, *x) for x in pairs]))

            tilt, best = largest_discount(scores, best_alone=both.lists.weights is not None)
            fits = _discount_prior(fits, tilt)
        fitted = Fitted.of(fits[2], self._measure_unseen(table, fits, others))
        return msgspec.structs.replace(fitted, best=best), seen

    def _measure_unseen(
        self, table: CountTable, fits: list[GroupWeights], others: Sequence[RowBlock]
    ) -> HeldOutMetrics:
        """Return what the first two fits reach on rows that each did not see."""
        found = [self.measure(table, *one) for one in zip(fits[:2], others, strict=True)]
        figures = [[x for x in msgspec.structs.astuple(one) if x is not None] for one in found]
        sizes = [max(float(rows.weights.sum(dtype=np.float64)), 1e-30) for rows in others]
        return HeldOutMetrics(*np.average(figures, axis=0, weights=sizes).tolist())

    def measure(self, table: CountTable, weights: GroupWeights, rows: RowBlock) -> HeldOutMetrics:
        """Return what weights reach on rows."""
        return measure_ids(rows, self._top(table, weights, rows))

    def _top(self, table: CountTable, weights: GroupWeights, rows: RowBlock) -> NDArray[np.int64]:
        """Return the first five classes of rows, int64 (n, 5)."""
        with closing(self.open_scorer(table, weights)) as scorer:
            if self.hashed is None:
                return scorer.topk(rows, MOST)[0]
            ranking = by_counts(self.hashed.backend, scorer, self.hashed.transform)
            return ranking(rows, MOST)[0]

    def open_scorer(self, table: CountTable, weights: GroupWeights) -> CountScorer:
        """Return what scores rows by weights."""
        return CountScorer(weigh(table, weights, self.workers), self.threads)

    def _evidence(
        self, table: CountTable, weights: GroupWeights, rivals: GroupWeights | None = None
    ) -> CandidateFeatures:
        best = None
        if rivals is not None:
            rows = self.rows.part(self._first, self._first + self.n_fit)
            with closing(self.open_scorer(table, rivals)) as scorer:
                best = scorer.topk(rows, FIT_CANDIDATES // 2)[0].astype(np.int32)
        with closing(self.open_scorer(table, weights)) as scorer:
            rows, candidates, number = self.candidates(scorer, self.n_fit, best)
            found = self.features(table, weights, scorer, rows, candidates)
        return found._replace(number=number)

    def candidates(
        self, scorer: CountScorer, n_rows: int, others: NDArray[np.int32] | None = None
    ) -> tuple[RowBlock, NDArray[np.int32], NDArray[np.int64]]:
        """Return rows to fit on whose class is a candidate, their candidates, their numbers."""
        rows = self.rows.part(self._first, self._first + min(n_rows, self.n_fit))
        if self.hashed is not None:
            ranking = by_hashes(self.hashed.backend, "logsum", self.hashed.transform)
            others = ranking(rows, FIT_CANDIDATES // 2)[0].astype(np.int32)
        if others is None:
            candidates = scorer.topk(rows, FIT_CANDIDATES)[0].astype(np.int32)
        else:
            by_count, _ = scorer.topk(rows, FIT_CANDIDATES // 2)
            candidates = _distinct(np.concatenate([by_count.astype(np.int32), others], axis=1))
        kept = np.flatnonzero(_own(rows, candidates).any(axis=1))
        return rows.take(kept), candidates[kept], kept

    def features(
        self, table: CountTable, weights: GroupWeights, scorer: CountScorer, rows: RowBlock,
        candidates: NDArray[np.int32],
    ) -> CandidateFeatures:  # fmt: skip
        """Return what counts and hashed models say of candidates."""
        said = evidence(table, rows, candidates, weights=weights, each=scorer.each)
        log_rows, log_values = class_logarithms(table)
        there = np.maximum(candidates, 0)
        means = np.zeros(there.shape, np.float32)
        if self.hashed is not None:
            means = hashed_means(self.hashed.backend, rows, there, self.hashed.transform)
        # 1 for each of the row's labels, which precision at k asks for (Menon et al., 2019), or
        # 1 / propensity, as PSP@k asks for.
        targets = _own(rows, candidates)
        return CandidateFeatures(
            **said._asdict(), log_rows=log_rows[there],
            log_values=log_values[there], hashed=means, repeated=candidates < 0,
            number=np.arange(rows.n_rows), targets=targets, weights=rows.weights,
            listed=rows.labels is not None,
        )  # fmt: skip


def fit_label_prior(
    training: Training, ranking: Ranking, log_rows: NDArray[np.float32]
) -> WeightFit | None:
    """Return how much of a fit's tilt held-out rows give back, None if nothing.

    A fit takes its tilt from two rankings, each of the weights that half of the rows want. With
    the weights that all want, and with similar training rows, frequent labels may come first more
    often. `log_rows` are ln n_i of the K classes, float32.
    """
    rows = None if training.known is not None else judging_rows(training)
    if rows is None:
        return None

    def fit_discount() -> WeightFit:
        ids, scores = ranking(rows, CANDIDATES)
        logs, first = log_rows[ids], dict[float, NDArray[np.int64]]()

        def score_discount(tilt: float) -> NDArray[np.float64]:
            order = np.argsort(-(scores - np.float32(tilt) * logs), axis=1, kind="stable")
            first[tilt] = np.take_along_axis(ids, order[:, :MOST], axis=1)
            return score_rows(rows, first[tilt])

        best_alone = rows.lists.weights is not None
        tilt, _ = largest_discount(
            score_discount, best_alone=best_alone, tilts=BACK, errors=BACK_ERRORS
        )
        score_discount(0.0)
        return WeightFit(-tilt, *(measure_ids(rows, first[one]) for one in (tilt, 0.0)))

    found = training.findings.once("tilt", WeightFit, fit_discount)
    return found if found.weight else None


def _own(rows: RowBlock, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the weights of candidates that are classes of their row, else 0: float32 (n, m)."""
    return rows.lists.gains_of(candidates) * (candidates >= 0)


def uses_learnt(grouped: Fitted, learnt: Fitted, n_rows: int, *, listed: bool) -> bool:
    """Return whether what was learnt is used; of labels it is where so many rows cannot tell."""
    near = NEAR * grouped.metrics.error(n_rows) if listed else 0.0
    return learnt.score > grouped.score - near


def _discount_prior(fits: list[GroupWeights], tilt: float) -> list[GroupWeights]:
    return [replace(weights, prior=weights.prior - tilt) for weights in fits]


def _adjust(fits: list[GroupWeights], factor: float, step: float) -> list[GroupWeights]:
    return [replace(w, hashed=w.hashed * factor, learnt=w.learnt + step) for w in fits]


def _unseen_score(
    fits: Sequence[GroupWeights], halves: tuple[CandidateFeatures, ...], rows: RowBlock,
    workers: Workers,
) -> float:  # fmt: skip
    """Return what two fits reach among the candidates of the half that each did not see."""
    pairs = zip(fits[:2], reversed(halves), strict=True)
    hits = [top_k_hits(unseen, weights, workers) for weights, unseen in pairs]
    return measure_hits(rows, np.sum(hits, axis=0)).selection_score


def _best_adjustment(
    fits: list[GroupWeights], halves: tuple[CandidateFeatures, ...], rows: RowBlock,
    workers: Workers,
) -> tuple[float, float]:  # fmt: skip
    """Return the factor of the hashed models' weight, and what is added to that of what was learnt.

    Those that do best on what fits did not see: first the factor, then the other beside it. `rows`
    are those of both halves.
    """
    whole, factor = fits[-1], FACTORS[0]

    def score(factor: float, step: float) -> float:
        return _unseen_score(_adjust(fits[:2], factor, step), halves, rows, workers)

    if whole.hashed > 0:
        factor = max(FACTORS, key=lambda factor: score(factor, LABEL_STEPS[0]))
    if not (halves[0].listed and whole.theta.size):
        return factor, LABEL_STEPS[0]
    return factor, max(LABEL_STEPS, key=lambda step: score(factor, step))


def _distinct(candidates: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return each row's different candidates, in their order, then -1: int32 (n, m)."""
    again = find_repeated(candidates) | (candidates < 0)
    order = np.argsort(again, axis=1, kind="stable")
    return np.take_along_axis(np.where(again, np.int32(-1), candidates), order, axis=1)


def _in_halves(n: int, n_fit: int, spare: int) -> tuple[NDArray[np.int64], int]:
    """Return rows of n to fit on, evenly from both halves, between spare ones; and their first."""
    middle, half = n // 2, n_fit // 2
    before = max(spare // 2, spare - (n - middle - (n_fit - half)))
    found = []
    for rows, fitted, some in (
        (np.arange(middle), half, before), (np.arange(middle, n), n_fit - half, spare - before)
    ):  # fmt: skip
        chosen = evenly(len(rows), fitted)
        left = np.delete(rows, chosen)
        found += [rows[chosen], left[evenly(len(left), some)]]
    return np.concatenate([found[1], found[0], found[2], found[3]]), before
