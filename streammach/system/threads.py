"""Threads that share the work of one object, and one that works ahead of who takes its results."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammach.system.errors import UsageError
from streammach.system.forks import ForkAware
from streammach.system.machine import cores

T = TypeVar("T")
Pair = tuple[int, int]
PIECES = 16  # of a stage's work, at least one a thread: each of them wants the GIL once
PATIENCE = 0.5  # seconds that a thread is waited for which may be waiting for input itself


def pieces_of(
    n: int, threads: int, cost: NDArray[Any] | None = None, *, a_thread: int = 1
) -> list[Pair]:
    """Return ranges of n units for the threads; `cost` (n + 1,) says what all before a unit cost.

    There are few pieces for each of many threads, `a_thread` at least, since handing out is serial.
    """
    parts = 1 if threads == 1 or n < 2 else min(n, max(PIECES, a_thread * threads))
    if cost is None:
        edges = [n * i // parts for i in range(parts + 1)]
    else:
        edges = [0, *np.searchsorted(cost, np.linspace(0, cost[-1], parts + 1)[1:-1]).tolist(), n]
    return [(a, b) for a, b in itertools.pairwise(edges) if a < b]


def _nothing(first: int, last: int) -> None: ...


class _Team:
    """Threads that sleep until there is work; these and the caller take pieces until all are."""

    def __init__(self, n_more: int, name: str) -> None:
        self._work: Callable[[int, int], None] = _nothing
        self._pieces: Iterator[Pair] = iter(())
        self._errors: list[BaseException] = []
        self._ended = False
        self._locks = [(threading.Lock(), threading.Lock()) for _ in range(n_more)]
        self._threads = [
            threading.Thread(target=self._run, args=pair, name=f"{name}_{i}", daemon=True)
            for i, pair in enumerate(self._locks)
        ]
        for (begin, done), thread in zip(self._locks, self._threads, strict=True):
            begin.acquire()
            done.acquire()
            thread.start()

    def do(self, work: Callable[[int, int], None], pieces: Sequence[Pair]) -> None:
        """Do all pieces; raise what the first piece that failed raised."""
        self._work, self._pieces = work, iter(pieces)
        awake = self._locks[: len(pieces) - 1]
        for begin, _ in awake:
            begin.release()
        self._take()
        for begin, done in awake:
            if not begin.acquire(blocking=False):  # who has yet to wake is not waited for
                done.acquire()
        self._work = _nothing  # whose arrays would be kept
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        self._ended = True  # after their pieces
        for begin, _ in self._locks:
            with contextlib.suppress(RuntimeError):  # it is open: its thread has yet to wake
                begin.release()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, begin: threading.Lock, done: threading.Lock) -> None:
        while begin.acquire() and not self._ended:
            self._take()
            done.release()

    def _take(self) -> None:
        work = self._work
        try:
            for a, b in self._pieces:  # an iterator of a list gives each piece to one thread
                work(a, b)
        except BaseException as error:  # raised in the calling thread
            self._pieces = iter(())
            self._errors.append(error)


class Workers(ForkAware):
    """Threads that share the work of one caller at a time; made anew in a forked child.

    There are no more than the processors allow: others would wait for one another.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        super().__init__()
        self.n_threads, self._name, self._closed = min(n_threads, cores()), name, False
        self._team: _Team | None = None
        self._turn = threading.Lock()

    def each(self, work: Callable[[int, int], None], pieces: Iterable[Pair]) -> None:
        """Call `work` with every piece on the threads, or raise UsageError if they were stopped.

        What is called while the threads are at work, by them or by another thread, works alone.
        """
        if self._closed:
            raise UsageError("it was closed, and works no more", hint="Open it again.")
        some = list(pieces)
        if min(self.n_threads, len(some)) < 2 or not self._turn.acquire(blocking=False):
            for a, b in some:
                work(a, b)
            return
        turn = self._turn
        try:
            if self._team is None:
                self._team = _Team(self.n_threads - 1, self._name)
                weakref.finalize(self, self._team.stop).atexit = False
            self._team.do(work, some)
        except BaseException as error:
            if self._team is not None:
                self._team.stop()
                if isinstance(error, Exception):  # else a thread may be at a piece yet
                    self._team.join()
            self.after_fork()
            raise
        finally:
            turn.release()

    def close(self) -> None:
        """Stop the threads, and wait for them."""
        self._closed = True
        if self._team is not None:
            self._team.stop()
            self._team.join()

    def after_fork(self) -> None:
        """Forget the threads."""
        self._team, self._turn = None, threading.Lock()


def in_pieces(
    workers: Workers | None, n: int, work: Callable[[int, int], None],
    cost: NDArray[Any] | None = None,
) -> None:  # fmt: skip
    """Do n units of work, in pieces on the threads if there are any; see :func:`pieces_of`."""
    if workers is None:
        work(0, n)
    else:
        workers.each(work, pieces_of(n, workers.n_threads, cost))


def in_turn(workers: Workers, works: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield what works return, in their order: as many are under way as there are threads."""
    return map_in_order(workers, lambda work: work(), works, workers.n_threads)


def map_in_order(
    workers: Workers, work: Callable[[Any], T], items: Iterable[Any], most: int
) -> Generator[T]:
    """Yield what `work` returns of each item, in their order, while threads work on the next ones.

    The calling thread takes the items; at most so many of them are under way. An error, also of who
    gives the items, is raised behind the results of those before. Close it where not all are taken.
    """
    if workers.n_threads == 1:
        yield from map(work, items)
        return
    under_way: deque[Future[T]] = deque()
    error, left = None, iter(items)
    with ThreadPoolExecutor(workers.n_threads, "in order") as pool:
        try:
            while error is None:
                try:
                    under_way.append(pool.submit(work, next(left)))
                except Exception as raised:  # StopIteration, too
                    error = raised
                while under_way and (len(under_way) >= most or error is not None):
                    yield under_way.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    if not isinstance(error, StopIteration):
        raise error


def work_ahead(
    items: Iterable[T], name: str, most: int = 1, patience: float | None = PATIENCE
) -> Generator[T]:
    """Yield items in their order, while a thread of its own makes the next ones.

    At most so many items are made or wait beside the one that was yielded last. When no more are
    asked for, the thread ends after the item that it is making; one that takes longer than
    `patience` seconds, since it waits for input, is left behind.
    """
    work = _Ahead(items, most)
    thread = threading.Thread(target=work.run, name=name, daemon=True)
    thread.start()
    try:
        while (made := work.next()) is not None:
            yield made[0]
        thread.join()
    finally:
        work.stop()
        thread.join(patience)


class _Ahead(ForkAware, Generic[T]):
    """Items on their way from one thread to another one."""

    def __init__(self, items: Iterable[T], most: int) -> None:
        super().__init__()
        self._items = iter(items)
        self._made: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()  # quicker than a semaphore
        for _ in range(most):
            self._wanted.put(None)
        self._stopped = False

    def run(self) -> None:
        end: BaseException | None = None
        try:
            while self._wanted.get() is None and not self._stopped:
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
        self._wanted.put(None)
        return made

    def after_fork(self) -> None:
        """Have an error be what comes next: the thread that makes the items is not there."""
        self._made = queue.SimpleQueue()
        self._made.put(UsageError("rows are read by another process, which forked this one"))

    def stop(self) -> None:
        self._stopped = True
        self._wanted.put(None)
