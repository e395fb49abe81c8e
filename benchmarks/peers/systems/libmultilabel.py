"""LibMultiLabel's tree of linear classifiers over clusters of labels; one against the rest."""

import numpy as np

from benchmarks.peers.scaled import with_scaled
from benchmarks.peers.task import K, System, tree_features

PACKAGE = "libmultilabel"
BEAM, CHUNK = 10, 256
MOST_BYTES = 4e9  # of one against the rest, whose weights are float64, a column a class


def linear():
    import libmultilabel.linear

    return libmultilabel.linear


def train(task, features=tree_features):
    x, y = features(task, task.x), task.labels
    with task.measured():
        return linear().train_tree(y, x, f"-m {task.threads}", verbose=False)


def ovr(task):
    """Train one against the rest; refuse what does not fit."""
    n_bytes = 8 * task.n_classes * task.x.shape[1]
    if n_bytes > MOST_BYTES:
        raise SystemExit(f"Error: not run: dense weights of {n_bytes / 1e9:,.0f} GB")
    x, y = tree_features(task, task.x), task.labels
    with task.measured():
        return linear().train_1vsrest(y, x, False, f"-m {task.threads}", verbose=False)


def predict(model, task, features=tree_features, **options):
    x = features(task, task.x_test)
    out = np.empty((x.shape[0], K), np.int64)
    with task.measured("predict"):
        for first in range(0, len(out), CHUNK):  # values of all classes come back
            values = linear().predict_values(model, x[first : first + CHUNK], **options)
            best = np.argpartition(-values, K, axis=1)[:, :K]
            order = np.argsort(-np.take_along_axis(values, best, 1), axis=1, kind="stable")
            out[first : first + CHUNK] = np.take_along_axis(best, order, 1)
    return out


def size(model, task):
    weights = getattr(model, "flat_model", model).weights
    parts = [weights] if not hasattr(weights, "indptr") else [
        weights.data, weights.indices, weights.indptr
    ]  # fmt: skip
    return sum(part.nbytes for part in parts)


TREE = System(
    "LibMultiLabel tree", PACKAGE,
    f"defaults: 100 clusters, L2 hinge, beam {BEAM}; (1 + ln value) idf or unit rows",
    train, predict, size, lists=True,
)  # fmt: skip
SYSTEMS = {
    "libmultilabel_tree": TREE,
    "libmultilabel_scaled": with_scaled(TREE, "LibMultiLabel's tree"),
    "libmultilabel_ovr": System(
        "LibMultiLabel one against the rest", PACKAGE,
        "defaults: L2 hinge, C 1; (1 + ln value) idf or unit rows", ovr, predict, size, lists=True,
    ),
}  # fmt: skip
