"""One system of the comparison, in a process of its own: trains, predicts, prints one JSON object.

python -m benchmarks.peers.one SYSTEM TRAIN.zarr TEST.zarr [--threads N] [--max-test N]
"""

import argparse
import json
import resource
import tempfile
from functools import partial

import numpy as np

from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.task import K, Task
from streammach.prediction.metrics import (
    PLACES,
    count_gains,
    count_hits,
    gain_metrics_at,
    label_gains,
    metrics_at,
)


def chosen(times):
    """Return what a system itself timed, else what it all took."""
    return {name: times.get(name, times[f"{name}_all"]) for name in ("train", "predict")}


def accuracies(task, found):
    """Return what the best classes of each test row (m, up to 5) reach, by name.

    Of rows with lists of labels these are the metrics of the XMC repository, where `p_at_1` and
    `p_at_5` are precision.
    """
    if task.lists_test is None:
        right = found == task.y_test[:, None]
        five = float(right.any(axis=1).mean()) if found.shape[1] >= K else None
        return {"p_at_1": float(right[:, 0].mean()), "p_at_5": five}
    best, lists = np.ascontiguousarray(found, np.int64), task.lists_test
    gain = partial(label_gains, counts=task.label_counts, n_rows=task.x.shape[0])
    named = metrics_at(count_hits(best, lists, K), PLACES)
    named |= gain_metrics_at(count_gains(best, lists, gain, K), PLACES)
    return {"p_at_1": named["P@1"], "p_at_5": named["P@5"], "figures": named}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("system")
    arguments.add_argument("train")
    arguments.add_argument("test")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--max-test", type=int, default=10**9)
    given = arguments.parse_args()
    system = SYSTEMS[given.system]
    with tempfile.TemporaryDirectory() as folder:
        task = Task.open(given.train, given.test, folder, given.threads, given.max_test)
        with task.measured("train_all"):
            model = system.train(task)
        with task.measured("predict_all"):
            found = system.predict(model, task)
        seconds, processor = chosen(task.seconds), chosen(task.processor)
        reached = accuracies(task, found)
        peak = sum(resource.getrusage(who).ru_maxrss
                   for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))  # fmt: skip
        print(json.dumps(reached | {
            "train_seconds": seconds["train"], "train_processor_seconds": processor["train"],
            "microseconds_a_query": 1e6 * seconds["predict"] / len(found),
            "processor_microseconds_a_query": 1e6 * processor["predict"] / len(found),
            "model_bytes": int(system.size(model, task)), "peak_bytes": 1024 * peak,
            "test_rows": len(found),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
