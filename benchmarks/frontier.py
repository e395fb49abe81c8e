"""What accuracy streammach has for a time and for the bytes of a model, beside its peers.

    python -m benchmarks.frontier run TRAIN.zarr TEST.zarr --name NAME [--times 15s,1min]
        [--json FILE]
    python -m benchmarks.frontier draw FILE PEERS.json FOLDER

Each training is the command with nothing given but --memory, --time and one thread, pinned to one
core; seconds are of processor time, the start of the process included, and of the clock. One in
which kernels were compiled is made again. The test rows only measure.
The peers' figures are those of benchmarks/results/peers.json.
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

import numpy as np

import streammach as sm
from benchmarks import machine_facts
from benchmarks.peers.plot import FAMILIES, OTHERS, places
from benchmarks.peers.table import data_of, file_name
from streammach.machine import parse_seconds, time_text

TIMES = "5s,15s,1min,3min,10min"
AXES = (("train_seconds", "processor seconds of training", 1.0), ("model_bytes", "model, MB", 1e6))


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
            path.write_text(json.dumps(results, indent=1) + "\n")


def draw(given):
    """Draw accuracy over seconds and over bytes for each data set."""
    results, peers = (
        json.loads(Path(given.file).read_text()),
        json.loads(Path(given.peers).read_text()),
    )
    known = data_of(peers)
    for name, rows in results.items():
        if name != "machine":
            others = [row for row in known.get(name, {}).values() if "failed" not in row]
            ours = [row for row in rows.values() if "failed" not in row]
            file = file_name(name).replace("benchmarks-", "frontier-")
            picture(name, ours, others, Path(given.folder) / file)


def picture(name, ours, peers, path):
    """Draw the two panels of a data set."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 7})
    peers = [row for row in peers if row["package"] != "streammach"]
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    top = 1.1 * max(row["accuracy"] for row in ours)
    for axes, (key, text, unit) in zip(panels, AXES, strict=True):
        mine = sorted((row[key] / unit, row["accuracy"], time_text(row["asked"])) for row in ours)
        found = [(asked, "streammach", x, y) for x, y, asked in mine]
        found += [
            (row["system"], row["package"], row[key] / unit, row["p_at_1"])
            for row in peers if row.get(key)
        ]  # fmt: skip
        values = [x for _, _, x, _ in found]
        low, high = np.log10(min(values)) - 0.3, np.log10(max(values)) + 0.7
        axes.set(xscale="log", xlim=(10**low, 10**high), ylim=(0, top), xlabel=text, title=name)
        axes.set_ylabel("accuracy")
        points = [((np.log10(x) - low) / (high - low), y / top) for _, _, x, y in found]
        labels = places(points, [row[0] for row in found])
        for (label, package, x, y), place in zip(found, labels, strict=True):
            colour, marker = FAMILIES.get(package, OTHERS)
            axes.plot(x, y, marker, color=colour, markersize=4)
            axes.annotate(label, place, xycoords="axes fraction", color=colour, va="center")
        style = "-" if key == "train_seconds" else ""
        axes.plot(
            [x for x, _, _ in mine], [y for _, y, _ in mine], marker="o", linestyle=style,
            color=FAMILIES["streammach"][0], markersize=5, label="streammach --time",
        )  # fmt: skip
        axes.legend(loc="lower right", frameon=False)
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


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
    other = kinds.add_parser("draw")
    for name in ("file", "peers", "folder"):
        other.add_argument(name)
    other.set_defaults(work=draw)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
