"""Work of threads that goes in an order: results of several, or what one does beside others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


def in_order(pool: Executor, calls: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """Yield what the calls return, in their order; at most so many are made or done ahead.

    Parameters
    ----------
    pool : Executor
        Its threads make the calls.
    calls : iterable of callables
        Taken one by one.
    ahead : int
        How many results may wait, so that memory is bounded.
    """
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


class InTurn:
    """Work that a thread of its own does in the order of its numbers, from 0 on.

    Where the block that uses it ends, it waits for the work; after an exception, only for what was
    begun.

    Parameters
    ----------
    work : callable
        Given a number. What it raises is raised by :meth:`ready`, or where the block ends.
    """

    def __init__(self, work: Callable[[int], Any]) -> None:
        self._work = work
        self._pool = ThreadPoolExecutor(1, "in turn")
        self._ready: set[int] = set()
        self._given: deque[Future[Any]] = deque()
        self._next = 0

    def ready(self, number: int) -> None:
        """Let some work begin as soon as that of all numbers below has ended."""
        while self._given and self._given[0].done():
            self._given.popleft().result()
        self._ready.add(number)
        while self._next in self._ready:
            self._ready.remove(self._next)
            self._given.append(self._pool.submit(self._work, self._next))
            self._next += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
        if error is None:
            for given in self._given:
                given.result()
