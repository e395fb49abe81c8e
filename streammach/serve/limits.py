"""What a service takes at most, and how it says that something is too much or wrong."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.errors import clean
from streammach.progress import tell

MOST_LINE = 300  # characters of a reason


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """The most that a service takes."""

    k: int = 200  # best classes of a row
    rows: int = 1024  # rows of a request
    features: int = 100_000  # features of a row, those that the model does not know among them
    text_bytes: int = 1_000_000  # characters of the strings of a row, in their normal form (NFKC)
    body_bytes: int = 8_000_000  # bytes of the body of a request
    held_bytes: int = 64_000_000  # bytes of the bodies of all requests that are not answered yet
    queue: int = 1024  # rows of a model that wait
    # what a request may ask to be explained: labels times the features that are given, and that its
    # rows have
    explained: int = 100_000
    batch: int = 64  # rows that are predicted together, but for a request that has more
    # seconds in which a request is received, and again in which it is answered
    deadline: float = 10.0
    grace: float = 10.0  # seconds in which a service that is stopped answers what it has taken
    connections: int = 1000  # connections at a time

    @property
    def rows_a_request(self) -> int:
        """Rows that a request may have: no more than may wait."""
        return min(self.rows, self.queue)


class Refused(Exception):
    """A request that gets no answer, and why: a line; `retry` is in seconds."""

    def __init__(
        self, status: int, reason: str, *, limit: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(reason)
        self.status, self.limit, self.retry = status, limit, retry
        self.reason = clean(reason, MOST_LINE)


def beyond(status: int, found: str, most: int, limit: str, retry: int | None = None) -> Refused:
    """Return what is said of a request that passes a limit."""
    return Refused(status, f"{found}, {most:,} are taken at most", limit=limit, retry=retry)


def too_late(seconds: float) -> Refused:
    """Return what is said of a request that waited too long."""
    return Refused(503, f"there was no answer within {seconds:g} s", limit="deadline", retry=1)


def mistake(error: Exception) -> Refused:
    """Return what is said of a mistake of ours, which is not the end of the service; say it."""
    name = type(error).__name__
    tell(f"streammach: error: {name}: {clean(error, 200)}")
    return Refused(500, f"a mistake of streammach's: {name}")
