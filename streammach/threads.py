"""Threads that share the work of one object, also in a process that was forked from its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from streammach.errors import UsageError


class Workers:
    """A pool of threads.

    Threads do not survive a fork: in the child the pool is made anew, so that an object that was
    made before the fork works there, too.

    Parameters
    ----------
    n_threads : int
        How many.
    name : str
        What they are called.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self.n_threads = n_threads
        self._name = name
        self._pool = ThreadPoolExecutor(n_threads, name)
        self._process = os.getpid()
        self._closed = False

    def each(self, work: Callable[[int, int], None], pieces: Iterable[tuple[int, int]]) -> None:
        """Call `work` with every piece on the threads, or raise UsageError if they were stopped."""
        pool = self._ready()
        for future in [pool.submit(work, a, b) for a, b in pieces]:
            future.result()

    def close(self) -> None:
        """Stop the threads."""
        self._closed = True
        if self._process == os.getpid():
            self._pool.shutdown(wait=True)

    def _ready(self) -> ThreadPoolExecutor:
        if self._closed:
            raise UsageError("it was closed, and works no more", hint="Open it again.")
        if self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self.n_threads, self._name)
            self._process = os.getpid()
        return self._pool
