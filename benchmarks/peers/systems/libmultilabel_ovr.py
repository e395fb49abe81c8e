"""LibMultiLabel's one against the rest."""

from benchmarks.peers.systems.libmultilabel_tree import LISTS, PACKAGE, linear, predict, size
from benchmarks.peers.task import tree_features

__all__ = ["LISTS", "PACKAGE", "predict", "size", "train"]

NAME = "LibMultiLabel one against the rest"
SETTINGS = "defaults: L2 hinge, C 1; (1 + ln value) idf or unit rows"
MOST_BYTES = 4e9  # its weights are float64, a column a class


def train(task):
    """Train; return the model; refuse what does not fit."""
    n_bytes = 8 * task.n_classes * task.x.shape[1]
    if n_bytes > MOST_BYTES:
        raise SystemExit(f"Error: not run: dense weights of {n_bytes / 1e9:,.0f} GB")
    x, y = tree_features(task, task.x), task.labels
    with task.measured():
        return linear().train_1vsrest(y, x, False, f"-m {task.threads}", verbose=False)
