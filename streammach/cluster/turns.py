"""Tasks that the workers of a cluster do in any order, and whose results come in theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streammach.errors import StreammachError, clean

if TYPE_CHECKING:
    from distributed import Client, Future

WATCH_SECONDS = 0.5  # between two looks at who is there
FURTHER = 4  # tasks a worker, at most, that are done before one whose result has not come

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


class WorkersLostError(StreammachError):
    """Workers were lost again and again, or the scheduler was."""


def in_turn(
    client: Client, calls: Sequence[Call], able: list[str] | None
) -> Generator[Any, None, None]:
    """Yield the results of tasks in their order; the tasks are cancelled where that ends early.

    As many are given out as there are workers. What a lost worker had is done by another one.

    Parameters
    ----------
    client : Client
        The connection to the cluster.
    calls : sequence
        Of each task what it is called, a function and its arguments.
    able : list of str or None
        The workers that may do them; None: all.

    Raises
    ------
    WorkersLostError
        If those of one task are lost again and again, or the scheduler is.
    StreammachError
        What a task raised.
    """
    turns = _Turns(client, calls, able)
    try:
        yield from turns.results()
    except (OSError, CancelledError) as error:  # of the connection, or of all that was asked
        raise _lost() from error
    finally:
        turns.cancel()


class _Turns:
    """Tasks at work, and results that wait for those before them."""

    def __init__(self, client: Client, calls: Sequence[Call], able: list[str] | None) -> None:
        self._client, self._calls, self._able = client, calls, able
        self._at_work: dict[Future, int] = {}
        self._done: dict[int, Any] = {}
        self._next, self._own = 0, uuid.uuid4().hex  # the first that was not given out; of keys

    def results(self) -> Iterator[Any]:
        """Yield the results in the order of the tasks."""
        for i in range(len(self._calls)):
            while i not in self._done:
                self._give_out(i)
                self._wait()
                self._look()
            yield self._done.pop(i)

    def _give_out(self, first: int) -> None:
        """Give out as many tasks as there are workers; the first result to come is `first`."""
        n_workers = len(self._able or self._client.nthreads()) or 1
        last = min(first + FURTHER * n_workers, len(self._calls))
        while len(self._at_work) < n_workers and self._next < last:
            name, work, given = self._calls[self._next]
            future = self._client.submit(
                work, *given, pure=False, workers=self._able, key=f"{name}-{self._own}"
            )
            self._at_work[future] = self._next
            self._next += 1

    def _wait(self) -> None:
        """Wait until a task ends, or it is time to look who is there."""
        from distributed import wait

        with suppress(TimeoutError):
            wait([*self._at_work], timeout=WATCH_SECONDS, return_when="FIRST_COMPLETED")

    def _look(self) -> None:
        """Take results in; raise what a task raised."""
        for future, number in list(self._at_work.items()):
            if future.status == "finished":
                self._done[number] = future.result()
                del self._at_work[future]
            elif future.status == "error":
                raise error_of(self._calls[number][0], future.exception())
            elif future.status in ("cancelled", "lost"):
                raise _lost()

    def cancel(self) -> None:
        """Give up the tasks that are at work."""
        if self._at_work and self._client.status == "running":
            with suppress(Exception):  # the scheduler may go at any time
                self._client.cancel([*self._at_work], force=True)


def error_of(name: str, error: BaseException | None) -> StreammachError:
    """Return what a task raised as an error of ours."""
    from distributed.scheduler import KilledWorker

    if isinstance(error, StreammachError):
        return error
    if isinstance(error, KilledWorker):
        return WorkersLostError(
            f"{name}: the workers that worked at it were lost one after another",
            hint="Is their memory short?",
        )
    return WorkersLostError(
        f"{name} failed on a worker ({clean(f'{type(error).__name__}: {error}', 200)})"
    )


def _lost() -> StreammachError:
    return WorkersLostError("the cluster's scheduler was lost, or cancelled the tasks")
