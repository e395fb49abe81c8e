"""Hashed models of the most frequent features: what they learn, and every door of theirs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from msgspec import UNSET

import streammach as sm
from streammach.cli.main import main
from streammach.model.shrink import Size, frequent, of_features, shrink
from streammach.options.facts import HEADS
from streammach.prediction.predictor import Predictor
from streammach.system.errors import UsageError
from tests.builders import TinyData, fit, listed_lines

FIRST, EPOCHS = 40, 2
SHAPE = {"n_buckets": 7, "n_repetitions": 5, "hashed_features": FIRST}
FIXED = {"epochs": EPOCHS, "learning_rate": 0.5, "model_size": "full"}


@pytest.fixture(scope="module", params=["classes", "lists"])
def data(request, tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("few"), np.random.default_rng(1))
    listed = request.param == "lists"
    lines = listed_lines(tiny.rng, 700) if listed else tiny.lines(700, 40)
    source = tiny.text("rows.vw", lines)
    sm.convert(source, tiny.folder / "train.zarr", multilabel="on" if listed else "off")
    with sm.Dataset.open(tiny.folder / "train.zarr") as opened:
        assert opened.n_features > FIRST + 20
        yield opened


@pytest.fixture(scope="module", params=[("raw", "off"), ("l2", "off"), ("binary", "on")])
def run(request, data, tmp_path_factory):
    transform, counts = request.param
    plan = sm.plan(data, counts=counts, threads=1, **SHAPE)
    return fit(data, tmp_path_factory.mktemp("run") / "run", plan, transform=transform, **FIXED)


def narrow(model):
    """The hashed models alone, as a model of their features."""
    kept = np.arange(model.spec.n_features) < FIRST
    spec = replace(model.spec, n_features=FIRST, hashed_features=UNSET)
    names = model.features.take(np.flatnonzero(kept))
    return replace(model, spec=spec, features=names, counts=None, estimator="logsum")


def ranked(model, rows, estimator=None):
    with Predictor(model, estimator=estimator, threads=1) as predictor:
        ids, scores = predictor.rank(rows, 4)
    return ids.tolist(), scores.tolist()


def test_hashed_models_see_their_features_and_counts_see_all(run, data):
    model, rows = run.model, data.rows(0, 50)
    assert model.spec.n_features == data.n_features
    assert len(model.weights) == model.spec.hashed_features == FIRST
    cut = rows.with_values(rows.features < FIRST)
    if run.settings.training.transform != "l2":  # the length is that of all values
        assert ranked(model, rows, "logsum") == ranked(narrow(model), cut)
    if model.counts is not None:
        assert ranked(model, rows) != ranked(model, cut)
    found = sm.evaluate(model, data.path)
    assert found.n_rows == data.n_rows


@pytest.mark.parametrize("width", ["float32", "int8", "int4"])
def test_smaller_models_answer_alike(width, run, data, tmp_path):
    model, rows = run.model, data.rows(0, 50)
    small = shrink(model, Size(width, 5, 10**9))
    small.save(tmp_path / "small")
    loaded = sm.Model.load(tmp_path / "small")
    assert ranked(loaded, rows) == ranked(small, rows)
    kept = np.random.default_rng(3).random(data.n_features) < 0.6
    some, places = of_features(loaded, kept), np.cumsum(kept) - 1
    assert len(some.weights) == some.spec.hashed_features == kept[:FIRST].sum()
    there = rows.with_values(kept[rows.features])
    renamed = replace(there, features=places[there.features].astype(np.int32))
    if run.settings.training.transform != "l2":
        assert ranked(some, renamed) == ranked(loaded, there)
    assert len(frequent(loaded, data.feature_counts, 6).weights) <= FIRST


def test_the_plan_counts_what_is_held(data):
    whole, few = (sm.plan(data, **{**SHAPE, "hashed_features": n}) for n in (None, FIRST))
    assert whole.model.hashed_features is UNSET
    assert sm.plan(data, **{**SHAPE, "hashed_features": data.n_features}).model == whole.model
    assert whole.projected_bytes > few.projected_bytes
    lines = {line.name: line.n_bytes for line in few.ledger if line.where == "host"}
    assert lines["weights"] == 4 * (FIRST + 1) * few.model.n_columns
    assert json.loads(few.to_json())["chosen"]["hashed_features"] == FIRST
    assert not sm.plan(data, n_repetitions=0, hashed_features=FIRST).model.cut


def test_what_the_first_features_make_up_is_known(data):
    counts, facts = data.feature_counts, data.facts
    for share, n in zip(HEADS, facts.heads, strict=True):
        assert counts[: n - 1].sum() < share * data.nnz <= counts[:n].sum()
        assert facts.share(n) == pytest.approx(share)


def test_the_commands(run, data, tmp_path, capsys):
    command = ["--buckets", "7", "--repetitions", "5", "--features", str(FIRST), "--json"]
    assert main(["plan", str(data.path), *command]) == 0
    assert json.loads(capsys.readouterr().out)["options"][0]["hashed_features"] == FIRST
    assert main(["info", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hashed_features"] == FIRST
    assert main(["info", str(run.path / "model")]) == 0
    assert f"7 x 5 ({FIRST} features)" in capsys.readouterr().out


def test_features_that_cannot_be(tiny, rng):
    dense = tiny.dense_store("dense", rng.random((80, 6)), np.arange(80) % 4)
    with pytest.raises(UsageError, match="0 is too small: hashed_features"):
        sm.plan(dense, hashed_features=0)
    with pytest.raises(UsageError, match=r"rows are dense.*: hashed_features"):
        sm.plan(dense, hashed_features=3)
