"""Vowpal Wabbit's LOMTree."""

import subprocess
import sys

import numpy as np

from benchmarks.peers.task import folder_bytes, write_rows

NAME = "VW LOMTree (--log_multi)"
PACKAGE = "vowpalwabbit"
RUNS = "3 passes, -b 24 (1 pass, -b 27 from a million rows on), logistic"
SETTINGS = f"{RUNS}; one class a row, so top-5 accuracy is not known"
TOP = 1
LARGE = 1_000_000


def options(task):
    """Return the options of the reduction."""
    return ["--log_multi", str(task.n_classes)]


def passes(task):
    """Return the options that say how often rows are read, and into how large a table."""
    if len(task.y) >= LARGE:
        return ["-b", "27"]
    return ["-b", "24", "--passes", "3", "--cache_file", "cache", "--holdout_off"]


def vw(task, *arguments):
    """Run the program."""
    command = [sys.executable, "-m", "vowpalwabbit", "--quiet", "--no_stdin", *arguments]
    done = subprocess.run(command, check=False, cwd=task.folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Error: {(done.stderr or done.stdout).strip()}")


def line(y, ids, values):
    """Return a row in the program's text; labels from 1."""
    return f"{y + 1} | " + _features(ids, values)


def multilabel_line(y, ids, values):
    """Return a row as the program's multilabel reductions read it; labels from 0."""
    return f"{y} | " + _features(ids, values)


def _features(ids, values):
    return " ".join(f"{i}:{v:g}" for i, v in zip(ids, values, strict=True))


def train(task, reduction=options, text=line, labels=None):
    """Train on a text file, parsing included; `labels` of the rows, where not their classes."""
    own = task.y if labels is None else labels
    write_rows(task.folder / "train.vw", task.x, own, text)
    write_rows(task.folder / "test.vw", task.x_test, np.maximum(task.y_test, 0), text)
    given = [*passes(task), "--loss_function", "logistic", *reduction(task)]
    with task.measured():
        vw(task, "-d", "train.vw", "-f", "model", *given)
    return "model"


def predict(model, task):
    """Return the class of each test row (m, 1), parsing included."""
    with task.measured("predict"):
        vw(task, "-t", "-d", "test.vw", "-i", model, "-p", "out")
    found = np.loadtxt(task.folder / "out", usecols=0, ndmin=1)
    return found.astype(np.int64)[:, None] - 1


def size(model, task):
    """Return the bytes of the model."""
    return folder_bytes(task.folder / model)
