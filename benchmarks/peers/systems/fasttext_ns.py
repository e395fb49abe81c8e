"""fastText with negative sampling."""

from benchmarks.peers.systems import fasttext_hs
from benchmarks.peers.systems.fasttext_hs import PACKAGE, RUNS, predict, size

__all__ = ["PACKAGE", "predict", "size", "train"]

NAME = "fastText ns"
SETTINGS = f"negative sampling (5), {RUNS}"


def train(task):
    """Train; return the model."""
    return fasttext_hs.train(task, loss="ns", neg=5)
