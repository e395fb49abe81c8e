"""Vowpal Wabbit one against all."""

from benchmarks.peers.systems import vw_log_multi
from benchmarks.peers.systems.vw_log_multi import PACKAGE, TOP, predict, size

__all__ = ["PACKAGE", "TOP", "predict", "size", "train"]

NAME = "VW one against all"
SETTINGS = "1 pass, -b 24, logistic; one class a row"
MOST_WEIGHTS = 1 << 30


def options(task):
    """Return the options of the reduction; refuse what would only be collisions."""
    weights = task.n_classes * task.x.shape[1]
    if weights > MOST_WEIGHTS:
        raise SystemExit(f"{weights / 1e9:.0f} billion weights do not fit; hashed they collide")
    return ["--oaa", str(task.n_classes), "--loss_function", "logistic"]


def train(task):
    """Train; return the model."""
    return vw_log_multi.train(task, options)
