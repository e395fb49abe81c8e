"""Conversions by the workers of a cluster: partitions of the sources, then ranges of the store."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from streammach.cluster.part_task import ELSEWHERE_SECONDS, ONE, Wanted
from streammach.cluster.workers import Workers, check_installed
from streammach.data.conversion.spread import Work
from streammach.data.convert import Conversion
from streammach.data.convert import convert as convert_here
from streammach.data.source_options import Paths
from streammach.errors import Interrupted, StreammachError, UsageError, clean
from streammach.files.urls import Url, located
from streammach.machine import budget

if TYPE_CHECKING:
    from distributed import Client, Future

LEAVE_SECONDS = 30.0  # in which workers have ended what is not wanted, if they are not lost
AGAIN_SECONDS = 0.05
WATCH_SECONDS = 0.5  # between two looks at tasks
AGAIN = "Give the same command again to go on."

T = TypeVar("T")
R = TypeVar("R")

_at_work: set[str] = set()  # the keys of tasks that this process, a worker, works at


def convert(
    sources: Paths, out: str | os.PathLike[str], client: Client, **options: Any
) -> Conversion:
    """Convert files into one store on the workers of a Dask cluster.

    Each worker reads some of the files at a time; then each writes ranges of the store, which this
    process puts together. The store has the bytes of one that one process made. What a worker that
    is lost was doing is done again by another one.

    Parameters
    ----------
    sources : path-like or sequence of them
        As for :func:`streammach.convert`, but no table in memory and no pipe. One file is read by
        one worker.
    out : path-like
        The store, in a folder. It, the sources and a store or files that options name are on
        storage that this process and all workers share, by the same names.
    client : distributed.Client
        The connection to the cluster; it stays open.
    **options
        As for :func:`streammach.convert`. `memory` is that of each machine: its workers and this
        process get equal shares. `threads` are those of this process; workers have their own.

    Raises
    ------
    UsageError
        If Dask is not installed, there is no worker, or a source is none that they can read.
    BudgetError
        If no worker may take its share of the memory.
    Interrupted
        If it was interrupted and the same call would go on.
    DataError, DiskError, LockedError
        As for :func:`streammach.convert`.
    StreammachError
        If workers were lost again and again, or the scheduler was.
    """
    check_installed()
    place = located(out)
    if isinstance(place, Url):
        raise UsageError(
            "the workers of a cluster write into a folder that they share", path=place,
            hint="Convert into one, and copy it.",
        )  # fmt: skip
    return convert_here(sources, place, spread=OnCluster(client, options.get("memory")), **options)


class OnCluster:
    """The workers of a cluster, which convert.

    Parameters
    ----------
    client : Client
        The connection to it.
    memory : str or int or float or None
        The memory that the user named.

    Attributes
    ----------
    n_workers : int
        How many there are.
    shares : int
        Among how many processes the memory of a machine is divided.

    Raises
    ------
    UsageError, BudgetError
        If there is none, or none may take its share.
    """

    def __init__(self, client: Client, memory: str | int | float | None) -> None:
        self._client, workers = client, Workers(client)
        self.n_workers = len(workers)
        self.shares = 1 + workers.on_one_machine()
        self._able = workers.able(budget(memory).n_bytes // self.shares)
        self._most = self.n_workers if self._able is None else len(self._able)

    def run(
        self, work: Work[T, R], tasks: Sequence[T], told: Callable[[int], None]
    ) -> list[R | StreammachError]:
        """Do tasks, as many at a time as there are workers; see :class:`Spread`."""
        running: dict[int, Future] = {}
        done: dict[int, R | StreammachError] = {}
        stop = len(tasks)  # the first one that failed, too, is done in the end
        following = 0
        try:
            while len(done) < stop:
                while len(running) < self._most and following < stop:
                    running[following] = self._submit(work, tasks[following], following)
                    following += 1
                for k in self._ended(running):
                    done[k] = found = self._outcome(k, running.pop(k))
                    if isinstance(found, StreammachError):
                        stop = min(stop, k + 1)
                    else:
                        told(k)
                done = {k: found for k, found in done.items() if k < stop}
        except (OSError, CancelledError) as error:  # of the connection, or of all that was asked
            raise _lost() from error
        finally:
            self._cancel(list(running.values()))
        return [done[k] for k in range(stop)]

    def _submit(self, work: Work[T, R], task: T, k: int) -> Future:
        key = f"{work.__name__}-{k + 1}-{uuid.uuid4().hex}"  # so that a dashboard shows which
        return self._client.submit(do, work, task, key=key, pure=False, workers=self._able)

    def _ended(self, running: dict[int, Future]) -> list[int]:
        """Wait until some tasks have ended, or it is time to look for signals; return which."""
        from distributed import wait

        with suppress(TimeoutError):
            wait(list(running.values()), timeout=WATCH_SECONDS, return_when="FIRST_COMPLETED")
        return [k for k, future in running.items() if future.status != "pending"]

    def _outcome(self, k: int, future: Future) -> Any:
        """Return what a task returned, or what it raised as an error of ours."""
        from distributed.scheduler import KilledWorker

        if future.status == "finished":
            return future.result()
        if future.status != "error":
            raise _lost()
        error = future.exception()
        if isinstance(error, KilledWorker):
            return StreammachError(
                "the workers that converted were lost one after another",
                hint=f"Is their memory short? {AGAIN}",
            )
        why = clean(f"{type(error).__name__}: {error}", 200)
        return StreammachError(f"step {k + 1} failed on a worker ({why})", hint=AGAIN)

    def _cancel(self, futures: list[Future]) -> None:
        """Give up tasks; wait until no worker works at them."""
        if not futures or self._client.status != "running":
            return
        keys = [future.key for future in futures]
        with suppress(Exception):  # the scheduler may go at any time
            self._client.cancel(futures, force=True)
            self._client.run(left, keys, LEAVE_SECONDS, on_error="ignore")


def do(work: Work[T, R], task: T) -> R | StreammachError:
    """Do a task, on a worker: one at a time, with the threads that Dask gives it.

    An error of ours is returned: Dask would log it with its traceback, and not send all kinds.

    Parameters
    ----------
    work : callable
        As for :class:`Spread`.
    task : object
        What it is given.

    Raises
    ------
    distributed.Reschedule
        If this process does another one.
    """
    from distributed import Reschedule, get_worker

    worker = get_worker()
    if not ONE.acquire(timeout=ELSEWHERE_SECONDS):
        raise Reschedule
    key, wanted = worker.get_current_task(), Wanted(worker)

    def told(*how_far: int) -> None:
        del how_far
        if not wanted:
            raise Interrupted("it is no longer wanted here")

    _at_work.add(key)
    try:
        return work(task, worker.state.nthreads, told)
    except StreammachError as error:
        return error
    finally:
        _at_work.discard(key)
        ONE.release()


async def left(keys: Sequence[str], seconds: float) -> None:
    """Wait, on a worker, until it works at none of some tasks, but not for ever."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _at_work.isdisjoint(keys):
        await asyncio.sleep(AGAIN_SECONDS)


def _lost() -> StreammachError:
    return StreammachError("the cluster's scheduler was lost, or cancelled the tasks", hint=AGAIN)
