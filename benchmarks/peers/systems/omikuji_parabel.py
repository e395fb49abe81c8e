"""Omikuji's Parabel: balanced trees of label clusters with linear classifiers."""

import numpy as np

from benchmarks.peers.task import K, folder_bytes, tree_features, write_rows

NAME = "Omikuji Parabel, 3 trees"
PACKAGE = "omikuji"
LISTS = True  # takes rows with lists of labels
SETTINGS = "defaults: 3 trees, hinge, C 1, beam 10; (1 + ln value) idf or unit rows"
BEAM = 10


def settings(parameters):
    """Change the default parameters: not at all."""


def train(task, change=settings, features=tree_features):
    """Train on a file in the repository's format; return the model."""
    import omikuji

    x = features(task, task.x)
    path = task.folder / "train.txt"
    head = f"{x.shape[0]} {x.shape[1]} {task.n_classes}"
    write_rows(path, x, task.label_names, _line, head)
    parameters = omikuji.Model.default_hyper_param()
    change(parameters)
    with task.measured():
        return omikuji.Model.train_on_data(str(path), parameters, task.threads)


def _line(labels, ids, values):
    return f"{labels} " + " ".join(f"{i}:{v:.6g}" for i, v in zip(ids, values, strict=True))


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
    """Return the bytes of the saved model."""
    model.save(str(task.folder / "model"))
    return folder_bytes(task.folder / "model")
