"""Losses on their way to the host, read several steps late so that no step waits for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from streammach.backends.cuda.instructions import compiled, get, int64, put
from streammach.backends.cuda.launch import RESIDENT, THREADS
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.target import cuda
from streammach.backends.loss import NOTHING, Loss
from streammach.jit import Array, Number

PARTS = 1024  # sums of a step's losses, whatever the device: each in a fixed order
TOGETHER = 8  # steps whose losses are read at once
LAPS = 2  # so many of them are on their way while those before are read


def sum_losses(losses: Array, count: Number, out: Array) -> None:
    """Add up losses in :data:`PARTS` sums, each of them every so many.

    What the rounding of a sum leaves out is summed beside it: two float32 hold 48 bits.

    Parameters
    ----------
    losses : float32 (count,)
        The losses.
    count : int
        How many.
    out : float32 (2 * PARTS,)
        Receives sums, and behind them what they left out.
    """
    start, step = int64(cuda.grid(1)), int64(cuda.gridsize(1))
    for part in range(start, PARTS, step):
        total, left = np.float32(0), np.float32(0)
        for i in range(part, count, PARTS):
            x = get(losses, i)
            joined = total + x
            added = joined - total
            left += (total - (joined - added)) + (x - added)
            total = joined
        put(out, part, total)
        put(out, PARTS + part, left)


@lru_cache
def _sum_losses() -> Any:
    return compiled(sum_losses, (THREADS, 4))


class Losses:
    """A ring of page-locked room for the sums of the losses of steps.

    Parameters
    ----------
    memory : Memory
        The device's.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sums = memory.empty(2 * PARTS, np.float32)
        self._room = memory.page_locked(LAPS * TOGETHER * 2 * PARTS, np.float32)
        self._there = [memory.event() for _ in range(LAPS)]
        self._steps: list[int] = []  # not yet read: rows of each
        self._next = 0  # step of the ring

    @staticmethod
    def footprint() -> int:
        """Return the bytes on the device."""
        return buffer_bytes(2 * PARTS, np.float32)

    @staticmethod
    def host_bytes() -> int:
        """Return the bytes of host memory."""
        return 4 * LAPS * TOGETHER * 2 * PARTS

    def take(self, losses: DeviceArray, count: int, n_rows: int) -> Loss:
        """Send for the losses of a step; return those of earlier ones that are read now.

        Parameters
        ----------
        losses : DeviceArray
            float32 (count,).
        count, n_rows : int
            Losses and rows of the step.
        """
        memory, at = self._memory, self._next * 2 * PARTS
        grid = memory.grid(PARTS, THREADS, RESIDENT)
        memory.launch(_sum_losses(), *grid, losses, np.int64(count), self._sums)
        memory.fetch_later(self._room[at : at + 2 * PARTS], self._sums)
        self._steps.append(n_rows)
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
        for i, n_rows in enumerate(self._steps[:n_steps]):
            at = (first + i) % (LAPS * TOGETHER) * 2 * PARTS
            total += float(self._room[at : at + 2 * PARTS].sum(dtype=np.float64))
            rows += n_rows
        del self._steps[:n_steps]
        return Loss(total, rows)
