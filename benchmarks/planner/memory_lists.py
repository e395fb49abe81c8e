"""Whether work on rows with lists of labels keeps within its plan: many random shapes and settings.

    python -m benchmarks.planner.memory_lists FOLDER [--runs 40] [--commands 12] [--json FILE]

A run makes a store of a random shape (rows, classes, labels a row, values a row, sparse or dense)
and trains on it for an epoch with random settings, as `benchmarks.planner.memory` does. On the
first runs `evaluate`, `predict --threshold` and `shrink` are done, too. Each is a process of its
own, whose peak is compared with what it projected. Exits with 1 if one went over its projection or
failed.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.machine_facts import facts, parser
from benchmarks.planner.memory import draw, line, refused, run_one, summed_up
from streammach.errors import BudgetError
from tools.synthetic.files import write_rows
from tools.synthetic.lists import Lists
from tools.synthetic.rows import SHAPES, SyntheticRows

MOST_VALUES, MOST_LABELS = 2_000_000, 1_500_000  # of a store
LEAST_ROWS, MOST_ROWS, TEST_ROWS = 20_000, 200_000, 3_000
WORDS, LABELS, UNLABELLED = (5, 20, 65, 150), (1, 1.3, 2, 3.5, 8, 25, 100), (0, 0, 0.05, 0.5)
BUDGETS = ("500MB", "700MB", "1GB")  # of the commands
TIMES = ("10s", "20s")


def spread(rng, least, most):
    """Return a random integer whose logarithm is uniform."""
    return round(least * (most / least) ** rng.random())


def draw_shape(rng):
    """Return a random shape of rows with lists of labels."""
    lists = Lists(rng.choice(LABELS), rng.choice(UNLABELLED))
    rows = spread(rng, LEAST_ROWS, min(MOST_ROWS, MOST_LABELS / lists.mean))
    drawn = {"n_classes": spread(rng, 30, 100_000), "lists": lists, "n_test_rows": TEST_ROWS}
    if rng.random() < 0.25:
        features = spread(rng, 30, 600)
        rows = min(rows, MOST_VALUES // features)
        return SHAPES["imagenet"].changed(n_rows=rows, n_features=features, **drawn)
    words, features = rng.choice(WORDS), spread(rng, 300, 200_000)
    rows = min(rows, MOST_VALUES // words)
    return SHAPES["odp"].changed(n_rows=rows, n_features=features, words=words, **drawn)


def make_store(folder, shape, seed):
    """Write a training and a test store of a shape; return their paths."""
    train, test = folder / "train.zarr", folder / "test.zarr"
    shutil.rmtree(train, ignore_errors=True)
    shutil.rmtree(test, ignore_errors=True)
    write_rows(SyntheticRows(shape, part="train", seed=seed), train)
    write_rows(SyntheticRows(shape, part="test", seed=seed), test, like=train)
    return train, test


def draw_run(rng, store, sparse):
    """Return the options of a random plan for a store, and further ones of its training."""
    _, options, others = draw(rng, [store])
    if sparse and "counts" not in options and rng.random() < 0.4:
        options["counts"] = "on"
    return options, [*others, "--time", rng.choice(TIMES)]


def commands_on(run, train, test, rng, out):
    """Do the commands on a run; return what each projected and took."""
    memory = ["--memory", rng.choice(BUDGETS), "--json", "--progress", "none"]
    words = {
        "evaluate": ["evaluate", run, test],
        "evaluate, training rows": ["evaluate", run, train],
        "predict": ["predict", run, test, "-k", "10", "--threshold", "0.3", "--out", out / "p.tsv"],
        "shrink": ["shrink", run, "--out", out / "small"],
        "evaluate, shrunk": ["evaluate", out / "small", test],
    }
    found = []
    for name, own in words.items():
        if "shrunk" in name and found[-1]["rc"]:  # no smaller model was made
            continue
        command = [sys.executable, "-m", "streammach", *map(str, own), *memory]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = {"rc": done.returncode, "said": done.stderr.strip()[-300:]}
        else:
            document = json.loads(done.stdout)
            said = {"rc": 0} | {k: document[f"{k}_bytes"] for k in ("projected", "peak")}
        found.append({"command": name, "memory": memory[1], **said})
    return found


def shape_text(shape):
    """Return a shape as text."""
    lists = shape.lists
    words = "" if shape.words is None else f", {shape.words} words"
    return (
        f"{shape.kind}: {shape.n_rows} rows, {shape.n_classes} classes, {shape.n_features} features"
        f"{words}, {lists.mean:g} labels, {lists.unlabelled:g} without"
    )


def one(rng, number, folder, commands):
    """Return a random run with its commands; None where there is no such plan."""
    shape = draw_shape(rng)
    train, test = make_store(folder, shape, number)
    options, others = draw_run(rng, train, shape.kind == "counts")
    if refused(train, options):
        return None
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    run, beside = folder / "run", folder / "beside"
    found = run_one(train, [*words, *others], run, keep=True)
    found |= {"store": shape_text(shape), "options": " ".join([*words, *others])}
    if commands and not found["rc"]:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        found["commands"] = commands_on(run, train, test, rng, beside)
    return found


def commands_summed_up(runs):
    """Return how many commands there were and the largest ratio, by command."""
    found = {}
    for run in runs:
        for command in run.get("commands", []):
            own = found.setdefault(command["command"], {"runs": 0, "failed": 0, "max": 0.0})
            own["runs"] += 1
            if command["rc"]:
                own["failed"] += command["rc"] != BudgetError.exit_code  # said before any work
            else:
                own["max"] = max(own["max"], command["peak"] / command["projected"])
    return found


def main():
    """Run, print a line for each run and a summary, write the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--commands", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--first", type=int, default=0, help="number of the first draw")
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    runs, n_refused, failed, number = [], 0, [], given.first
    while len(runs) + len(failed) < given.runs:
        rng = random.Random(f"{given.seed} {number}")
        found = one(rng, number, given.folder, len(runs) < given.commands)
        number += 1
        if found is None or found["rc"] == BudgetError.exit_code:  # of memory, or of time
            n_refused += 1
            continue
        (failed if found["rc"] else runs).append(found | {"number": number - 1})
        print(f"FAILED {found}" if found["rc"] else f"{number - 1} {line(found)}", flush=True)
        for command in found.get("commands", []):
            print(f"    {command}", flush=True)
        summary = summed_up(runs, n_refused, len(failed)) if runs else {}
        summary["commands"] = commands_summed_up(runs)
        if given.json:
            document = {"machine": facts(), "summary": summary, "runs": runs, "failed": failed}
            Path(given.json).write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(summary))
    beyond = [one["max"] > 1 or one["failed"] for one in summary["commands"].values()]
    return int(bool(failed) or summary["max"] > 1 or any(beyond))


if __name__ == "__main__":
    sys.exit(main())
