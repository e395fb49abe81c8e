"""Whether trainings keep to their time: seconds of random runs over those asked or expected.

    python -m benchmarks.planner.times STORE.zarr ... [--runs 40] [--free] [--json FILE]

Random combinations of store, budget and --time (5 s to 3 min) are trained by the command, each on
one thread; seconds are those of the clock from its start to its end. With --free there is no
--time, and the seconds are compared with those of the plan. Times and budgets in which nothing fits
are refused, counted, and drawn again. A run in which kernels were compiled is made again. Exits
with 1 if a run failed.
"""

import json
import math
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import streammach as sm
from benchmarks.machine_facts import facts, parser
from streammach.errors import BudgetError

BUDGETS = ("700MB", "1GB", "1.5GB", "2GB", "4GB")
SHORTEST, LONGEST = 5, 180


def draw(rng, stores, *, free):
    """Return a store, the options of a random training on it, and the seconds asked for."""
    asked = round(math.exp(rng.uniform(math.log(SHORTEST), math.log(LONGEST))))
    options = ["--memory", rng.choice(BUDGETS), "--threads", "1"]
    if not free:
        options += ["--time", f"{asked}s"]
    return rng.choice(stores), options, None if free else asked


def trained(store, options, asked):
    """Train; return what was measured, None where the plan was refused."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        command = [sys.executable, "-m", "streammach", "train", store, "--out", str(folder),
                   "--progress", "none", *options]  # fmt: skip
        while True:
            began = time.monotonic()
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            seconds = time.monotonic() - began
            if done.returncode == BudgetError.exit_code:
                return None
            if done.returncode:
                return {"failed": done.stderr.strip().splitlines()[-1]}
            if "compiling kernels" not in done.stderr:
                break
            shutil.rmtree(folder)
        run = sm.Run.open(folder)
        wanted = asked or run.plan.expected.seconds
        return {
            "asked": asked, "expected": run.plan.expected.seconds, "seconds": seconds,
            "ratio": seconds / wanted, "model": str(run.model.spec),
            "accuracy": run.result.best and run.result.best.accuracy,
            "memory_ratio": run.result.peak_bytes / run.result.projected_bytes,
        }  # fmt: skip


def main():
    """Draw and train; write and print the figures after each."""
    commands = parser(__doc__)
    commands.add_argument("stores", nargs="+")
    commands.add_argument("--runs", type=int, default=40)
    commands.add_argument("--seed", type=int, default=0)
    commands.add_argument("--free", action="store_true", help="without --time")
    given = commands.parse_args()
    rng, runs, refused = random.Random(given.seed), [], 0
    while len(runs) < given.runs:
        store, options, asked = draw(rng, given.stores, free=given.free)
        found = trained(store, options, asked)
        if found is None:
            refused += 1
            continue
        runs.append({"store": Path(store).stem, "options": options, **found})
        print(json.dumps(runs[-1]), flush=True)
        ratios = [run["ratio"] for run in runs if "ratio" in run]
        summary = {
            "runs": len(runs), "refused": refused,
            "failed": sum("failed" in run for run in runs),
            "ratio": [min(ratios), statistics.median(ratios), max(ratios)] if ratios else None,
        }  # fmt: skip
        if given.json:
            text = json.dumps({"machine": facts(), "summary": summary, "runs": runs}, indent=1)
            Path(given.json).write_text(text + "\n")
    print(json.dumps(summary))
    sys.exit(1 if summary["failed"] else 0)


if __name__ == "__main__":
    main()
