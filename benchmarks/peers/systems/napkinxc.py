"""napkinXC's probabilistic label tree, and its one against the rest."""

import numpy as np

from benchmarks.peers.task import K, System, folder_bytes, listed, tree_features

PACKAGE = "napkinxc"
SPEED = 7e6  # values of a class a second in one thread, measured on 21 classes of the hypernyms
MOST_SECONDS = 3600


def train(task, kind="PLT"):
    import napkinxc.models

    x = tree_features(task, task.x)
    labels = task.y.tolist() if task.lists is None else listed(task.lists)
    make = getattr(napkinxc.models, kind)
    model = make(str(task.folder / "model"), threads=task.threads, seed=0)
    with task.measured():
        model.fit(x, labels)
    return model


def ovr(task):
    """Train one against the rest; refuse what takes many hours."""
    seconds = task.x.nnz * task.n_classes / SPEED / task.threads
    if seconds > MOST_SECONDS:
        raise SystemExit(
            f"not run: {task.n_classes:,} classifiers over {task.x.nnz:,} values take about "
            f"{seconds / 3600:,.1f} hours"
        )
    return train(task, "OVR")


def predict(model, task):
    x = tree_features(task, task.x_test)
    with task.measured("predict"):
        found = model.predict(x, top_k=K)
    out = np.full((len(found), K), -1, np.int64)
    for i, labels in enumerate(found):
        out[i, : len(labels)] = labels[:K]
    return out


def size(model, task):
    return folder_bytes(task.folder / "model")


ROWS = "logistic, C 10; (1 + ln value) idf or unit rows"
SYSTEMS = {
    "napkinxc_plt": System(
        "napkinXC PLT", PACKAGE, f"defaults: hierarchical k-means tree, {ROWS}",
        train, predict, size, lists=True,
    ),
    "napkinxc_ovr": System(
        "napkinXC OVR", PACKAGE, f"defaults: {ROWS}", ovr, predict, size, lists=True
    ),
}  # fmt: skip
