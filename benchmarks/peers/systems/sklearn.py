"""scikit-learn: SGD, one against the rest, and linear discriminant analysis, where they fit."""

import warnings
from functools import partial

import numpy as np

from benchmarks.peers.task import K, System, unit_rows

PACKAGE = "scikit-learn"
EPOCHS = 5
MOST_FEATURES = 2000  # of the discriminant analysis
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
    x = unit_rows(task.x)
    with task.measured():
        return model.fit(x, task.y)


def lda(task):
    """Train; refuse what needs a large covariance matrix."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    d = task.x.shape[1]
    if d > MOST_FEATURES:
        raise SystemExit(
            f"not run: a covariance matrix of {d:,} features is {4 * d * d / 1e9:.0f} GB"
        )
    warnings.simplefilter("ignore")  # one for every class of one row
    model = LinearDiscriminantAnalysis(solver="lsqr")
    x = task.x.toarray()
    with task.measured():
        return model.fit(x, task.y)


def predict(model, task, given=unit_rows):
    x = given(task.x_test)
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
    return 4 * (model.coef_.size + model.intercept_.size)


SYSTEMS = {
    "sklearn_sgd": System(
        "scikit-learn SGD OVR", PACKAGE, f"log loss, alpha 1e-6, {EPOCHS} epochs, unit rows",
        train, predict, size,
    ),
    "sklearn_lda": System(
        "scikit-learn LDA", PACKAGE, "raw values, lsqr, no shrinkage",
        lda, partial(predict, given=lambda x: x.toarray()), size,
    ),
}  # fmt: skip
