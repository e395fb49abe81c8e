"""scikit-learn's linear discriminant analysis, for few features."""

import warnings

from benchmarks.peers.systems import sklearn_sgd
from benchmarks.peers.systems.sklearn_sgd import PACKAGE, size

__all__ = ["PACKAGE", "predict", "size", "train"]

NAME = "scikit-learn LDA"
SETTINGS = "raw values, lsqr, no shrinkage"
MOST_FEATURES = 2000


def train(task):
    """Train; return the model; refuse what needs a large covariance matrix."""
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


def features(task, x):
    """Return the values as they are, without gaps."""
    return x.toarray()


def predict(model, task):
    """Return the best classes of each test row (m, 5)."""
    return sklearn_sgd.predict(model, task, features)
