"""What the stages of a training may take of its time, and how many epochs fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammach.clock import Clock
from streammach.model.checkpoint import RunPosition
from streammach.parts.base import Ahead
from streammach.parts.registry import planned
from streammach.planning.cost import BYTE, cost, making_smaller
from streammach.planning.schedule import EPOCHS
from streammach.planning.speed import known_speed
from streammach.training.compact import FEW_ROWS, MOST_ROWS
from streammach.training.session import Session

if TYPE_CHECKING:
    from streammach.training.search import SearchResult

CLOSING = 1.0  # seconds of a run's end, beside writing the model
LEAST_SEARCH = 0.3  # of the search that is planned, without which no epoch is trained
LEAST_SHARE = 0.5  # of what hashed models are expected to take, with which they are begun
AHEAD_SHARE = 0.5  # of the time, at least, for what comes before hashed models
SEARCH_SHARE = {False: 0.3, True: 0.5}  # of the time, for the search, by dense
SMALLER_SHARE = 0.15  # of the time, for making the model small, if all held-out rows judge
QUICK_SHARE = 0.5  # where few do: a whole model is many times as large
JUDGES = (MOST_ROWS, FEW_ROWS)  # held-out rows that judge how small a model may be
MARGIN = 1.1  # by which epochs may take longer than trials said


class Pace:
    """Divides the time of a training among its stages; without a limit, none is held to one."""

    def __init__(self, session: Session) -> None:
        plan, self._session, clock = session.plan, session, session.clock
        speed = known_speed()
        expected = cost(plan.facts, plan.config, speed)
        closing = CLOSING + BYTE * next(n.n_bytes for n in plan.ledger if n.name == "model")
        options = session.options
        wanted = (options.judge_rows,) if options.judge_rows else JUDGES
        # The size of the model, whole without the time to make it small; rows that judge how small.
        self.model_size, self.judges = options.model_size, wanted[0]
        if clock.seconds is not None and self.model_size == "auto":
            took = {n: making_smaller(plan.facts, plan.config, n, speed) for n in wanted}
            fitting = [n for n in wanted if took[n] <= SMALLER_SHARE * clock.seconds]
            self.judges = fitting[0] if fitting else wanted[-1]
            fits = took[self.judges] <= QUICK_SHARE * clock.seconds
            self.model_size = "auto" if fits else "full"
            closing += took[self.judges] if fits else 0.0
        self._expected, self._clock, self._closing, self._beside = expected, clock, closing, 0.0
        self._ahead: dict[str, int] = {}  # what was done ahead, as options

    @property
    def _whole(self) -> Clock:
        """The time but for the end of a run, on a machine as busy as it is."""
        return self._clock.without(self._closing * self._session.stages.slowness)

    def take(self, ahead: dict[str, Ahead]) -> None:
        """Take note of what was done ahead, and of what it says of stages to come."""
        self._beside = sum(one.beside_seconds for one in ahead.values())
        for one in ahead.values():
            self._ahead |= one.named
            self._session.stages.expect(one.measured)

    def again(self, progress: RunPosition, **options: str | float) -> tuple[str, ...]:
        """Return what gives the same bytes without a limit of time, if there is one."""
        if not self._clock.limited:
            return ()
        if progress.row:
            return ("stopped within an epoch: what is trained in the same time differs a little",)
        options |= self._ahead
        if self.model_size != self._session.options.model_size:
            options["model_size"] = self.model_size
        if self.judges != MOST_ROWS:
            options["judge_rows"] = self.judges
        said = " ".join(f"--{name.replace('_', '-')} {n}" for name, n in options.items())
        return (f"the same without a limit of time: {said}",)

    @property
    def ahead(self) -> Clock:
        """The time for what comes before hashed models: what they leave, but a half at least."""
        seconds = self._whole.seconds or 0.0
        hashed = self._expected.hashed * self._session.stages.slowness
        return self._whole.without(min(hashed, (1 - AHEAD_SHARE) * seconds))

    @property
    def search(self) -> Clock:
        """The time for the search."""
        left = max(self._whole.left - self._finish, 0.0) if self._whole.limited else 0.0
        share = SEARCH_SHARE[self._session.plan.config.dense]
        return self._whole.without(self._finish + (1 - share) * left)

    @property
    def epochs(self) -> Clock:
        """The time for the epochs."""
        return self._whole.without(self._finish)

    def hashed_fits(self) -> bool:
        """Return whether there is time to begin hashed models."""
        return self._whole.left >= LEAST_SHARE * self._expected.hashed

    def epoch_fits(self) -> bool:
        """Return whether there is time for an epoch, after a short search."""
        dense = self._session.plan.config.dense
        least = self._expected.epochs / EPOCHS[dense] + LEAST_SEARCH * self._expected.search
        return not self._whole.limited or self._whole.left >= self._finish + least

    def epochs_that_fit(self, found: SearchResult) -> int:
        """Return how many epochs there is time for, at least one and at most those wanted."""
        wanted, session = found.spec.epochs, self._session
        if not self._whole.limited:
            return wanted
        planned = self._expected.epochs / EPOCHS[session.plan.config.dense]
        speeds = [trial.rows_per_second for trial in found.trials if trial.rows_per_second]
        each = session.dataset.n_rows / speeds[-1] if speeds else planned
        return max(1, min(wanted, int(self.epochs.left / (MARGIN * each))))

    @property
    def _finish(self) -> float:
        """Seconds from the last epoch to the end."""
        config, seconds = self._session.plan.config, self._expected.parts
        parts = sum(seconds[part.name] for part in planned(config) if not part.ranks_alone)
        return (self._expected.finish + parts) * self._session.stages.slowness + self._beside
