"""Losses on their way to the host, read several steps late so that no step waits for them."""

from __future__ import annotations

import numpy as np

from streammach.backends.cuda.memory import DeviceArray, Memory
from streammach.backends.loss import NOTHING, Loss

TOGETHER = 8  # steps whose losses are read at once
LAPS = 2  # so many of them are on their way while those before are read


class Losses:
    """A ring of page-locked room for the losses of steps.

    Parameters
    ----------
    memory : Memory
        The device's.
    count : int
        Most losses of a step.
    """

    def __init__(self, memory: Memory, count: int) -> None:
        self._memory, self._count = memory, count
        self._room = memory.page_locked(LAPS * TOGETHER * count, np.float32)
        self._there = [memory.event() for _ in range(LAPS)]
        self._steps: list[tuple[int, int]] = []  # not yet read: losses and rows of each
        self._next = 0  # step of the ring

    @staticmethod
    def host_bytes(count: int) -> int:
        """Return the bytes of host memory."""
        return 4 * LAPS * TOGETHER * count

    def take(self, losses: DeviceArray, count: int, n_rows: int) -> Loss:
        """Send for the losses of a step; return those of earlier ones that are read now.

        Parameters
        ----------
        losses : DeviceArray
            float32 (count,).
        count, n_rows : int
            Losses and rows of the step.
        """
        at = self._next * self._count
        self._memory.fetch_later(self._room[at : at + count], losses)
        self._steps.append((count, n_rows))
        self._next = (self._next + 1) % (LAPS * TOGETHER)
        if self._next % TOGETHER:
            return NOTHING
        self._there[self._next // TOGETHER - 1].mark()
        if len(self._steps) < LAPS * TOGETHER:
            return NOTHING
        self._there[self._next // TOGETHER % LAPS].reach()
        return self._read(TOGETHER)

    def drain(self) -> Loss:
        """Wait for all steps; return the losses that were not read."""
        self._memory.wait()
        found = self._read(len(self._steps))
        self._next = 0
        return found

    def _read(self, n_steps: int) -> Loss:
        """Return the losses of the oldest steps, which are there."""
        total, rows = 0.0, 0
        first = self._next - len(self._steps)
        for i, (count, n_rows) in enumerate(self._steps[:n_steps]):
            at = (first + i) % (LAPS * TOGETHER) * self._count
            total += float(self._room[at : at + count].sum(dtype=np.float64))
            rows += n_rows
        del self._steps[:n_steps]
        return Loss(total, rows)
