"""`partial_fit` of tables, text and lists of labels: each kind of rows with each kind of labels."""

import gc
import pickle
import weakref

import numpy as np
import pytest
import scipy.sparse

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("sklearn")

import streammach as sm  # noqa: E402
from streammach.system.errors import UsageError  # noqa: E402

N, K, PIECE = 960, 12, 32
FIXED = {"batch_size": PIECE, "n_buckets": 16, "n_repetitions": 6, "memory": "1GB"}


def text_of(kinds, rng):
    # Some words come late only, so that features are added on the way.
    words = [f"thing{k} word{rng.integers(30)} late{k}{i // 300}" for i, k in enumerate(kinds)]
    return np.array(words, object)


def frame_of(kinds, rng):
    numbers = np.where(rng.random(len(kinds)) < 0.1, np.nan, rng.random(len(kinds)))
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, len(kinds)), unit="D")
    return pd.DataFrame({
        "title": text_of(kinds, rng), "size": numbers, "day": days,
        "brand": pd.Categorical(kinds % 3),
    })  # fmt: skip


def values_of(kinds, rng):
    x = rng.random((len(kinds), 40)) * (rng.random((len(kinds), 40)) < 0.3)
    x[np.arange(len(kinds)), kinds] += 3
    return x


ROWS = {
    "strings": text_of, "series": lambda kinds, rng: pd.Series(text_of(kinds, rng)),
    "frame": frame_of, "dense": values_of,
    "sparse": lambda kinds, rng: scipy.sparse.csr_array(values_of(kinds, rng)),
}  # fmt: skip


def lists_of(kinds):
    return [[f"k{k}", f"m{k % 3}"] for k in kinds]


def indicator_of(kinds):
    found = np.zeros((len(kinds), K + 3), np.int64)
    found[np.arange(len(kinds)), kinds] = 1
    found[np.arange(len(kinds)), K + kinds % 3] = 1
    return found


LABELS = {
    "one": lambda kinds: kinds, "names": lambda kinds: np.array([f"kind {k}" for k in kinds]),
    "lists": lists_of, "indicator": indicator_of,
    "sparse indicator": lambda kinds: scipy.sparse.csr_array(indicator_of(kinds)),
}  # fmt: skip


def some(x, rows):
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


def right(found, wanted):
    """The share of rows whose labels are right, all of them."""
    if scipy.sparse.issparse(found):
        found, wanted = found.toarray(), wanted.toarray()
    if isinstance(found, list):
        return np.mean([set(a) == set(b) for a, b in zip(found, wanted, strict=True)])
    same = np.asarray(found) == np.asarray(wanted)
    return same.all(axis=-1).mean() if same.ndim > 1 else same.mean()


@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("kind", ROWS)
def test_each_kind_of_rows_with_each_kind_of_labels(kind, form, rng):
    kinds = rng.integers(0, K, N)
    x, y = ROWS[kind](kinds, rng), LABELS[form](kinds)

    def learnt(*ends):
        clf = sm.MACHClassifier(**FIXED)
        for start, stop in zip((0, *ends), (*ends, N), strict=True):
            clf.partial_fit(some(x, slice(start, stop)), y[start:stop])
        return clf

    model, again = learnt(320, 640), learnt(320, 640)
    np.testing.assert_array_equal(model.model_.weights, again.model_.weights)
    for _ in range(4):
        model.partial_fit(x, y)
    assert model.n_iter_ == 7
    assert right(model.predict(x), y) > 0.9
    kept = pickle.loads(pickle.dumps(model)).partial_fit(x, y)
    np.testing.assert_array_equal(kept.model_.weights, model.partial_fit(x, y).model_.weights)
    if kind not in {"dense", "sparse"}:
        first = sm.MACHClassifier(**FIXED).partial_fit(some(x, slice(0, 320)), y[:320])
        assert len(model.model_.features) >= len(first.model_.features) + K


@pytest.mark.parametrize(("kind", "first"), [("strings", PIECE), ("strings", 640), ("frame", 1024)])
def test_calls_with_whole_batches_are_one_call(kind, first, rng):
    kinds = rng.integers(0, K, 1600)
    x = ROWS[kind](kinds, rng)
    whole = sm.MACHClassifier(**FIXED).partial_fit(x, kinds)
    parts = sm.MACHClassifier(**FIXED).partial_fit(some(x, slice(0, first)), kinds[:first])
    parts.partial_fit(some(x, slice(first, 1600)), kinds[first:])
    one, other = (
        dict(zip(m.model_.features.raws(np.arange(len(m.model_.features))), m.model_.weights,
                 strict=True)) for m in (whole, parts)
    )  # fmt: skip
    assert one.keys() == other.keys()
    for name, weights in one.items():
        np.testing.assert_array_equal(weights, other[name])


def test_the_arrays_of_a_model_that_nobody_has_are_given_back(rng):
    kinds = rng.integers(0, K, 64)
    model = sm.MACHClassifier(**FIXED).partial_fit(text_of(kinds, rng), kinds)
    gone = weakref.ref(model._passes_.stream._backend)
    gc.collect()
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_words_beyond_the_memory_are_left_out(rng, monkeypatch):
    kinds = rng.integers(0, K, N)
    x = text_of(kinds, rng)
    monkeypatch.setattr("streammach.frontends.sklearn.partial_fits.room_for", lambda *_: 70)
    model = sm.MACHClassifier(**FIXED)
    with pytest.warns(UserWarning, match="70 features fit the memory"):
        model.partial_fit(x[:16], kinds[:16]).partial_fit(x, kinds)
    assert len(model.model_.features) == 70
    for _ in range(5):
        model.partial_fit(x, kinds)
    assert model.score(x, kinds) > 0.5


@pytest.mark.parametrize("form", LABELS)
def test_rows_of_weight_0_leave_no_trace(form, rng):
    kinds, weights = rng.integers(0, K, N), np.ones(N)
    x, y = frame_of(kinds, rng), LABELS[form](kinds)
    weights[700:] = 0
    one = sm.MACHClassifier(**FIXED).partial_fit(x, y, sample_weight=weights)
    other = sm.MACHClassifier(**FIXED).partial_fit(x[:700], y[:700])
    np.testing.assert_array_equal(one.model_.bias, other.model_.bias)


def test_rows_of_another_kind_are_refused(rng):
    kinds = rng.integers(0, K, N)
    text, values = text_of(kinds, rng), values_of(kinds, rng)
    begun = sm.MACHClassifier(**FIXED).partial_fit(text, kinds)
    with pytest.raises(ValueError, match="rows of a table or text are expected"):
        begun.partial_fit(values, kinds)
    with pytest.raises(ValueError, match="one label"):
        begun.partial_fit(text, lists_of(kinds))
    numbers = sm.MACHClassifier(**FIXED).partial_fit(values, kinds)
    with pytest.raises(ValueError, match="rows of numbers are expected"):
        numbers.partial_fit(text, kinds)
    fitted = sm.MACHClassifier(**{**FIXED, "batch_size": None}, epochs=1).fit(text, kinds)
    with pytest.raises(UsageError, match="not gone on from"):
        fitted.partial_fit(text, kinds)
