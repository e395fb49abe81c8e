"""napkinXC's probabilistic label tree."""

import numpy as np

from benchmarks.peers.task import K, folder_bytes, listed, tree_features

NAME = "napkinXC PLT"
PACKAGE = "napkinxc"
LISTS = True  # takes rows with lists of labels
SETTINGS = "defaults: hierarchical k-means tree, logistic, C 10; (1 + ln value) idf or unit rows"


def train(task, kind=None):
    """Train a model, a tree where no other kind is given; return it."""
    from napkinxc.models import PLT

    x = tree_features(task, task.x)
    labels = task.y.tolist() if task.lists is None else listed(task.lists)
    model = (kind or PLT)(str(task.folder / "model"), threads=task.threads, seed=0)
    with task.measured():
        model.fit(x, labels)
    return model


def predict(model, task):
    """Return the best classes of each test row (m, 5)."""
    x = tree_features(task, task.x_test)
    with task.measured("predict"):
        found = model.predict(x, top_k=K)
    out = np.full((len(found), K), -1, np.int64)
    for i, labels in enumerate(found):
        out[i, : len(labels)] = labels[:K]
    return out


def size(model, task):
    """Return the bytes of the model's folder."""
    return folder_bytes(task.folder / "model")
