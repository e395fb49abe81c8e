"""What a card takes for a byte, a copy, a key and a product, measured.

The kernels that sort are those of a training; how much of a card's rate kernels reach was measured
on one (see :mod:`streammach.planning.cost`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from streammach.backends.cuda.device_memory import DeviceMemory
from streammach.backends.cuda.sorting import FeatureSort
from streammach.backends.kinds import Rates

COUNT, KEYS, SIDE = 1 << 24, 1 << 17, 2048
ROOM_BYTES = 256 << 20
TURNS = 5


def measure_rates() -> Rates:
    """Return the rates of the present card."""
    memory = DeviceMemory(ROOM_BYTES)
    with memory.use():
        rates = _rates(memory)
    memory.trim()
    return rates


def _rates(memory: DeviceMemory) -> Rates:
    there, other = (memory.zeros(COUNT, np.float32) for _ in range(2))
    a, b = (x.values[: SIDE * SIDE].reshape(SIDE, SIDE) for x in (there, other))
    rows, values = memory.zeros(KEYS, np.int32), memory.zeros(KEYS, np.float32)
    keys = {"features": memory.numbers(KEYS), "rows": rows, "values": values}
    sorting = FeatureSort(memory, KEYS, KEYS)
    host, locked = np.ones(COUNT, np.float32), memory.host_array(COUNT, np.float32)

    def move() -> None:
        other.values[:] = there.values

    def copy() -> None:
        locked[:] = host
        memory.send(there, locked)

    return Rates(
        byte=_fastest(memory, move) / (2 * host.nbytes),
        copied=_fastest(memory, copy) / host.nbytes,
        key=_fastest(memory, lambda: sorting.sort(keys, KEYS, KEYS, rows, values)) / KEYS,
        product=_fastest(memory, lambda: memory.product(a, a, b)) / SIDE**3,
    )


def _fastest(memory: DeviceMemory, work: Callable[[], object]) -> float:
    """Return the seconds of some work, the least of several turns behind one that warms it up."""
    took = []
    for _ in range(1 + TURNS):
        began = time.perf_counter()
        work()
        memory.wait()
        took.append(time.perf_counter() - began)
    return min(took[1:])
