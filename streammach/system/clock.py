"""The time that a training may take."""

from __future__ import annotations

import time
from collections.abc import Callable


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

    @classmethod
    def of_process(cls, seconds: float | None) -> Clock:
        """Return a clock that began when this process did."""
        import psutil  # loads on demand

        age = time.time() - psutil.Process().create_time()
        return cls(seconds, time.monotonic() - max(age, 0.0))

    def without(self, seconds: float) -> Clock:
        """Return a clock that ends so many seconds before this one."""
        return self if self.seconds is None else Clock(self.seconds - seconds, self.began, self.now)

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
        return self.seconds is not None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since it began."""
        return self.now() - self.began

    @property
    def remaining_seconds(self) -> float:
        """Seconds that are left, below 0 when it is over; infinite without limit."""
        return float("inf") if self.seconds is None else self.seconds - self.elapsed_seconds
