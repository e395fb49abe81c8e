"""What the stages of a training may take of its time, and how many epochs fit."""

from __future__ import annotations

import itertools
from dataclasses import replace

from streammach.model.checkpoint import RunPosition
from streammach.options.config import RunConfig
from streammach.options.facts import DataFacts
from streammach.options.plan import Plan
from streammach.options.training import TrainingOptions
from streammach.parts.expected import RATES, Seconds
from streammach.parts.registry import PARTS, parts_of_plan, times_of_parts
from streammach.parts.training_record import FirstFit
from streammach.planning.cost import (
    BYTE,
    JUDGES,
    TRANSFORM_TRIALS,
    Cost,
    cost,
    making_smaller,
    query,
    search_trials,
)
from streammach.planning.cost import EPOCHS as PLANNED_EPOCHS
from streammach.planning.speed import known_speed
from streammach.system.clock import Clock
from streammach.system.stages import Stages
from streammach.training.run_part import RunTraining

HELD_OUT, ALONE = "held-out rows", "model of counts"
SEARCH, EPOCHS, RANKING, CALIBRATION = "search", "epochs", "ranking", "calibration"
SMALLER, LEARNING, WRITING = "smaller model", "held-out rows, learnt", "writing"
OPENING = 0.3  # seconds of one thread of the reference machine
CLOSING = 1.0  # seconds of a run's end, beside writing the model
FIXED_RATES = 0.6  # of the trials of parts, what is left out where the rate is given
LEAST_SEARCH = 0.3  # of the search that is planned, without which no epoch is trained
LOOKING_SHARE = 0.1  # of the time, for rows that are equal to held-out ones
SURE = 2.0  # times as long as an epoch what is left for it must be, for it to come to its end
LEAST_SHARE = 0.5  # of what hashed models are expected to take, with which they are begun
MOST_SLOWNESS = 5.0  # that is believed
AHEAD_SHARE = 0.5  # of the time, at least, for what comes before hashed models
SEARCH_SHARE = {False: 0.3, True: 0.5}  # of the time, for the search, by dense
SMALLER_SHARE = 0.15  # of the time, for making the model small, if all held-out rows judge
QUICK_SHARE = 0.5  # where few do: a whole model is many times as large
# Held-out rows that judge; where time is short; where it is very short.
MOST_ROWS, FEW_ROWS, FEWEST_ROWS = JUDGES, 1000, 250
FINISH_SHARE, PARTS_SHARE = 0.3, 0.2  # of the time: for what follows epochs; for parts, in it
MARGIN = 1.1  # by which epochs may take longer than trials said


def timetable(
    facts: DataFacts, config: RunConfig, options: TrainingOptions, *, speed: float
) -> dict[str, float]:  # fmt: skip
    """Return the seconds of each stage, in their order."""
    scale, parts = 1 / (config.placement.threads * speed), times_of_parts(facts, config)
    seconds, found = _expected_cost(facts, config, options, speed), {HELD_OUT: OPENING}

    def expect(stages: dict[str, Seconds]) -> None:
        for name, (divided, fixed) in stages.items():
            found[name] = divided * scale + fixed

    for part in parts.values():
        expect(part.stages_before)
    if not config.shape.unhashed:
        found |= {SEARCH: seconds.search, EPOCHS: seconds.epochs}
    for within in (True, False):
        for name, part in parts.items():
            if PARTS[name].changes_weights == within:
                expect(part.stages_after)
        if within and not config.shape.unhashed:
            found[RANKING] = seconds.finish
    found[CALIBRATION] = config.batching.held_out_rows * query(facts, config) * scale
    if options.model_size == "auto":
        found[SMALLER] = seconds.smaller
    return found | {LEARNING: 0.0, WRITING: CLOSING}


def expect_stages(training: RunTraining) -> dict[str, float]:
    """Return the seconds of each stage in their order, of those too that may not come."""
    plan = training.plan
    seconds = timetable(plan.facts, plan.config, training.options, speed=known_speed())
    if training.shard is not None:
        first, last = training.shard.repetitions(plan.n_repetitions)
        seconds = dict(list(seconds.items())[: list(seconds).index(EPOCHS) + 1])
        seconds[EPOCHS] *= (last - first) / plan.n_repetitions
    elif training.shards:  # they are read
        settings = training.shards[0].settings
        assert settings is not None, "it is finished"
        table = 4 * plan.config.weight_rows * plan.config.shape.n_columns
        seconds[EPOCHS] = settings.training.epochs * BYTE * table
    return seconds


def _expected_cost(
    facts: DataFacts, config: RunConfig, options: TrainingOptions, speed: float
) -> Cost:
    """Return what a training takes where some of its options are given."""
    found = cost(facts, config, speed)
    if config.shape.unhashed:
        return found
    epochs = found.epochs
    if options.epochs is not None:
        epochs *= options.epochs / PLANNED_EPOCHS[config.dense]
    share_open = open_trials(facts, config, options) / search_trials(facts, config)
    return replace(found, search=found.search * share_open, epochs=epochs)


def open_trials(facts: DataFacts, config: RunConfig, options: TrainingOptions) -> float:
    """Return about how many trials a search takes where some things are fixed."""
    trials = search_trials(facts, config)
    fixed = TRANSFORM_TRIALS * (options.fixed_transform is not None)
    if options.learning_rate is not None:
        fixed += RATES + FIXED_RATES * max(trials - RATES - TRANSFORM_TRIALS, 0.0)
    return max(trials - fixed, 0.0)


class TimeBudget:
    """Divides the time of a training among its stages; without a limit, none is held to one."""

    def __init__(self, plan: Plan, options: TrainingOptions, clock: Clock, stages: Stages) -> None:
        self._plan, self._options, self._clock, self._stages = plan, options, clock, stages
        speed = known_speed()
        expected = _expected_cost(plan.facts, plan.config, options, speed)
        closing = CLOSING + BYTE * next(n.n_bytes for n in plan.ledger if n.name == "model")
        wanted = (options.judge_rows,) if options.judge_rows else (MOST_ROWS, FEW_ROWS, FEWEST_ROWS)
        # The size of the model, whole without the time to make it small; rows that judge how small.
        self.model_size, self.judges = options.model_size, wanted[0]
        self._smaller = {n: making_smaller(plan.facts, plan.config, n, speed) for n in wanted}
        if clock.seconds is not None:
            self._allow(SMALLER_SHARE * clock.seconds, QUICK_SHARE * clock.seconds)
        self._expected, self._closing, self._beside = expected, closing, 0.0
        table = timetable(plan.facts, plan.config, options, speed=speed)
        later = itertools.dropwhile(lambda name: name != SEARCH, table)
        # From the search on, without what ends each training.
        ends = (SMALLER, LEARNING, WRITING)
        self._hashed = sum(table[name] for name in later if name not in ends)
        self._held = plan.config.batching.held_out_rows
        self._first: dict[str, int] = {}  # what was fitted first, as options
        self._measuring, self._slower = 0.0, 1.0  # measured: seconds of an epoch's; as slowness
        self._trained: float | None = None  # seconds of an epoch, measured
        self._partial = False  # whether there is time for a part of an epoch alone

    def _allow(self, usual: float, quick: float) -> None:
        """Let most rows judge for `usual` seconds at most, or fewer for `quick` ones, or none."""
        most, fits = self.judges, self.model_size != "auto"
        for n in () if fits else self._smaller:
            self.judges = n
            if fits := self._smaller[n] <= (usual if n == most else quick):
                break
        self.model_size = self.model_size if fits else "full"

    def finish(self, *, hashed: bool) -> None:
        """Let fewer rows judge where less time is left than was thought."""
        if self._clock.limited:
            self._limit_judging_rows(self.end.remaining_seconds, hashed=hashed)

    def _limit_judging_rows(self, seconds: float, *, hashed: bool = True) -> None:
        """Let no more rows judge after the epochs than there is time for, or the fewest."""
        for n in sorted((n for n in self._smaller if n <= self.judges), reverse=True):
            self.judges = n
            if self._ending + (self._finish if hashed else 0.0) <= seconds:
                return

    @property
    def end(self) -> Clock:
        """The time until the model is written."""
        return self._clock.without(self._closing * self._slowness)

    @property
    def _whole(self) -> Clock:
        return self.end.without(self._ending)

    def take(self, first: FirstFit) -> None:
        """Take note of what was fitted first, and of what it says of stages to come."""
        self._beside, self._first = sum(first.seconds.values()), first.options
        self._stages.expect(first.seconds)

    def again(self, progress: RunPosition, **options: str | float) -> tuple[str, ...]:
        """Return what gives the same bytes without a limit of time, if there is one."""
        if not self._clock.limited:
            return ()
        if progress.row or self._partial or (progress.stopped and not progress.history):
            return ("stopped within an epoch: what is trained in the same time differs a little",)
        options |= self._first
        if self.model_size != self._options.model_size:
            options["model_size"] = self.model_size
        if self.judges != MOST_ROWS:
            options["judge_rows"] = self.judges
        said = " ".join(f"--{name.replace('_', '-')} {n}" for name, n in options.items())
        return (f"the same without a limit of time: {said}",)

    @property
    def first(self) -> Clock:
        """The time for what comes before hashed models: what they leave, but a half at least.

        All of it where the other half is too short to begin them.
        """
        most = (1 - AHEAD_SHARE) * (self._whole.seconds or 0.0)
        hashed = self._hashed * self._slowness
        begun = most >= MARGIN * LEAST_SHARE * hashed
        return self._whole.without(min(hashed, most) if begun else 0.0)

    @property
    def search(self) -> Clock:
        """The time for the search."""
        left = (
            max(self._whole.remaining_seconds - self._finish, 0.0) if self._whole.limited else 0.0
        )
        share = SEARCH_SHARE[self._plan.config.dense]
        return self._whole.without(self._finish + (1 - share) * left)

    @property
    def epochs(self) -> Clock:
        """The time for the epochs, without the last one's measuring."""
        return self._whole.without(self._finish + self._measuring)

    def correct(self, epoch: float, measuring: float, judges: int) -> None:
        """Reckon with the seconds of an epoch, and of measuring on so many rows, as they are."""
        self._trained, self._measuring = epoch, measuring
        expected = self._expected.measuring * judges / max(self._held, 1)
        self._slower = measuring / max(expected, 1e-9)
        self._limit_judging_rows(FINISH_SHARE * self.end.remaining_seconds)

    def epoch_is_sure(self) -> bool:
        """Return whether an epoch will come to its end when the search has had its time."""
        left = self.epochs.remaining_seconds - max(self.search.remaining_seconds, 0.0)
        return self._trained is not None and left >= SURE * self._trained

    def hashed_fits(self) -> bool:
        """Return whether there is time to begin hashed models."""
        return self._whole.remaining_seconds >= LEAST_SHARE * self._hashed

    def epoch_fits(self) -> bool:
        """Return whether there is time for an epoch, after a short search."""
        least = self._epoch + LEAST_SEARCH * self._expected.search
        return not self._whole.limited or self._whole.remaining_seconds >= self._finish + least

    def epochs_that_fit(self, wanted: int) -> tuple[int, int]:
        """Return how many epochs there is time for, and of how many rows; 0 where these are all."""
        if not self._whole.limited:
            return wanted, 0
        fits = max(self.epochs.remaining_seconds, 0.0) / (MARGIN * self._epoch)
        self._partial = fits < 1
        rows = max(1, int(fits * self._plan.facts.n_rows)) if self._partial else 0
        return max(1, min(wanted, int(fits))), rows

    @property
    def _epoch(self) -> float:
        if self._trained is not None:
            return self._trained
        epochs = self._options.epochs or PLANNED_EPOCHS[self._plan.config.dense]
        return self._expected.epochs / epochs

    @property
    def _slowness(self) -> float:
        return min(max(self._stages.slowness, self._slower), MOST_SLOWNESS)

    @property
    def _ending(self) -> float:
        """Seconds of making the model small, by what ranking a row takes."""
        smaller = self._smaller[self.judges] if self.model_size == "auto" else 0.0
        return smaller * max(self._slowness, self._slower)

    @property
    def _finish(self) -> float:
        """Seconds from the last epoch to the end."""
        config, seconds = self._plan.config, self._expected.parts
        parts = sum(seconds[part.name] for part in parts_of_plan(config) if not part.fit_first)
        ranking = self._expected.finish * min(self.judges / max(self._held, 1), 1.0)
        if self._clock.seconds is not None:  # parts look at the clock
            parts = min(parts, PARTS_SHARE * self._clock.seconds / self._slowness)
        return ranking * max(self._slowness, self._slower) + parts * self._slowness + self._beside
