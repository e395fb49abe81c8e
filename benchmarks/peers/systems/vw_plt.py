"""Vowpal Wabbit's probabilistic label tree."""

import re

import numpy as np

from benchmarks.peers.systems import vw_log_multi
from benchmarks.peers.systems.vw_log_multi import PACKAGE, RUNS, size
from benchmarks.peers.task import K, listed

__all__ = ["PACKAGE", "predict", "size", "train"]

NAME = "VW PLT"
LISTS = True  # takes rows with lists of labels
SETTINGS = f"16-ary tree over the labels in their order, adaptive, rate 0.5; {RUNS}"


def options(task):
    """Return the options of the reduction."""
    return ["--plt", str(task.n_classes), "--kary_tree", "16", "--adaptive", "-l", "0.5"]


def train(task):
    """Train; return the model."""
    number = np.argsort(task.by_name)
    rows = (
        number[task.y][:, None]
        if task.lists is None
        else map(number.__getitem__, listed(task.lists))
    )
    labels = [",".join(map(str, np.sort(row).tolist())) for row in rows]
    return vw_log_multi.train(task, options, vw_log_multi.multilabel_line, labels)


def predict(model, task):
    """Return the best classes of each test row (m, 5), parsing included."""
    with task.measured("predict"):
        vw_log_multi.vw(
            task, "-t", "-d", "test.vw", "-i", model, "-p", "out", "--top_k", str(K),
            "--loss_function", "logistic", "--probabilities",
        )  # fmt: skip
    lines = (task.folder / "out").read_text(encoding="ascii").splitlines()
    out = np.full((task.x_test.shape[0], K), -1, np.int64)
    for i, text in enumerate(lines[: len(out)]):
        best = sorted(re.findall(r"(\d+):([\d.e+-]+)", text), key=lambda pair: -float(pair[1]))
        labels = [int(label) for label, _ in best if int(label) < task.n_classes]  # or empty leaves
        out[i, : len(labels)] = task.by_name[labels]
    return out
