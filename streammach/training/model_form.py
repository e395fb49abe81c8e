"""The smallest form of a trained model that held-out rows say is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.counts.scores import CountScorer
from streammach.linear.late import LateLabels
from streammach.linear.weights import LinearScorer, LinearWeights
from streammach.model.calibration import CANDIDATES, Calibration, fit_calibration
from streammach.model.document import Width
from streammach.model.model import Model
from streammach.model.shrink import (
    DENSE,
    LEVELS,
    Size,
    beside,
    of_features,
    pairs_of,
    rounded_gains,
    shrink,
    shrink_to,
    spare_after,
)
from streammach.model.size import kept_text
from streammach.options.estimators import USUAL
from streammach.options.figures import HeldOutMetrics, words
from streammach.options.model_spec import ModelSpec
from streammach.options.training import SIZES, TrainSpec
from streammach.options.types import Ranker
from streammach.parts.training_record import Training
from streammach.planning.cost import FORMS
from streammach.prediction.quantized import QuantizedForward
from streammach.prediction.ranking import Ranking, by_classifiers, by_counts, by_hashes
from streammach.prediction.selection_metrics import (
    log_each_row,
    measure_each_row,
    measure_ids,
    weigh_labels,
)
from streammach.rows.block import RowBlock, evenly
from streammach.rows.pairs import CountWeights
from streammach.rows.quantize import LOWEST, nth_largest, numbers_of
from streammach.system.machine import parse_size, size_text
from streammach.training.time_budget import MOST_ROWS

LEAST_ROWS = 50  # fewer say nothing
ENOUGH_ROWS = 2000  # by which more than the type of the weights is judged, and less than 8 bits
# Standard errors of the rows' differences that a form may lose, of each figure; and that weights of
# 8 bits or more may beyond a tenth of a point, or a hundredth of the log loss: they prune nothing,
# rows that change their minds are mostly chance, and many agree on losses that nobody would see.
LOSES, ROUNDED, FREE, FREE_LOSS = 0.5, 2.0, 0.001, 0.01
LEAST_ERROR = 1e-9  # of what no row tells
MOST_HALVINGS = 6  # of the pairs
LOST = "less loses more than half a standard error of the held-out rows' differences"
NO_TIME = "as it was trained, without the time to make it small: streammach shrink does"
RARE = (2, 3, 5, 9)  # rows of a feature below which it is left out


@dataclass(frozen=True, kw_only=True)
class ModelForm:
    """What a model keeps."""

    weights: Width  # type of the weights
    n_repetitions: int  # the first so many repetitions
    least_rows: int = 0  # features that at least so many training rows hold
    least_gain: int | None = None  # pairs that have at least this gain; None for all


Smaller = Callable[["FormComparison", ModelForm], Iterator[ModelForm]]


class Verdict(msgspec.Struct, frozen=True):
    """What held-out rows say of a form."""

    metrics: HeldOutMetrics
    # by how many standard errors of the rows' differences it is worse than the whole form, at most
    lost: float


@dataclass(frozen=True, kw_only=True)
class SmallForm:
    """What held-out rows say is free."""

    form: ModelForm  # the smallest form
    evidence: str  # what it reaches beside the whole model, in words
    # how its scores become probabilities; None for the whole model
    calibration: Calibration | None = None


def judging_rows(training: Training, judges: int) -> RowBlock:
    """Return the held-out rows that decide: all, or so many, evenly, where time is short."""
    rows = training.holdout.rows
    return rows if judges >= MOST_ROWS else rows.take(evenly(rows.n_rows, min(rows.n_rows, judges)))


def calibrating_rows(training: Training, judges: int) -> RowBlock:
    """Return the rows that decide; a label that is in no training row is the class -1."""
    rows, held = judging_rows(training, judges), training.holdout
    if rows.labels is not None:
        return rows
    seen = training.dataset.label_counts
    if held.mask is not None:
        seen = seen - np.bincount(held.rows.classes, minlength=len(seen))
    return replace(rows, classes=np.where(seen[rows.classes] > 0, rows.classes, np.int32(-1)))


def calibrate(
    training: Training, ranking: Ranking, judges: int, of: object = None
) -> Calibration:  # fmt: skip
    """Return how scores of a ranking become probabilities, by the rows that decide."""
    rows, n_classes = calibrating_rows(training, judges), training.dataset.n_classes
    return training.findings.once(
        "calibration", Calibration, lambda: fit_calibration(rows, ranking, n_classes), of=of
    )


@dataclass(frozen=True, kw_only=True)
class FormComparison:
    """What forms of a model reach on held-out rows that it has not learnt from."""

    training: Training  # the training, its backend with the final weights
    spec: TrainSpec  # how they were trained
    model: ModelSpec  # the shape of the model, and its hashes
    ranker: Ranker  # the best estimator of the hashed models, for a model without counts
    counts: CountWeights | None  # the counts beside the hashed models
    late: LateLabels | None = None  # the classifiers that score the best classes again
    most_rows: int = MOST_ROWS  # most held-out rows that judge

    @property
    def whole(self) -> ModelForm:
        """The form as it was trained."""
        return ModelForm(weights="float32", n_repetitions=self.model.n_repetitions)

    def verdict(self, form: ModelForm) -> Verdict:
        """Return what a form reaches, and how much it loses against the whole one."""
        self.training.check_stop()
        found = self.training.findings
        return found.once("form", Verdict, lambda: self._verdict(form), of=form)

    def _verdict(self, form: ModelForm) -> Verdict:
        if form == self.whole:
            return Verdict(measure_ids(self.rows, self._measured_whole[0]), 0.0)
        ids, each = self._measure(form)
        weights = self.rows.weights.astype(np.float64)
        change = (each - self._measured_whole[1]) * (weights / weights.mean())
        error = np.maximum(change.std(axis=1) / change.shape[1] ** 0.5, LEAST_ERROR)
        lost = -change.mean(axis=1)
        if self.is_rounded(form):
            loss = -self._measured_whole[1][-1].mean()
            free = np.array([*[FREE] * (len(lost) - 1), FREE_LOSS * loss])
            lost = np.maximum(lost - free, np.minimum(lost, 0.0))
        return Verdict(measure_ids(self.rows, ids), float((lost / error).max()))

    def is_rounded(self, form: ModelForm) -> bool:
        """Return whether a form has all of the whole one, by weights of 8 bits or more."""
        return form.weights != "int4" and replace(form, weights="float32") == self.whole

    def _measure(self, form: ModelForm) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the best classes of rows, and what each adds to figures (m, n), ln p the last."""
        rows = calibrating_rows(self.training, self.most_rows)
        rows = rows.take(evenly(rows.n_rows, self.n_rows))
        with self.ranking(form) as ranking:
            own = ranking(rows, CANDIDATES)
        ids = own[0]
        if self.counts is None and self.ranker != USUAL:  # whose scores are no logarithms
            with self.ranking(form, USUAL) as ranking:
                own = ranking(rows, CANDIDATES)
        logs = log_each_row(rows, *own, self.training.dataset.n_classes)
        return ids, np.vstack([measure_each_row(self.rows, ids), logs])

    @cached_property
    def _measured_whole(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return self._measure(self.whole)

    def calibrate(self, form: ModelForm) -> Calibration:
        """Return how the scores of a form become probabilities."""
        with self.ranking(form, "logsum") as ranking:
            return calibrate(self.training, ranking, self.most_rows, of=form)

    @cached_property
    def rows(self) -> RowBlock:
        """The rows that judge; labels of lists weigh 1 / propensity."""
        rows = self.training.holdout.rows
        rows = rows.take(evenly(rows.n_rows, self.n_rows))
        return rows if rows.labels is None else weigh_labels(rows, self.training.dataset)

    @property
    def n_rows(self) -> int:
        """Held-out rows that judge."""
        return min(self.most_rows, self.training.holdout.rows.n_rows)

    @property
    def ways(self) -> tuple[Smaller, ...]:
        """What makes forms smaller: types alone where few rows judge."""
        if self.n_rows < ENOUGH_ROWS:
            return (_types,)
        if self.training.known is not None:  # else every day would halve repetitions and pairs
            return _types, _features
        return _types, _repetitions, _features, _pairs

    @contextmanager
    def ranking(self, form: ModelForm, ranker: Ranker | None = None) -> Iterator[Ranking]:
        """Give the ranking by a form: as the model ranks, or as it is said."""
        with ExitStack() as closing:
            found = self._ranking(form, ranker or self.ranker, closing)
            kept = self.features_to_keep(form.least_rows) if form.least_rows else None
            yield lambda rows, k: found(
                rows if kept is None else rows.with_values(kept[rows.features]), k
            )

    def _ranking(self, form: ModelForm, ranker: Ranker, closing: ExitStack) -> Ranking:
        threads, transform = self.training.plan.config.placement.threads, self.spec.transform
        hashed = None
        if not self.model.unhashed:
            hashed = QuantizedForward(
                self.model.first(form.n_repetitions), self._trained_arrays, form.weights,
                dense=self.training.plan.config.dense, threads=threads, logistic=self.spec.logistic,
                device=self.training.backend,
            )  # fmt: skip
            closing.callback(hashed.close)
        if self.counts is None:
            assert hashed is not None, "a model ranks by something"
            return by_hashes(hashed, ranker, transform)
        scorer = CountScorer(self.counts_of(form), threads)
        closing.callback(scorer.close)
        found = by_counts(hashed, scorer, transform)
        if self.late is None:
            return found
        late = LinearScorer(self.late, threads)
        closing.callback(late.close)
        return by_classifiers(found, self.late, late)

    def features_to_keep(self, least_rows: int) -> NDArray[np.bool_]:
        """Return the features that so many rows hold which were trained on: bool (d,)."""
        held, rows = self.training.holdout, self.training.dataset.feature_counts
        if held.mask is not None:
            rows = rows - np.bincount(held.rows.features, minlength=len(rows))
        found: NDArray[np.bool_] = rows >= least_rows
        return found

    @cached_property
    def _trained_arrays(self) -> dict[str, NDArray[np.float32]]:
        return self.training.backend.arrays()

    def counts_of(self, form: ModelForm) -> CountWeights:
        """Return the counts that a form keeps: the gains of other pairs are zero."""
        counts = self.counts
        assert counts is not None
        share = form.n_repetitions / max(self.whole.n_repetitions, 1)
        counts = beside(counts, share)
        rounded, least = form.weights in LEVELS, form.least_gain
        if not rounded and least is None:
            return counts
        return replace(
            counts, gains=_changed_features(counts.gains, rounded, least),
            wide=_changed_features(counts.wide, rounded, least),
        )  # fmt: skip


def choose(judge: FormComparison) -> SmallForm:
    """Return the smallest form that is as good as the whole one, by what each row says of both.

    Neither accuracy nor macro recall may be lost, nor log loss; of lists of labels neither P@1 nor
    P@5 nor PSP@5, since pairs of rare labels add little to precision. Narrower weights come first.
    """
    form = judge.whole
    clock, n, found = judge.training.clock, 1, judge.verdict(form)
    small = whole = found.metrics
    took, unjudged = [0.0], False  # seconds of forms; whether there was no time for some
    for smaller in judge.ways:
        for other in smaller(judge, form):
            judge.training.report_progress(n, max(FORMS, n) + 1)
            if clock.remaining_seconds < max(took):
                unjudged = True
                break
            began = clock.elapsed_seconds
            found, n = judge.verdict(other), n + 1
            took.append(clock.elapsed_seconds - began)
            if found.lost > (ROUNDED if judge.is_rounded(other) else LOSES):
                break  # what keeps less of the same loses no less
            form, small = other, found.metrics
    if form == judge.whole:
        return SmallForm(form=form, evidence=NO_TIME if unjudged else f"as it was trained: {LOST}")
    calibration = judge.calibrate(form)
    both = words(judge.training.dataset.listed).both
    evidence = f"held-out {both} {small.text}, {whole.text} whole"
    return SmallForm(form=form, calibration=calibration, evidence=evidence)


def _types(judge: FormComparison, form: ModelForm) -> Iterator[ModelForm]:
    few = judge.n_rows < ENOUGH_ROWS
    for stored in (
        DENSE[1:] if judge.training.plan.config.dense else [*LEVELS][: 1 if few else None]
    ):
        yield replace(form, weights=stored)


def _repetitions(judge: FormComparison, form: ModelForm) -> Iterator[ModelForm]:
    n = form.n_repetitions
    while n > 1:
        n = (n + 1) // 2
        yield replace(form, n_repetitions=n)


def _features(judge: FormComparison, form: ModelForm) -> Iterator[ModelForm]:
    """Yield the form without features that fewer than two rows hold, than three, and so on."""
    if judge.training.plan.config.dense:
        return
    left = None
    for least in RARE:
        n = int(np.count_nonzero(judge.features_to_keep(least)))
        if n and n != left:
            yield replace(form, least_rows=least)
        left = n


def _pairs(judge: FormComparison, form: ModelForm) -> Iterator[ModelForm]:
    if judge.counts is None:
        return
    # How often each gain occurs among the pairs of the form: those that add something.
    kept = judge.features_to_keep(form.least_rows)
    gains = numbers_of(judge.counts_of(form).gains_of(kept))
    gains[-LOWEST] = 0  # the gain 0
    n = int(gains.sum())
    for halving in range(1, MOST_HALVINGS + 1):
        least = nth_largest(gains, max(1, n >> halving))
        if form.least_gain is None or least > form.least_gain:
            form = replace(form, least_gain=least)
            yield form


def save(
    training: Training, model: Model, size: str, found: SmallForm | None
) -> tuple[Model, tuple[str, ...]]:
    """Write the model that a run leaves, in its chosen form; return it, and what is to be said.

    A smaller one takes the place of the model's weights.
    """
    folder, whole_bytes, most = training.folder / "model", model.n_bytes, None
    small, how = model, found.evidence if found else ""
    threads = training.plan.config.placement.threads
    if size not in SIZES:
        most = parse_size(size)
        small = shrink_to(model, most, in_place=True)
        how = f"{kept_text(small, model)}, for --model-size {size}"
    elif found is not None and found.calibration is not None:
        small = _apply_form(model, found.form, training.dataset.feature_counts, threads)
        all_pairs = found.form.least_gain is None
        how = f"{kept_text(small, model, all_pairs=all_pairs)}: {found.evidence}"
    elif isinstance(model.linear, LinearWeights) and size == "auto":
        small = replace(model, stored="float16")  # whose digits they have
    elif size != training.options.model_size:
        how = NO_TIME
    spare = None if small is model else spare_after(model, small)
    small.save(folder, force=True, spare=spare, threads=threads)
    if not how:
        return small, ()
    n_bytes = sum(file.stat().st_size for file in folder.iterdir())
    of = "" if small.stored is None else f" of {size_text(whole_bytes)}"
    if most is not None and n_bytes > most:
        how += ", the smallest that can be made of it"
    return small, (f"model {size_text(n_bytes)}{of}: {how}",)


def _apply_form(model: Model, form: ModelForm, rows: NDArray[np.int64], threads: int) -> Model:
    """Return the model in a form; rows hold each feature, int64 (d,)."""
    bare, kept = replace(model, counts=None), rows >= form.least_rows
    size = Size(form.weights, form.n_repetitions, 0)
    small = replace(shrink(bare, size, in_place=True, threads=threads), counts=model.counts)
    if form.least_rows > 1 and not kept.all():  # narrow weights are fewer bytes to move
        small = of_features(small, kept, in_place=True)
    pairs = pairs_of(small, form.weights)
    if pairs is None:
        return small
    small = replace(small, counts=None)  # of the features that are kept
    n_pairs = len(pairs.gains)
    if form.least_gain is not None:
        n_pairs = int(np.count_nonzero(pairs.gains >= form.least_gain))
    share = form.n_repetitions / max(model.spec.n_repetitions, 1)
    return replace(small, counts=beside(pairs.largest(n_pairs), share))


def _changed_features(
    gains: NDArray[np.int16], rounded: bool, least: int | None
) -> NDArray[np.int16]:
    found = rounded_gains(gains) if rounded else gains.copy()
    if least is not None:
        found[found < least] = 0
    return found
