"""Ten million classes on one machine: what each command takes, and whether answers are exact.

    python -m benchmarks.many_classes FOLDER [--classes 10000000] [--features 5000000]
        [--rows 12000000] [--test-rows 100000] [--words 12] [--memory 4GB] [--train OPTIONS]
        [--queries 300] [--exact 1000] [--json FILE]

Made-up rows of odp's kind, 1.2 a class, are written to FOLDER, unless they are there: nothing is to
be learnt from them, it is asked whether it runs, and in what memory. Then the commands: each is a
process, whose seconds (of the clock and of processors) and peak are set beside the memory that it
projected and, for the training, the time. Predictions and evaluations are of rows of text.

Then one thread answers in this process: rows one at a time, and 4,096 together. The top-5 of
`--exact` rows are compared with those of scoring all classes in NumPy; the first one that differs
ends it. Bytes a class are those of its buckets, one each, and of its name.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.decode_check import KINDS
from benchmarks.machine_facts import facts, parser, report
from benchmarks.predict import RUN_ROWS, TOP, held_mb, seconds_of, spread
from benchmarks.sizes import test_rows
from streammach.backends.cpu.backend import CpuBackend
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.rows.transforms import transformed
from streammach.spec.estimators import ESTIMATORS
from tests.reference.decoding import scores_of

TRAIN = "--memory 8GB --counts off --epochs 1 --learning-rate 0.5 --transform binary"
PREDICTED, EVALUATED = 5_000, 2_000  # rows of text


def main():
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    for name, default in (("classes", 10_000_000), ("features", 5_000_000), ("rows", 12_000_000),
                          ("test-rows", 100_000), ("words", 12), ("queries", 300),
                          ("exact", 1000)):  # fmt: skip
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--memory", default="4GB")
    arguments.add_argument("--train", default=TRAIN)
    given = arguments.parse_args()
    folder = given.folder
    if (folder / "run").exists():
        raise SystemExit(f"{folder / 'run'} is there: remove it to train again")
    make(given, folder)
    steps = {}
    for name, command in commands(given, folder):
        steps[name] = measured(name, command)
        print(name, steps[name], file=sys.stderr, flush=True)
    answers = answered(given, folder)
    print(answers)
    asked = {name: value for name, value in vars(given).items() if name not in ("folder", "json")}
    report({"steps": steps, "answers": answers, "arguments": asked, "machine": facts()}, given.json)


def make(given, folder):
    """Write the rows as text, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "test.vw.gz").exists():
        return
    options = [f"--{name}={getattr(given, name.replace('-', '_'))}"
               for name in ("classes", "features", "rows", "test-rows", "words")]  # fmt: skip
    tool = [sys.executable, "tools/make_synthetic.py", "odp"]
    subprocess.run(
        [*tool, folder / "train.vw.gz", "--test", folder / "test.vw.gz", *options], check=True
    )


def commands(given, folder):
    """Yield the name of each step and its command."""
    paths = [folder / name for name in ("train.vw.gz", "train.zarr", "test.vw.gz", "test.zarr")]
    train, store, test, test_store = map(str, paths)
    memory, run = ["--memory", given.memory], str(folder / "run")
    yield "train store", ["convert", train, store, *memory, "--force"]
    yield "test store", ["convert", test, test_store, "--like", store, *memory, "--force"]
    yield "train", ["train", store, "--out", run, *shlex.split(given.train)]
    for name, n_rows in (("predict", PREDICTED), ("evaluate", EVALUATED)):
        text = folder / f"{name}.vw"
        with subprocess.Popen(["gzip", "-dc", test], stdout=subprocess.PIPE) as unpacked:
            lines = [unpacked.stdout.readline() for _ in range(n_rows)]
            unpacked.terminate()
        text.write_bytes(b"".join(lines))
        out = ["--out", str(folder / "predicted.tsv"), "--force"] if name == "predict" else []
        yield name, [name, run, str(text), *out]


def measured(name, command):
    """Run a command; return its seconds, its peak and what it projected."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "streammach", *command, "--json"], stdout=subprocess.PIPE
    )
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}")
    told = json.loads(said.splitlines()[-1])
    found = {
        "seconds": time.monotonic() - began, "processor_seconds": used.ru_utime + used.ru_stime,
        "projected_bytes": told["projected_bytes"], "peak_bytes": told["peak_bytes"],
        "peak_over_projected": told["peak_bytes"] / told["projected_bytes"],
    }  # fmt: skip
    if name == "train":
        info = [sys.executable, "-m", "streammach", "info", told["run"], "--json"]
        run = json.loads(subprocess.check_output(info))
        found |= {key: run[key] for key in ("buckets", "repetitions", "expected_seconds")}
    return found


def answered(given, folder):
    """Answer queries from the model; return what that takes, or stop where an answer is wrong."""
    before, began = held_mb(), time.monotonic()
    model = Model.load(folder / "run")
    loaded, seconds = held_mb() - before, time.monotonic() - began
    rows = test_rows(model, folder / "test.zarr", max(RUN_ROWS, given.exact))
    with Predictor(model, device="cpu", threads=1) as predictor:
        some = rows.part(0, RUN_ROWS)
        parts = [some.part(i, i + 1) for i in range(given.queries)]
        predictor.topk_ids(some, TOP)
        found = {
            "load_seconds": seconds, "loaded_mb": loaded, "model_bytes": model.n_bytes,
            "bytes_a_class": {"buckets": model.spec.n_repetitions,
                              "names": model.labels.n_bytes / model.spec.n_classes},
            "single_us": spread(lambda i: predictor.topk(parts[i], TOP), given.queries),
            "batch_us": 1e6 * seconds_of(lambda: predictor.topk_ids(some, TOP)) / some.n_rows,
            "decoding": predictor.decoding,
        }  # fmt: skip
        asked = rows.part(0, given.exact)
        ids, _ = predictor.topk_ids(asked, TOP)
    print(found, file=sys.stderr, flush=True)
    compare(model, asked, ids)
    return found | {"exact_rows": given.exact}


def compare(model, rows, ids):
    """Score all classes of rows in NumPy; stop where the best are others."""
    spec, (kind, _) = model.spec, KINDS[model.estimator]
    logarithms, codes = ESTIMATORS[model.estimator].logarithms, spec.codes()
    backend = CpuBackend(spec, dense=False, threads=1, weights=model.hashed)
    rows = transformed(rows, model.training.transform)
    for i in range(rows.n_rows):
        p = backend.outputs(rows.part(i, i + 1), logarithms=logarithms)[0]
        scores = scores_of(p, codes, spec.n_buckets, kind)
        best = np.flatnonzero(scores >= np.partition(scores, -TOP)[-TOP])
        best = best[np.lexsort((best, -scores[best]))][:TOP]
        if (best != ids[i]).any():
            raise SystemExit(f"row {i}: {best} are the best, not {ids[i]}")
    backend.close()


if __name__ == "__main__":
    main()
