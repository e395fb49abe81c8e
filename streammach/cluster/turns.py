"""Tasks that the workers of a cluster do in any order, and whose results come in theirs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streammach.cluster.at_work import AtWork
from streammach.errors import StreammachError

if TYPE_CHECKING:
    from distributed import Client

FURTHER = 4  # tasks a worker, at most, that are done before one whose result has not come

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


def in_turn(
    client: Client, calls: Sequence[Call], able: list[str] | None
) -> Generator[Any, None, None]:
    """Yield the results of tasks in their order; the tasks are cancelled where that ends early.

    As many are given out as there are workers. What a lost worker had is done by another one.
    """
    turns = _Turns(client, calls, able)
    try:
        with turns.tasks.watched():
            yield from turns.results()
    finally:
        turns.tasks.leave()


class _Turns:
    """Tasks at work, and results that wait for those before them."""

    def __init__(self, client: Client, calls: Sequence[Call], able: list[str] | None) -> None:
        self._client, self._calls, self._able = client, calls, able
        self.tasks = AtWork(client)
        self._done: dict[int, Any] = {}
        self._next = 0  # the first that was not given out

    def results(self) -> Iterator[Any]:
        """Yield the results in the order of the tasks."""
        for i in range(len(self._calls)):
            while i not in self._done:
                self._give_out(i)
                for number, found in self.tasks.ended():
                    if isinstance(found, StreammachError):
                        raise found
                    self._done[number] = found
            yield self._done.pop(i)

    def _give_out(self, first: int) -> None:
        """Give out as many tasks as there are workers; the first result to come is `first`."""
        n_workers = len(self._able or self._client.nthreads()) or 1
        last = min(first + FURTHER * n_workers, len(self._calls))
        while len(self.tasks) < n_workers and self._next < last:
            name, work, given = self._calls[self._next]
            self.tasks.give(self._next, name, work, *given, able=self._able)
            self._next += 1
