"""Whether runs keep within their plans: measured against projected memory of many random runs.

    python -m benchmarks.planner.memory FOLDER [--stores A.zarr ...] [--runs 64] [--json FILE]

Made-up stores of several shapes are written to FOLDER (and kept there); then random combinations
of store, budget, B x R, batch, optimiser, counts and threads are trained for an epoch, each in a
process of its own. A plan that does not fit is refused, counted, and drawn again. Exits with 1 if a
run went over its plan or failed.
"""

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine_facts import facts, parser
from streammach.data.store.dataset import Dataset
from streammach.errors import BudgetError
from streammach.machine import parse_size
from streammach.planning.choose import plan
from tools.synthetic.files import write_rows
from tools.synthetic.rows import SHAPES, SyntheticRows

STORES = {
    # name: (kind, rows, classes, features)
    "short": ("odp", 20_000, 2_000, 5_000),
    "wide": ("odp", 6_000, 5_000, 300_000),
    "many classes": ("odp", 10_000, 100_000, 150_000),
    "long": ("odp", 20_000, 10_000, 120_000),
    "dense": ("imagenet", 1_500, 1_000, 6_144),
    "dense, more classes": ("imagenet", 4_000, 4_000, 3_000),
}
BUDGETS = ("700MB", "1GB", "1.5GB", "2GB", "2.5GB")
TABLE = (0.2, 0.8)  # share of the budget that weights take, where B and R are given
NAMES = {"buckets": "n_buckets", "repetitions": "n_repetitions"}  # of the function's arguments
MOST_COLUMNS = 4096


def make_stores(folder):
    """Return the made-up stores, written where they are not there yet."""
    found = []
    for name, (kind, rows, classes, features) in STORES.items():
        path = folder / f"{name.replace(', ', '-').replace(' ', '-')}.zarr"
        if not path.exists():
            shape = SHAPES[kind].changed(n_rows=rows, n_classes=classes, n_features=features)
            write_rows(SyntheticRows(shape, part="train", seed=0), path)
        found.append(path)
    return found


def draw(rng, stores):
    """Return a store, the options of a random plan for it, and further ones of its training."""
    store = rng.choice(stores)
    memory, buckets = rng.choice(BUDGETS), rng.choice([16, 32, 48, 64, 128, 256, 512])
    options = {"memory": memory, "threads": rng.choice([1, 2])}
    if rng.random() < 0.6:
        with Dataset.open(store) as data:
            columns = rng.uniform(*TABLE) * parse_size(memory) / (4 * data.n_features)
        options["buckets"] = buckets
        options["repetitions"] = max(4, int(min(columns, MOST_COLUMNS) / buckets))
    if rng.random() < 0.3:
        options["batch-size"] = rng.choice([200, 1024, 4096])
    if rng.random() < 0.3:
        options["optimizer"] = rng.choice(["adagrad", "adam", "sgd"])
    if rng.random() < 0.4:
        options["counts"] = "off"
    given = rng.random() < 0.8
    return store, options, ["--learning-rate", "0.5", "--transform", "binary"] if given else []


def refused(store, options):
    """Whether there is no such plan."""
    named = {NAMES.get(name, name.replace("-", "_")): value for name, value in options.items()}
    try:
        plan(store, **named)
    except BudgetError:
        return True
    return False


def run_one(store, options, out, *, keep=False):
    """Train; return the document of the run, or its exit code and what it said.

    The run is removed, unless it is kept.
    """
    command = [
        sys.executable, "-m", "streammach", "train", str(store), "--out", str(out), "--epochs", "1",
        "--json", "--progress", "none", *options,
    ]  # fmt: skip
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    if done.returncode:
        return {"rc": done.returncode, "said": done.stderr.strip()[-300:], "seconds": seconds}
    found = json.loads(done.stdout)
    chosen = found["plan"]["chosen"]
    return {
        "rc": 0,
        "shape": f"{chosen['buckets']} x {chosen['repetitions']}",
        "batch": chosen["batch_size"],
        "optimizer": chosen["optimizer"],
        "pairs": chosen["parts"].get("counts", 0),
        "allowed": found["plan"]["allowed_bytes"],
        "projected": found["projected_bytes"],
        "peak": found["peak_bytes"],
        "seconds": seconds,
    }


def main():
    """Run, print a line for each run and a summary, write the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--stores", type=Path, nargs="*", default=[])
    arguments.add_argument("--runs", type=int, default=64)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    stores = [*make_stores(given.folder), *given.stores]
    rng = random.Random(given.seed)
    runs, n_refused, failed = [], 0, []
    while len(runs) < given.runs:
        store, options, others = draw(rng, stores)
        if refused(store, options):
            n_refused += 1
            continue
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        found = run_one(store, [*words, *others], given.folder / "run") | {
            "store": store.stem, "options": " ".join([*words, *others])
        }  # fmt: skip
        if found["rc"]:
            failed.append(found)
            print(f"FAILED {found}", flush=True)
            continue
        runs.append(found)
        print(line(found), flush=True)
        summary = summed_up(runs, n_refused, len(failed))
        if given.json:
            document = {"machine": facts(), "summary": summary, "runs": runs, "failed": failed}
            Path(given.json).write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(summary))
    return int(summary["over_budget"] > 0 or bool(failed) or summary["max"] > 1)


def summed_up(runs, n_refused, n_failed):
    """Return how many runs there were, how many went over, and the ratios' range."""
    ratios = sorted(run["peak"] / run["projected"] for run in runs)
    return {
        "runs": len(runs), "refused": n_refused, "failed": n_failed,
        "over_budget": sum(run["peak"] > run["allowed"] for run in runs),
        "min": ratios[0], "median": statistics.median(ratios), "max": ratios[-1],
    }  # fmt: skip


def line(run):
    """Return a run as text."""
    return (
        f"{run['store']:<20} {run['shape']:>10} batch {run['batch']:>5} {run['optimizer']:<8}"
        f"{run['pairs']:>11,} pairs  projected {run['projected'] / 1e6:>6.0f} MB  peak "
        f"{run['peak'] / 1e6:>6.0f} MB  {run['peak'] / run['projected']:.2f}"
        f"  {run['seconds']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
