"""Vowpal Wabbit's Recall Tree."""

from benchmarks.peers.systems import vw_log_multi
from benchmarks.peers.systems.vw_log_multi import PACKAGE, RUNS, TOP, predict, size

__all__ = ["PACKAGE", "TOP", "predict", "size", "train"]

NAME = "VW Recall Tree"
SETTINGS = f"{RUNS}, other defaults; one class a row"


def options(task):
    """Return the options of the reduction."""
    return ["--recall_tree", str(task.n_classes)]


def train(task):
    """Train; return the model."""
    return vw_log_multi.train(task, options)
