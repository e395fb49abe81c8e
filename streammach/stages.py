"""Where a piece of work is: its stage, the share of it that is done, the time left for all of it.

What stages are expected to take is corrected by what those before took. A thread tells how it goes
while a stage is too busy to say so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from streammach.forks import Turn

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


@dataclass
class _Expected:
    """What a stage should take; sure where it was measured, in this work or before."""

    seconds: float
    sure: bool = False


@dataclass
class _Pace:
    """Seconds of the stages that are over: what they took, and what was expected of them."""

    took: float = 0.0
    expected: float = 0.0

    def factor(self, prior: float) -> float | None:
        """Return how many times as long as expected stages take; None where nothing is known."""
        known = prior + self.expected
        return (prior + self.took) / known if known > 0 else None


@dataclass
class _Account:
    """What was expected and what was."""

    expected: dict[str, _Expected]
    pace: _Pace = field(default_factory=_Pace)
    took: dict[str, float] = field(default_factory=dict)


class Stages:
    """The stages of a piece of work, one after another."""

    def __init__(
        self,
        told: Callable[[StageState], None],
        expected: Mapping[str, float] | None = None,
        *,
        relative: bool = False,
        limit: Callable[[], float] | None = None,
        began: float | None = None,
    ) -> None:
        self._told, self._relative, self._limit = told, relative, limit
        self._account = _Account({n: _Expected(time) for n, time in (expected or {}).items()})
        self._weight = PRIOR * sum(self._account.expected[name].seconds for name in expected or ())
        self._began = time.monotonic() if began is None else began
        self._present: _Present | None = None
        self._whole = False  # whether stages within the present one are not told
        self._lock, self._over = Turn(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self.close(whole=kind is None)

    @property
    def took(self) -> dict[str, float]:
        """Seconds of the stages by name, that of the present one included."""
        with self._lock:
            found, present = dict(self._account.took), self._present
            if present is not None:
                found[present.name] = found.get(present.name, 0.0) + (
                    time.monotonic() - present.began
                )
            return found

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return time.monotonic() - self._began

    @property
    def slowness(self) -> float:
        """How many times as long as expected the stages took that are over, at least 1."""
        with self._lock:
            return max(self._account.pace.factor(self._weight) or 1.0, 1.0)

    @property
    def left_seconds(self) -> float | None:
        """Estimate of what is left of the whole work; None where nothing is known."""
        with self._lock:
            return None if self._present is None else self._left(time.monotonic(), over=False)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Take note of what stages to come should take, by what was measured meanwhile."""
        with self._lock:
            for name, known in seconds.items():
                if name in self._account.expected:
                    self._account.expected[name] = _Expected(known, sure=True)

    def begin(self, name: str, *, total: float = 0.0) -> None:
        """End the present stage and begin another one, unless it is under way."""
        with self._lock:
            if self._whole:
                return
            if self._present is None or self._present.name != name:
                self._end()
                names = list(self._account.expected)
                for passed in names[: names.index(name)] if name in names else ():
                    del self._account.expected[passed]
                self._present = _Present(name, time.monotonic(), total=total)
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
        present, account = self._present, self._account
        if present is None:
            return
        seconds = time.monotonic() - present.began
        expected = account.expected.pop(present.name, None)
        account.took[present.name] = account.took.get(present.name, 0.0) + seconds
        if expected is not None and (not expected.sure or seconds > expected.seconds):
            account.pace.took += seconds
            account.pace.expected += expected.seconds
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
        present, now = self._present, time.monotonic()
        assert present is not None
        self._told(StageState(
            stage=present.name, moment=moment, done=present.done, total=present.total,
            share=1.0 if moment == "end" else present.share, stage_seconds=now - present.began,
            seconds=now - self._began, left_seconds=self._left(now, over=moment == "end"),
            note=present.note,
        ))  # fmt: skip

    def _left(self, now: float, *, over: bool) -> float | None:
        """Return the seconds that are left of all stages; None where nothing is known."""
        present, account = self._present, self._account
        assert present is not None
        elapsed, share = now - present.began, present.share
        expected = None if over else account.expected.get(present.name)
        pace = _Pace(account.pace.took, account.pace.expected)
        if expected is not None and not expected.sure and share:
            weight = share / (share + DOUBT)  # the stage itself says how fast the work goes
            pace.took += weight * elapsed / share
            pace.expected += weight * expected.seconds
        elif expected is not None and elapsed > expected.seconds:  # it is late
            pace.took += elapsed
            pace.expected += expected.seconds
        factor = pace.factor(0.0 if self._relative else self._weight)
        later = [one for name, one in account.expected.items() if name != present.name]
        if factor is None:
            if over or any(not one.sure for one in later) or (not share and expected is None):
                return None
            factor = 1.0
        left = 0.0 if over else _left_of(elapsed, share, expected, factor)
        left += sum(one.seconds * (1.0 if one.sure else factor) for one in later)
        return left if self._limit is None else max(min(left, self._limit()), 0.0)


def _left_of(
    elapsed: float, share: float | None, expected: _Expected | None, factor: float
) -> float:
    """Return the seconds that are left of a stage, by its own pace and by what was expected."""
    known = None if expected is None else expected.seconds * (1.0 if expected.sure else factor)
    if not share:
        return max(0.0 if known is None else known - elapsed, LATE * elapsed)
    own = elapsed * (1 - share) / share
    if known is None:
        return own
    weight = share / (share + DOUBT)
    return weight * own + (1 - weight) * known * (1 - share)
