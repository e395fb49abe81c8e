"""Vowpal Wabbit: LOMTree, Recall Tree, one against all, and its probabilistic label tree."""

import re
import subprocess
import sys

import numpy as np

from benchmarks.peers.task import K, System, folder_bytes, listed, write_rows

PACKAGE = "vowpalwabbit"
RUNS = "3 passes, -b 24 (1 pass, -b 27 from a million rows on), logistic"
LARGE = 1_000_000
MOST_WEIGHTS, MOST_SECONDS = 1 << 30, 1800
SPEED = 9e7  # updates of a weight a second, measured on ALOI


def vw(task, *arguments):
    command = [sys.executable, "-m", "vowpalwabbit", "--quiet", "--no_stdin", *arguments]
    done = subprocess.run(command, check=False, cwd=task.folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Error: {(done.stderr or done.stdout).strip()}")


def trained(task, reduction, labels, base=1):
    """Train with a reduction on a text file, parsing included; labels are counted from `base`."""

    def line(y, ids, values):
        return f"{y} | " + " ".join(f"{i}:{v:g}" for i, v in zip(ids, values, strict=True))

    write_rows(task.folder / "train.vw", task.x, labels, line)
    write_rows(task.folder / "test.vw", task.x_test, np.maximum(task.y_test, 0) + base, line)
    passes = ["-b", "24", "--passes", "3", "--cache_file", "cache", "--holdout_off"]
    given = ["-b", "27"] if len(task.y) >= LARGE else passes
    with task.measured():
        vw(task, "-d", "train.vw", "-f", "model", *given, "--loss_function", "logistic", *reduction)
    return "model"


def predict(model, task):
    with task.measured("predict"):
        vw(task, "-t", "-d", "test.vw", "-i", model, "-p", "out")
    found = np.loadtxt(task.folder / "out", usecols=0, ndmin=1)
    return found.astype(np.int64)[:, None] - 1


def single(option):
    """Return what trains a reduction to one label, which are counted from 1."""
    return lambda task: trained(task, [option, str(task.n_classes)], task.y + 1)


def oaa(task):
    """Train one against all; refuse what would only be collisions, or take hours."""
    weights = task.n_classes * task.x.shape[1]
    if weights > MOST_WEIGHTS:
        raise SystemExit(f"{weights / 1e9:.0f} billion weights do not fit; hashed they collide")
    seconds = 3 * task.x.nnz * task.n_classes / SPEED
    if seconds > MOST_SECONDS:
        raise SystemExit(f"not run: 3 passes take about {seconds / 3600:.0f} hours")
    return single("--oaa")(task)


def plt(task):
    """Train a label tree, whose labels are counted from 0."""
    number = np.argsort(task.by_name)
    rows = ([label] for label in task.y) if task.lists is None else listed(task.lists)
    labels = [",".join(map(str, np.sort(number[row]).tolist())) for row in rows]
    tree = ["--plt", str(task.n_classes), "--kary_tree", "16", "--adaptive", "-l", "0.5"]
    return trained(task, tree, labels, base=0)


def predict_plt(model, task):
    with task.measured("predict"):
        vw(task, "-t", "-d", "test.vw", "-i", model, "-p", "out", "--top_k", str(K),
           "--loss_function", "logistic", "--probabilities")  # fmt: skip
    lines = (task.folder / "out").read_text(encoding="ascii").splitlines()
    out = np.full((task.x_test.shape[0], K), -1, np.int64)
    for i, text in enumerate(lines[: len(out)]):
        best = sorted(re.findall(r"(\d+):([\d.e+-]+)", text), key=lambda pair: -float(pair[1]))
        labels = [int(label) for label, _ in best if int(label) < task.n_classes]  # or empty leaves
        out[i, : len(labels)] = task.by_name[labels]
    return out


def size(model, task):
    return folder_bytes(task.folder / model)


ONE = f"{RUNS}; one class a row"
SYSTEMS = {
    "vw_log_multi": System(
        "VW LOMTree (--log_multi)", PACKAGE, f"{ONE}, so top-5 accuracy is not known",
        single("--log_multi"), predict, size,
    ),
    "vw_recall_tree": System(
        "VW Recall Tree", PACKAGE, f"{RUNS}, other defaults; one class a row",
        single("--recall_tree"), predict, size,
    ),
    "vw_oaa": System("VW one against all", PACKAGE, ONE, oaa, predict, size),
    "vw_plt": System(
        "VW PLT", PACKAGE,
        f"16-ary tree over the labels in their order, adaptive, rate 0.5; {RUNS}",
        plt, predict_plt, size, lists=True,
    ),
}  # fmt: skip
