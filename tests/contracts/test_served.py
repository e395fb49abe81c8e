"""What every backend must do with weights that are there: apply, hold, give back, rank."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.backends.registry import BACKENDS
from streammach.options.estimators import ESTIMATORS
from streammach.options.optimizers import OPTIMIZERS
from streammach.prediction.quantized import QuantizedForward
from streammach.rows.dense import RowMap
from streammach.rows.packed import PackedRows
from tests.builders import (
    batch_of,
    block_of,
    config_of,
    dense_block,
    drawn,
    open_backend,
    spec_of,
    training,
)
from tests.contracts.test_backend import MOST_VALUES, SHAPES, begin, both, device, few, loss_of, put

__all__ = ["device"]


@pytest.mark.parametrize(("dense", "stored"), [(False, "int4"), (True, "float16")])
def test_narrower_weights_are_applied_until_the_trained_ones_are_given_back(
    device, dense, stored, rng
):
    n_classes, d = SHAPES[0][:2]
    spec, rows = spec_of(*SHAPES[0]), block_of(rng, few(device, 30), d, n_classes)
    backend, reference = both(device, spec, training(batch_size=rows.n_rows), dense=dense)
    begin(backend, reference, rng)
    before = backend.outputs(rows, logarithms=True)
    trained = {name: backend.arrays()[name].copy() for name in ("weights", "bias")}
    for width, r in (("float32", 1), (stored, spec.n_repetitions), (stored, 1)):
        how = {"dense": dense, "threads": 1, "logistic": False}
        there = QuantizedForward(spec.first(r), backend.arrays(), width, device=backend, **how)
        here = QuantizedForward(spec.first(r), trained, width, **how)
        found, expected = (one.outputs(rows, logarithms=True) for one in (there, here))
        np.testing.assert_allclose(found, expected, atol=1e-4)
        ids, best = (one.topk(rows, 3, "logsum") for one in (there, here))
        assert (ids[0] == best[0]).mean() > 0.9
        there.close()
        here.close()
    backend.apply(None)
    assert (backend.outputs(rows, logarithms=True) == before).all()
    assert all((backend.arrays()[name] == trained[name]).all() for name in trained)
    backend.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_equal_the_reference(device, shape, dense, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    backend, reference = both(device, spec, training(), dense=dense)
    weights = rng.normal(size=(n_features, spec.n_columns)).astype(np.float32)
    reference.W[:] = weights
    put(backend, weights)
    block = block_of(rng, few(device, 70), n_features, n_classes)
    expected = reference.probabilities(block.indptr, block.features, block.values)
    found = backend.outputs(block, logarithms=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    logs = backend.outputs(block, logarithms=True)
    np.testing.assert_allclose(logs, np.log(expected), atol=2e-5)
    backend.close()


def test_a_run_of_one_device_is_that_of_the_cpu(device, rng):
    """After 50 steps weights agree to 1e-5 of the largest, and so do the best classes."""
    if device == "cpu":
        pytest.skip("the CPU is what others are compared with")
    spec, how = spec_of(40, 8, 6, 3), training(batch_size=6, label_smoothing=0.1, epsilon=1.0)
    backends = [both(name, spec, how, dense=False)[0] for name in (device, "cpu")]
    for _ in range(50):
        block = block_of(rng, 6, 8, 40, most=4)
        losses = [loss_of(backend, batch_of(block, 8), 0.5) for backend in backends]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    found, expected = (backend.arrays() for backend in backends)
    for name, array in expected.items():
        assert np.abs(found[name] - array).max() <= 1e-5 * np.abs(array).max(), name
    for estimator in ESTIMATORS:
        ids = [backend.topk(block, 5, estimator)[0].tolist() for backend in backends]
        assert ids[0] == ids[1], estimator
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_arrays_that_are_put_back_go_on_with_the_same_bits(device, dense, optimizer, rng):
    spec, how = spec_of(40, 12, 7, 3), training(optimizer=optimizer, batch_size=10)
    n = few(device, 10)
    batches = [batch_of(block_of(rng, n, 12, 40), 12) for _ in range(4)]
    backend, _ = both(device, spec, how, dense=dense)
    for batch in batches:
        backend.step(batch, 0.1)
    expected = {name: array.tobytes() for name, array in backend.arrays().items()}
    backend.prepare(how, MOST_VALUES)
    for batch in batches[:2]:
        backend.step(batch, 0.1)
    saved = {name: array.copy() for name, array in backend.arrays().items()}
    backend.close()
    other, _ = both(device, spec, how, dense=dense)
    for name, array in other.arrays().items():
        array[:] = saved[name]
    other.restore()
    for batch in batches[2:]:
        other.step(batch, 0.1)
    assert {name: array.tobytes() for name, array in other.arrays().items()} == expected
    other.close()


@pytest.mark.parametrize("best_stays", [False, True])
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_another_epoch_is_held_while_training_goes_on(device, best_stays, optimizer, rng):
    spec, how = spec_of(40, 12, 7, 3), training(optimizer=optimizer, batch_size=10)
    batches = [batch_of(block_of(rng, few(device, 10), 12, 40), 12) for _ in range(3)]
    backend = open_backend(device, spec, dense=False, threads=2, best_stays=best_stays)
    if not backend.keeps_best:
        backend.close()
        pytest.skip("it has no room for another epoch")
    backend.prepare(how, MOST_VALUES)

    def bytes_of(arrays):
        return {name: array.tobytes() for name, array in arrays.items()}

    def newest():
        return bytes_of(backend.arrays())

    backend.step(batches[0], 0.1)
    backend.keep_best()
    backend.step(batches[1], 0.1)
    best = bytes_of(backend.best_arrays())
    after_two = newest()
    backend.step(batches[2], 0.1)
    if best_stays:
        assert bytes_of(backend.best_arrays()) == best
        backend.return_to_best()
        assert newest() == best
        backend.step(batches[1], 0.1)
        assert newest() == after_two
    backend.prepare(how, MOST_VALUES)
    backend.step(batches[0], 0.1)
    assert newest() == best
    backend.keep_best()
    backend.step(batches[2], 0.1)
    backend.return_to_best()
    backend.step(batches[1], 0.1)
    assert newest() == after_two
    backend.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("narrow", [False, True, "packed"])
@pytest.mark.parametrize("first", [9, 5])
def test_a_model_of_the_cpu_is_served_with_the_same_ids(device, dense, narrow, first, rng):
    if dense and (narrow or first < 9):
        pytest.skip("dense rows have no int8 weights, and all features")
    spec = replace(spec_of(50, 9, 8, 4), n_features=first)
    model = drawn(rng, spec)
    weights = model["weights"]
    if narrow:
        model["scale"] = rng.uniform(0.01, 0.02, first).astype(np.float32)
        model["weights"] = rng.integers(-127, 128, weights.shape).astype(np.int8)
    served = dict(model)
    if narrow == "packed":
        served["weights"] = PackedRows.of([model["weights"]], weights.shape)
    rows = block_of(rng, few(device, 30), 9, 50)
    cut, found = replace(spec, n_features=9, hashed_features=first), []
    for name, one, given in ((device, cut if first < 9 else spec, served), ("cpu", spec, model)):
        backend = open_backend(name, one, dense=dense, threads=1, weights=given)
        rows = rows if one.cut else rows.with_values(rows.features < first)
        found.append([backend.topk(rows, 5, how) for how in ("logsum", "median")])
        backend.close()
    for (ids, scores), (expected_ids, expected) in zip(*found, strict=True):
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
        assert ids.tolist() == expected_ids.tolist()


@pytest.mark.parametrize("estimator", ["mean", "min", "median", "logsum"])
def test_added_classes_have_their_own_buckets(device, estimator, rng):
    spec = spec_of(40, 9, 8, 4)
    more = spec.with_more_classes(rng.integers(0, 8, (5, 4)))
    weights = drawn(rng, spec)
    rows, kind = block_of(rng, few(device, 80), 9, 40), ESTIMATORS[estimator]
    found = {}
    for name, one in (("before", spec), ("after", more)):
        backend = open_backend(device, one, dense=False, threads=1, weights=weights)
        np.testing.assert_array_equal(backend.codes, one.codes())
        found[name] = backend.topk(rows, 45, estimator)
        p = backend.outputs(rows, logarithms=kind.logarithms).reshape(-1, 4, 8)
        backend.close()
    parts = p[:, np.arange(4), more.codes()]
    plain = {"mean": np.sum, "min": np.min, "median": np.median, "logsum": np.sum}[estimator]
    expected = kind.finished(plain(parts, axis=2).astype(np.float32), more, np.float32(1))
    ids, scores = found["after"]
    np.testing.assert_allclose(
        scores, np.take_along_axis(expected, ids, axis=1), rtol=1e-4, atol=1e-5
    )
    assert (np.sort(ids, axis=1) == np.arange(45)).all()
    old = ids < 40
    np.testing.assert_array_equal(ids[old].reshape(-1, 40), found["before"][0])
    np.testing.assert_array_equal(scores[old].reshape(-1, 40), found["before"][1])


@pytest.mark.parametrize("lacking", [False, True])
def test_dense_rows_with_all_features_need_no_ids(device, lacking, rng):
    """A step on them has the bytes of one on rows with ids, which may leave zeros out."""
    spec, x, found = spec_of(40, 9, 8, 3), rng.normal(size=(6, 9)).astype(np.float32), []
    x[:, ::4] *= not lacking
    with_ids = batch_of(dense_block(x, np.arange(6)), 9)
    without = replace(
        with_ids, indptr=9 * np.arange(7), features=with_ids.features[:0], values=x.reshape(-1)
    )
    for batch in (with_ids, without):
        backend = open_backend(device, spec, dense=True)
        backend.prepare(training(batch_size=6), 54)
        for _ in range(3):
            backend.step(batch, 0.1)
        found.append(backend.arrays()["weights"].copy())
        backend.close()
    assert found[0].any()
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("rows", ["sparse", "dense", "whitened", "wide"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_ledger_states_what_is_allocated(device, rows, optimizer, rng):
    spec, dense, whitened = spec_of(300, 50, 16, 6), rows != "sparse", rows in ("whitened", "wide")
    n_more = 30 if rows == "wide" else 0
    how = training(optimizer=optimizer, batch_size=32, whitened=whitened)
    backend, _ = both(device, spec, how, dense=dense)
    basis = RowMap(np.eye(50, dtype=np.float32), np.zeros(50, np.float32)) if whitened else None
    if n_more:
        basis = replace(basis or RowMap(), projection=np.ones((52, n_more), np.float32))
    backend.prepare(how, MOST_VALUES, basis)
    config = config_of(
        spec.shape, device, dense=dense, optimizer=optimizer, rows=32, nnz=MOST_VALUES,
        basis=whitened, n_more=n_more,
    )  # fmt: skip
    stated, on_device = BACKENDS[device].footprint(config, None)
    held = backend.arrays()
    others = ("weights", "bias", "steps", "projection")
    state = [a for name, a in held.items() if name not in others]
    assert stated["weights"] == held["weights"].nbytes + held["bias"].nbytes
    assert stated["optimizer"] == sum(a.nbytes for a in state)
    assert stated["tables"] == backend.codes.nbytes
    if device == "cpu" and whitened and not n_more:
        assert stated["basis"] == basis.rotation.nbytes + basis.shift.nbytes
    if device == "cpu":
        assert stated["residuals"] == sum(a.nbytes for a in backend.buffers.values())
        assert on_device == {}
    else:
        backend.topk(block_of(rng, 2, 50, 300), 5, "mean")
        projected = sum(on_device.values()) - on_device["context"]
        peak, _ = backend.device_bytes()
        passing = on_device["decode"]  # as far as it is needed
        assert projected - passing <= peak <= projected
    backend.close()
