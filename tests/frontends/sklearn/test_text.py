"""The estimator on text and tables: the recipe of a conversion within scikit-learn's tools."""

import pickle

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402

import streammach as sm  # noqa: E402
from streammach.system.errors import UsageError  # noqa: E402

FIXED = {"epochs": 3, "learning_rate": 0.5, "n_buckets": 8, "n_repetitions": 3}


@pytest.fixture
def texts(rng):
    """Titles that tell one of twenty kinds, and these."""
    kinds = rng.integers(0, 20, 800)
    words = [f"Thing-{k} näme{k} word{rng.integers(30)}" for k in kinds]
    return words, kinds


def test_a_frame_with_text_and_a_pickle_of_it(texts):
    words, kinds = texts
    frame = pd.DataFrame({"title": words, "size": np.arange(800.0), "brand": kinds % 3})
    names = np.array([f"kind {k}" for k in kinds], object)
    model = sm.MACHClassifier(class_weight="balanced", **FIXED).fit(frame[:600], names[:600])
    assert model.score(frame[600:], names[600:]) > 0.9
    assert model.n_features_in_ == 3
    assert list(model.feature_names_in_) == ["title", "size", "brand"]
    kept = pickle.loads(pickle.dumps(model))
    shuffled = frame[["brand", "title", "size"]]
    np.testing.assert_array_equal(kept.predict(shuffled), model.predict(frame))


@pytest.mark.parametrize("wrap", ["list", "Series", "string", "Arrow", "chunks", "polars"])
def test_texts_that_are_missing_are_empty(texts, wrap):
    words, kinds = texts
    arrow = pytest.importorskip("pyarrow")
    kind = {"list": list, "Series": pd.Series, "string": lambda x: pd.Series(x, dtype="string"),
            "Arrow": arrow.array, "chunks": lambda x: arrow.chunked_array([x])}  # fmt: skip
    of = kind[wrap] if wrap in kind else pytest.importorskip("polars").Series
    x = of([None, *words[1:-1], None])
    plain = ["", *words[1:-1], ""]
    clf = sm.MACHClassifier(**FIXED).fit(x, kinds)
    assert clf.predict(x).tolist() == clf.predict(plain).tolist()
    assert clf.model_.predict(x).tolist() == clf.predict(plain).tolist()
    assert len(clf.model_.explain(x)) == len(words)
    with pytest.raises(UsageError, match="not all rows are strings"):
        clf.model_.predict(["a", 3])


def test_cross_validation_takes_text(texts):
    words, kinds = texts
    found = cross_val_score(sm.MACHClassifier(**FIXED), np.array(words, object), kinds, cv=2)
    assert found.min() > 0.8


def test_rows_without_labels_are_refused(texts):
    words, kinds = texts
    with pytest.raises(ValueError, match="inconsistent"):
        sm.MACHClassifier(**FIXED).fit(words, kinds[:5])


@pytest.mark.parametrize("none", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("kind", ["object", "string", "category", "list"])
def test_a_label_that_is_missing_is_said(texts, none, kind):
    x, y = texts
    labels = pd.Series([*map(str, y)], dtype=object)
    labels[3] = none
    labels = labels.tolist() if kind == "list" else labels.astype(kind)
    with pytest.raises(ValueError, match=r"row 3 \(counted from 0\) has no label|contains NaN"):
        sm.MACHClassifier().fit(x, labels)


def test_columns_have_roles_and_a_fit_tells_how_it_goes(texts):
    words, kinds = texts
    frame = pd.DataFrame({"title": words, "size": np.arange(800.0), "code": kinds % 3})
    told = []
    model = sm.MACHClassifier(
        **FIXED, text="title", category=["code"], progress=lambda *state: told.append(state[0])
    )
    model = clone(model).fit(frame[:600], kinds[:600])
    assert [(c.name, c.role) for c in model.model_.recipe.columns] == [
        ("title", "text"), ("code", "category"),
    ]  # fmt: skip
    assert model.score(frame[600:], kinds[600:]) > 0.9
    assert "epochs" in told
    numbers = frame[["size", "code"]]  # a role makes a table of them
    assert sm.MACHClassifier(**FIXED, category="code").fit(numbers, kinds % 3).score(
        numbers, kinds % 3
    ) == 1  # fmt: skip
    with pytest.raises(ValueError, match="only a table has columns"):
        sm.MACHClassifier(**FIXED, text="title").fit(np.eye(20), np.arange(20))
