"""How late trainings with a limit of time are, and whether a useless model is told.

    python -m benchmarks.time_limits FOLDER [--runs 40] [--seed 0] [--only KIND,KIND] [--no-busy]
        [--cold SHARE] [--json FILE]

Six kinds of rows are made in the folder, unless they lie there already: `dense_many` (300,000 rows
of 6,144 columns, a third of them not 0, 4,000 classes), `dense_few` (40,000 x 64, 10 classes),
`text` (one label, 5,250 classes), `lists` (of labels), `table` (a CSV, by `fit`), `sparse` (numbers
by svmlight). Each training has one of them and a limit from 20 s to 3 min, so that kinds and limits
go through all pairs, while another process is busy all the time; `load` is that of the machine in
the last minute, of other processes too. Some trainings have no kept
kernels: these compile within the limit. A run is late by what it takes beyond its limit, in percent
of that, the start of the command included. Accuracies are those of held-out rows, for lists P@1;
beside them that of the label which most training rows have.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import streammach as sm
from benchmarks.machine_facts import facts, parser, report, text_of
from streammach.store.dataset import Dataset

LIMITS = (20, 30, 45, 60, 90, 120, 180)
MEMORY = "1GB"
TOOL = Path(__file__).parents[1] / "tools" / "make_synthetic.py"


def dense_many(folder):
    """Return what is trained on: a store of made rows of ImageNet's shape."""
    text, store = folder / "dense_many.txt", folder / "dense_many.zarr"
    made = ["imagenet", text, "--rows", "300000", "--classes", "4000"]
    subprocess.run([sys.executable, TOOL, *made], check=True)
    sm.convert(text, store, memory="1GB")
    text.unlink()
    return store


def dense_few(folder):
    """Return a store of rows around ten centres, of which a part is mixed up."""
    rng, store = np.random.default_rng(0), folder / "dense_few.zarr"
    y = rng.integers(0, 10, 40_000)
    x = rng.normal(size=(10, 64))[y] + 2.5 * rng.normal(size=(len(y), 64))
    np.savez(folder / "dense_few.npz", X=x.astype(np.float32), y=y)
    sm.convert(folder / "dense_few.npz", store)
    return store


def text(folder):
    """Return a store of made rows of ODP's shape."""
    made, store = folder / "text.vw.gz", folder / "text.zarr"
    subprocess.run([sys.executable, TOOL, "odp", made, "--scale", "0.05"], check=True)
    sm.convert(made, store)
    return store


def lists(folder):
    """Return a store of rows with one to four labels, whose words say most of them."""
    rng, path = np.random.default_rng(1), folder / "lists.vw"
    with open(path, "w") as out:
        for _ in range(40_000):
            own = np.unique((600 * rng.random(rng.integers(1, 5)) ** 2).astype(int))
            words = [f"w{9 * label + rng.integers(0, 9)}" for label in own for _ in range(4)]
            words += [f"n{i}" for i in rng.integers(0, 3000, 12)]
            out.write(",".join(f"l{i}" for i in own) + " | " + " ".join(words) + "\n")
    sm.convert(path, folder / "lists.zarr")
    return folder / "lists.zarr"


def table(folder):
    """Return a CSV of a text, a category and two numbers."""
    rng, path = np.random.default_rng(2), folder / "table.csv"
    with open(path, "w") as out:
        out.write("title,shop,price,size,label\n")
        for _ in range(15_000):
            label = int(400 * rng.random() ** 2)
            words = " ".join(f"t{label}x{i}" for i in rng.integers(0, 30, 5))
            more = " ".join(f"n{i}" for i in rng.integers(0, 2000, 6))
            shop, price = f"s{(label + rng.integers(0, 9)) % 40}", label / 9 + rng.normal()
            out.write(f"{words} {more},{shop},{price:.2f},{rng.integers(0, 50)},c{label}\n")
    return path


def sparse(folder):
    """Return a store of rows of 60 numbers among 20,000 columns."""
    rng, path = np.random.default_rng(3), folder / "sparse.svm"
    centres = rng.integers(0, 20_000, (1500, 40))
    with open(path, "w") as out:
        for _ in range(50_000):
            label = int(1500 * rng.random() ** 1.5)
            own = rng.choice(centres[label], 12, replace=False)
            columns = np.unique(np.concatenate([own, rng.integers(0, 20_000, 48)]))
            values = rng.gamma(2, 1, len(columns)) + 2 * np.isin(columns, own)
            cells = " ".join(f"{c}:{v:.3f}" for c, v in zip(columns + 1, values, strict=True))
            out.write(f"{label} {cells}\n")
    sm.convert(path, folder / "sparse.zarr")
    return folder / "sparse.zarr"


KINDS = {make.__name__: make for make in (dense_many, dense_few, text, lists, table, sparse)}


def made(folder, kind):
    """Return the rows of a kind, which are made unless they are there."""
    there = [folder / f"{kind}.{end}" for end in ("zarr", "csv")]
    known = next((path for path in there if path.exists()), None)
    return KINDS[kind](folder) if known is None else known


def most_frequent(store, held_out):
    """Return the share of the held-out rows that have the label of most training rows."""
    with Dataset.open(store) as data:
        best, n, hits = int(data.label_counts.argmax()), 0, 0
        wanted = np.zeros(int(max(held_out)) + 1, bool)
        wanted[held_out] = True
        step = data.facts.block_rows
        for start in range(0, data.n_rows, step):
            block = data.rows(start, min(start + step, data.n_rows))
            numbers = data.numbers(start, start + block.n_rows)
            own = np.flatnonzero(
                (numbers < len(wanted)) & wanted[np.minimum(numbers, len(wanted) - 1)]
            )
            n, hits = n + len(own), hits + int((block.take(own).lists.classes == best).sum())
    return hits / max(n, 1)


def train(rows, kind, limit, folder, *, cold):
    """Train in a process of its own; return what it took and reached."""
    run, command = folder / "run", "fit" if kind == "table" else "train"
    environment = dict(os.environ)
    if cold:
        environment["NUMBA_CACHE_DIR"] = str(folder / "kernels")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "streammach", command, str(rows), "--out", str(run), "--memory",
         MEMORY, "--time", f"{limit}s", "--progress", "none", "--json"],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    found = {"kind": kind, "limit": limit, "cold": cold, "seconds": round(seconds, 1),
             "late_percent": round(max(100 * (seconds / limit - 1), 0.0), 1),
             "load": round(os.getloadavg()[0], 1)}  # fmt: skip
    if done.returncode:
        return found | {"exit": done.returncode, "error": done.stderr.strip()[-300:]}
    said = json.loads(done.stdout)
    best = said["validation"].get(said["estimator"])
    held_out = sm.Run.open(run).held_out
    usual = most_frequent(run / "train.zarr" if kind == "table" else rows, held_out)
    return found | {
        "accuracy": round(best["accuracy"], 4), "most_frequent": round(usual, 4),
        "warned": len(said["warnings"]) > 0, "warnings": said["warnings"],
        "epochs": len(said["history"]), "trials": len(said["trials"]),
        "stages": {name: round(s, 1) for name, s in said["stages"].items() if s >= 0.1},
    }  # fmt: skip


def chosen(kinds, runs, seed):
    """Return pairs of a kind and a limit: all of them, in a random order, as often as needed."""
    pairs = list(itertools.product(kinds, LIMITS))
    random.Random(seed).shuffle(pairs)
    return [pairs[i % len(pairs)] for i in range(runs)]


def main():
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", default=",".join(KINDS))
    arguments.add_argument("--cold", type=float, default=0.1)
    arguments.add_argument("--no-busy", action="store_true")
    options = arguments.parse_args()
    options.folder.mkdir(exist_ok=True)
    kinds = options.only.split(",")
    rows = {kind: made(options.folder, kind) for kind in kinds}
    busy = None if options.no_busy else subprocess.Popen([sys.executable, "-c", "while True: pass"])
    found = []
    try:
        for i, (kind, limit) in enumerate(chosen(kinds, options.runs, options.seed)):
            cold = options.cold > 0 and i % round(1 / options.cold) == 0 and limit >= 60
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                found.append(train(rows[kind], kind, limit, Path(folder), cold=cold))
            print(json.dumps(found[-1]), flush=True)
    finally:
        if busy is not None:
            busy.kill()
    figures = {
        "runs": found, "most_late_percent": max(one["late_percent"] for one in found),
        "useless_and_silent": sum(
            one.get("accuracy", 1) <= one.get("most_frequent", 0) and not one["warned"]
            for one in found
        ),
        "busy_processes": 0 if options.no_busy else 1,
        "machine": facts(),
    }  # fmt: skip
    print(text_of(figures))
    report(figures, options.json)


if __name__ == "__main__":
    main()
