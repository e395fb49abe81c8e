"""Items that a team of threads takes through stations, each by any thread or in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streammach.threads import Workers

UNLIMITED = 1 << 62


class Pause(Exception):
    """Raised where order is kept: `work` is done when no thread is at an item, then it goes on.

    The item stays where it is and is taken again. What is called may use the threads.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work


class Flow:
    """Takes items through stations; `most` of them are under way at a time.

    Items come in turn. At the first station any thread works on an item, at the second one items
    are taken in their order, one at a time, and so on. A thread that may not go on with its item
    leaves it there and takes up another one: what it costs to hand out is the same for any work.
    """

    def __init__(
        self, items: Iterator[Any], stations: Sequence[Callable[[Any], Any]], most: int
    ) -> None:
        # what gives items is the first place where order is kept: those have even numbers
        self._stations = [lambda _: next(items), *stations]
        self._most = most
        self._next = [0] * len(self._stations)  # the number of the item whose turn it is
        self._waiting: list[dict[int, Any]] = [{} for _ in self._stations]
        self._under_way = set[int]()
        self._end = UNLIMITED  # items from this number on are not there, or go no further
        self._error: BaseException | None = None
        self._pause: Pause | None = None
        self._at_work = 0  # threads
        self._changed = threading.Condition()

    def run(self, workers: Workers) -> None:
        """Take all items to the end, or raise what the first one that failed raised."""
        threads = [(i, i + 1) for i in range(workers.n_threads)]
        while True:
            try:
                workers.each(self._work, threads)
            except BaseException as error:  # an interrupt, while others are at work
                self._stop(-1, error)
            with self._changed:
                self._changed.wait_for(lambda: not self._at_work)
            if self._error is not None:
                raise self._error
            if self._pause is None:
                return
            pause, self._pause = self._pause, None
            pause.work()

    def _work(self, first: int, last: int) -> None:
        """Work until nothing is left."""
        del first, last
        with self._changed:
            self._at_work += 1
        try:
            while (chosen := self._choose()) is not None:
                self._take(*chosen)
        except BaseException as error:
            self._stop(-1, error)
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _choose(self) -> tuple[int, int, Any] | None:
        """Return a station, the number of an item whose turn it is there, and the item."""
        with self._changed:
            while self._pause is None and self._end >= 0:
                for s in reversed(range(2, len(self._stations), 2)):
                    n = self._next[s]
                    if n < self._end and n in self._waiting[s]:
                        return s, n, self._waiting[s].pop(n)
                n = self._next[0]
                room = n not in self._under_way and len(self._under_way) < self._most
                if n < self._end and room:
                    self._under_way.add(n)
                    return 0, n, None
                if n >= self._end and min(self._under_way, default=n) >= self._end:
                    break
                self._changed.wait()
            self._changed.notify_all()
        return None

    def _take(self, s: int, n: int, item: Any) -> None:
        """Take an item in its order, then work on it at the station behind, if there is one."""
        try:
            made = self._stations[s](item)
            with self._changed:
                self._next[s] += 1
                self._changed.notify()
            if s + 1 < len(self._stations):
                made = self._stations[s + 1](made)
        except Pause as pause:
            with self._changed:
                self._pause, self._waiting[s][n] = pause, item
                self._changed.notify_all()
        except StopIteration:
            self._stop(n, None)
        except Exception as error:  # of an item: those before it go on
            self._stop(n, error)
        else:
            with self._changed:
                if s + 2 < len(self._stations):
                    self._waiting[s + 2][n] = made
                else:
                    self._under_way.discard(n)
                self._changed.notify()

    def _stop(self, n: int, error: BaseException | None) -> None:
        """Let no item from this number on go further."""
        with self._changed:
            if n < self._end:
                self._end, self._error = n, error
            self._under_way.discard(n)
            self._changed.notify_all()
