"""fastText with negative sampling."""

from benchmarks.peers.systems import fasttext_hs
from benchmarks.peers.systems.fasttext_hs import PACKAGE, predict, size

__all__ = ["PACKAGE", "predict", "size", "train"]

NAME = "fastText ns"
SETTINGS = "negative sampling (5), dim 100, rate 0.5, 15 epochs (5 from a million rows on)"


def train(task):
    """Train; return the model."""
    return fasttext_hs.train(task, loss="ns", neg=5)
