"""Work of threads that goes in an order: results of several, or what one does beside others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")


def in_order(pool: Executor, calls: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """Yield what the calls return, in their order; at most so many are made or done ahead."""
    pending: deque[Future[T]] = deque()
    try:
        for call in calls:
            pending.append(pool.submit(call))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
