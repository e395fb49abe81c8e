"""How much faster files become a store by two processes than by one, and what that takes.

    python -m benchmarks.convert_processes FILE... [--processes 1,2] [--threads 1,2] [--turns 2]
        [--pinned] [--json FILE]

The same files in turns: by one process with so many threads, and by so many worker processes of
this machine with one thread each; pinned, each worker is held to one core. Every conversion is made
by a process of its own, after a small one of its kind has loaded what is loaded once; starting the
workers is not counted. Seconds are those of the fastest turn, also by stage. Ratios are seconds
with the fewest processes (threads) by seconds with more. Bytes are those that client, scheduler and
workers wrote to one another. CPU seconds are those of this process and of each worker. Memory is
the sum of the peaks of all.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.distributed import sent_by, workers
from benchmarks.machine_facts import facts, parser, report
from streammach.cluster.conversion import convert as convert_apart
from streammach.data.convert import convert
from streammach.machine import peak_bytes, size_text

SMALL = "1 | 1 2:0.5\n2 | 3:2\n"


def main():
    arguments = parser(__doc__)
    arguments.add_argument("files", type=Path, nargs="+")
    arguments.add_argument("--processes", default="1,2")
    arguments.add_argument("--threads", default="1,2")
    arguments.add_argument("--turns", type=int, default=2)
    arguments.add_argument("--pinned", action="store_true")
    given = arguments.parse_args()
    wanted = [("threads", n) for n in numbers(given.threads)]
    wanted += [("processes", n) for n in numbers(given.processes)]
    turns = {one: [] for one in wanted}
    for _ in range(given.turns):
        for how, n in wanted:
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                found = alone.submit(MEASURED[how], given.files, n, given.pinned).result()
            turns[how, n].append(found)
            print(f"{n} {how}: {found['seconds']:.1f} s", file=sys.stderr, flush=True)
    digests = {turn.pop("digest") for one in turns.values() for turn in one}
    best = {one: min(found, key=lambda turn: turn["seconds"]) for one, found in turns.items()}
    ratios = {}
    for how, n in wanted:
        first = best[how, min(m for kind, m in wanted if kind == how)]
        ratios[f"{n} {how}"] = first["seconds"] / best[how, n]["seconds"]
        found = best[how, n]
        print(f"{n} {how}: {found['seconds']:.1f} s, {ratios[f'{n} {how}']:.2f} times as fast, "
              f"{found['bytes_sent']:,} bytes sent, peak {size_text(found['peak_bytes'])}, "
              f"{found['stages']}, CPU {found['cpu_seconds']}")  # fmt: skip
    report(
        {"ratios": ratios, "best": {f"{n} {how}": best[how, n] for how, n in wanted},
         "turns": {f"{n} {how}": turns[how, n] for how, n in wanted},
         "one_store": len(digests) == 1, "files": len(given.files), "pinned": given.pinned,
         "bytes": sum(file.stat().st_size for file in given.files), "machine": facts()},
        given.json,
    )  # fmt: skip


def numbers(text):
    """Return the numbers of a list such as ``1,2``."""
    return [int(n) for n in text.split(",") if n]


def by_threads(files, n, pinned):
    """Convert in this process, held to as many cores if pinned; return seconds and memory."""
    if pinned:
        os.sched_setaffinity(0, range(n))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        convert(small_file(folder), folder / "small", threads=n)
        stages, spent = Stages(), time.process_time()
        done = convert(files, folder / "store", threads=n, progress=stages)
        seconds, by_stage = stages.ended()
        spent = time.process_time() - spent
    return {"seconds": seconds, "stages": by_stage, "bytes_sent": 0, "peak_bytes": peak_bytes(),
            "cpu_seconds": [round(spent, 2)], "digest": done.digest}  # fmt: skip


def by_processes(files, n, pinned):
    """Convert in worker processes; return seconds, bytes sent and memory."""
    with workers(n, pinned) as (folder, client):
        small = [small_file(folder)] * 2 * n
        convert_apart(small, folder / "small", client, threads=1)
        before, stages = sent_by(client), Stages()
        spent = [time.process_time(), *client.run(time.process_time).values()]
        done = convert_apart(files, folder / "store", client, threads=1, progress=stages)
        seconds, by_stage = stages.ended()
        spent = np.subtract([time.process_time(), *client.run(time.process_time).values()], spent)
        sent = sent_by(client) - before
        peak = peak_bytes() + sum(client.run(peak_bytes).values())
    return {"seconds": seconds, "stages": by_stage, "bytes_sent": sent, "peak_bytes": peak,
            "cpu_seconds": spent.round(2).tolist(), "digest": done.digest}  # fmt: skip


class Stages:
    """Takes the time of each stage."""

    def __init__(self):
        self.began = time.monotonic()
        self.begun = {}

    def __call__(self, stage, done, total):
        """Note when a stage begins."""
        self.begun.setdefault(stage, time.monotonic())

    def ended(self):
        """Return the seconds of all, and those of each stage."""
        end, starts = time.monotonic(), list(self.begun.values())
        seconds = [b - a for a, b in zip(starts, [*starts[1:], end], strict=True)]
        by_stage = {name: round(s, 2) for name, s in zip(self.begun, seconds, strict=True)}
        return end - self.began, by_stage


def small_file(folder):
    """Write a few rows; return their file."""
    path = folder / "small.vw"
    path.write_text(SMALL)
    return path


MEASURED = {"threads": by_threads, "processes": by_processes}

if __name__ == "__main__":
    main()
