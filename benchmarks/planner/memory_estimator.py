"""Whether fits on rows in memory keep within their plans: measured against projected memory.

    python -m benchmarks.planner.memory_estimator FOLDER [--runs 40] [--json FILE]

A run draws rows of a random shape (sparse or dense, rows, features, classes, sets of labels or
weights), and trains on them for an epoch with random settings, by `MACHClassifier` or by
`streammach.train`. Each is a process of its own: measured is its peak of resident memory without
the bytes of X and y, which the caller holds and the budget is beside. Exits with 1 if one took more
than was projected, or failed.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse

from benchmarks.machine_facts import parser
from benchmarks.planner.memory import repeated, spread

BUDGETS = ("500MB", "700MB", "1GB", "1.5GB", "2GB")
MOST_VALUES = 8_000_000
TIMES = ("5s", "10s")
MOST_LABELS = 3_000  # of sets


def draw(rng):
    """Return a random shape, and the settings of a fit."""
    dense = rng.random() < 0.4
    width = spread(rng, 10, 1500) if dense else rng.choice([5, 20, 65, 150])
    shape = {
        "dense": dense, "width": width,
        "features": width if dense else spread(rng, 1_000, 400_000),
        "rows": min(spread(rng, 2_000, 300_000), MOST_VALUES // width),
        "classes": spread(rng, 2, 30_000), "floats": rng.random() < 0.5,
        "labels": rng.choice([0, 0, 0, 2, 5]), "weights": rng.random() < 0.3,
    }  # fmt: skip
    if shape["labels"]:
        shape["classes"] = min(shape["classes"], MOST_LABELS)
    options = {"memory": rng.choice(BUDGETS), "epochs": 1}
    if rng.random() < 0.4:
        options |= {"n_buckets": rng.choice([16, 64, 256]), "n_repetitions": rng.choice([4, 8, 16])}
    if rng.random() < 0.3:
        options["batch_size"] = rng.choice([64, 256, 1024])
    estimator = rng.random() < 0.6 or (shape["labels"] == 0 and rng.random() < 0.2)
    if estimator and rng.random() < 0.4:
        options["early_stopping"] = True
    if not estimator:
        options["time"] = rng.choice(TIMES)
        if rng.random() < 0.5:
            options |= {"learning_rate": 0.1, "transform": "raw"}
    return shape | {"estimator": estimator}, options


def write(folder, shape, seed):
    """Write arrays of such rows."""
    rng = np.random.default_rng(seed)
    n, d, width = shape["rows"], shape["features"], shape["width"]
    if shape["dense"]:
        x = rng.normal(size=(n, d)) if shape["floats"] else rng.integers(0, 9, (n, d))
        np.save(folder / "x.npy", x.astype(np.float32 if shape["floats"] else np.uint8))
    else:
        columns = np.sort((d * rng.random((n, width)) ** 3).astype(np.int32), axis=1)
        values = rng.random(n * width) if shape["floats"] else rng.integers(1, 9, n * width)
        np.save(folder / "indices.npy", columns.ravel())
        np.save(folder / "data.npy", values.astype(np.float32))
        np.save(folder / "indptr.npy", np.arange(0, n * width + 1, width, dtype=np.int64))
    classes = (shape["classes"] * rng.random((n, max(shape["labels"], 1))) ** 2).astype(np.int64)
    np.save(folder / "y.npy", classes if shape["labels"] else classes[:, 0])
    np.save(folder / "w.npy", rng.random(n) + 0.5)


def read(folder, shape):
    """Return X, y, weights and the bytes of X and y."""
    y, w = np.load(folder / "y.npy"), np.load(folder / "w.npy") if shape["weights"] else None
    if shape["dense"]:
        x = np.load(folder / "x.npy")
        held = x.nbytes
    else:
        arrays = [np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr")]
        x = scipy.sparse.csr_array(tuple(arrays), shape=(shape["rows"], shape["features"]))
        held = sum(a.nbytes for a in (x.data, x.indices, x.indptr))
    if shape["labels"]:
        lengths = np.arange(0, y.size + 1, shape["labels"])
        ones = np.ones(y.size, np.int8)
        shaped = (shape["rows"], shape["classes"])
        y = scipy.sparse.csr_array((ones, y.ravel(), lengths), shape=shaped)
        y.sum_duplicates()
        y.data[:] = 1
    return x, y, w, held + (y.data.nbytes + y.indices.nbytes if shape["labels"] else y.nbytes)


def one(folder, shape, options):
    """Fit in this process; print what was projected and taken."""
    import streammach as sm
    from streammach.errors import StreammachError
    from streammach.machine import peak_bytes, reset_peak

    x, y, w, held = read(folder, shape)
    reset_peak()
    try:
        if shape["estimator"]:
            plan = sm.MACHClassifier(**options).fit(x, y, w).plan_
        else:
            plan = sm.train(x, y, sample_weight=w, **options).plan
    except StreammachError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    chosen = plan.config
    print(json.dumps({
        "shape": str(chosen.shape), "batch": chosen.batching.batch_size,
        "optimizer": chosen.optimizer, "pairs": chosen.size_of("counts"),
        "held_bytes": plan.facts.held_bytes, "intake_bytes": plan.facts.intake_bytes,
        "allowed": plan.limits.host, "projected": plan.projected_bytes,
        "peak": peak_bytes() - held,
    }))  # fmt: skip
    return 0


def run_one(folder, shape, options):
    """Fit in a process of its own; return its figures, or its exit code and what it said."""
    command = [sys.executable, "-m", "benchmarks.planner.memory_estimator", str(folder), "--one"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, json.dumps([shape, options])], capture_output=True, text=True, check=False
    )
    seconds = round(time.monotonic() - began, 1)
    found = {"rc": done.returncode, "seconds": seconds, "rows": shape, "options": options}
    if done.returncode:
        return found | {"said": done.stderr.strip()[-300:]}
    return found | json.loads(done.stdout.splitlines()[-1])


def main():
    """Run, print a line for each run and a summary, write the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--one", help=None)
    given = arguments.parse_args()
    if given.one:
        return one(given.folder, *json.loads(given.one))

    def drawn(number, _):
        shape, options = draw(random.Random(f"{given.seed} {number}"))
        write(given.folder, shape, number)
        return run_one(given.folder, shape, options) | {"number": number}

    return repeated(given, drawn)


if __name__ == "__main__":
    sys.exit(main())
