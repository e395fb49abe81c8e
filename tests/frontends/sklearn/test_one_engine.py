"""The estimator and `train` are one engine: the same rows and options give the same model."""

import numpy as np
import pytest
import scipy.sparse

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("sklearn")

import streammach as sm  # noqa: E402
from streammach.system.errors import UsageError  # noqa: E402
from tests.builders import NO_PARTS  # noqa: E402

N, K = 240, 6
# Parameters of the estimator, and what the same is called for a training.
OPTIONS = {
    "whole": ({"model_size": "full", "learning_rate": 0.3, "batch_size": 32, "memory": "1GB"}, {}),
    "usual": ({}, {}),
    "hashed": ({"n_buckets": 4, "n_repetitions": 6, "epochs": 2, "learning_rate": 0.3}, {}),
    "seeded": ({"random_state": 3, "options": {"counts": "off", "held_out_rows": 40}},
               {"seed": 3, "counts": "off", "held_out_rows": 40}),
    "threads": ({"n_jobs": 1, "hold_out_by": "random"}, {"threads": 1, "hold_out_by": "random"}),
}  # fmt: skip
PARTS = {"transform": "raw", **NO_PARTS}
OWN = {"random_state", "options", "n_jobs", "hold_out_by"}


def kinds_of(n, n_kinds, seed=0):
    return np.random.default_rng(seed).integers(0, n_kinds, n)


def texts_of(kinds, seed=1):
    rng = np.random.default_rng(seed)
    return [f"thing{k} kind{k % 3} word{rng.integers(40)} of {rng.integers(9)}" for k in kinds]


def frame_of(kinds, seed=2):
    rng = np.random.default_rng(seed)
    brand = np.where(rng.random(len(kinds)) < 0.2, "other", [f"brand {k % 4}" for k in kinds])
    return pd.DataFrame({"title": texts_of(kinds), "brand": brand, "size": rng.random(len(kinds))})


def values_of(kinds, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.random((len(kinds), 30)) * (rng.random((len(kinds), 30)) < 0.3)
    x[np.arange(len(kinds)), kinds % 30] += 1.5
    return x


def lists_of(kinds):
    return [[f"k{k}", f"m{k % 3}"] if k else ["k0"] for k in kinds]


DOORS = {
    "csr": (lambda kinds: scipy.sparse.csr_array(values_of(kinds)), lambda kinds: kinds),
    "dense": (values_of, lambda kinds: [f"class {k}" for k in kinds]),
    "frame": (frame_of, lambda kinds: np.array([f"class {k}" for k in kinds], object)),
    "numbers": (lambda kinds: pd.DataFrame(values_of(kinds)).add_prefix("c"), lambda kinds: kinds),
    "strings": (texts_of, lambda kinds: kinds.astype(str)),
    "lists": (lambda kinds: scipy.sparse.csr_array(values_of(kinds)), lists_of),
    "lists of text": (texts_of, lists_of),
    "indicator": (values_of, lambda kinds: np.eye(K, dtype=int)[kinds]),
}


def assert_same_model(one, other):
    a, b = one.arrays(), other.arrays()
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)
    assert [*one.labels] == [*other.labels]
    for name in ("spec", "training", "estimator", "calibration", "majority", "recipe"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("said", OPTIONS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("ignore:held-out")
def test_the_same_rows_and_options_give_the_same_model(door, said):
    kinds, (own, named) = kinds_of(N, K), OPTIONS[said]
    x, y = DOORS[door][0](kinds), DOORS[door][1](kinds)
    shared = {name: value for name, value in own.items() if name not in OWN}
    run = sm.train(x, y, **shared, **named)
    clf = sm.MACHClassifier(**own).fit(x, y)
    assert_same_model(clf.model_, run.model)
    assert clf.n_iter_ == len(run.result.history)


@pytest.mark.parametrize("weights", ["rows", "balanced", "dict", "none for a class"])
@pytest.mark.filterwarnings("ignore:held-out")
def test_weights_give_the_same_model(weights):
    kinds = kinds_of(N, K)
    x, own, w = values_of(kinds), None, None
    if weights == "rows":
        w = np.random.default_rng(4).integers(0, 4, N)
    else:
        own = {"dict": {0: 3.0, 2: 0.5}, "none for a class": {1: 0.0}}.get(weights, weights)
    short = {"epochs": 2, "learning_rate": 0.1, "class_weight": own}
    run = sm.train(x, kinds, sample_weight=w, **short, **PARTS)
    clf = sm.MACHClassifier(**short, options=PARTS).fit(x, kinds, sample_weight=w)
    assert_same_model(clf.model_, run.model)


def made(n, n_kinds, rows, labels=lambda kinds: kinds):
    kinds = kinds_of(n, n_kinds)
    return rows(kinds), labels(kinds)


@pytest.mark.filterwarnings("ignore:held-out")
def test_what_decides_is_exact_for_all_classes(monkeypatch):
    monkeypatch.setattr("streammach.frontends.sklearn.answers.PART_BYTES", 1)  # a row at a time
    x, y = made(600, 90, texts_of)
    clf = sm.MACHClassifier().fit(x, y)
    scores, (labels, best) = clf.decision_function(x[:50]), clf.predict_topk(x[:50], 90)
    assert scores.shape == (50, len(clf.classes_))
    found = np.take_along_axis(scores, np.searchsorted(clf.classes_, labels), axis=1)
    np.testing.assert_allclose(found, best, rtol=1e-6)
    sets = sm.MACHClassifier(epochs=3).fit(x[:200], lists_of(y[:200]))
    odds, p = sets.decision_function(x[:9]), sets.predict_proba(x[:9])
    np.testing.assert_allclose(1 / (1 + np.exp(-odds.astype(float))), p, rtol=1e-4, atol=1e-30)


def test_options_are_those_of_a_training():
    x, y = made(60, 3, values_of)
    with pytest.raises(TypeError, match="MACHClassifier\\(\\) has no option 'tme'"):
        sm.MACHClassifier(options={"tme": "1m"}).fit(x, y)
    with pytest.raises(UsageError, match="a parameter of its own: epochs: options"):
        sm.MACHClassifier(options={"epochs": 1}).fit(x, y)
    clf = sm.MACHClassifier(options={"ngrams": 1}, text="title", epochs=1)
    assert clf.fit(frame_of(y), y).model_.recipe.ngrams == 1
