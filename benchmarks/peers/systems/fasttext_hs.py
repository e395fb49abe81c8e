"""fastText with a hierarchical softmax; features are words."""

import numpy as np

from benchmarks.peers.task import DENSE, FULL, K, folder_bytes, write_rows

RUNS = (
    "dim 100, rate 0.5, 15 epochs (5 from a million rows on); a word is a feature, with its value "
    "where rows are dense"
)
NAME = "fastText hs"
PACKAGE = "fasttext-wheel"
SETTINGS = f"hierarchical softmax, {RUNS}"
LARGE, DIM = 1_000_000, 100


def epochs(task):
    """Return how often the rows are read."""
    return 5 if len(task.y) >= LARGE else 15


def words(task, ids, values):
    """Return a row as words: its features, with their values where rows are dense."""
    if task.filled > DENSE:
        return " ".join(f"f{i}={v:g}" for i, v in zip(ids, values, strict=True))
    return " ".join(f"f{i}" for i in ids)


def train(task, **change):
    """Train on a file of words; return the model."""
    import fasttext

    if task.filled > FULL:
        raise SystemExit("not run: its features are words, and dense rows all have the same ones")
    path = task.folder / "train.txt"
    write_rows(path, task.x, task.y, lambda y, *row: f"__label__{y} {words(task, *row)}")
    options = {"loss": "hs", "dim": DIM, "lr": 0.5, "epoch": epochs(task), "minCount": 1}
    with task.measured():
        return fasttext.train_supervised(
            str(path), thread=task.threads, verbose=0, **options | change
        )


def predict(model, task):
    """Return the best classes of each test row (m, 5)."""
    x = task.x_test
    ends = x.indptr[1:-1]
    rows = zip(np.split(x.indices, ends), np.split(x.data, ends), strict=True)
    lines = [words(task, ids.tolist(), values.tolist()) for ids, values in rows]
    out = np.full((len(lines), K), -1, np.int64)
    with task.measured("predict"):
        for i, line in enumerate(lines):
            labels = [label for _, label in model.f.predict(line + "\n", K, 0.0, "strict")]
            out[i, : len(labels)] = [int(label.removeprefix("__label__")) for label in labels]
    return out


def size(model, task):
    """Return the bytes of the saved model."""
    model.save_model(str(task.folder / "model.bin"))
    return folder_bytes(task.folder / "model.bin")
