"""Every kind of model learns real rows: its accuracy on rows that it has not seen."""

import numpy as np
import pandas as pd
import pytest

import streammach as sm
from tests.builders import NO_PARTS

datasets = pytest.importorskip("sklearn.datasets")

FIXED = {"epochs": 5, "learning_rate": 0.3, "transform": "l2", "threads": 1}  # nothing is searched
DENSE = {**FIXED, "transform": "raw", **NO_PARTS}
HASHED = {**FIXED, "n_buckets": 4, "n_repetitions": 10}


def split(rows, labels):
    """Return two thirds of the rows with their labels, and the rest."""
    some = np.random.default_rng(0).permutation(len(labels))
    train, test = some[: 2 * len(some) // 3], some[2 * len(some) // 3 :]
    if isinstance(rows, pd.DataFrame):
        return (rows.iloc[train], labels[train]), (rows.iloc[test], labels[test])
    return (rows[train], labels[train]), (rows[test], labels[test])


def digits():
    """Return pictures of 8 x 8 pixels of handwritten digits, and the digits."""
    x, y = datasets.load_digits(return_X_y=True)
    return x.astype(np.float32), y


def words():
    """Return the same pictures as text: of each pixel with ink a word with its place and ink."""
    x, y = digits()
    rows = [" ".join(f"p{j}i{int(ink) // 4}" for j, ink in enumerate(row) if ink) for row in x]
    return np.array(rows, object), y


def digits_and_parity():
    """Return the text with two labels of each row: the digit, and whether it is odd."""
    x, y = words()
    lists = np.empty(len(y), object)
    lists[:] = [[str(digit), "odd" if digit % 2 else "even"] for digit in y]
    return x, lists


def measures():
    """Return a table of measures of wines, and where each grows."""
    found = datasets.load_wine(as_frame=True)
    return found.data, found.target.to_numpy()


# By kind: rows, options, and the least share of right answers (measured: 0.02 to 0.05 more).
KINDS = {
    "hashed": (words, {**HASHED, "counts": "off"}, 0.87),
    "hashed, joint loss": (words, {**HASHED, "counts": "off", "loss": "joint"}, 0.87),
    "counts": (words, {"n_repetitions": 0, "threads": 1}, 0.89),
    "counts beside models": (words, {**HASHED, "counts": "on"}, 0.88),
    "lists": (digits_and_parity, {**HASHED, "counts": "off"}, 0.88),
    "lists of counts": (digits_and_parity, {"n_repetitions": 0, "threads": 1}, 0.93),
    "exact": (digits, {**DENSE, "exact": True}, 0.92),
    "whitened": (digits, {**DENSE, "exact": True, "whitening": "on"}, 0.91),
    "cosines": (digits, {**DENSE, "fourier": "on"}, 0.95),
    "closed form": (digits, {**DENSE, "closed_form": "on"}, 0.92),
    "table": (measures, {"threads": 1}, 0.93),
    "linear": (words, {"threads": 1}, 0.9),
    "kernels": (digits, {"threads": 1}, 0.96),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_real_rows_are_learnt(kind, request):
    if kind in ("linear", "kernels", "table"):  # which are linear classifiers of few classes
        request.getfixturevalue("linear")
    rows, options, least = KINDS[kind]
    train, test = split(*rows())
    model = sm.train(*train, **options).model
    assert sm.evaluate(model, *test).accuracy > least
