"""The labels of a model as a list, and labels beside them that are named to it."""

import warnings

import numpy as np
import pytest

import streammach as sm
from streammach.system.errors import StreammachError
from tests.conversion.test_objects import LABELS, SHORT, N, X


@pytest.fixture(scope="module")
def model():
    return sm.train(X, LABELS, **SHORT).model


def test_labels_of_a_model_are_a_list(model):
    names, wanted = model.labels, sorted(set(LABELS))
    assert sorted(names) == wanted
    listed = [*names]
    assert len(names) == len(listed) == 3
    for some in (slice(3), slice(-2, None), slice(None, None, -1), slice(1, 1), slice(9, 12)):
        assert names[some] == listed[some]
    assert names[-1] == names[np.int64(2)] == listed[-1]
    assert "class 1" in names
    assert "class 9" not in names
    with pytest.raises(IndexError):
        names[3]
    numbered = sm.train(X, np.arange(N) % 3, **SHORT).model.labels
    assert sorted(numbered[:2] + numbered[2:]) == [0, 1, 2]
    assert 2 in numbered


def test_labels_that_the_model_does_not_know_are_told(model, tmp_path):
    small = sm.MACHClassifier(epochs=1, n_buckets=3, n_repetitions=1).fit(X, LABELS)
    np.save(tmp_path / "X.npy", X)
    calls = {
        "predict": lambda some: model.predict(X, **some),
        "topk": lambda some: sm.Predictor(model).topk(X, **some),
        "estimator": lambda some: small.predict(X, **some),
        "file": lambda some: sm.predict(
            model, tmp_path / "X.npy", tmp_path / "p.tsv", force=True, **some
        ),
    }  # fmt: skip
    for door, call in calls.items():
        for word in ("only", "never"):
            with pytest.warns(UserWarning, match=rf"not know 1 label, left out: 'x': {word}$"):
                call({word: {"class 1", "x"}})
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                call({word: ["class 1"]})
            with pytest.raises(StreammachError, match=f"is no list.*: {word}"):
                call({word: 7})
        with pytest.warns(UserWarning, match=r"not know 1 label, left out: '\{\}': never$"):
            call({"never": ["class 1", {}]})
        many = [f"x{i}" for i in range(1200)]
        said = "not know 1,000 labels or more, left out: 'x0', 'x1', 'x2': never"
        with pytest.warns(UserWarning, match=said):
            call({"never": many})
        if door != "file":  # a list for each row
            with pytest.warns(UserWarning, match="not know 2 labels, left out: 'x', 'y': only"):
                call({"only": [["class 1", "x"], ["class 2", "y"]] + [["class 0"]] * (N - 2)})
