"""What a worker of a cluster is asked of a task: to do it alone, as long as it is wanted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streammach.errors import Interrupted
from streammach.machine import freed_kept
from streammach.stages import StageState
from streammach.training.signals import StopSignals

if TYPE_CHECKING:
    from distributed import Worker

ONE = threading.Lock()  # held by the task that this process works at
ELSEWHERE_SECONDS = 2.0  # a task waits here before another worker is asked
AGAIN_SECONDS = 0.05

_at_work: set[str] = set()  # the keys of tasks that this process has begun and not ended


class WorkerTask:
    """Says whether the task that this thread works at is still wanted.

    Attributes
    ----------
    worker : Worker
        Dask's worker.
    key : str
        What Dask calls the task.
    """

    def __init__(self, worker: Worker, what: str) -> None:
        self.worker, self.key, self._what = worker, worker.get_current_task(), what
        self.stop = StopSignals()  # asked to end a training, once it is not wanted

    @property
    def threads(self) -> int:
        """Threads that Dask gives a task."""
        return int(self.worker.state.nthreads)

    def __bool__(self) -> bool:
        from distributed.core import Status

        task = self.worker.state.tasks.get(self.key)
        alive = self.worker.status in (Status.running, Status.paused)
        return alive and task is not None and task.state == "executing"

    def on_stage(self, state: StageState) -> None:
        """Ask the training for its end, twice a second, once it is not wanted."""
        del state
        if not self:
            self.stop.requested = True

    def check(self, *how_far: int) -> None:
        """Raise Interrupted if it is not."""
        del how_far
        if not self:
            raise Interrupted(f"{self._what} no longer wanted here")


@contextmanager
def alone(what: str) -> Iterator[WorkerTask]:
    """Hold this process for the task that this thread works at."""
    from distributed import Reschedule, get_worker

    wanted = WorkerTask(get_worker(), what)
    _at_work.add(wanted.key)
    try:
        if not ONE.acquire(timeout=ELSEWHERE_SECONDS):
            raise Reschedule
        try:
            with freed_kept():
                wanted.check()
                yield wanted
        finally:
            ONE.release()
    finally:
        _at_work.discard(wanted.key)


async def left(keys: Sequence[str], seconds: float) -> None:
    """Wait, on a worker, until it works at none of some tasks, but not for ever."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _at_work.isdisjoint(keys):
        await asyncio.sleep(AGAIN_SECONDS)
