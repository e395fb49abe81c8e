"""Tasks that a client has given to the workers of a cluster: watched, ended, cancelled.

The results of ranges of rows come in their order.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from streammach.frontends.cluster.worker import leave_tasks
from streammach.system.errors import StreammachError, clean

if TYPE_CHECKING:
    from distributed import Client, Future

WATCH_SECONDS = 0.5  # between two looks at the tasks, and at signals
LEAVE_SECONDS = 30.0  # in which workers have ended what is not wanted, if they are not lost
AGAIN_SECONDS = 0.02
FURTHER = 4  # tasks a worker, at most, that are done before one whose result has not come

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


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


class RunningTasks:
    """Tasks that workers work at, by their numbers."""

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

    @contextmanager
    def watch_connection(self) -> Iterator[None]:
        """Turn the end of the connection into a WorkersLostError."""
        try:
            yield
        except StreammachError:
            raise
        except (OSError, CancelledError) as error:  # of the connection, or of all that was asked
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
    tasks, done, given = RunningTasks(client), dict[int, Any](), 0
    try:
        with tasks.watch_connection():
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
    finally:
        tasks.leave()
