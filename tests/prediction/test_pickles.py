"""A model that answers is pickled and copied as the bytes of its own files."""

import copy
import io
import pickle
from dataclasses import replace

import joblib
import numpy as np
import pytest

import streammach as sm
from streammach.model.shrink import Size, shrink
from streammach.rows.names import Names
from streammach.system.errors import ModelError
from tests.builders import training
from tests.model.models import counts_of, late_of, model_of, near_of
from tests.prediction.test_explain import CASES, MORE, D, K, model_like

KINDS = (
    "whole",
    "small",
    "counts",
    "small counts",
    "neighbours",
    "small neighbours",
    "classifiers",
    "small classifiers",
    "lists",
    "integers",
    "loaded",
)


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "the first pickle": lambda model: pickle.loads(pickle.dumps(model, protocol=0)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "joblib": through_joblib,
}


def made(kind, rng, tmp_path):
    changes = {"counts": counts_of(rng)} if "counts" in kind else {}
    if kind == "lists":
        changes = {"training": training(label_share="each"), "label_counts": np.arange(30),
                   "n_rows": 90}  # fmt: skip
    if kind == "integers":
        changes = {"labels": Names.of(range(5, 35))}
    if "neighbours" in kind:
        changes["counts"] = replace(counts_of(rng), near=near_of(rng))
    if "classifiers" in kind:
        changes["late"] = late_of(rng)
    model = model_of(rng, **changes)
    if kind.startswith("small"):
        model = shrink(model, Size("int8", 3, model.n_pairs))
    model = replace(model, label_kind="float" if kind == "integers" else "")
    if kind == "loaded":  # its arrays are mapped
        model.save(tmp_path / "m")
        model = sm.Model.load(tmp_path / "m")
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_pickled_and_copied(kind, rng, tmp_path):
    model = made(kind, rng, tmp_path)
    rows = [{"f1": 1.0, "f3": 2.0}, {"f0": 1.0}, {}]
    wanted = model.predict_topk(rows, 4)
    for way, through in WAYS.items():
        other = through(model)
        for a, b in zip(other.predict_topk(rows, 4), wanted, strict=True):
            assert a.dtype == b.dtype, way
            assert np.array_equal(a, b), way
        assert (repr(other), other.label_kind) == (repr(model), model.label_kind), way


@pytest.mark.parametrize(("form", "shape", "logistic"), CASES)
def test_every_kind_gives_its_arrays_and_labels(form, shape, logistic, rng):
    model = model_like(rng, form, shape, logistic)
    says = np.arange(K, dtype=np.int32)
    says[4] = 3
    model = replace(model, says=says, titles=Names.of(f"title {i}" for i in range(K)))
    arrays = model.arrays()
    for name, array in arrays.items():
        assert type(array) is np.ndarray, name
    rows = D + (MORE if shape == "cosines" else 0)
    columns = model.spec.n_columns
    assert (arrays["weights"].shape, arrays["bias"].shape) == ((rows, columns), (columns,))
    assert ("scale" in arrays) == (form in ("int8", "int4"))
    codes = model.spec.codes(0, K)
    assert codes.shape == (K, model.spec.n_repetitions)
    labels = list(model.labels)
    assert labels[5] == model.labels[5] == "label 5"
    for way, through in WAYS.items():
        other = through(model)
        found = other.arrays()
        assert found.keys() == arrays.keys(), way
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype, (way, name)
            assert found[name].tobytes() == array.tobytes(), (way, name)
        assert np.array_equal(other.spec.codes(0, K), codes)
        assert list(other.labels) == labels


def test_a_damaged_pickle_is_no_model(rng, tmp_path):
    restored, (files, kind) = made("counts", rng, tmp_path).__reduce__()
    for name in files:
        with pytest.raises(ModelError):
            restored({**files, name: files[name][:-9] + b"?" * 9}, kind)
