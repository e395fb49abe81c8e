"""The time that a training may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event


class TimeOver(Exception):
    """The time for a piece of work is over; whoever gave the time goes on without it."""


class Clock:
    """Says how much is left of a time.

    Parameters
    ----------
    seconds : float, optional
        The time; without limit otherwise.
    began : float, optional
        When it began, by `now`; now otherwise.
    now : callable, optional
        Gives the seconds since some moment: ``time.monotonic`` otherwise.
    """

    def __init__(
        self, seconds: float | None = None, began: float | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        self.seconds, self.now = seconds, now or time.monotonic
        self.began = self.now() if began is None else began
        self._end = Event()  # which clocks share that are made of one another

    def end(self) -> None:
        """Have the time be over now."""
        self._end.set()

    @classmethod
    def of_process(cls, seconds: float | None) -> Clock:
        """Return a clock that began when this process did."""
        import psutil  # loads on demand

        age = time.time() - psutil.Process().create_time()
        return cls(seconds, time.monotonic() - max(age, 0.0))

    def without(self, seconds: float) -> Clock:
        """Return a clock that ends so many seconds before this one."""
        if self.seconds is None:
            return self
        clock = Clock(self.seconds - seconds, self.began, self.now)
        clock._end = self._end
        return clock

    def share(self, share: float) -> Clock:
        """Return a clock that ends when a share of what is left of this one is used up."""
        return (
            self.without((1 - share) * max(self.remaining_seconds, 0.0)) if self.limited else self
        )

    def check(self) -> None:
        """Raise TimeOver when the time is over."""
        if self.remaining_seconds <= 0:
            raise TimeOver

    @property
    def limited(self) -> bool:
        """Whether the time has an end."""
        return self.seconds is not None or self._end.is_set()

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since it began."""
        return self.now() - self.began

    @property
    def remaining_seconds(self) -> float:
        """Seconds that are left, below 0 when it is over; infinite without limit."""
        left = float("inf") if self.seconds is None else self.seconds - self.elapsed_seconds
        return min(left, 0.0) if self._end.is_set() else left
