"""The time that a training may take."""

from __future__ import annotations

import time

import psutil


class Clock:
    """Says how much is left of a time.

    Parameters
    ----------
    seconds : float, optional
        The time; without limit otherwise.
    began : float, optional
        When it began, by ``time.monotonic``; now otherwise.
    """

    def __init__(self, seconds: float | None = None, began: float | None = None) -> None:
        self.seconds = seconds
        self._began = time.monotonic() if began is None else began

    @classmethod
    def of_process(cls, seconds: float | None) -> Clock:
        """Return a clock that began when this process did."""
        age = time.time() - psutil.Process().create_time()
        return cls(seconds, time.monotonic() - max(age, 0.0))

    def without(self, seconds: float) -> Clock:
        """Return a clock that ends so many seconds before this one."""
        return self if self.seconds is None else Clock(self.seconds - seconds, self._began)

    @property
    def limited(self) -> bool:
        """Whether the time has an end."""
        return self.seconds is not None

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left, below 0 when it is over; infinite without limit."""
        return float("inf") if self.seconds is None else self.seconds - self.spent
