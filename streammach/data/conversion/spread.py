"""What is asked of those that spread a conversion over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from streammach.errors import StreammachError

T = TypeVar("T")
R = TypeVar("R")

Work = Callable[[T, int, Callable[..., Any]], R]  # of a task, with threads, telling how it goes


class Spread(Protocol):
    """Processes that share the storage of sources and store.

    Attributes
    ----------
    n_workers : int
        How many there are.
    shares : int
        Among how many processes the memory of a machine is divided.
    """

    n_workers: int
    shares: int

    def run(
        self, work: Work[T, R], tasks: Sequence[T], told: Callable[[int], None]
    ) -> list[R | StreammachError]:
        """Do tasks, each in a process; one that is lost is done again.

        Parameters
        ----------
        work : callable
            Given a task, how many threads it may use, and what it calls from time to time with
            anything: that raises when the work is no longer wanted.
        tasks : sequence
            The tasks.
        told : callable
            Given the number of a task that is done.

        Returns
        -------
        list
            What the work returned, in the order of the tasks, up to the first one that failed: last
            comes its error then.

        Raises
        ------
        StreammachError
            If processes were lost again and again.
        KeyboardInterrupt
            After a signal, when no process works any more.
        """
        ...


def divided(sizes: Sequence[int], n: int) -> list[tuple[int, int]]:
    """Return ranges of things that follow one another, of about the same size each.

    Parameters
    ----------
    sizes : sequence of int
        The size of each thing.
    n : int
        How many ranges there are at most.
    """
    ends = np.cumsum(np.maximum(sizes, 1, dtype=np.int64))
    middles = ends - np.maximum(sizes, 1) / 2
    owner = np.minimum(middles * n // ends[-1], n - 1)
    cuts = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(sizes)]
    return list(pairwise(cuts))
