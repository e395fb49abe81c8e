"""One system of the comparison, in a process of its own: trains, predicts, prints one JSON object.

python -m benchmarks.peers.one SYSTEM TRAIN.zarr TEST.zarr [--threads N] [--max-test N]
"""

import argparse
import importlib
import json
import resource
import tempfile

from benchmarks.peers.task import K, Task


def chosen(times):
    """Return what a system itself timed, else what it all took."""
    return {name: times.get(name, times[f"{name}_all"]) for name in ("train", "predict")}


def main():
    """Run the system."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("system")
    arguments.add_argument("train")
    arguments.add_argument("test")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--max-test", type=int, default=10**9)
    given = arguments.parse_args()
    system = importlib.import_module(f"benchmarks.peers.systems.{given.system}")
    with tempfile.TemporaryDirectory() as folder:
        task = Task.open(given.train, given.test, folder, given.threads, given.max_test)
        with task.measured("train_all"):
            model = system.train(task)
        with task.measured("predict_all"):
            found = system.predict(model, task)
        seconds, processor = chosen(task.seconds), chosen(task.processor)
        right = found == task.y_test[:, None]
        peak = sum(resource.getrusage(who).ru_maxrss
                   for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))  # fmt: skip
        print(
            json.dumps(
                {
                    "p_at_1": float(right[:, 0].mean()),
                    "p_at_5": float(right.any(axis=1).mean()) if found.shape[1] >= K else None,
                    "train_seconds": seconds["train"],
                    "train_processor_seconds": processor["train"],
                    "microseconds_a_query": 1e6 * seconds["predict"] / len(found),
                    "processor_microseconds_a_query": 1e6 * processor["predict"] / len(found),
                    "model_bytes": int(system.size(model, task)),
                    "peak_bytes": 1024 * peak,
                    "test_rows": len(found),
                }
            )
        )


if __name__ == "__main__":
    main()
