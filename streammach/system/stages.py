"""Where a piece of work is: its stage, the share of it that is done, the time left for all of it.

What stages are expected to take is corrected by what those before took. A thread tells how it goes
while a stage is too busy to say so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

from streammach.system.clock import Clock
from streammach.system.forks import ForkSafeLock

TICK_SECONDS = 0.5  # between two tellings
DOUBT = 0.15  # share of a stage from which on its own pace counts as much as what was expected
PRIOR = 0.2  # of all expected seconds: how much these weigh beside the pace of what is done
LATE = 0.2  # of its time so far, what a stage at least still takes that tells no share
Moment = Literal["begin", "within", "end"]


@dataclass(frozen=True, kw_only=True)
class StageState:
    """How far a piece of work is.

    Attributes
    ----------
    stage : str
        The present stage.
    moment : str
        ``begin`` or ``end`` of the stage, or ``within`` it.
    done, total : float
        What is done of the stage, and all of it; 0 where that is not known.
    share : float or None
        Share of the stage that is done, 0 to 1; None where that is not known.
    stage_seconds, seconds : float
        Time since the stage and since the work began.
    left_seconds : float or None
        Estimate of what is left of the whole work; None where nothing is known.
    note : str
        What else is said.
    """

    stage: str
    moment: Moment
    done: float
    total: float
    share: float | None
    stage_seconds: float
    seconds: float
    left_seconds: float | None
    note: str = ""


@dataclass
class _Present:
    """The stage under way."""

    name: str
    began: float
    done: float = 0.0
    total: float = 0.0
    note: str = ""

    @property
    def share(self) -> float | None:
        return min(max(self.done / self.total, 0.0), 1.0) if self.total > 0 else None


class Stages(AbstractContextManager["Stages"]):
    """The stages of a piece of work, one after another."""

    def __init__(
        self, told: Callable[[StageState], None], expected: Mapping[str, float] | None = None, *,
        relative: bool = False, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._told, self._clock = told, clock or Clock()  # the time that there is for the work
        self._expected = dict(expected or {})  # seconds of the stages to come
        self._sure: set[str] = set()  # those whose seconds were measured, in this work or before
        self._prior = 0.0 if relative else PRIOR * sum(self._expected.values())
        # Seconds of the stages that are over: what was expected of them, and what they took.
        self._foreseen, self._needed = 0.0, 0.0
        self._took: dict[str, float] = {}
        self._present: _Present | None = None
        self._whole = False  # whether stages within the present one are not told
        self._lock, self._over = ForkSafeLock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    def __exit__(self, kind: object, *error: object) -> None:
        self.close(whole=kind is None)

    @property
    def took(self) -> dict[str, float]:
        """Seconds of the stages by name, that of the present one included."""
        with self._lock:
            found, present = dict(self._took), self._present
            if present is not None:
                seconds = self._clock.now() - present.began
                found[present.name] = found.get(present.name, 0.0) + seconds
            return found

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return self._clock.elapsed_seconds

    @property
    def slowness(self) -> float:
        """How many times as long as expected the stages took that are over, at least 1."""
        with self._lock:
            return max(self._measure_slowdown(self._needed, self._foreseen) or 1.0, 1.0)

    @property
    def left_seconds(self) -> float | None:
        """Estimate of what is left of the whole work; None where nothing is known."""
        with self._lock:
            return None if self._present is None else self._remaining(self._clock.now(), over=False)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Take note of what stages to come should take, by what was measured meanwhile."""
        with self._lock:
            known = {name: took for name, took in seconds.items() if name in self._expected}
            self._expected |= known
            self._sure |= known.keys()

    def begin(self, name: str) -> None:
        """End the present stage and begin another one, unless it is under way."""
        with self._lock:
            if self._whole:
                return
            if self._present is None or self._present.name != name:
                self._end()
                names = list(self._expected)
                for passed in names[: names.index(name)] if name in names else ():
                    del self._expected[passed]
                self._present = _Present(name, self._clock.now())
                self._tell("begin")
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._thread.start()

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Begin a stage that nothing ends while a block runs: stages within it are not told."""
        self.begin(name)
        self._whole = True
        try:
            yield
        finally:
            self._whole = False

    def at(self, done: float, total: float, note: str = "") -> None:
        """Take note of how far the present stage is, or raise what telling it raised."""
        present = self._present
        if present is not None:
            present.done, present.total, present.note = done, total, note
        if self._failed is not None:
            raise self._failed

    def close(self, *, whole: bool = True) -> None:
        """End the present stage, and tell no more."""
        with self._lock:
            if whole:
                self._end()
            self._present = None
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if whole and self._failed is not None:
            raise self._failed

    def _end(self) -> None:
        if self._present is None:
            return
        name, seconds = self._present.name, self._clock.now() - self._present.began
        expected = self._expected.pop(name, None)
        self._took[name] = self._took.get(name, 0.0) + seconds
        if expected is not None and (name not in self._sure or seconds > expected):
            self._needed, self._foreseen = self._needed + seconds, self._foreseen + expected
        self._tell("end")

    def _tick(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            try:
                with self._lock:
                    if self._present is not None:
                        self._tell("within")
            except BaseException as error:  # raised where the work goes on
                self._failed = error
                return

    def _tell(self, moment: Moment) -> None:
        present, now = self._present, self._clock.now()
        assert present is not None
        self._told(StageState(
            stage=present.name, moment=moment, done=present.done, total=present.total,
            share=1.0 if moment == "end" else present.share, stage_seconds=now - present.began,
            seconds=now - self._clock.began,
            left_seconds=self._remaining(now, over=moment == "end"),
            note=present.note,
        ))  # fmt: skip

    def _measure_slowdown(self, needed: float, foreseen: float) -> float | None:
        """Return how many times as long as expected stages take; None where nothing is known."""
        known = self._prior + foreseen
        return (self._prior + needed) / known if known > 0 else None

    def _remaining(self, now: float, *, over: bool) -> float | None:
        """Return the seconds that are left of all stages; None where nothing is known."""
        present = self._present
        assert present is not None
        name, elapsed, share = present.name, now - present.began, present.share
        expected = None if over else self._expected.get(name)
        weight = 0.0 if not share else share / (share + DOUBT)  # of the stage's own pace
        needed, foreseen = self._needed, self._foreseen
        if expected is not None and name not in self._sure and share:
            needed, foreseen = needed + weight * elapsed / share, foreseen + weight * expected
        elif expected is not None and elapsed > expected:  # it is late
            needed, foreseen = needed + elapsed, foreseen + expected
        later = {one: seconds for one, seconds in self._expected.items() if one != name}
        slow = self._measure_slowdown(needed, foreseen)
        if slow is None and (over or later.keys() - self._sure or (not share and expected is None)):
            return None
        scales = {one: 1.0 if one in self._sure else slow or 1.0 for one in (name, *later)}
        left = sum(seconds * scales[one] for one, seconds in later.items())
        if not over:
            known = 0.0 if expected is None else expected * scales[name]
            if share:
                own = elapsed * (1 - share) / share
                weight = 1.0 if expected is None else weight
                left += weight * own + (1 - weight) * known * (1 - share)
            else:
                left += max(known - elapsed, LATE * elapsed)
        return max(min(left, self._clock.remaining_seconds), 0.0)
