"""LibMultiLabel's tree of linear classifiers over clusters of labels."""

import numpy as np

from benchmarks.peers.task import K, tree_features

NAME = "LibMultiLabel tree"
PACKAGE = "libmultilabel"
LISTS = True  # takes rows with lists of labels
BEAM, CHUNK = 10, 256
SETTINGS = f"defaults: 100 clusters, L2 hinge, beam {BEAM}; (1 + ln value) idf or unit rows"


def linear():
    """Return the package's linear methods."""
    import libmultilabel.linear

    return libmultilabel.linear


def train(task, features=tree_features):
    """Train; return the model."""
    x, y = features(task, task.x), task.labels
    with task.measured():
        return linear().train_tree(y, x, f"-m {task.threads}", verbose=False)


def predict(model, task, features=tree_features, **options):
    """Return the best classes of each test row (m, 5)."""
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
    """Return the bytes of the weights as the package holds them in memory."""
    weights = getattr(model, "flat_model", model).weights
    parts = [weights] if not hasattr(weights, "indptr") else [
        weights.data, weights.indices, weights.indptr
    ]  # fmt: skip
    return sum(part.nbytes for part in parts)
