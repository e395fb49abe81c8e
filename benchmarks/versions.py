"""How fast reading, training and loading are beside another checkout, in turns.

    python -m benchmarks.versions CHECKOUT TRAIN.vw [--turns 5] [--json FILE]

Each turn is a process of its own with the package of one of the two checkouts; the other one's is
next. A store and a model are made by the older one (CHECKOUT), so that both can open them. Ratios
are seconds here divided by seconds there, of the fastest turns and of the medians.
"""

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine_facts import facts, parser, report

HERE = Path(__file__).parents[1]
TRAIN = (
    "--buckets", "32", "--repetitions", "25", "--epochs", "1", "--transform", "log1p",
    "--learning-rate", "1", "--counts", "off", "--progress", "none",
)  # fmt: skip
TASKS = ("reading, first", "reading", "training", "loading", "first query")


def main():
    arguments = parser(__doc__)
    arguments.add_argument("checkout", type=Path)
    arguments.add_argument("text", type=Path)
    arguments.add_argument("--turns", type=int, default=5)
    options = arguments.parse_args()
    other = options.checkout.absolute()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        command(other, folder, "convert", str(options.text.absolute()), "a.zarr")
        command(other, folder, "train", "a.zarr", "--out", "run", *TRAIN)
        clock = {"here": [], "there": []}
        for turn in range(options.turns + 1):
            for name, checkout in (("here", HERE), ("there", other)):
                found = measured(checkout, folder)
                if turn:  # the first one only warms up
                    clock[name].append(found)
    ratios = {task: compared(clock, task) for task in TASKS}
    for task, found in ratios.items():
        print(f"{task:<15} fastest {found['fastest']:.3f}, median {found['median']:.3f}")
    report({"ratios": ratios, "seconds": clock, "machine": facts()}, options.json)


def compared(clock, task):
    here, there = ([found[task] for found in clock[name]] for name in ("here", "there"))
    return {
        "fastest": min(here) / min(there),
        "median": statistics.median(here) / statistics.median(there),
    }


BATCH = 1024  # rows


def command(checkout, folder, *arguments):
    started(checkout, folder, "-m", "streammach", *arguments)


def started(checkout, folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    return done.stdout


def measured(checkout, folder):
    """Seconds of each task with the package of a checkout."""
    text = started(checkout, folder, str(Path(__file__).absolute()), "--here")
    return json.loads(text.splitlines()[-1])


def tasks():
    """Do all tasks once in this process; print their seconds."""
    from streammach.cli.main import main
    from streammach.data.reader import Reader
    from streammach.data.store.dataset import Dataset
    from streammach.model.model import Model
    from streammach.prediction.predictor import Predictor

    found = {}
    with Dataset.open("a.zarr") as data:
        nnz = BATCH * data.facts.max_row_nnz
        reader = Reader(
            data, seed=0, batch_size=BATCH, batch_nnz=nnz, pool_blocks=8, transform="log1p",
            by_feature=False,
        )  # fmt: skip
        for number, name in enumerate(("reading, first", "reading")):
            began = time.perf_counter()
            for _ in reader.epoch(number):
                pass
            found[name] = time.perf_counter() - began
        row = data.rows(0, 1)
    with tempfile.TemporaryDirectory() as folder:
        given = "--buckets 32 --repetitions 25 --counts off --epochs 1 --learning-rate 1"
        options = [*given.split(), "--transform", "log1p", "--progress", "none"]
        out = ["train", "a.zarr", "--out", f"{folder}/run", "--json"]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main(out + options) == 0
        found["training"] = (
            data.n_rows / json.loads(text.getvalue())["history"][-1]["rows_per_second"]
        )
    began = time.perf_counter()
    model = Model.load("run")
    found["loading"] = time.perf_counter() - began
    with Predictor(model, threads=1) as predictor:
        predictor.topk(row, 5)
    found["first query"] = time.perf_counter() - began
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:] == ["--here"]:
        tasks()
    else:
        sys.exit(main())
