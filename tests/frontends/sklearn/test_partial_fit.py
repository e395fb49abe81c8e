"""`partial_fit`: rows as they come, classes never seen, and the same bits as in one pass."""

import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse

from streammach.frontends.sklearn.classifier import MACHClassifier
from streammach.system.errors import BudgetError, UsageError
from tests.builders import NO_PARTS

SMALL = {"batch_size": 32, "n_buckets": 16, "n_repetitions": 6}
PARTS = {"transform": "raw", **NO_PARTS}
FIXED = {"learning_rate": 0.1, "options": {**PARTS, "counts": "off"}}  # nothing is searched


@pytest.fixture(params=["dense", "sparse"])
def data(rng, request):
    y = rng.integers(0, 12, 640)
    x = rng.random((640, 200)) * (
        rng.random((640, 200)) < (0.3 if request.param == "dense" else 0.02)
    )
    x[np.arange(640), y] += 3
    return (x if request.param == "dense" else scipy.sparse.csr_array(x)), y


def same(one, other):
    pairs = zip(
        one._passes_.stream.arrays.values(), other._passes_.stream.arrays.values(), strict=True
    )
    return all(np.array_equal(a, b) for a, b in pairs)


def in_chunks(data, sizes, **options):
    x, y = data
    clf, start = MACHClassifier(**{**SMALL, **options}), 0
    for size in sizes:
        clf.partial_fit(x[start : start + size], y[start : start + size])
        start += size
    assert start == len(y)
    return clf


def test_chunks_are_one_pass_over_the_same_order(data):
    whole = in_chunks(data, [640])
    assert same(whole, in_chunks(data, [320, 320]))
    assert same(whole, in_chunks(data, [32, 96, 512]))
    assert same(
        whole, in_chunks(data, [160, 480], n_jobs=1 if scipy.sparse.issparse(data[0]) else None)
    )
    assert not same(whole, in_chunks(data, [33, 607]))
    assert whole.score(*data) > 0.8
    assert whole.n_iter_ == 1


def repeated(x):
    """Sparse rows in which each value is the sum of two, with a 0 beside them."""
    x = scipy.sparse.csr_array(x)
    shares = np.array([0.25, 0.75, 0])
    return scipy.sparse.csr_array(
        ((x.data[:, None] * shares).ravel(), np.repeat(x.indices, 3), 3 * x.indptr), shape=x.shape
    )


@pytest.mark.parametrize("way", ["partial_fit", "fit"])
def test_values_that_stand_twice_are_added_up(data, way):
    x, y = scipy.sparse.csr_array(data[0]).astype(np.float32), data[1]
    twice = repeated(x)
    assert (twice - x).nnz == 0
    assert twice.nnz == 3 * x.nnz
    made = {"fit": {**SMALL, **FIXED, "epochs": 1}, "partial_fit": SMALL}[way]
    one, other = (getattr(MACHClassifier(**made), way)(rows, y) for rows in (x, twice))
    assert np.array_equal(one.model_.weights, other.model_.weights)
    assert np.array_equal(one.predict_topk(twice)[1], other.predict_topk(x)[1])
    assert twice.nnz == 3 * x.nnz  # what was given stays as it is


def test_classes_never_seen_get_hashes_and_no_weights(data):
    x, y = data
    few = y < 4
    clf = MACHClassifier(**SMALL).partial_fit(x[few], y[few])
    assert clf.classes_.tolist() == [0, 1, 2, 3]
    weights, codes = clf.model_.weights.shape, clf._passes_.stream._backend.codes.copy()
    for _ in range(4):
        clf.partial_fit(x, y)
    assert clf.model_.weights.shape == weights
    assert np.array_equal(clf._passes_.stream._backend.codes[:4], codes)
    assert clf.classes_.tolist() == list(range(12))
    assert clf.score(x, y) > 0.9
    p = clf.predict_proba(x)
    assert np.array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(x))


def test_classes_stay_sorted_when_others_come_between(data):
    x, y = data
    names = np.array([f"n{c:02}" for c in y], object)
    late = y % 2 == 1
    clf = MACHClassifier(**SMALL).partial_fit(x[~late], names[~late])
    for _ in range(4):
        clf.partial_fit(x, names)
    assert clf.classes_.tolist() == sorted(set(names))
    assert (clf.predict(x) == names).mean() > 0.9
    assert clf.predict_topk(x, 3)[0].shape == (640, 3)


WHOLE = ["int8", "int64", "uint32", "uint64"]


@pytest.mark.parametrize(("first", "then"), list(product(WHOLE, repeat=2)))
def test_whole_numbers_stay_apart_or_are_refused(first, then, data):
    x, least = data[0], np.uint64(2**63 if {first, then} == {"uint64"} else 100)
    y = data[1].astype(np.uint64) + least
    clf = MACHClassifier(**SMALL).partial_fit(x, y.astype(first))
    more = (y + np.uint64(12)).astype(then)
    if np.result_type(first, then).kind == "f":
        with pytest.raises(ValueError, match=f"the type {then}, those before {first}"):
            clf.partial_fit(x, more)
    else:
        clf.partial_fit(x, more)
        assert clf.classes_.tolist() == sorted({*y.astype(first).tolist(), *more.tolist()})


def test_announced_classes(data):
    x, y = data
    clf = MACHClassifier(**SMALL).partial_fit(x[:64], y[:64], classes=np.arange(20))
    assert clf.classes_.tolist() == list(range(20))
    assert clf.predict_proba(x[:5]).shape == (5, 20)


def test_after_fit_its_weights_are_gone_on_from(data):
    x, y = data
    few = y < 6
    clf = MACHClassifier(**FIXED, epochs=5, n_buckets=4, n_repetitions=8).fit(x[few], y[few])
    before = clf.score(x[few], y[few])
    for _ in range(6):
        clf.partial_fit(x, y)
    assert clf.classes_.tolist() == list(range(12))
    assert clf.score(x[few], y[few]) > before - 0.1
    exact = MACHClassifier(**FIXED, epochs=5).fit(x[few], y[few])
    assert exact.partial_fit(x[few], y[few]).score(x[few], y[few]) > 0.9
    with pytest.raises(UsageError, match="n_buckets"):
        exact.partial_fit(x, y)


def test_pickles_go_on(data):
    x, y = data
    clf = MACHClassifier(**SMALL).partial_fit(x[:320], y[:320])
    other = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(clf.predict_proba(x), other.predict_proba(x))
    assert same(clf.partial_fit(x[320:], y[320:]), other.partial_fit(x[320:], y[320:]))
    assert same(clf, in_chunks(data, [320, 320]))


def test_weights_of_rows(data):
    x, y = data
    clf = MACHClassifier(**SMALL)
    for _ in range(3):
        clf.partial_fit(x, y, sample_weight=(y != 3).astype(float) + 1e-9)
    assert (clf.predict(x[y == 3]) == 3).mean() < 0.5


def test_what_cannot_be_is_refused(data):
    x, y = data
    clf = MACHClassifier(**SMALL).partial_fit(x, y)
    with pytest.raises(ValueError, match="type"):
        clf.partial_fit(x, y.astype(str))
    with pytest.raises(ValueError, match="features"):
        clf.partial_fit(x[:, :5], y)
    with pytest.raises(ValueError, match="one label"):
        clf.partial_fit(x, np.stack([y % 2, y % 3 > 0], axis=1))
    with pytest.raises(BudgetError):
        MACHClassifier(memory="100MB").partial_fit(x, y)
    with pytest.raises(ValueError, match="balanced"):
        clf.set_params(class_weight="balanced").partial_fit(x, y)
