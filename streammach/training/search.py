"""Short trainings compared on held-out rows: which transform, which learning rate, which parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from streammach.options.documents import to_json
from streammach.options.figures import HeldOutMetrics, scores_text, words
from streammach.options.training import PROPENSITY, TrainingOptions, TrainSpec
from streammach.options.types import Transform
from streammach.parts.registry import parts_of_plan
from streammach.parts.training_record import Training
from streammach.planning.cost import EPOCHS, rungs, trial
from streammach.prediction.selection_metrics import weigh_labels
from streammach.rows.block import RowBlock
from streammach.rows.transforms import transform_block
from streammach.store.dataset import Dataset
from streammach.store.holdout import held_numbers, masked_rows
from streammach.system.files.writing import write_atomic
from streammach.training.loop import prepare_backend
from streammach.training.run import SETTINGS, RunSettings, read_settings
from streammach.training.run_part import RunTraining
from streammach.training.time_budget import SEARCH, TimeBudget
from streammach.training.trials import Trial, TrialRunner

TRANSFORMS: tuple[Transform, ...] = ("binary", "raw", "log1p", "l2")
SMOOTHING = {False: 0.1, True: 0.0}  # by dense
MOST_JUDGES = 256  # training rows that judge trials where none are held out
MAX_STEPS = 6  # rates tried in one direction
RATE_FACTOR = 2.0
NOISE = {False: 0.5, True: 1.0}  # standard errors of accuracy, by whether rows have lists
WHOLE = 0.9  # rows that hold more than this share of the features are not made binary


def typical_value(rows: RowBlock, transform: Transform) -> float:
    """Return the root mean square of the stored values after a transform; 1 without any."""
    values = transform_block(rows, transform).values
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if len(values) else 1.0


class Search:
    """Chooses what was left open of a training by short trainings on part of the rows."""

    def __init__(self, training: Training, budget: TimeBudget) -> None:
        self._training, self._options = training, training.options
        self._n_rows, self._rows = training.dataset.n_rows, trial_rows(training)
        self._has_holdout = training.holdout.rows.n_rows > 0
        self.trials = TrialRunner(training, self._rows, budget)
        self.climbs = training.options.learning_rate is None

    def choose(self) -> tuple[TrainSpec, list[str]]:
        """Return the training with everything chosen, and why, in sentences.

        Within a limited time nothing is tried where transform, rate and epochs are given.
        """
        reasons, transform = list[str](), self._options.fixed_transform
        given = not self.climbs and self._options.epochs is not None
        if transform is not None and given and self._training.clock.limited:
            return self._start(transform), ["nothing is searched: all is given, and a time"]
        if transform is None:
            transform, reason = self._choose_transform()
            reasons.append(reason)
        spec = self._start(transform)
        if self.climbs:
            spec, reason = self.choose_rate(spec, "learning rate")
            reasons.append(reason)
        if spec.logistic and self._has_holdout:  # lists, where no loss is asked for
            spec, more = self._choose_label_loss(spec)
            reasons += more
        for part in parts_of_plan(self._training.plan.config):
            if part.search is None:
                continue
            if self.trials.over:
                reasons.append(f"no time was left to try settings of {part.name}")
                continue
            spec, more = part.search(self._training, self, spec)
            reasons += more
        return spec, reasons

    def without_epochs(
        self, measure: Callable[[Training, TrainSpec], HeldOutMetrics]
    ) -> tuple[TrainSpec, list[str]]:
        """Return a training of no epoch with the best transform for weights without one."""
        training, fixed = self._training, self._options.fixed_transform
        tried: list[tuple[TrainSpec, HeldOutMetrics]] = []
        for name in [fixed] if fixed else self._transforms():
            if tried and self.trials.over:
                break
            spec = replace(self._start(name), epochs=0)
            spec = spec.with_softmax("shared") if spec.logistic else spec
            prepare_backend(training, spec)
            tried.append((spec, measure(training, spec)))
        best, _ = max(tried, key=lambda one: one[1].selection_score)
        figures = scores_text((spec.transform, reached) for spec, reached in tried)
        both = words(training.dataset.listed).both
        reason = f"no epochs, transform {best.transform}: held-out {both} {figures}"
        training.report(reason)
        return best, [reason]

    def _start(self, transform: Transform) -> TrainSpec:
        config, options, rows = self._training.plan.config, self._options, self._rows
        kind, smoothing = config.optimizer_kind, options.label_smoothing
        value = max(typical_value(rows, transform), 1e-6)
        mean_nnz = max(rows.nnz / max(rows.n_rows, 1), 1.0)
        spec = TrainSpec(
            epochs=EPOCHS[config.dense] if options.epochs is None else options.epochs,
            batch_size=config.batching.batch_size,
            learning_rate=options.learning_rate or kind.usual_rate(value, mean_nnz),
            label_smoothing=SMOOTHING[config.dense] if smoothing is None else smoothing,
            transform=transform, optimizer=kind.name, seed=options.seed,
            epsilon=options.epsilon or kind.epsilon(value),
        )  # fmt: skip
        if self._training.dataset.listed:
            spec = self._with_label_loss(spec)
        for part in parts_of_plan(config):
            planned_part = config.part(part.name)
            if part.switch_on is not None and planned_part is not None and planned_part.fixed:
                spec = part.switch_on(spec)
        return spec

    def _with_label_loss(self, spec: TrainSpec) -> TrainSpec:
        """Return what rows with lists of labels start from: sigmoids, unless a softmax is asked."""
        if self._options.label_loss == "shared":
            return spec.with_softmax("shared")
        if self._options.label_loss == "each":
            return spec.with_softmax("each")
        facts, config = self._training.dataset.facts, self._training.plan.config
        labels = facts.n_labels / max(facts.n_rows * config.shape.n_buckets, 1)
        return replace(spec, loss="logistic", label_share="each", bucket_share=min(labels, 1.0))

    def _choose_label_loss(self, spec: TrainSpec) -> tuple[TrainSpec, list[str]]:
        """Choose between sigmoids and a softmax whose target the labels share, or do not."""
        if self._options.label_loss != "auto":
            return spec, []
        if self.trials.over:
            return spec, ["no time was left to try a softmax"]
        reasons, shared = [], spec.with_softmax("shared")
        if self.climbs:
            shared, reason = self.choose_rate(shared, "learning rate of a softmax")
            reasons.append(reason)
        each = replace(shared, label_share="each")
        targets = ("1 a row", "1 a label")
        better, reason = self.better(shared, each, "target of a softmax", targets)
        reasons.append(reason)
        softmax = each if better else shared
        losses = ("a sigmoid a bucket", "a softmax")
        better, reason = self.better(spec, softmax, "loss", losses)
        return softmax if better else spec, [*reasons, reason]

    def _transforms(self) -> list[Transform]:
        """Return the transforms that make a difference."""
        names: list[Transform] = list(TRANSFORMS)
        if len(np.unique(self._rows.values)) == 1:  # scaled copies of one another
            names = ["binary", "l2"]
        if self._training.plan.facts.density > WHOLE:
            names.remove("binary")
        return names

    def _choose_transform(self) -> tuple[Transform, str]:
        names = self._transforms()
        if len(names) == 1:
            return names[0], f"transform {names[0]}: the only one that makes a difference"
        left, evidence = names, []
        epochs = self._start(names[0]).epochs
        most = self.trials.most(self._start(names[0]))
        for rung in rungs(self._n_rows, epochs, self.trials.wanted, len(names), most):
            tried = self._compare_transforms(left[: rung.candidates], rung.rows, rung.epochs)
            evidence.append(self._figures([(trial.spec.transform, trial) for trial in tried]))
            best_first = sorted(tried, key=lambda trial: -trial.score)
            left = [trial.spec.transform for trial in best_first]
            if self.trials.over:
                break
        return left[0], f"transform {left[0]}: {'; '.join(evidence)}"

    def _compare_transforms(self, names: list[Transform], rows: int, epochs: int) -> list[Trial]:
        """Return a trial with each transform, or with those that there is time for."""
        tried: list[Trial] = []
        for name in names:
            if tried and self.trials.over:
                break
            spec, rate = self._start(name), self._options.learning_rate
            if rate:
                spec = replace(spec, learning_rate=rate / typical_value(self._rows, name))
            tried.append(self.trials.run(spec, rows, epochs))
        return tried

    def choose_rate(self, spec: TrainSpec, what: str) -> tuple[TrainSpec, str]:
        """Climb from the usual rate in factors of two until both neighbours are worse.

        Of rates that the held-out rows cannot tell apart the smallest is taken: the training
        itself is longer than a trial, and a longer one wants a smaller rate.
        """

        def at(rate: float) -> Trial:
            return self._rehearse(replace(spec, learning_rate=rate))

        if self.trials.over:
            return spec, f"{what} {spec.learning_rate:z.3g}: no time was left to try others"
        tried = [at(spec.learning_rate)]
        if not self.trials.over:
            tried.append(at(spec.learning_rate * RATE_FACTOR))
        factor = RATE_FACTOR if tried[-1].score > tried[0].score else 1 / RATE_FACTOR
        best = max(tried, key=lambda trial: trial.score)
        for _ in range(MAX_STEPS):
            if self.trials.over:
                break
            tried.append(at(best.spec.learning_rate * factor))
            if tried[-1].score <= best.score:
                break
            best = tried[-1]
        tried.sort(key=lambda trial: trial.spec.learning_rate)
        enough = best.score - self._noise(best)
        chosen = next(trial for trial in tried if trial.score >= enough).spec.learning_rate
        figures = self._figures([(f"{trial.spec.learning_rate:z.3g}", trial) for trial in tried])
        return replace(spec, learning_rate=chosen), f"{what} {chosen:z.3g}: {figures}"

    def better(
        self, spec: TrainSpec, other: TrainSpec, what: str, names: tuple[str, str]
    ) -> tuple[bool, str]:
        """Return whether another training, a longer one, is better by more than noise; why."""
        if not self._has_holdout:
            return False, f"{what} {names[False]}: no rows are held out"
        tried = [self._rehearse(spec), self._rehearse(other)]
        better = tried[1].score > tried[0].score + self._noise(tried[0])
        figures = self._figures(list(zip(names, tried, strict=True)))
        return better, f"{what} {names[better]}: {figures}"

    def _figures(self, tried: list[tuple[str, Trial]]) -> str:
        first = tried[0][1]
        figures = scores_text((name, trial.metrics) for name, trial in tried if trial.whole)
        if not figures:
            return "no time was left to try others"
        plural = "s" if first.spec.epochs > 1 else ""
        judges = "held-out" if self._has_holdout else "training"
        return (
            f"{judges} {words(first.listed).both} after {first.spec.epochs} epoch{plural} of "
            f"{first.rows:,} rows: {figures}"
        )

    def _rehearse(self, spec: TrainSpec) -> Trial:
        most = self.trials.most(spec)
        return self.trials.run(spec, *trial(self._n_rows, spec.epochs, self.trials.wanted, most))

    def _noise(self, trial: Trial) -> float:
        """Return how far scores may lie apart by chance."""
        return NOISE[self._training.dataset.listed] * trial.metrics.error(self.trials.rows.n_alike)


def trial_rows(training: Training) -> RowBlock:
    """Return rows that judge trials: held-out ones, or training rows where none are held out."""
    if training.holdout.rows.n_rows:
        return training.holdout.rows
    data = training.dataset
    most = min(training.plan.config.batching.batch_size, MOST_JUDGES)  # the store is shuffled
    first = next(masked_rows(data, np.arange(data.n_rows) < most))
    return weigh_rows(first, data, training.options)


def weigh_rows(rows: RowBlock, dataset: Dataset, options: TrainingOptions) -> RowBlock:
    """Return rows whose labels weigh 1 / propensity if choices go by it, else alike."""
    if rows.labels is None:
        return rows
    if options.optimise == PROPENSITY:
        return weigh_labels(rows, dataset)
    return rows.with_labels(replace(rows.labels, weights=None))


def decide_settings(
    training: RunTraining, budget: TimeBudget
) -> tuple[RunSettings, TrialRunner | None]:
    """Return what was decided before the first epoch, here or by shards, or decide it now.

    Within a limited time its trials are returned, too.
    """
    if training.shards:
        known = training.shards[0].settings
        assert known is not None, "it is finished"
        settings = msgspec.structs.replace(known, request=training.identity)
        write_atomic(training.folder / SETTINGS, to_json(settings))
        return settings, None
    training.clock = budget.search
    training.begin_stage(SEARCH)
    if (before := read_settings(training.folder)) is not None:
        return before, None
    if (start := training.start) is not None and start.training is not None:
        spec, why = start.continued_training(training.options), start.reasons(training.excluded)
        return write_settings(training, spec, trials=(), reasons=why), None
    search, epochs, rows = Search(training, budget), 0, 0
    parts = parts_of_plan(training.plan.config)
    untrained = [part.measure_untrained for part in parts if part.measure_untrained]
    held_out = training.holdout.rows.n_rows > 0
    if untrained and (training.options.epochs == 0 or (held_out and not budget.epoch_fits())):
        spec, reasons = search.without_epochs(untrained[0])
    else:
        spec, reasons = search.choose()
        search.trials.correct(spec)
        epochs, rows = budget.epochs_that_fit(spec.epochs)
        if rows:
            reasons.append(f"there is time for about {rows:,} rows of an epoch")
    trials = tuple(one.figures for one in search.trials.all)
    settings = write_settings(
        training, replace(spec, epochs=epochs), trials=trials, reasons=tuple(reasons),
        epoch_rows=rows,
    )  # fmt: skip
    return settings, search.trials if training.clock.limited else None


def write_settings(training: Training, spec: TrainSpec, **why: Any) -> RunSettings:
    """Write what is decided of a training, and on which rows; return it."""
    settings = RunSettings(
        training=spec, held_out=training.holdout.origin, request=training.identity,
        held_out_rows=held_numbers(training.dataset, training.holdout), **why,
    )  # fmt: skip
    write_atomic(training.folder / SETTINGS, to_json(settings))
    return settings
