"""Training with random Fourier features: chosen where they pay, saved, loaded, made smaller."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach.model.model import Model
from streammach.model.shrink import Size, of_features, shrink
from streammach.model.tensors import write_tensors
from streammach.parts.fourier import part
from streammach.rows.dense import RowMap, expand_rows
from streammach.rows.transforms import transform_block
from streammach.system.errors import ModelError, UsageError
from streammach.system.files.reading import crc32c
from streammach.training.search import Search
from tests.builders import block_of, fit

D, CLASSES, PLACES, MORE = 6, 8, 8, 96
SHORT = {"epochs": 4, "learning_rate": 0.02, "transform": "raw"}


@pytest.fixture(scope="module", autouse=True)
def small_sizes():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(part, "SIZES", {MORE: 0.0, 32: 1.0})
        patched.setattr(part, "BANDWIDTHS", (0.6, 0.3))
        yield


def scattered(tiny, n_rows):
    """Rows of classes that each lie in many places: no line parts them."""
    places = np.random.default_rng(5).normal(size=(CLASSES * PLACES, D))
    which = tiny.rng.integers(0, len(places), n_rows)
    return places[which] + 0.1 * tiny.rng.normal(size=(n_rows, D)), which % CLASSES


@pytest.fixture(scope="module")
def stores(shared):
    train = shared.dense_store("train.zarr", *scattered(shared, 3000))
    test = shared.dense_store("test.zarr", *scattered(shared, 500), like=train)
    with sm.Dataset.open(train) as data:
        yield data, test


def planned(data, **options):
    return sm.plan(data, memory="1GB", threads=1, **options)


def reached(model, test):
    return sm.evaluate(model, test).accuracy


@pytest.fixture(scope="module")
def run(stores, tmp_path_factory):
    data, _ = stores
    plan = planned(data, whitening="off", closed_form="off", fourier="on")
    return fit(data, tmp_path_factory.mktemp("cosines") / "run", plan, model_size="full", **SHORT)


def test_the_columns_are_cosines_of_projections(rng):
    d, more, n = 5, 7, 9
    x = rng.normal(size=(n, d)).astype(np.float32)
    basis = RowMap(rng.normal(size=(d, d)).astype(np.float32), np.ones(d, np.float32))
    table = rng.normal(size=(d + 2, more)).astype(np.float32)
    expected = table[-1] * np.cos(x.astype(np.float64) @ table[:d] + table[d])
    for found, features in (
        (RowMap(projection=table), x),
        (replace(basis, projection=table), x @ basis.rotation - 1),
    ):
        out = np.full((n, d + more), np.nan, np.float32)
        found.apply(x, out)
        np.testing.assert_allclose(out[:, :d], features, atol=1e-5)
        np.testing.assert_allclose(out[:, d:], expected, atol=1e-5)


def test_directions_are_orthogonal_and_as_long_as_gaussian_ones():
    directions, phases = part.draw_directions(3, 20, 90)
    assert directions.shape == (20, 90)
    assert phases.shape == (90,)
    for first in range(0, 90, 20):
        some = directions[:, first : first + 20]
        angles = some.T @ some
        assert np.abs(angles - np.diag(np.diag(angles))).max() < 1e-9
    assert np.square(directions).sum(axis=0).mean() == pytest.approx(20, rel=0.2)
    again, _ = part.draw_directions(3, 20, 90)
    assert (again == directions).all()
    other, _ = part.draw_directions(4, 20, 90)
    assert (other != directions).all()


def test_cosines_stand_for_the_gaussian_kernel(rng):
    x = rng.normal(size=(30, 10))
    directions, phases = part.draw_directions(0, 10, 20_000)
    cosines = np.cos(x @ directions + phases) * np.sqrt(2 / 20_000)
    squares = np.square(x[:, None] - x).sum(axis=2)
    np.testing.assert_allclose(cosines @ cosines.T, np.exp(-squares / 2), atol=0.05)


def test_the_usual_distance_is_a_median_of_different_rows():
    rows = np.array([[0, 0], [0, 0], [3, 4], [0, 1]], np.float32)
    assert part.usual_distance(rows) == pytest.approx(np.median([5, 5, 1, 1, 18**0.5]))
    assert part.usual_distance(np.ones((3, 2), np.float32)) == 1.0


@pytest.mark.parametrize("shape", [{}, {"n_buckets": 4, "n_repetitions": 6}])
def test_they_are_used_where_held_out_rows_like_them(stores, tiny, shape):
    data, test = stores
    found = fit(data, tiny.folder / "run", planned(data, **shape), **SHORT)
    off = fit(data, tiny.folder / "off", planned(data, fourier="off", **shape), **SHORT)
    assert found.settings.training.bandwidth in part.BANDWIDTHS
    assert not off.settings.training.bandwidth
    said = "rows with Fourier features: held-out accuracy / top-5"
    assert any(reason.startswith(said) for reason in found.settings.reasons)
    assert reached(found.model, test) > reached(off.model, test) + 0.1
    assert found.model.projection.shape == (D + 2, MORE)
    assert len(found.model.weights) == D + MORE
    assert len(off.model.weights) == D
    assert found.plan.config.more_columns == MORE
    assert "fourier" in {line.name for line in found.plan.ledger}
    assert "fourier" not in {line.name for line in off.plan.ledger}


def test_where_they_do_not_pay_the_model_is_as_without(stores, tiny, monkeypatch):
    data, _ = stores
    monkeypatch.setattr(Search, "_noise", lambda self, trial: 1.0)  # no gain is that large
    found = fit(data, tiny.folder / "run", planned(data), **SHORT)
    fit(data, tiny.folder / "off", planned(data, fourier="off"), **SHORT)
    assert {bool(trial.bandwidth) for trial in found.settings.trials} == {False, True}
    for file in (tiny.folder / "off" / "model").iterdir():
        assert file.read_bytes() == (tiny.folder / "run" / "model" / file.name).read_bytes()


def test_a_loaded_model_scores_as_its_arrays_say(run, rng):
    model = run.model
    block = block_of(rng, 40, D, CLASSES)
    x = expand_rows(transform_block(block, model.training.transform), D).astype(np.float64)
    table = model.projection.astype(np.float64)
    z = np.hstack([x, table[-1] * np.cos(x @ table[:D] + table[D])]) @ model.weights + model.bias
    with sm.Predictor(model, device="cpu") as predictor:
        ids, _ = predictor.rank(block, 1)
    assert (ids[:, 0] == z.argmax(axis=1)).mean() > 0.95
    assert json.loads((run.path / "model" / "model.json").read_text())["n_more"] == model.n_more


def test_smaller_models_keep_the_projection(run, stores, tiny):
    _, test = stores
    model = run.model
    small = shrink(model, Size("float16", 1, 0))
    small.save(tiny.folder / "small")
    loaded = Model.load(tiny.folder / "small")
    np.testing.assert_array_equal(loaded.projection, model.projection)
    assert abs(reached(loaded, test) - reached(model, test)) < 0.02
    kept = np.arange(D) != 2
    for in_place in (False, True):
        whole = replace(model, weights=np.array(model.weights))
        fewer = of_features(whole, kept, in_place=in_place)
        np.testing.assert_array_equal(fewer.projection, np.delete(model.projection, 2, axis=0))
        np.testing.assert_array_equal(fewer.weights, np.delete(model.weights, 2, axis=0))


@pytest.mark.parametrize("what", ["shape", "size", "missing", "infinite"])
def test_a_model_whose_projection_is_wrong_is_refused(run, tiny, what):
    folder = tiny.folder / "copy"
    shutil.copytree(run.path / "model", folder)
    model, document = run.model, json.loads((folder / "model.json").read_text())
    arrays = model.arrays()
    if what == "shape":
        arrays["projection"] = arrays["projection"][:-1]
    if what == "missing":
        del arrays["projection"]
    if what == "size":
        document["n_more"] += 1
    tensors = next(folder.glob("*.safetensors"))
    write_tensors(tensors, arrays)
    content = tensors.read_bytes()
    if what == "infinite":
        infinite = np.full_like(arrays["projection"], np.inf)
        content = content.replace(arrays["projection"].tobytes(), infinite.tobytes())
        tensors.write_bytes(content)
    document["tensors"] = {"size": len(content), "crc32c": crc32c([content])}
    (folder / "model.json").write_text(json.dumps(document))
    with pytest.raises(ModelError):
        Model.load(folder)


def test_where_they_cannot_be_there_is_no_room_for_them(stores, tiny):
    data, _ = stores
    assert planned(data).config.part("fourier")
    assert not planned(data, optimizer="sgd").config.part("fourier")
    with tiny.dataset(name="sparse.zarr") as sparse:
        assert not sm.plan(sparse, memory="1GB").config.part("fourier")
        with pytest.raises(UsageError, match="rows are sparse: fourier on"):
            sm.plan(sparse, memory="1GB", fourier="on")


def test_small_stores_have_no_room_for_many(stores, monkeypatch):
    data, _ = stores
    monkeypatch.setattr(part, "SIZES", {4096: 0.0})
    assert not planned(data).config.part("fourier")


def test_they_are_used_unasked_where_the_user_says_so(stores, tiny):
    data, _ = stores
    found = fit(data, tiny.folder / "run", planned(data, fourier="on"), **SHORT)
    assert all(trial.bandwidth for trial in found.settings.trials)
    assert found.settings.training.bandwidth


def test_more_time_and_memory_are_reckoned_with(stores):
    data, _ = stores
    few, none = planned(data), planned(data, fourier="off")
    takes = [{line.name: line.n_bytes for line in one.ledger} for one in (few, none)]
    assert takes[0]["fourier"] > 0 == takes[1].get("fourier", 0)
    assert few.disk_bytes > none.disk_bytes
    assert few.small_model_bytes > none.small_model_bytes
