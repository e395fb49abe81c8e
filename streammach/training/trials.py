"""Short trainings of a search: what they reach, how long they are, and the best one's weights.

Where time is limited, some steps are timed first. So the trials to come fit the time of the search;
one that does not is cut off. The best one's weights are kept where epochs may not come so far.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from streammach.model.findings import Findings
from streammach.options.figures import HeldOutMetrics, TrialFigures
from streammach.options.training import TrainSpec
from streammach.options.types import Amount, Count
from streammach.parts.training_record import Training
from streammach.planning.cost import BYTE, search_trials
from streammach.planning.cost import trial as planned_trial
from streammach.rows.block import RowBlock, evenly
from streammach.system.errors import DivergedError, ModelError
from streammach.training.loop import (
    find_row_map,
    measure_rows,
    open_reader,
    prepare_backend,
    train_epoch,
)
from streammach.training.run import CHECKPOINTS, KEPT
from streammach.training.time_budget import EPOCHS, TimeBudget, open_trials

NAME = "trial"  # under which the weights of the best one are kept
MOST_SHARE = 0.95  # of a search that is longer than most
# Of a limited time: steps that are timed, behind one that compiles, and for how long; rows that are
# ranked for it; of a trial's time, what its measuring may take, by so many rows at least; steps of
# a trial at least.
TIMED_STEPS, TIMED_SECONDS, TIMED_ROWS = 8, 0.5, 128
JUDGING_SHARE, LEAST_JUDGES, LEAST_STEPS = 0.25, 500, 10


class Trial(Struct, frozen=True, kw_only=True):
    """One short training, and what it found."""

    spec: TrainSpec
    rows: Count  # that it was trained on
    metrics: HeldOutMetrics
    rows_per_second: Amount = 0.0
    measuring_seconds: Amount = 0.0
    listed: bool = False
    whole: bool = True  # False: it was cut off when the time was over, and says nothing

    @property
    def score(self) -> float:
        """What trials are compared by."""
        return self.metrics.selection_score if self.whole else -1.0

    @property
    def figures(self) -> TrialFigures:
        """What is saved of it."""
        known = {**vars(self.spec), **asdict(self.metrics), "rows": self.rows}
        return TrialFigures(**{name: known[name] for name in TrialFigures.__struct_fields__})


def alike(one: TrainSpec, other: TrainSpec) -> bool:
    """Return whether trainings differ in their rates and epochs alone: they are as fast."""
    return replace(one, learning_rate=other.learning_rate, epochs=other.epochs) == other


class TrialRunner:
    """Runs trials, each once, in the time of the search."""

    def __init__(self, training: Training, rows: RowBlock, budget: TimeBudget) -> None:
        facts, config = training.plan.facts, training.plan.config
        self._training, self._budget = training, budget
        self.wanted = search_trials(facts, config)  # about how many a search takes
        self._open = open_trials(facts, config, training.options)
        self.rows = rows  # held-out rows, or training rows where there are none
        self._known: dict[tuple[TrainSpec, int], Trial] = {}
        self._passes = float("inf")  # rows that a trial passes at most
        self._done = 0.0  # of the trials that are expected
        self._timed = not training.clock.limited
        self.best: Trial | None = None
        self.kept: Trial | None = None  # whose weights are on disk: they may have to be the model

    @property
    def all(self) -> list[Trial]:
        """All that came to their end."""
        return [one for one in self._known.values() if one.whole]

    @property
    def over(self) -> bool:
        """Whether the time of the search is over."""
        return self._training.clock.remaining_seconds <= 0

    def most(self, spec: TrainSpec) -> float:
        """Return how many rows a trial may pass, so that those to come fit the time."""
        if not self._timed:
            self._timed = True
            self._fit_time(spec)
        return self._passes

    def correct(self, spec: TrainSpec) -> None:
        """Correct the time budget by the seconds of such an epoch, if they are known."""
        if not self._training.clock.limited:
            return
        self.most(spec)
        known = [one for one in self.all if one.rows_per_second and alike(one.spec, spec)]
        if known:
            self._budget.correct(*self._seconds(known[-1]), self.rows.n_rows)

    def run(self, spec: TrainSpec, rows: int, epochs: int) -> Trial:
        """Return a trial of so many rows and epochs, which is trained unless it was before."""
        short = replace(spec, epochs=epochs)
        key = (short, rows)
        if key in self._known:
            return self._known[key]
        training = self._training
        if self.over and self.best is not None:
            return Trial(spec=short, rows=rows, metrics=HeldOutMetrics(0.0, 0.0), whole=False)
        found = training.findings.once(
            "trial", Trial, partial(self._train_trial, spec, short, rows), of=[short, rows]
        )
        self._known[key] = found
        if not found.whole:
            return found
        if found.rows_per_second:
            self._expect_epochs(spec.epochs, self._seconds(found)[0])
        training.log("search", found.figures)
        training.call("on_search", found)
        self._keep_best(found)
        return found

    def _expect_epochs(self, epochs: int, seconds: float) -> None:
        """Note what so many epochs should take, of so many seconds each, and being kept."""
        training, config = self._training, self._training.plan.config
        tables = 1 + len(config.optimizer_kind.per_weight)
        saved = 4 * BYTE * tables * config.weight_rows * config.shape.n_columns
        saved *= not training.backend.keeps_best  # else the best epoch stays in memory
        training.stages.expect({EPOCHS: epochs * (seconds + saved) * training.trained_share})

    def _seconds(self, trial: Trial) -> tuple[float, float]:
        """Return the seconds of an epoch, by those of a trial, and how many measuring takes."""
        epoch = self._training.dataset.n_rows / trial.rows_per_second
        return epoch + trial.measuring_seconds, trial.measuring_seconds

    def _train_trial(self, spec: TrainSpec, short: TrainSpec, rows: int) -> Trial:
        training, clock = self._training, self._training.clock
        prepare_backend(training, short, find_row_map(training, spec))
        reader, began = open_reader(training, short, rows=rows), clock.elapsed_seconds
        usual, passes = planned_trial(training.dataset.n_rows, spec.epochs, self.wanted)
        each = 1 / (training.backend.n_waves * max(min(usual * passes, self._passes), 1))
        speed, measuring, whole, n_rows = 0.0, 0.0, True, 0
        metrics = HeldOutMetrics(0.0, 0.0)
        try:
            for epoch in range(short.epochs):
                for step in train_epoch(training.backend, reader, short, epoch):
                    training.check_stop()
                    n_rows += step.n_rows
                    self._done += each * step.n_rows
                    training.report_progress(self._done, max(self._open, self._done / MOST_SHARE))
                    if self.over:
                        break
                if self.over and n_rows < short.epochs * reader.n_rows * training.backend.n_waves:
                    whole = self.best is None  # else what is there is better than a piece
                    break
            passed, seconds = n_rows / training.backend.n_waves, clock.elapsed_seconds - began
            speed = passed / seconds if seconds > 0 else 0.0
            if whole:
                metrics = measure_rows(training.backend, self.rows, spec)
                measuring = clock.elapsed_seconds - began - seconds
        except DivergedError:
            speed = 0.0
        return Trial(
            spec=short, rows=min(reader.n_rows, max(n_rows, 1)), metrics=metrics,
            rows_per_second=speed, measuring_seconds=measuring, listed=training.dataset.listed,
            whole=whole,
        )  # fmt: skip

    def _fit_time(self, spec: TrainSpec) -> None:
        """Let trials pass as many rows, and be judged by as many, as there is time for."""
        training, budget = self._training, self._budget
        try:
            row, judged = self._timed_row(spec)
        except DivergedError:
            return
        epoch, measuring = training.dataset.n_rows * row, self.rows.n_rows * judged
        budget.correct(epoch + measuring, measuring, self.rows.n_rows)
        training.clock = budget.search
        each = max(training.clock.remaining_seconds, 0.0) / max(self._open, 1.0)
        n = self.rows.n_rows
        if judged * n > JUDGING_SHARE * each:
            n = max(int(JUDGING_SHARE * each / judged), min(LEAST_JUDGES, n))
            self.rows = self.rows.take(evenly(self.rows.n_rows, n))
            budget.correct(epoch + n * judged, n * judged, n)
        self._expect_epochs(spec.epochs, epoch + n * judged)
        self._passes = max((each - judged * n) / row, LEAST_STEPS * spec.batch_size)

    def _timed_row(self, spec: TrainSpec) -> tuple[float, float]:
        """Return the seconds of a row in an epoch, and of one that is ranked."""
        training, clock, backend = self._training, self._training.clock, self._training.backend
        prepare_backend(training, spec, find_row_map(training, spec))
        reader = open_reader(training, spec, rows=(1 + TIMED_STEPS) * spec.batch_size)
        began, n_rows, first = clock.elapsed_seconds, 0, 0
        for step in train_epoch(backend, reader, spec, 0):
            training.check_stop()
            if not n_rows:
                began, first = clock.elapsed_seconds, step.n_rows
            n_rows += step.n_rows
            if clock.elapsed_seconds - began > TIMED_SECONDS or self.over:
                break
        seconds = clock.elapsed_seconds - began
        row = backend.n_waves * seconds / (n_rows - first) if n_rows > first else 0.0
        some = self.rows.part(0, min(self.rows.n_rows, TIMED_ROWS))
        measure_rows(backend, some.part(0, 1), spec)  # compiles
        began = clock.elapsed_seconds
        measure_rows(backend, some, spec)
        return max(row, 1e-9), max((clock.elapsed_seconds - began) / max(some.n_rows, 1), 1e-9)

    def _keep_best(self, trial: Trial) -> None:
        """Keep the weights of the best trial where less than an epoch may fit behind the search."""
        if self.best is not None and trial.score <= self.best.score:
            return
        self.best = trial
        if not (self._training.clock.limited and trial.rows_per_second):
            return
        self._budget.correct(*self._seconds(trial), self.rows.n_rows)
        if not self._budget.epoch_is_sure():
            self.keep(trial, self._training.backend.arrays())

    def keep(self, trial: Trial, arrays: dict[str, NDArray[Any]]) -> None:
        """Write a trial's weights among a backend's arrays."""
        with suppress(DivergedError):  # another trial is better
            self._findings.save(NAME, trial, _weights(arrays))
            self.kept = trial

    def read_kept(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Read them into the arrays of a backend of the same kind, or raise ModelError."""
        if self._findings.load(NAME, Trial, _weights(arrays)) is None:
            what, folder = "damaged: the best trial", self._findings.folder
            raise ModelError(what, path=folder, hint="Train again.")

    @property
    def _findings(self) -> Findings:
        folder = self._training.folder / CHECKPOINTS / KEPT
        return Findings(folder, self._training.identity, lasting=True)


def _weights(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: arrays[name] for name in ("weights", "bias", "projection") if name in arrays}
