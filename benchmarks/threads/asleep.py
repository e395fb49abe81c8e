"""How well many threads share a step: pieces that sleep without the GIL stand for kernels.

Two cores are enough to show what handing out work costs, which is serial. The efficiency is the
time of one thread over the time of all threads, as a part of what is ideal; a pool of futures with
eight pieces for each thread stands beside it. What one compiled call does, in which threads wait
for one another, is one stage. Of a conversion reading and writing are shown, with the measured time
of each part: what the calling thread does with a piece before and behind the work of the others.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

from streammach.system.threads import Workers, map_in_order, pieces_of

STAGES = {  # name: (microseconds of one thread in each stage, units)
    "step of 1,024 rows": ((27_000,), 1024),
    "step of 4,096 rows": ((108_000,), 4096),
    "lessons of 2,048 rows": ((60_800, 3_200), 2048),
    "scores of 65,536 rows": ((2_000_000,), 65_536),
}
# name: (pieces, those under way for each thread, microseconds before, of, and behind the work)
CONVERSIONS = {
    "conversion: 1 GB is read": (1000, 3, (520, 21_000, 1_640)),
    "conversion: 260 million values are written": (1000, 2, (10, 19_100, 1_640)),
}
THREADS = (1, 2, 4, 8, 16)
Each = Callable[[Callable[[int, int], None], list[tuple[int, int]]], None]
SLACK = 29  # of prctl(): nanoseconds by which sleeps may be late, 50,000 unless another is set
usleep, prctl = (getattr(ctypes.CDLL(None), name) for name in ("usleep", "prctl"))


def seconds(each: Each, pieces: list[tuple[int, int]], micros: Sequence[int]) -> float:
    """Return the seconds of some stages, the best of several."""
    best, units = float("inf"), pieces[-1][1]
    for _ in range(max(5, 1_000_000 // sum(micros))):
        begun = time.perf_counter()
        for stage in micros:
            each(lambda a, b, unit=stage / units: usleep(int(unit * (b - a))), pieces)
        best = min(best, time.perf_counter() - begun)
    return best


def futures(pool: ThreadPoolExecutor) -> Each:
    """Return how a pool of futures does pieces."""

    def each(work: Callable[[int, int], None], pieces: list[tuple[int, int]]) -> None:
        for future in [pool.submit(work, a, b) for a, b in pieces]:
            future.result()

    return each


def in_order(n: int, most: int, micros: tuple[int, int, int], workers: Workers) -> float:
    """Return the seconds in which threads work on pieces that one thread hands out and takes."""
    before, work, behind = micros
    begun = time.perf_counter()
    items = (usleep(before) for _ in range(n))
    for _ in map_in_order(workers, lambda item: usleep(work), items, most):
        usleep(behind)
    return time.perf_counter() - begun


@patch("streammach.system.threads.cores", lambda: THREADS[-1])  # though this machine may have fewer
def asleep() -> dict[str, dict[int, dict[str, float]]]:
    """Return the efficiency of each stage, by the number of threads."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    prctl(SLACK, 1, 0, 0, 0)  # threads that are started have it, too
    for name, (micros, units) in STAGES.items():
        found[name] = {}
        for threads in THREADS:
            ideal, workers = sum(micros) / 1e6 / threads, Workers(threads, "asleep")
            eighths = [(units * i // (8 * threads), units * (i + 1) // (8 * threads))
                       for i in range(8 * threads)]  # fmt: skip
            with ThreadPoolExecutor(threads) as pool:
                old = seconds(futures(pool), eighths, micros)
            new = seconds(workers.each, pieces_of(units, threads), micros)
            workers.close()
            found[name][threads] = {"team": round(ideal / new, 2), "futures": round(ideal / old, 2)}
    for name, (n, ahead, micros) in CONVERSIONS.items():
        found[name] = {}
        for threads in THREADS:
            workers = Workers(threads, "asleep")
            took = in_order(n, ahead * threads, micros, workers)
            workers.close()
            found[name][threads] = {"team": round(n * sum(micros) / 1e6 / threads / took, 2)}
    return found
