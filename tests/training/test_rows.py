"""Training on rows in memory: the model of a store, without one."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import streammach as sm
from streammach.data.memory import Labelled
from streammach.errors import BudgetError, DataError, UsageError

PLAIN = {"epochs": 3, "transform": "raw", "learning_rate": 0.05}


@pytest.fixture
def data(rng):
    y = rng.integers(0, 12, 500)
    x = rng.random((500, 30)).astype(np.float32) * (rng.random((500, 30)) < 0.2)
    x[np.arange(500), y] += 3
    return x, y


def stored(tmp_path, x, y):
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    sm.convert(tmp_path / "x.npy", tmp_path / "s.zarr", labels=tmp_path / "y.npy")
    return tmp_path / "s.zarr"


@pytest.mark.parametrize("options", [{}, {"n_buckets": 4, "n_repetitions": 6}])
def test_the_weights_are_those_of_a_training_on_a_store(tmp_path, data, options):
    store = stored(tmp_path, *data)
    run = sm.train(*data, memory="1GB", out=tmp_path / "run", **options)
    plan = sm.plan(store, memory="1GB", **options)
    other = sm.Trainer(plan).fit(store, tmp_path / "other")
    files = [run.path / "model/model.safetensors" for run in (run, other)]
    assert files[0].read_bytes() == files[1].read_bytes()
    documents = [
        run.path.joinpath("model/model.json").read_text().replace(run.model.store, "")
        for run in (run, other)
    ]
    assert documents[0] == documents[1]
    assert (run.model.predict(data[0]) == data[1]).mean() > 0.9


def test_rows_that_do_not_fit_go_through_a_store_that_is_removed(tmp_path, data, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    whole = sm.train(*data, **PLAIN)
    monkeypatch.setattr(Labelled, "intake_bytes", 10**12)
    with sm.train(*data, **PLAIN) as run:
        assert run.plan.facts.held_bytes == 0
        assert np.array_equal(run.model.weights, whole.model.weights)
    whole.close()
    assert os.listdir(tmp_path / "temporary") == []


def test_rows_are_in_the_ledger(data):
    plan = sm.train(*data, **PLAIN).plan
    lines = {line.name: line.n_bytes for line in plan.ledger}
    assert lines["rows"] == plan.facts.held_bytes > 0
    host = sum(line.n_bytes for line in plan.ledger if line.where == "host")
    assert host - lines["code"] >= plan.facts.intake_bytes


def test_the_folder_goes_with_the_run(data):
    run = sm.train(*data, **PLAIN)
    path, model = run.path, run.model
    assert path.exists()
    run.close()
    assert not path.exists()
    assert (model.predict(data[0]) == data[1]).mean() > 0.9
    path = Path(sm.train(*data, **PLAIN).path)
    assert not path.exists()


def test_dicts_and_strings(data):
    x, y = data
    rows = [{f"word {j}": float(v) for j, v in enumerate(row) if v} for row in x]
    labels = np.array([f"class {c}" for c in y], object)
    model = sm.train(rows, labels, **PLAIN).model
    assert (model.predict(rows) == labels).mean() > 0.9
    assert model.predict(rows[:2], 3).shape == (2, 3)
    unknown = model.predict([{"other": 1.0}])
    assert unknown[0] in labels


@pytest.mark.parametrize("to", [np.int8, np.uint64, bool, float, str, object])
def test_labels_come_back_in_their_type(data, to):
    x, y = data
    y = (y % 2 if to is bool else y).astype(to)
    model = sm.train(scipy.sparse.csr_array(x), y, **PLAIN).model
    found = model.predict(x[:20])
    assert type(found[0].item() if hasattr(found[0], "item") else found[0]) is type(
        y[0].item() if hasattr(y[0], "item") else y[0]
    )
    assert (model.predict(x) == y).mean() > 0.9


def test_sets_of_labels(data, rng):
    x, y = data
    sets = np.zeros((500, 12), np.int64)
    sets[np.arange(500), y] = 1
    sets[np.arange(500), (y + 1) % 12] = 1
    run = sm.train(x, sets, **PLAIN)
    assert run.plan.facts.listed
    best = run.model.predict(x, 2)
    assert np.mean([set(row) == {c, (c + 1) % 12} for row, c in zip(best, y, strict=True)]) > 0.8


def test_weights_and_held_out_rows_of_ones_own(data):
    x, y = data
    weights = (y != 3).astype(float)
    run = sm.train(x[:400], y[:400], sample_weight=weights[:400], validation=(x[400:], y[400:]),
                   **PLAIN, closed_form="off", whitening="off", loss="independent")  # fmt: skip
    assert "100 of 100 rows" in run.settings.held_out
    assert (run.model.predict(x[y == 3]) == 3).mean() < 0.5


def test_what_cannot_be_is_refused(tmp_path, data):
    with pytest.raises(TypeError):
        sm.train(*data, nothing=1)
    with pytest.raises(UsageError):
        sm.train(*data, memory=None)
    with pytest.raises(BudgetError):
        sm.train(*data, memory="100MB")
    with pytest.raises(DataError):
        sm.train(data[0], data[1][:-1])
    plan = sm.plan(stored(tmp_path, *data))
    with pytest.raises(UsageError):
        sm.Trainer(plan).fit(tmp_path / "s.zarr", resume=True)
