"""Omikuji's Parabel (balanced trees of label clusters) and Bonsai (shallow, unbalanced ones)."""

import numpy as np

from benchmarks.peers.scaled import with_scaled
from benchmarks.peers.task import K, System, folder_bytes, tree_features, write_rows

PACKAGE = "omikuji"
BEAM = 10


def train(task, *, bonsai=False, features=tree_features):
    """Train on a file in the repository's format; return the model."""
    import omikuji

    def line(labels, ids, values):
        return f"{labels} " + " ".join(f"{i}:{v:.6g}" for i, v in zip(ids, values, strict=True))

    x = features(task, task.x)
    path = task.folder / "train.txt"
    head = f"{x.shape[0]} {x.shape[1]} {task.n_classes}"
    write_rows(path, x, task.label_names, line, head)
    parameters = omikuji.Model.default_hyper_param()
    if bonsai:  # as its authors do
        parameters.cluster_balanced = False
        parameters.cluster_k = 100
        parameters.max_depth = 3
    with task.measured():
        return omikuji.Model.train_on_data(str(path), parameters, task.threads)


def predict(model, task, features=tree_features):
    """Return the best classes of each test row (m, 5), row by row: there is no batch call."""
    x = features(task, task.x_test)
    out = np.full((x.shape[0], K), -1, np.int64)
    with task.measured("predict"):
        for i in range(x.shape[0]):
            a, b = x.indptr[i], x.indptr[i + 1]
            pairs = list(zip(x.indices[a:b].tolist(), x.data[a:b].tolist(), strict=True))
            best = model.predict(pairs, beam_size=BEAM, top_k=K)
            out[i, : len(best)] = [label for label, _ in best]
    return out


def size(model, task):
    model.save(str(task.folder / "model"))
    return folder_bytes(task.folder / "model")


def bonsai(task, features=tree_features):
    return train(task, bonsai=True, features=features)


PARABEL = System(
    "Omikuji Parabel, 3 trees", PACKAGE,
    f"defaults: 3 trees, hinge, C 1, beam {BEAM}; (1 + ln value) idf or unit rows",
    train, predict, size, lists=True,
)  # fmt: skip
BONSAI = System(
    "Omikuji Bonsai, 3 trees", PACKAGE,
    "unbalanced clusters of 100, depth 3, otherwise as Parabel", bonsai, predict, size, lists=True,
)  # fmt: skip
SYSTEMS = {
    "omikuji_parabel": PARABEL, "omikuji_scaled": with_scaled(PARABEL, "Parabel"),
    "omikuji_bonsai": BONSAI, "omikuji_bonsai_scaled": with_scaled(BONSAI, "Bonsai"),
}  # fmt: skip
