"""fastText: hierarchical softmax, negative sampling, or whole softmax; features are words."""

from functools import partial

import numpy as np

from benchmarks.peers.task import DENSE, FULL, K, System, folder_bytes, write_rows

PACKAGE = "fasttext-wheel"
RUNS = (
    "dim 100, rate 0.5, 15 epochs (5 from a million rows on); a word is a feature, with its value "
    "where rows are dense"
)
LARGE, DIM, SOFTMAX_EPOCHS = 1_000_000, 100, 5
SPEED = 2.8e9  # multiplications and additions a second in one thread, measured on ALOI
MOST_SECONDS = 900


def words(task, ids, values):
    if task.filled > DENSE:
        return " ".join(f"f{i}={v:g}" for i, v in zip(ids, values, strict=True))
    return " ".join(f"f{i}" for i in ids)


def train(task, **change):
    import fasttext

    if task.filled > FULL:
        raise SystemExit("not run: its features are words, and dense rows all have the same ones")
    path = task.folder / "train.txt"
    write_rows(path, task.x, task.y, lambda y, *row: f"__label__{y} {words(task, *row)}")
    epochs = 5 if len(task.y) >= LARGE else 15
    options = {"loss": "hs", "dim": DIM, "lr": 0.5, "epoch": epochs, "minCount": 1}
    with task.measured():
        return fasttext.train_supervised(
            str(path), thread=task.threads, verbose=0, **options | change
        )


def softmax(task):
    """Train; refuse what takes hours."""
    work = 2 * len(task.y) * task.n_classes * DIM * SOFTMAX_EPOCHS  # forward and backward
    seconds = work / SPEED / task.threads
    if seconds > MOST_SECONDS:
        raise SystemExit(f"not run: {SOFTMAX_EPOCHS} epochs take about {seconds / 60:,.0f} minutes")
    return train(task, loss="softmax", epoch=SOFTMAX_EPOCHS)


def predict(model, task):
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
    model.save_model(str(task.folder / "model.bin"))
    return folder_bytes(task.folder / "model.bin")


SYSTEMS = {
    "fasttext_hs": System(
        "fastText hs", PACKAGE, f"hierarchical softmax, {RUNS}", train, predict, size
    ),
    "fasttext_ns": System(
        "fastText ns", PACKAGE, f"negative sampling (5), {RUNS}",
        partial(train, loss="ns", neg=5), predict, size,
    ),
    "fasttext_softmax": System(
        "fastText softmax", PACKAGE,
        f"softmax over all classes, dim {DIM}, rate 0.5, {SOFTMAX_EPOCHS} epochs; words as for hs",
        softmax, predict, size,
    ),
}  # fmt: skip
