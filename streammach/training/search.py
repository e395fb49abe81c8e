"""Short trainings compared on held-out rows: which transform, which learning rate, which parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from streammach.figures import HeldOutMetrics, TrialFigures, scores_text, words
from streammach.files.writing import write_atomic
from streammach.parts.registry import parts_of_plan
from streammach.planning.cost import EPOCHS, rungs, search_trials, trial
from streammach.rows.block import RowBlock
from streammach.rows.transforms import transform_block
from streammach.spec.documents import to_json
from streammach.spec.training import TrainingOptions, TrainSpec
from streammach.spec.types import Transform
from streammach.training.run import CHECKPOINTS, KEPT, SETTINGS, RunSettings, read_settings
from streammach.training.session import Session
from streammach.training.time_budget import SEARCH, TimeBudget, open_trials
from streammach.training.trial import BestTrial, Trial
from streammach.training.trials import TrialRunner

TRANSFORMS: tuple[Transform, ...] = ("binary", "raw", "log1p", "l2")
SMOOTHING = {False: 0.1, True: 0.0}  # by dense
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

    def __init__(
        self, session: Session, options: TrainingOptions, pace: TimeBudget | None = None
    ) -> None:
        self._session, self._options = session, options
        self._n_rows, self._rows = session.dataset.n_rows, session.judges
        self._judges = "held-out" if session.held.rows.n_rows else "training"
        self._wanted = search_trials(session.plan.facts, session.plan.config)
        n_open = open_trials(session.plan.facts, session.plan.config, options)
        self.trials = TrialRunner(session, self._wanted, n_open, pace)
        self.climbs = options.learning_rate is None

    def choose(self) -> tuple[TrainSpec, list[str]]:
        """Return the training with everything chosen, and why, in sentences.

        Within a limited time nothing is tried where transform, rate and epochs are given.
        """
        reasons, transform = list[str](), self._options.fixed_transform
        given = not self.climbs and self._options.epochs is not None
        if transform is not None and given and self._session.clock.limited:
            return self._start(transform), ["nothing is searched: all is given, and a time"]
        if transform is None:
            transform, reason = self._choose_transform()
            reasons.append(reason)
        spec = self._start(transform)
        if self.climbs:
            spec, reason = self.choose_rate(spec, "learning rate")
            reasons.append(reason)
        if spec.logistic and self._session.held.rows.n_rows:  # lists, where no loss is asked for
            spec, more = self._choose_label_loss(spec)
            reasons += more
        for part in parts_of_plan(self._session.plan.config):
            if part.search is None:
                continue
            if self.trials.over:
                reasons.append(f"no time was left to try settings of {part.name}")
                continue
            spec, more = part.search(self._session, self, spec)
            reasons += more
        return spec, reasons

    def without_epochs(
        self, measure: Callable[[Session, TrainSpec], HeldOutMetrics]
    ) -> tuple[TrainSpec, list[str]]:
        """Return a training of no epoch with the best transform for weights without one."""
        session, fixed = self._session, self._options.fixed_transform
        names, tried = [fixed] if fixed else self._transforms(), dict[Transform, HeldOutMetrics]()
        for name in names:
            if tried and self.trials.over:
                break
            spec = self._without_epochs(name)
            session.prepare(spec)
            tried[name] = measure(session, spec)
        best = max(tried, key=lambda name: tried[name].selection_score)
        figures = scores_text(tried.items())
        both = words(session.dataset.listed).both
        reason = f"no epochs, transform {best}: held-out {both} {figures}"
        session.tell(reason)
        return self._without_epochs(best), [reason]

    def _without_epochs(self, transform: Transform) -> TrainSpec:
        spec = replace(self._start(transform), epochs=0)
        return spec.with_softmax("shared") if spec.logistic else spec

    def _start(self, transform: Transform) -> TrainSpec:
        config, options, rows = self._session.plan.config, self._options, self._rows
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
        if self._session.dataset.listed:
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
        facts, config = self._session.dataset.facts, self._session.plan.config
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
        if self._session.plan.facts.density > WHOLE:
            names.remove("binary")
        return names

    def _choose_transform(self) -> tuple[Transform, str]:
        names = self._transforms()
        if len(names) == 1:
            return names[0], f"transform {names[0]}: the only one that makes a difference"
        left, evidence = names, []
        epochs = self._start(names[0]).epochs
        most = self.trials.most(self._start(names[0]))
        for rung in rungs(self._n_rows, epochs, self._wanted, len(names), most):
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
        if not self._session.held.rows.n_rows:
            return False, f"{what} {names[False]}: no rows are held out"
        tried = [self._rehearse(spec), self._rehearse(other)]
        better = tried[1].score > tried[0].score + self._noise(tried[0])
        figures = self._figures(list(zip(names, tried, strict=True)))
        return better, f"{what} {names[better]}: {figures}"

    def _figures(self, tried: list[tuple[str, Trial]]) -> str:
        first = tried[0][1]
        figures = scores_text((name, trial.measured) for name, trial in tried if trial.whole)
        if not figures:
            return "no time was left to try others"
        plural = "s" if first.spec.epochs > 1 else ""
        return (
            f"{self._judges} {words(first.listed).both} after {first.spec.epochs} epoch{plural} of "
            f"{first.rows:,} rows: {figures}"
        )

    def _rehearse(self, spec: TrainSpec) -> Trial:
        most = self.trials.most(spec)
        return self.trials.run(spec, *trial(self._n_rows, spec.epochs, self._wanted, most))

    def _noise(self, trial: Trial) -> float:
        """Return how far scores may lie apart by chance."""
        return NOISE[self._session.dataset.listed] * trial.measured.error(self.trials.rows.n_alike)


def decide(session: Session, pace: TimeBudget) -> RunSettings:
    """Return what was decided before the first epoch, here or by shares, or decide it now."""
    path, request = session.request.folder / SETTINGS, session.request
    if request.shares:
        known = request.shares[0].settings
        assert known is not None, "it is finished"
        settings = msgspec.structs.replace(known, request=request.identity)
        write_atomic(path, to_json(settings))
        return settings
    session.clock = pace.search
    session.begin(SEARCH)
    if (before := read_settings(request.folder)) is not None:
        return before
    if session.clock.limited:
        kept = request.folder / CHECKPOINTS / KEPT
        session.best_trial = BestTrial(kept, request.identity, session.judges)
    spec, trials, reasons, rows = _choose_training(session, pace)
    settings = session.settings(spec, trials=trials, reasons=reasons, epoch_rows=rows)
    write_atomic(path, to_json(settings))
    return settings


class ChosenTraining(NamedTuple):
    """What a search found, or what goes on."""

    spec: TrainSpec
    trials: tuple[TrialFigures, ...]  # what was tried
    reasons: tuple[str, ...]
    epoch_rows: int = 0  # rows of an epoch, where there is time for a part of one


def _choose_training(session: Session, pace: TimeBudget) -> ChosenTraining:
    """Return the training that goes on, or that the search found; what was tried, and why."""
    start = session.request.start
    if start is not None and start.training is not None:
        return ChosenTraining(
            start.continued_training(session.options), (), start.reasons(session.left)
        )
    search, epochs, rows = Search(session, session.options, pace), 0, 0
    parts = parts_of_plan(session.plan.config)
    untrained = [part.measure_untrained for part in parts if part.measure_untrained]
    held_out = session.held.rows.n_rows > 0
    if untrained and (session.options.epochs == 0 or (held_out and not pace.epoch_fits())):
        spec, reasons = search.without_epochs(untrained[0])
    else:
        spec, reasons = search.choose()
        search.trials.correct(spec)
        epochs, rows = pace.epochs_that_fit(spec.epochs)
        if rows:
            reasons.append(f"there is time for about {rows:,} rows of an epoch")
    trials = tuple(one.figures for one in search.trials.all)
    return ChosenTraining(replace(spec, epochs=epochs), trials, tuple(reasons), rows)
