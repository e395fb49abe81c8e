"""Whether runs keep within their plans: measured against projected memory of many random runs.

    python -m benchmarks.planner.memory FOLDER [--runs 64] [--commands 12] [--json FILE]

A run makes a store of a random shape (rows, classes, labels and values a row, sparse or dense) and
trains on it for an epoch with random settings. On the first runs `evaluate`, `predict` and `shrink`
are done, too. Each is a process of its own, whose peak is compared with what it projected. A plan
that does not fit is refused, counted, and drawn again. Exits with 1 if one went over its projection
or failed.
"""

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine_facts import facts, parser, report
from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset
from streammach.system.errors import BudgetError
from streammach.system.machine import parse_size
from tools.synthetic.files import write_rows
from tools.synthetic.lists import Lists
from tools.synthetic.rows import SHAPES, SyntheticRows

MOST_VALUES, MOST_LABELS = 2_000_000, 1_500_000  # of a store
LEAST_ROWS, MOST_ROWS, TEST_ROWS = 5_000, 200_000, 3_000
WORDS, LABELS, UNLABELLED = (5, 20, 65, 150), (1, 1.3, 2, 3.5, 8, 25, 100), (0, 0, 0.05, 0.5)
LISTED = 0.5  # share of stores whose rows have lists of labels
BUDGETS, COMMAND_BUDGETS = ("700MB", "1GB", "1.5GB", "2GB", "2.5GB"), ("500MB", "700MB", "1GB")
TIMES = ("10s", "20s")
TABLE = (0.2, 0.8)  # share of the budget that weights take, where B and R are given
MOST_COLUMNS = 4096


def spread(rng, least, most):
    """Return a random integer whose logarithm is uniform."""
    return round(least * (most / least) ** rng.random())


def draw_shape(rng):
    drawn = {"n_classes": spread(rng, 30, 100_000), "n_test_rows": TEST_ROWS}
    most = MOST_ROWS
    if rng.random() < LISTED:
        drawn["lists"] = Lists(rng.choice(LABELS), rng.choice(UNLABELLED))
        most = min(most, MOST_LABELS / drawn["lists"].mean)
    rows = spread(rng, LEAST_ROWS, most)
    if rng.random() < 0.25:
        features = spread(rng, 30, 6000)
        rows = max(500, min(rows, MOST_VALUES // features))
        return SHAPES["imagenet"].changed(n_rows=rows, n_features=features, **drawn)
    words, features = rng.choice(WORDS), spread(rng, 300, 300_000)
    rows = min(rows, MOST_VALUES // words)
    return SHAPES["odp"].changed(n_rows=rows, n_features=features, words=words, **drawn)


def make_stores(folder, shape, seed):
    train, test = folder / "train.zarr", folder / "test.zarr"
    for path in (train, test):
        shutil.rmtree(path, ignore_errors=True)
    for store, like in ((train, None), (test, train)):
        text = store.with_suffix(".vw")
        text.unlink(missing_ok=True)
        write_rows(SyntheticRows(shape, part=store.stem, seed=seed), text)
        convert(text, store, multilabel="auto" if shape.lists is None else "on", like=like)
        text.unlink()
    return train, test


def draw_options(rng, store, sparse):
    memory, buckets = rng.choice(BUDGETS), rng.choice([16, 32, 48, 64, 128, 256, 512])
    words = ["--memory", memory, "--threads", rng.choice("12")]
    if rng.random() < 0.6:
        with Dataset.open(store) as data:
            columns = rng.uniform(*TABLE) * parse_size(memory) / (4 * data.n_features)
        repetitions = max(4, int(min(columns, MOST_COLUMNS) / buckets))
        words += ["--buckets", str(buckets), "--repetitions", str(repetitions)]
    if rng.random() < 0.3:
        words += ["--batch-size", rng.choice(["200", "1024", "4096"])]
    if rng.random() < 0.3:
        words += ["--optimizer", rng.choice(["adagrad", "adam", "sgd"])]
    if rng.random() < 0.4:
        words += ["--counts", "off"]
    elif sparse and rng.random() < 0.4:
        words += ["--counts", "on"]
    if rng.random() < 0.8:
        words += ["--learning-rate", "0.5", "--transform", "binary"]
    return words + (["--time", rng.choice(TIMES)] if rng.random() < 0.5 else [])


def measured(*words):
    """Run a command; return its exit code and its document, or what it said."""
    command = [sys.executable, "-m", "streammach", *map(str, words), "--json", "--progress", "none"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {"rc": done.returncode, "seconds": round(time.monotonic() - began, 1)}
    if done.returncode:
        return found | {"said": done.stderr.strip()[-300:]}, {}
    document = json.loads(done.stdout)
    return found | {k: document[f"{k}_bytes"] for k in ("projected", "peak")}, document


def commands_on(run, train, test, rng, out, *, listed):
    """Do the commands on a run; return what each projected and took."""
    memory, found = rng.choice(COMMAND_BUDGETS), []
    for name, *own in (
        ("evaluate", run, test), ("evaluate", run, train),
        ("predict", run, test, *(("--threshold", "0.3") if listed else ()), "--out", out / "p.tsv"),
        ("shrink", run, "--out", out / "small"), ("evaluate", out / "small", test),
    ):  # fmt: skip
        if own[0].name == "small" and found[-1]["rc"]:  # no smaller model was made
            continue
        one, _ = measured(name, *own, "--memory", memory)
        found.append({"command": f"{name} {own[0].name}", "memory": memory, **one})
    return found


def one(number, given, *, commands):
    rng, folder = random.Random(f"{given.seed} {number}"), given.folder
    shape = draw_shape(rng)
    train, test = make_stores(folder, shape, number)
    words = draw_options(rng, train, shape.kind == "counts")
    run, beside = folder / "run", folder / "beside"
    for path in (run, beside):
        shutil.rmtree(path, ignore_errors=True)
    found, document = measured("train", train, "--out", run, "--epochs", "1", *words)
    found |= {"number": number, "rows": vars(shape), "options": " ".join(words)}
    if found["rc"]:
        return found
    chosen = document["plan"]["chosen"]
    found |= {
        "shape": f"{chosen['buckets']} x {chosen['repetitions']}", "batch": chosen["batch_size"],
        "optimizer": chosen["optimizer"], "pairs": chosen["parts"].get("counts", 0),
        "allowed": document["plan"]["allowed_bytes"],
    }  # fmt: skip
    if commands:
        beside.mkdir()
        found["commands"] = commands_on(
            run, train, test, rng, beside, listed=shape.lists is not None
        )
    return found


def summed_up(runs, n_refused, n_failed):
    """Return how many runs there were, how many went over, and the ratios' range."""
    ratios = sorted(run["peak"] / run["projected"] for run in runs)
    return {
        "runs": len(runs), "refused": n_refused, "failed": n_failed,
        "over_budget": sum(run["peak"] > run["allowed"] for run in runs),
        "min": ratios[0], "median": statistics.median(ratios), "max": ratios[-1],
    }  # fmt: skip


def commands_summed_up(runs):
    """Return how many commands there were and the largest ratio, by command."""
    found = {}
    for one in (command for run in runs for command in run.get("commands", [])):
        own = found.setdefault(one["command"], {"runs": 0, "failed": 0, "max": 0.0})
        own["runs"] += 1
        if one["rc"]:
            own["failed"] += one["rc"] != BudgetError.exit_code  # said before any work
        else:
            own["max"] = max(own["max"], one["peak"] / one["projected"])
    return found


def repeated(given, draw):
    """Draw runs until there are enough; print each and write the figures; return the summary."""
    given.folder.mkdir(parents=True, exist_ok=True)
    runs, n_refused, failed, number, summary = [], 0, [], 0, {}
    while len(runs) + len(failed) < given.runs:
        found = draw(number, len(runs))
        number += 1
        if found["rc"] == BudgetError.exit_code:  # of memory, or of time
            n_refused += 1
            continue
        (failed if found["rc"] else runs).append(found)
        ratio = "FAILED" if found["rc"] else f"{found['peak'] / found['projected']:.2f}"
        print(ratio, json.dumps(found, default=str), flush=True)
        summary = summed_up(runs, n_refused, len(failed)) if runs else {}
        summary["commands"] = commands_summed_up(runs)
        document = {"machine": facts(), "summary": summary, "runs": runs, "failed": failed}
        report(document, given.json)
    print(json.dumps(summary))
    beyond = [one["max"] > 1 or one["failed"] for one in summary["commands"].values()]
    return int(bool(failed) or summary["max"] > 1 or any(beyond))


def main():
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--runs", type=int, default=64)
    arguments.add_argument("--commands", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    return repeated(given, lambda number, n: one(number, given, commands=n < given.commands))


if __name__ == "__main__":
    sys.exit(main())
