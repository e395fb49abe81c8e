"""The workers of a Dask cluster: found, started here each with a device, counted, given tasks.

Tasks are watched, ended and cancelled. The results of ranges of rows come in their order.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammach.frontends.cluster.worker import leave_tasks
from streammach.options.plan import Plan
from streammach.system.errors import BudgetError, StreammachError, UsageError, clean
from streammach.system.machine import size_text
from streammach.training.run_part import PartNumber

if TYPE_CHECKING:
    from distributed import Client, Future

VERSION: str = import_module("streammach").__version__
INSTALL = 'pip install "streammach[dask]"'
USABLE = 0.8  # of a worker's memory limit: beyond it Dask pauses the worker
CONNECT_SECONDS = 10.0
WORKER_SECONDS = 60.0  # until the first worker has to be there
PRELOADED = "streammach.frontends.cluster.worker"
# Dask's figures of itself, for pages that are not shown here, cost 2% of a core a process.
QUIET = {
    "distributed.worker.profile.enabled": False,  # looks at what is called 100 times a second
    "distributed.admin.tick.interval": "500ms",  # by which the delay of its loop is measured
    "distributed.admin.system-monitor.interval": "5s",
}
SEEN = "CUDA_VISIBLE_DEVICES"
CPU, NUMBERED = "cpu", "cuda"  # the backends of a list: the second one's devices have numbers
WATCH_SECONDS = 0.5  # between two looks at the tasks, and at signals
LEAVE_SECONDS = 30.0  # in which workers have ended what is not wanted, if they are not lost
AGAIN_SECONDS = 0.02
FURTHER = 4  # tasks a worker, at most, that are done before one whose result has not come

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


def check_installed() -> None:
    """Raise UsageError if Dask is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise UsageError("a cluster needs dask.distributed, which is not installed", hint=INSTALL)


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Hold a connection to the scheduler of a cluster."""
    check_installed()
    from distributed import Client

    given = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = Client(**given, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, RuntimeError, ImportError):
        what = f"no Dask scheduler answers at '{clean(address)}': --dask"
        hint = "Give an address such as tcp://10.0.0.1:8786, or a scheduler file."
        raise UsageError(what, hint=hint) from None
    with client:
        yield client


@contextmanager
def started_here(devices: Sequence[str], threads: int) -> Iterator[Client]:
    """Hold a cluster of processes on this machine, one for each device."""
    check_installed()
    import dask
    from distributed import Client, LocalCluster

    class Processes(LocalCluster):  # type: ignore[misc]
        """Processes that each have a device."""

        def new_worker_spec(self) -> dict[Any, Any]:
            """Return the next process, by its name."""
            ((name, spec),) = super().new_worker_spec().items()
            device, options = devices[name % len(devices)], spec["options"]
            if device != CPU:
                options = options | {"env": {**(options.get("env") or {}), SEEN: device}}
            return {name: spec | {"options": options}}

    n = len(devices)
    with (
        dask.config.set(QUIET),
        Processes(
            n_workers=0, threads_per_worker=max(threads // n, 1), processes=True, memory_limit=0,
            dashboard_address=None, host="127.0.0.1", preload=[PRELOADED],
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.ERROR,
        ) as cluster,
    ):  # fmt: skip
        cluster.scale(n)
        with Client(cluster) as client:
            client.wait_for_workers(n, timeout=WORKER_SECONDS)
            yield client


def devices_of(text: str) -> tuple[str, ...]:
    """Return the devices of a list, which are CPUs or GPUs, or raise UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name != CPU and not (name.isascii() and name.isdecimal() and len(name) < 5):
            what = f"'{clean(name)}' is no device of a list such as cpu,cpu or 0,1: --devices"
            raise UsageError(what)
    numbers = [int(name) for name in names if name != CPU]
    if numbers and len(numbers) < len(names):
        raise UsageError("a run is trained on CPUs or on GPUs, not on both: --devices")
    if len({*numbers}) < len(numbers):
        raise UsageError("a GPU is there twice: --devices")
    seen = [one.strip() for one in os.environ.get(SEEN, "").split(",") if one.strip()]
    if seen and numbers and max(numbers) >= len(seen):
        raise UsageError(f"{SEEN} names {len(seen)} GPUs, no number {max(numbers)}: --devices")
    return tuple(seen[n] if seen else str(n) for n in numbers) or names


def about(dask_worker: Any) -> tuple[str, int | None]:
    """Return, on a worker, this package's version and the memory that the worker may take."""
    return VERSION, dask_worker.memory_manager.memory_limit or None


class ClusterWorkers:
    """The workers of a cluster."""

    def __init__(self, client: Client) -> None:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise UsageError("the cluster has no worker", hint="Start dask worker.") from None
        self._limits: dict[str, int | None] = {}
        for address, answer in client.run(about, on_error="return").items():
            if isinstance(answer, OSError):  # it was lost just now
                continue
            if isinstance(answer, BaseException):
                why = clean(f"{type(answer).__name__}: {answer}", 120)
                hint = f"Install streammach {VERSION} where workers run."
                raise UsageError(f"the worker {address} cannot run streammach ({why})", hint=hint)
            version, self._limits[address] = answer
            if version != VERSION:
                what = f"the worker {address} has streammach {clean(version)}, not {VERSION}"
                raise UsageError(what)
        if not self._limits:
            raise UsageError("the cluster has no worker", hint="Start dask worker.")

    def __len__(self) -> int:
        return len(self._limits)

    def able(self, n_bytes: int, what: str = "a part") -> list[str] | None:
        """Return those that may take so much memory; None where all may."""
        found = [a for a, limit in self._limits.items() if not limit or n_bytes <= USABLE * limit]
        if not found:
            most = max(limit for limit in self._limits.values() if limit)
            raise BudgetError(
                f"{what} takes {size_text(n_bytes)}, and a worker may take {size_text(most)}, of "
                f"which streammach uses {USABLE:z.0%}",
                hint="Give workers more, or plan for less: --memory.",
            )
        return None if len(found) == len(self) else found

    def parts(self, plan: Plan) -> int:
        """Return in how many parts a run is trained: one a worker, or so many that they fit."""
        # The last part, which decides nothing, takes most.
        n, most = min(len(self), plan.n_repetitions), plan.n_repetitions
        limits = [limit for limit in self._limits.values() if limit]
        room = USABLE * min(limits) if limits else float("inf")
        while n < most and PartNumber(n, n).plan(plan).projected_bytes > room:
            n += 1
        return n


def run_task(work: Callable[..., Any], *given: Any) -> Any:
    """Do a task, on a worker; return an error of ours instead of raising it.

    Dask would log what is raised with its traceback.
    """
    try:
        return work(*given)
    except StreammachError as error:
        return error


class WorkersLostError(StreammachError):
    """Workers were lost again and again, or the scheduler was."""


class RunningTasks(AbstractContextManager["RunningTasks"]):
    """Tasks that workers work at, by their numbers, until a block ends that holds them.

    The end of the connection is a WorkersLostError then.
    """

    def __init__(self, client: Client, hint: str | None = None) -> None:
        self._client, self._hint = client, hint
        self._futures: dict[int, Future] = {}
        self._names: dict[int, str] = {}
        self._keys: list[str] = []  # of all tasks that were ever given

    def __len__(self) -> int:
        return len(self._futures)

    def give(
        self, number: int, name: str, work: Callable[..., Any], *given: Any, able: list[str] | None
    ) -> None:
        """Give a task to one of the workers; what a lost one had is done by another."""
        key = f"{name.replace(' ', '-')}-{uuid.uuid4().hex}"
        self._names[number] = name
        self._keys.append(key)
        self._futures[number] = self._client.submit(
            run_task, work, *given, pure=False, workers=able, key=key
        )

    def wait_for_task(self) -> list[tuple[int, Any]]:
        """Wait until a task ends, or it is time to look at other things."""
        from distributed import wait

        with suppress(TimeoutError):
            wait([*self._futures.values()], timeout=WATCH_SECONDS, return_when="FIRST_COMPLETED")
        found = []
        for number, future in list(self._futures.items()):
            if future.status == "finished":
                found.append((number, future.result()))
            elif future.status == "error":
                found.append((number, self._error(self._names[number], future.exception())))
            elif future.status != "pending":
                raise self._lost_error()
            else:
                continue
            # Dask does again what a lost worker had done, as long as somebody wants it.
            self._futures.pop(number).release()
        return found

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.leave()
        ended = isinstance(error, OSError | CancelledError)  # of the connection, or of all tasks
        if ended and not isinstance(error, StreammachError):
            raise self._lost_error() from error

    def leave(self) -> None:
        """Give up the tasks that have not ended; wait until no worker works at one that was given.

        A task that has ended, too, may be at work: its worker was lost just before.
        """
        futures, self._futures = [*self._futures.values()], {}
        if not self._keys or self._client.status != "running":
            return
        with suppress(Exception):  # the scheduler may go at any time
            if futures:
                self._client.cancel(futures, force=True)
            until = time.monotonic() + LEAVE_SECONDS
            while self._known() and time.monotonic() < until:
                time.sleep(AGAIN_SECONDS)
            self._client.run(leave_tasks, self._keys, LEAVE_SECONDS, on_error="ignore")

    def _known(self) -> bool:
        """Return whether the scheduler still has one of the tasks."""
        status = self._client.sync(self._client.scheduler.get_task_status, keys=self._keys)
        return any(status.values())

    def _error(self, name: str, error: BaseException | None) -> StreammachError:
        """Return what a task raised as an error of ours."""
        from distributed.scheduler import KilledWorker

        if isinstance(error, StreammachError):
            return error
        if isinstance(error, KilledWorker):
            return WorkersLostError(
                f"{name}: the workers that worked at it were lost one after another",
                hint=" ".join(filter(None, ("Is their memory short?", self._hint))),
            )
        why = clean(f"{type(error).__name__}: {error}", 200)
        return WorkersLostError(f"{name} failed on a worker ({why})", hint=self._hint)

    def _lost_error(self) -> StreammachError:
        what = "the cluster's scheduler was lost, or cancelled the tasks"
        return WorkersLostError(what, hint=self._hint)


def in_turn(
    client: Client, calls: Sequence[Call], able: list[str] | None
) -> Generator[Any, None, None]:
    """Yield the results of tasks in their order; the tasks are cancelled where that ends early.

    As many are given out as there are workers. What a lost worker had is done by another one.
    """
    done, given = dict[int, Any](), 0
    with RunningTasks(client) as tasks:
        for i in range(len(calls)):
            while i not in done:
                n_workers = len(able or client.nthreads()) or 1
                last = min(i + FURTHER * n_workers, len(calls))
                while len(tasks) < n_workers and given < last:
                    name, work, arguments = calls[given]
                    tasks.give(given, name, work, *arguments, able=able)
                    given += 1
                for number, found in tasks.wait_for_task():
                    if isinstance(found, StreammachError):
                        raise found
                    done[number] = found
            yield done.pop(i)
