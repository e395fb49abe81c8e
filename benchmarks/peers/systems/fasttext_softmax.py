"""fastText with a softmax over all classes."""

from benchmarks.peers.systems import fasttext_hs
from benchmarks.peers.systems.fasttext_hs import DIM, PACKAGE, predict, size

__all__ = ["PACKAGE", "predict", "size", "train"]

EPOCHS = 5
NAME = "fastText softmax"
SETTINGS = f"softmax over all classes, dim {DIM}, rate 0.5, {EPOCHS} epochs; words as for hs"
SPEED = 2.8e9  # multiplications and additions a second in one thread, measured on ALOI
MOST_SECONDS = 900


def train(task):
    """Train; return the model; refuse what takes hours."""
    work = 2 * len(task.y) * task.n_classes * DIM * EPOCHS  # forward and backward
    seconds = work / SPEED / task.threads
    if seconds > MOST_SECONDS:
        raise SystemExit(f"not run: {EPOCHS} epochs take about {seconds / 60:,.0f} minutes")
    return fasttext_hs.train(task, loss="softmax", epoch=EPOCHS)
