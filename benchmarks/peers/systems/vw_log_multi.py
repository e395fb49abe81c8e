"""Vowpal Wabbit's LOMTree."""

import subprocess
import sys

import numpy as np

from benchmarks.peers.task import folder_bytes, write_rows

NAME = "VW LOMTree (--log_multi)"
PACKAGE = "vowpalwabbit"
SETTINGS = "1 pass, -b 24, logistic; one class a row, so P@5 is not known"
TOP = 1


def options(task):
    """Return the options of the reduction."""
    return ["--log_multi", str(task.n_classes), "--loss_function", "logistic"]


def vw(task, *arguments):
    """Run the program."""
    command = [sys.executable, "-m", "vowpalwabbit", "--quiet", "--no_stdin", *arguments]
    subprocess.run(command, check=True, cwd=task.folder, capture_output=True, text=True)


def line(y, ids, values):
    """Return a row in the program's text; labels from 1."""
    return f"{y + 1} | " + " ".join(f"{i}:{v:g}" for i, v in zip(ids, values, strict=True))


def train(task, reduction=options):
    """Train on a text file, parsing included."""
    write_rows(task.folder / "train.vw", task.x, task.y, line)
    write_rows(task.folder / "test.vw", task.x_test, np.maximum(task.y_test, 0), line)
    with task.measured():
        vw(task, "-d", "train.vw", "-b", "24", "-f", "model", *reduction(task))
    return "model"


def predict(model, task):
    """Return the class of each test row (m, 1)."""
    vw(task, "-t", "-d", "test.vw", "-i", model, "-p", "out")
    found = np.loadtxt(task.folder / "out", usecols=0, ndmin=1)
    return found.astype(np.int64)[:, None] - 1


def size(model, task):
    """Return the bytes of the model."""
    return folder_bytes(task.folder / model)
