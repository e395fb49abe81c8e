"""What accuracy streammach has for a time of training, beside its peers.

    python -m benchmarks.frontier run TRAIN.zarr TEST.zarr --name NAME [--times 15s,1min]
        [--json FILE]
    python -m benchmarks.frontier draw [--results benchmarks/results] [--out docs]

Each training is the command with nothing given but --memory, --time and one thread, pinned to one
core; seconds are of processor time, the start of the process included, and of the clock. One in
which kernels were compiled is made again. The test rows only measure.
The peers' figures are those of peers.json.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import streammach as sm
from benchmarks import machine_facts
from benchmarks.peers.plot import OURS, left, options, peers_of
from benchmarks.peers.plot import draw as plot
from benchmarks.peers.table import data_of, file_name
from streammach.machine import parse_seconds, time_text

TIMES = "5s,15s,1min,3min,10min"


def trained(given, asked, folder):
    """Train with a limit of time; return what it took, or why it did not."""
    core = str(sorted(os.sched_getaffinity(0))[-1])
    command = [
        "taskset", "-c", core, sys.executable, "-m", "streammach", "train", given.train,
        "--out", str(folder / "run"),
        "--memory", given.memory, "--time", asked, "--threads", "1", "--progress", "none",
        *given.options.split(),
    ]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        return {"failed": said.strip().splitlines()[-1]}
    if "compiling kernels" in said:  # of models of this kind for the first time
        shutil.rmtree(folder / "run")
        return trained(given, asked, folder)
    return {
        "seconds": time.monotonic() - began, "train_seconds": used.ru_utime + used.ru_stime,
    }  # fmt: skip


def measured(given, folder):
    """Return what a run reaches on the test rows, and what it takes."""
    run = sm.Run.open(folder / "run")
    files = sum(file.stat().st_size for file in (run.path / "model").iterdir())
    with sm.Predictor(run.model, threads=1) as predictor:
        rows = next(rows_of(given.test, predictor.model))
        began = time.process_time()
        predictor.topk_ids(rows, 5)
        query = 1e6 * (time.process_time() - began) / rows.n_rows
    with sm.Predictor(run.model) as predictor:
        found = sm.evaluate(predictor, given.test)
    return {
        "shape": str(run.model.spec), "accuracy": found.accuracy,
        "top_5_accuracy": found.top_5_accuracy, "rows": found.n_rows, "model_bytes": files,
        "query_us": query, "projected_bytes": run.result.projected_bytes,
        "peak_bytes": run.result.peak_bytes, "again": run.result.reasons[-1],
    }  # fmt: skip


def rows_of(test, model):
    """Yield the first rows of a store with a model's ids."""
    from streammach.rows.canonical import canonicalize

    with sm.Dataset.open(test) as data:
        yield canonicalize(
            data.rows(0, min(2000, data.n_rows)), model.features.ids_of(data.features),
            model.labels.ids_of(data.labels),
        )  # fmt: skip


def run(given):
    """Train with each time; write the figures after each."""
    path = Path(given.json) if given.json else None
    results = json.loads(path.read_text()) if path is not None and path.exists() else {}
    for asked in given.times.split(","):
        with tempfile.TemporaryDirectory() as place:
            row = {"asked": parse_seconds(asked), **trained(given, asked, Path(place))}
            if "failed" not in row:
                row |= measured(given, Path(place))
        results.setdefault(given.name, {})[asked] = row
        print(given.name, json.dumps(row), flush=True)
        if path is not None:
            results["machine"] = machine_facts.facts()
            machine_facts.report(results, path)


def draw(given):
    """Draw accuracy over seconds of training for each data set, beside the peers."""
    results, peers = (
        data_of(json.loads((given.results / f"{file}.json").read_text()))
        for file in ("frontier", "peers")
    )
    axis = ("processor seconds of training", 1.0, lambda seconds: f"after {time_text(seconds)}")
    for name, rows in results.items():
        times = left(rows.values(), "train_seconds")
        marks = peers_of(peers.get(name, {}).values(), seconds_of)
        marks = [*(mark for mark in marks if mark.package != OURS), *times]
        file = file_name(name).replace("benchmarks-", "frontier-")
        plot(name, marks, axis, given.out / file, [("streammach --time", "o-", times)])


def seconds_of(row):
    """Return the processor seconds of a peer's training; those of the clock without them."""
    return row.get("train_processor_seconds", row.get("train_seconds"))


def main():
    """Train and measure, or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(required=True)
    one = kinds.add_parser("run")
    one.add_argument("train")
    one.add_argument("test")
    one.add_argument("--name", required=True)
    one.add_argument("--times", default=TIMES)
    one.add_argument("--memory", default="2GB")
    one.add_argument("--options", default="", help="more options of train, as one word")
    one.add_argument("--json", metavar="FILE")
    one.set_defaults(work=run)
    other = kinds.add_parser("draw", parents=[options(None)], add_help=False)
    other.set_defaults(work=draw)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
