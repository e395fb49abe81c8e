"""A closed form beside exact weights: added where held-out rows want it."""

import tracemalloc

import numpy as np
import pytest

import streammach as sm
from streammach.options.training import TrainingOptions
from streammach.parts.discriminant import class_sums as discriminant
from streammach.parts.discriminant import part as closed_form
from streammach.rows import dense
from streammach.rows.label_lists import LabelLists
from streammach.rows.transforms import transform_block
from streammach.system.clock import Clock
from streammach.system.errors import UsageError
from tests.builders import dense_block

SHORT = {"epochs": 1, "learning_rate": 0.003, "transform": "raw"}


def gaussian(tiny, n_rows, n_classes=30):
    """Dense rows around the means of many classes, stretched by one covariance."""
    means = np.random.default_rng(5).normal(size=(n_classes, 12))
    stretch = np.random.default_rng(6).normal(size=(12, 12))
    y = tiny.rng.integers(0, n_classes, n_rows)
    return (means[y] + 0.5 * tiny.rng.normal(size=(n_rows, 12))) @ stretch, y


@pytest.fixture(scope="module")
def stores(shared):
    train = shared.dense_store("train.zarr", *gaussian(shared, 2000))
    test = shared.dense_store("test.zarr", *gaussian(shared, 500), like=train)
    with sm.Dataset.open(train) as data:
        yield data, test


def fit(data, out, **options):
    plan = sm.plan(data, memory="1GB", threads=1, whitening="off", **options)
    return sm.Trainer(plan, TrainingOptions(**SHORT)).fit(data, out)


def reached(run, test):
    return sm.evaluate(run.model, test).accuracy


def test_it_is_added_where_it_helps(stores, tiny):
    data, test = stores
    run = fit(data, tiny.folder / "run")
    off = fit(data, tiny.folder / "off", closed_form="off")
    assert reached(run, test) > reached(off, test) + 0.1
    assert any(r.startswith("closed form added: share") for r in run.result.reasons)
    assert not any("closed form" in r for r in off.result.reasons)
    assert run.result.peak_bytes > 0
    assert any(line.name == "closed form" for line in run.plan.ledger)
    assert not any(line.name == "closed form" for line in off.plan.ledger)
    assert run.model.weights.shape == off.model.weights.shape


@pytest.mark.parametrize("listed", [False, True])
def test_its_line_in_the_ledger_bounds_what_it_takes(listed, rng, monkeypatch):
    monkeypatch.setattr(dense, "PIECE_BYTES", 1 << 20)  # many pieces
    monkeypatch.setattr(discriminant, "SOLVED", 32)
    n, d, k = 8000, 200, 1500
    block = dense_block(rng.normal(size=(n, d)), rng.integers(0, k, n))
    labels = (0, 0)
    if listed:
        lists = LabelLists.of([rng.choice(k, j, replace=False) for j in np.arange(n) % 5])
        block, labels = block.with_labels(lists), (lists.n_labels, 4)
    sums, out, bias = (np.zeros(s, np.float32) for s in ((k, d), (d, k), k))
    discriminant.Discriminant(np.zeros_like(sums)).add(block.part(0, 9))  # loads its kernels
    tracemalloc.start()
    found = discriminant.Discriminant(sums)
    found.add(block)
    closed = (out, found.solve(0.3, out))
    reached = list(closed_form._measure_shares(block.part(0, 1000), (out, bias), closed))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reached) == len(closed_form.SHARES)
    assert peak <= discriminant.footprint(d, n, labels)


def test_it_is_left_out_where_it_does_not(stores, tiny, monkeypatch):
    data, _ = stores
    real = closed_form.Discriminant.solve

    def useless(self, prior_rows, out, **options):
        bias = real(self, prior_rows, out, **options)
        out *= -1
        return -bias

    monkeypatch.setattr(closed_form.Discriminant, "solve", useless)
    run = fit(data, tiny.folder / "run")
    off = fit(data, tiny.folder / "off", closed_form="off")
    assert any(r.startswith("closed form left out: share 0") for r in run.result.reasons)
    assert np.array_equal(run.model.weights, off.model.weights)
    assert np.array_equal(run.model.bias, off.model.bias)


def test_sparse_rows_and_hashed_models_have_none(tiny, stores):
    data, _ = stores
    assert sm.plan(data, memory="1GB").config.part("closed_form")
    assert not sm.plan(data, n_buckets=8, n_repetitions=4).config.part("closed_form")
    assert not sm.plan(data, memory="1GB", optimizer="sgd").config.part("closed_form")
    with pytest.raises(UsageError, match="exact models alone have it: closed_form on"):
        sm.plan(data, n_buckets=8, n_repetitions=4, closed_form="on")
    with tiny.dataset("sparse.zarr", n_rows=300) as sparse:
        assert not sm.plan(sparse, memory="1GB").config.part("closed_form")


@pytest.mark.parametrize("limited", [False, True])
def test_without_an_epoch_it_is_all_there_is(stores, tiny, limited):
    data, test = stores
    plan = sm.plan(data, memory="1GB", threads=1)
    if limited:
        clock, options = Clock(0.0), TrainingOptions(model_size="full")
    else:
        clock, options = None, TrainingOptions(epochs=0, model_size="full")
    run = sm.Trainer(plan, options, clock=clock).fit(data, tiny.folder / "run")
    spec = run.settings.training
    assert (spec.epochs, spec.untrained, run.result.history) == (0, True, ())
    assert spec.text == f"no epochs, {spec.transform} values"
    assert reached(run, test) > 0.8
    block = transform_block(data.rows(0, data.n_rows), spec.transform)
    if limited:  # there is no time to take in the held-out rows
        held = np.isin(data.numbers(0, data.n_rows), run.held_out)
        block = block.take(np.flatnonzero(~held))
    sums = discriminant.Discriminant(np.zeros((30, 12), np.float32))
    sums.add(block)
    weights = np.empty((12, 30), np.float32)
    reason = next(r for r in run.result.reasons if r.startswith("closed form added: share 1, "))
    bias = sums.solve(float(reason.split(" with ")[1].split()[0]), weights)
    np.testing.assert_allclose(run.model.weights, weights, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(run.model.bias, bias, rtol=1e-3, atol=1e-3)
    if limited:
        said = run.result.reasons[-1]
        assert "--epochs 0" in said
        assert "--whitening off" in said


def test_no_epoch_is_refused_where_weights_need_one(stores, tiny):
    data, _ = stores
    with tiny.dataset(name="sparse.zarr") as sparse:
        for store, off in ((data, {"closed_form": "off"}), (sparse, {})):
            trainer = sm.Trainer(sm.plan(store, memory="1GB", **off), TrainingOptions(epochs=0))
            with pytest.raises(UsageError, match="at least one epoch is needed"):
                trainer.fit(store, tiny.folder / "run")
            assert not (tiny.folder / "run").exists()
