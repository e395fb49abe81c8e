"""Vowpal Wabbit one against all."""

from benchmarks.peers.systems import vw_log_multi
from benchmarks.peers.systems.vw_log_multi import PACKAGE, RUNS, TOP, predict, size

__all__ = ["PACKAGE", "TOP", "predict", "size", "train"]

NAME = "VW one against all"
SETTINGS = f"{RUNS}; one class a row"
MOST_WEIGHTS = 1 << 30
SPEED = 9e7  # updates of a weight a second, measured on ALOI
MOST_SECONDS = 1800


def options(task):
    """Return the options of the reduction; refuse what would only be collisions, or take hours."""
    weights = task.n_classes * task.x.shape[1]
    if weights > MOST_WEIGHTS:
        raise SystemExit(f"{weights / 1e9:.0f} billion weights do not fit; hashed they collide")
    seconds = 3 * task.x.nnz * task.n_classes / SPEED
    if seconds > MOST_SECONDS:
        raise SystemExit(f"not run: 3 passes take about {seconds / 3600:.0f} hours")
    return ["--oaa", str(task.n_classes)]


def train(task):
    """Train; return the model."""
    return vw_log_multi.train(task, options)
