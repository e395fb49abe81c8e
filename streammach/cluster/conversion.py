"""Conversions by the workers of a cluster: partitions of the sources, then ranges of the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from streammach.cluster.at_work import AtWork
from streammach.cluster.worker import alone
from streammach.cluster.workers import Workers, check_installed
from streammach.data.conversion.spread import Work
from streammach.data.convert import Conversion
from streammach.data.convert import convert as convert_here
from streammach.data.source_options import Paths
from streammach.errors import StreammachError, UsageError
from streammach.files.urls import Url, located
from streammach.machine import budget

if TYPE_CHECKING:
    from distributed import Client

AGAIN = "Give the same command again to go on."

T = TypeVar("T")
R = TypeVar("R")


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
        self._able = workers.able(budget(memory).n_bytes // self.shares, "a worker's share")
        self._most = self.n_workers if self._able is None else len(self._able)

    def run(
        self, work: Work[T, R], tasks: Sequence[T], told: Callable[[int], None]
    ) -> list[R | StreammachError]:
        """Do tasks, as many at a time as there are workers; see :class:`Spread`."""
        running = AtWork(self._client, AGAIN)
        done: dict[int, R | StreammachError] = {}
        stop = len(tasks)  # the first one that failed, too, is done in the end
        following = 0
        try:
            with running.watched():
                while len(done) < stop:
                    while len(running) < self._most and following < stop:
                        name = f"{work.__name__} {following + 1}"
                        running.give(following, name, do, work, tasks[following], able=self._able)
                        following += 1
                    for k, found in running.ended():
                        done[k] = found
                        if isinstance(found, StreammachError):
                            stop = min(stop, k + 1)
                        else:
                            told(k)
                    done = {k: found for k, found in done.items() if k < stop}
        finally:
            running.leave()
        return [done[k] for k in range(stop)]


def do(work: Work[T, R], task: T) -> R:
    """Do a task, on a worker: one at a time, with the threads that Dask gives it.

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
    with alone("it is") as wanted:
        return work(task, wanted.threads, wanted.check)
