"""scikit-learn's SGD, one against the rest, where its dense weights and the time allow."""

import numpy as np

from benchmarks.peers.task import K, unit_rows

NAME = "scikit-learn SGD OVR"
PACKAGE = "scikit-learn"
EPOCHS = 5
SETTINGS = f"log loss, alpha 1e-6, {EPOCHS} epochs, unit rows"
BLOCK = 256
MOST_BYTES, MOST_SECONDS = 4e9, 1200
SPEED = 2.5e6  # rows that a second shows to one classifier, measured on ALOI


def train(task):
    """Train; return the model; refuse what does not fit or takes hours."""
    from sklearn.linear_model import SGDClassifier

    n, bytes_ = len(task.y), 8 * task.n_classes * task.x.shape[1]
    if bytes_ > MOST_BYTES:
        raise SystemExit(f"not run: dense float64 weights are {bytes_ / 1e9:.0f} GB")
    seconds = EPOCHS * n * task.n_classes / SPEED / task.threads
    if seconds > MOST_SECONDS:
        raise SystemExit(f"not run: {EPOCHS} epochs take about {seconds / 60:.0f} minutes")
    model = SGDClassifier(
        loss="log_loss", alpha=1e-6, max_iter=EPOCHS, tol=None, random_state=0, n_jobs=task.threads
    )
    x = features(task, task.x)
    with task.measured():
        return model.fit(x, task.y)


def features(task, x):
    """Return rows of length 1."""
    return unit_rows(x)


def predict(model, task, given=features):
    """Return the best classes of each test row (m, 5)."""
    x = given(task, task.x_test)
    out = np.empty((x.shape[0], K), np.int64)
    with task.measured("predict"):
        for start in range(0, len(out), BLOCK):
            scores = model.decision_function(x[start : start + BLOCK])
            best = np.argpartition(-scores, K, axis=1)[:, :K]
            order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
            labels = np.take_along_axis(best, order, axis=1)
            out[start : start + BLOCK] = model.classes_[labels]
    return out


def size(model, task):
    """Return the bytes of the weights in float32."""
    return 4 * (model.coef_.size + model.intercept_.size)
