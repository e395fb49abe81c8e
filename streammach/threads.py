"""Threads that share the work of one object, and one that works ahead of who takes its results."""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from streammach.errors import UsageError
from streammach.forks import Forked

T = TypeVar("T")
PIECES = 4  # of work for each thread: some take longer than others
PATIENCE = 0.5  # seconds that a thread is waited for which may be waiting for input itself


class Workers(Forked):
    """A pool of threads, which is made anew in a forked child."""

    def __init__(self, n_threads: int, name: str) -> None:
        super().__init__()
        self.n_threads, self._name, self._closed = n_threads, name, False
        self._pool: ThreadPoolExecutor | None = None

    def each(self, work: Callable[[int, int], None], pieces: Iterable[tuple[int, int]]) -> None:
        """Call `work` with every piece on the threads, or raise UsageError if they were stopped."""
        pool = self._ready()
        for future in [pool.submit(work, a, b) for a, b in pieces]:
            future.result()

    def close(self) -> None:
        """Stop the threads."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def forked(self) -> None:
        """Forget the threads."""
        self._pool = None

    def _ready(self) -> ThreadPoolExecutor:
        if self._closed:
            raise UsageError("it was closed, and works no more", hint="Open it again.")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads, self._name)
        return self._pool


def in_pieces(workers: Workers | None, n: int, work: Callable[[int, int], None]) -> None:
    """Do n units of work, in pieces on the threads if there are any."""
    pieces = 1 if workers is None else min(n, PIECES * workers.n_threads)
    if workers is None or pieces < 2:
        work(0, n)
        return
    edges = [n * i // pieces for i in range(pieces + 1)]
    workers.each(work, itertools.pairwise(edges))


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


def ahead(items: Iterable[T], name: str) -> Iterator[T]:
    """Yield items in their order, while a thread of its own makes the next one.

    At most one item is made or waits beside the one that was yielded last. When no more are asked
    for, the thread ends after the item that it is making; one that waits for input is left behind.
    """
    work = _Ahead(items)
    thread = threading.Thread(target=work.run, name=name, daemon=True)
    thread.start()
    try:
        while (made := work.next()) is not None:
            yield made[0]
        thread.join()
    finally:
        work.stop()
        thread.join(PATIENCE)


class _Ahead(Forked, Generic[T]):
    """Items on their way from one thread to another one."""

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__()
        self._items = iter(items)
        self._made: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
        self._wanted = threading.Semaphore(1)
        self._stopped = False

    def run(self) -> None:
        """Make the items, as the thread's work."""
        end: BaseException | None = None
        try:
            while self._wanted.acquire() and not self._stopped:
                self._made.put((next(self._items),))
        except StopIteration:
            pass
        except BaseException as error:  # raised where the items are taken
            end = error
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        self._made.put(end)

    def next(self) -> tuple[T] | None:
        """Return the next item, None after the last; raise what was raised while it was made."""
        made = self._made.get()
        if isinstance(made, BaseException):
            raise made
        self._wanted.release()
        return made

    def forked(self) -> None:
        """Have an error be what comes next: the thread that makes the items is not there."""
        self._made = queue.SimpleQueue()
        self._made.put(UsageError("rows are read by another process, which forked this one"))

    def stop(self) -> None:
        """Say that no more items are wanted."""
        self._stopped = True
        self._wanted.release()
