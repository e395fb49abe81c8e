"""How work gets faster with workers of a cluster, and what goes over the network for it.

    python -m benchmarks.distributed STORE [--workers 1,2] [--turns 3] [--buckets 64]
        [--repetitions 8] [--epochs 3] [--pinned] [--json FILE]
    python -m benchmarks.distributed TEST --run RUN [--evaluate] [--warm 3] [--workers 1,2]
        [--turns 3] [--pinned] [--json FILE]

Workers are processes of this machine with one thread each, those of ``--devices cpu,cpu``; pinned,
each is held to one core. Each turn does the same with each number of them. Speedups are seconds
with the fewest workers by seconds with more, of the fastest turns.

The first form trains: of the parts alone, and of all with the merge, which one thread does. The
second one predicts or evaluates the rows of a store: the first time workers load model and kernels,
the times after that have both, of which the fastest counts. Ranking is what precedes the table,
whole all of it; beside them stands the processor time of the worker that takes most, which other
work on the machine disturbs less. Bytes are those that client, scheduler and workers wrote to one
another, heartbeats included.
"""

import dataclasses
import hashlib
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
from distributed.comm.tcp import TCP

import streammach as sm
from benchmarks.machine_facts import facts, parser, report
from streammach.cluster.workers import CPU, started_here


def main():
    arguments = parser(__doc__)
    arguments.add_argument("store", type=Path)
    arguments.add_argument("--workers", default="1,2")
    arguments.add_argument("--turns", type=int, default=3)
    for name, default in (("buckets", 64), ("repetitions", 8), ("epochs", 3)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--run", type=Path)
    arguments.add_argument("--evaluate", action="store_true")
    arguments.add_argument("--warm", type=int, default=3)
    arguments.add_argument("--pinned", action="store_true")
    given = arguments.parse_args()
    numbers = [int(n) for n in given.workers.split(",")]
    if given.run is not None:
        predictions(given, numbers)
        return
    turns = {n: [] for n in numbers}
    for _ in range(given.turns):
        for n in numbers:
            turns[n].append(measured(given, n))
            seconds = turns[n][-1]["whole_seconds"]
            print(f"{n} workers: {seconds:.1f} s", file=sys.stderr, flush=True)
    models = {turn.pop("model") for one in turns.values() for turn in one}
    best = {n: {key: min(t[key] for t in one) for key in one[0]} for n, one in turns.items()}
    first = best[numbers[0]]
    speedups = {
        n: {key: first[f"{key}_seconds"] / found[f"{key}_seconds"] for key in ("parts", "whole")}
        for n, found in best.items()
    }
    for n in numbers:
        print(f"{n} workers: parts {speedups[n]['parts']:.2f} times as fast, all "
              f"{speedups[n]['whole']:.2f}; {best[n]['bytes_sent']:,} bytes sent")  # fmt: skip
    report(
        {"speedups": speedups, "best": best, "turns": turns, "one_model": len(models) == 1,
         "store": given.store.name, "buckets": given.buckets, "repetitions": given.repetitions,
         "epochs": given.epochs, "pinned": given.pinned, "machine": facts()}, given.json,
    )  # fmt: skip


def predictions(given, numbers):
    """Predict or evaluate with each number of workers; report seconds and bytes."""
    turns = {n: [] for n in numbers}
    for _ in range(given.turns):
        for n in numbers:
            turns[n].append(predicted(given, n))
            print(f"{n} workers: {turns[n][-1]}", file=sys.stderr, flush=True)
    results = {turn.pop("result") for one in turns.values() for turn in one}
    best = {n: {key: min(t[key] for t in one) for key in one[0]} for n, one in turns.items()}
    first = best[numbers[0]]
    timed = [key for key in first if key.endswith("_seconds")]
    speedups = {
        n: {key.removesuffix("_seconds"): first[key] / found[key] for key in timed}
        for n, found in best.items()
    }
    for n in numbers:
        times = ", ".join(f"{name} {ratio:.2f}" for name, ratio in speedups[n].items())
        print(f"{n} workers, times as fast: {times}; {best[n]['bytes_sent']:,} bytes sent")
    report(
        {"speedups": speedups, "best": best, "turns": turns, "one_result": len(results) == 1,
         "work": "evaluate" if given.evaluate else "predict", "store": given.store.name,
         "run": given.run.name, "pinned": given.pinned, "machine": facts()}, given.json,
    )  # fmt: skip


def predicted(given, n):
    """Predict or evaluate with so many workers; return seconds, bytes and what came out."""
    found = {}
    with workers(n, given.pinned) as (folder, client):
        for name in ("first", *["warm"] * given.warm):
            spent, before = client.run(time.process_time), sent_by(client)
            began = time.monotonic()
            ranked = [began]

            def told(stage, done, total, ranked=ranked):
                if stage != "write":
                    ranked.append(time.monotonic())

            given_to = given.run, given.store, client
            if given.evaluate:
                figures = sm.distributed.evaluate(*given_to, progress=told)
                result = repr({**dataclasses.asdict(figures), "seconds": 0})
            else:
                table = folder / f"{name}.tsv"
                sm.distributed.predict(*given_to, out=table, force=True, progress=told)
                result = hashlib.sha256(table.read_bytes()).hexdigest()
            ended = time.monotonic()
            busiest = [s - spent[a] for a, s in client.run(time.process_time).items()]
            seconds = {"whole": ended, "ranking": ranked[-1]}
            seconds = {what: at - began for what, at in seconds.items()}
            for what, n_seconds in {**seconds, "busiest_processor": max(busiest)}.items():
                key = f"{name}_{what}_seconds"
                found[key] = min(n_seconds, found.get(key, n_seconds))
            found["bytes_sent"] = sent_by(client) - before
            found["result"] = result
    return found


def measured(given, n):
    """Train with so many workers; return seconds, bytes and the digest of the model."""
    with sm.Dataset.open(given.store) as data:
        plan = sm.plan(data, memory="2GB", device="cpu", threads=1, n_buckets=given.buckets,
                       n_repetitions=given.repetitions, counts="off")  # fmt: skip
    options = sm.TrainingOptions(epochs=given.epochs, transform="log1p", learning_rate=1.0)
    with workers(n, given.pinned) as (folder, client):
        before, began = sent_by(client), time.monotonic()
        done = []

        def tell(line):
            if "done by" in line:
                done.append(time.monotonic())

        run = sm.distributed.train(
            given.store, plan, client, out=folder / "run", options=options, tell=tell
        )
        ended = time.monotonic()
        sent = sent_by(client) - before
        model = (run.path / "model/model.safetensors").read_bytes()
    return {"parts_seconds": done[-1] - began, "whole_seconds": ended - began,
            "bytes_sent": sent, "model": model}  # fmt: skip


@contextmanager
def workers(n, pinned=False):
    """Hold so many workers of one thread each on this machine; yield a folder and a client.

    A pinned one is held to a core of its own, with the threads that read or unpack beside.
    """
    with tempfile.TemporaryDirectory() as folder, started_here([CPU] * n, n) as client:
        if pinned:
            for k, address in enumerate(client.scheduler_info(n_workers=-1)["workers"]):
                client.run(pin, k, workers=[address])
        yield Path(folder), client


def pin(k):
    """Hold this process and the threads that it has to one core."""
    for thread in psutil.Process().threads():
        os.sched_setaffinity(thread.id, {k})


def sent_by(client):
    """Return the bytes that this process and the workers have written to others."""
    return count() + sum(client.run(count).values())


def count():
    """Return the bytes that this process has written to others since it first was asked."""
    if not hasattr(TCP, "written"):
        TCP.written, write = 0, TCP.write

        async def counted(self, *message, **how):
            n = await write(self, *message, **how)
            TCP.written += n or 0
            return n

        TCP.write = counted
    return TCP.written


if __name__ == "__main__":
    main()
