"""What every backend must do: one suite over all of them, held to plain NumPy in float64.

The CUDA backend runs where there is a GPU, and in Numba's simulator (tox -e cudasim) with fewer
rows.
"""

import contextlib
import os
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from streammach.backends.registry import BACKENDS
from streammach.options.estimators import ESTIMATORS
from streammach.options.optimizers import OPTIMIZERS
from streammach.rows.dense import RowMap, expand_rows
from streammach.system.errors import DeviceError
from tests.builders import batch_of, block_of, dense_block, open_backend, spec_of, training
from tests.reference.mach import JointMach, ReferenceMach

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


@pytest.fixture(params=sorted(BACKENDS))
def device(request):
    if SIMULATED and request.param == "cpu":
        pytest.skip("the CPU's turn is without the simulator")
    try:
        open_backend(request.param, spec_of(3, 2, 2, 1), dense=False, threads=1).close()
    except DeviceError as error:
        if request.param in request.config.getoption("--require-backend"):
            raise
        pytest.skip(str(error))
    return request.param


def few(device, n):
    """So many rows, or as many as can be simulated."""
    return min(n, 7) if SIMULATED and device == "cuda" else n


def put(backend, weights):
    """Give a backend weights."""
    backend.arrays()["weights"][:] = weights
    backend.restore()


def both(device, spec, spec_training, *, dense, threads=1):
    """A backend and the reference of the same model."""
    backend = open_backend(device, spec, dense=dense, threads=threads)
    backend.prepare(spec_training, MOST_VALUES)
    reference = (JointMach if spec_training.loss == "joint" else ReferenceMach)(
        spec.n_features, backend.codes, spec.n_buckets, spec_training.optimizer,
        spec_training.epsilon, spec_training.label_smoothing,
    )  # fmt: skip
    return backend, reference


def begin(backend, reference, rng):
    """Give both the same random weights and bias, so that no two classes are equally good."""
    start = rng.normal(size=reference.W.shape).astype(np.float32) * np.float32(0.3)
    bias = rng.normal(size=len(reference.b)).astype(np.float32) * np.float32(0.3)
    reference.W[:], reference.b[:] = start, bias
    backend.arrays()["bias"][:] = bias
    put(backend, start)
    return start, bias


def loss_of(backend, batch, rate):
    """Train on a batch that there is room for; its loss."""
    assert len(batch.features) <= MOST_VALUES
    known, late = backend.step(batch, rate), backend.drain_losses()
    assert known.n_rows + late.n_rows == batch.n_rows
    return known.total + late.total


SHAPES = [  # K, d, B, R
    (40, 12, 8, 5),
    (40, 12, 7, 3),  # odd B
    (9, 12, 9, 1),  # a bucket for every class
    (1, 5, 4, 2),  # one class
    (100, 30, 33, 4),
]
MOST_ROWS = 150  # of a batch
MOST_VALUES = MOST_ROWS * max(d for _, d, _, _ in SHAPES)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("loss", ["independent", "joint"])
def test_steps_equal_the_reference(device, shape, optimizer, dense, smoothing, loss, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    n = few(device, MOST_ROWS if loss == "joint" else 30)  # joint: more than are decoded at once
    how = training(
        optimizer=optimizer, label_smoothing=smoothing, batch_size=n, epsilon=1e-3, loss=loss
    )
    backend, reference = both(device, spec, how, dense=dense)
    begin(backend, reference, rng)
    for _ in range(few(device, 4)):
        block = block_of(rng, n, n_features, n_classes)
        weights = rng.uniform(0.5, 2, n).astype(np.float32)
        if dense and optimizer == "adam":  # dense Adam moves every row: let every row be touched
            block = dense_block(rng.uniform(0.1, 1, (n, n_features)), block.classes)
        arrays = (block.indptr, block.features, block.values, block.classes, weights)
        if not reference.decided(*arrays[:3]):
            continue
        loss = loss_of(backend, batch_of(block, n_features, weights), 0.1)
        assert loss == pytest.approx(reference.step(*arrays, 0.1), rel=1e-4)
    held = backend.arrays()
    reference.check(held["weights"], held["bias"], atol=2e-5, rtol=2e-4)
    backend.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", ["independent", "joint"])
def test_hashed_models_of_few_features_are_those_of_rows_that_have_no_other(
    device, shape, optimizer, loss, rng
):
    (n_classes, d), n, found = shape[:2], few(device, 30), []
    spec, first = spec_of(*shape), d // 2
    blocks = [block_of(rng, n, d, n_classes) for _ in range(2)]
    how = training(optimizer=optimizer, label_smoothing=0.1, batch_size=n, loss=loss)
    for one in (replace(spec, hashed_features=first), replace(spec, n_features=first)):
        backend = open_backend(device, one, dense=False, threads=1)
        backend.prepare(how, MOST_VALUES)
        rows = blocks if one.cut else [b.with_values(b.features < first) for b in blocks]
        losses = [loss_of(backend, batch_of(block, first), 0.1) for block in rows]
        answers = [backend.topk(rows[0], 3, estimator) for estimator in ESTIMATORS]
        outputs = backend.outputs(rows[0], logarithms=True)
        arrays = {name: array.tobytes() for name, array in backend.arrays().items()}
        found.append((losses, arrays, outputs.tolist(), [a.tolist() for a in chain(*answers)]))
        backend.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize(("error", "right"), [(2.0**-23, True), (1e-3, False)])
def test_tolerances_follow_from_the_gradient(optimizer, error, right, rng):
    """Two rows whose gradients of a weight cancel: rounding is left, divided by its size."""

    class Rounded(ReferenceMach):
        def residual(self, z, y):
            found = super().residual(z, y)
            return found + error * rng.uniform(-1, 1, len(found))

    codes, rate = spec_of(40, 2, 8, 5).codes(), 0.1
    exact, rounded = (of(2, codes, 8, optimizer, epsilon=1e-8) for of in (ReferenceMach, Rounded))
    x, ones = dense_block(np.array([[1.0, 1], [-1, 1]]), np.array([3, 3])), np.ones(2)
    for reference in (exact, rounded):
        reference.step(x.indptr, x.features, x.values, x.classes, ones, rate)
    moved = np.abs(rounded.W[0] - exact.W[0]).max()
    assert moved > (2e-5 if right else 1e-3)  # more than a tolerance that knows no gradient
    with contextlib.nullcontext() if right else pytest.raises(AssertionError):
        exact.check(rounded.W, rounded.b, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("loss", ["independent", "joint"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_step_follows_finite_differences(device, shape, dense, smoothing, loss, rng):
    """Plain SGD moves by the gradient: compare it with differences of the objective itself."""
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    how = training(optimizer="sgd", label_smoothing=smoothing, batch_size=12, loss=loss)
    backend, reference = both(device, spec, how, dense=dense)
    start, bias = begin(backend, reference, rng)
    n = few(device, 12)
    block = block_of(rng, n, n_features, n_classes, values="normal")
    weights = np.ones(n, np.float32)
    backend.step(batch_of(block, n_features, weights), 1.0)
    moved = start.astype(np.float64) - backend.arrays()["weights"]
    arrays = (block.indptr, block.features, block.values, block.classes, weights)
    places = list(zip(*np.nonzero(np.abs(moved) > 1e-7), strict=True))
    rng.shuffle(places)
    for place in places[:25]:
        assert moved[place] == pytest.approx(slope(reference, reference.W, place, arrays), abs=2e-4)
    slopes = [slope(reference, reference.b, c, arrays) for c in range(spec.n_columns)]
    np.testing.assert_allclose(bias - backend.arrays()["bias"], slopes, atol=3e-4)
    backend.close()


def slope(reference, table, place, rows, h=1e-5):
    """How the objective changes with a weight, from a difference."""
    found = []
    for change in (h, -2 * h):
        table[place] += change
        found.append(reference.objective(*rows))
    table[place] += h
    return (found[0] - found[1]) / (2 * h)


@pytest.mark.parametrize("shape", SHAPES)
def test_whitened_rows_train_as_rows_in_their_basis_and_fold_back(device, shape, rng):
    n_classes, n_features = shape[:2]
    spec, n = spec_of(*shape), few(device, 30)
    how = training(optimizer="adam", batch_size=n, epsilon=1e-3, whitened=True)
    rotation = np.eye(n_features) + 0.3 * rng.normal(size=(n_features, n_features))
    basis = RowMap(rotation.astype(np.float32), rng.normal(size=n_features).astype(np.float32))
    backend, reference = both(device, spec, how, dense=True)
    backend.prepare(how, MOST_VALUES, basis)
    for _ in range(few(device, 4)):
        plain = block_of(rng, n, n_features, n_classes)
        x = expand_rows(plain, n_features) @ basis.rotation - basis.shift
        white = dense_block(x, plain.classes)
        loss = loss_of(backend, batch_of(plain, n_features), 0.1)
        weights = np.ones(n, np.float32)
        arrays = (white.indptr, white.features, white.values, white.classes, weights)
        assert loss == pytest.approx(reference.step(*arrays, 0.1), rel=1e-3)
    held = backend.arrays()
    reference.check(held["weights"], held["bias"], atol=1e-4, rtol=1e-3)
    before = backend.outputs(plain, logarithms=False)
    expected = reference.probabilities(white.indptr, white.features, white.values)
    np.testing.assert_allclose(before, expected, atol=1e-4)
    backend.unwhiten_weights()
    np.testing.assert_allclose(backend.outputs(plain, logarithms=False), before, atol=1e-4)
    held = backend.arrays()
    np.testing.assert_allclose(held["weights"], basis.rotation @ reference.W, atol=1e-3, rtol=1e-3)
    folded = {name: array.copy() for name, array in held.items()}
    backend.unwhiten_weights()  # there is nothing left to do
    assert all((backend.arrays()[name] == folded[name]).all() for name in folded)
    backend.prepare(how, MOST_VALUES)  # plain rows again
    loss_of(backend, batch_of(plain, n_features), 0.1)
    backend.close()


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_with_more_columns_train_as_rows_that_hold_them(device, shape, whitened, rng):
    (n_classes, d), more = shape[:2], 11
    spec, n = spec_of(*shape), few(device, 30)
    how = training(optimizer="adam", batch_size=n, epsilon=1e-3, whitened=whitened)
    basis = None
    if whitened:
        rotation = np.eye(d) + 0.3 * rng.normal(size=(d, d))
        basis = RowMap(rotation.astype(np.float32), rng.normal(size=d).astype(np.float32))
    waves = replace(basis or RowMap(), projection=rng.normal(size=(d + 2, more)).astype(np.float32))
    backend, _ = both(device, spec, how, dense=True)  # of plain rows at first
    backend.prepare(how, MOST_VALUES, waves)
    reference = ReferenceMach(
        d + more, backend.codes, spec.n_buckets, optimizer="adam", epsilon=1e-3
    )
    for _ in range(few(device, 4)):
        plain = dense_block(rng.normal(size=(n, d)), rng.integers(0, n_classes, n))
        x = np.empty((n, d + more), np.float32)
        waves.apply(expand_rows(plain, d), x)
        wide = dense_block(x, plain.classes)
        loss = loss_of(backend, batch_of(plain, d), 0.1)
        weights = np.ones(n, np.float32)
        arrays = (wide.indptr, wide.features, wide.values, wide.classes, weights)
        assert loss == pytest.approx(reference.step(*arrays, 0.1), rel=1e-3)
    held = backend.arrays()
    reference.check(held["weights"], held["bias"], atol=1e-4, rtol=1e-3)
    assert (held["projection"] == waves.projection).all()
    before = backend.outputs(plain, logarithms=False)
    expected = reference.probabilities(wide.indptr, wide.features, wide.values)
    np.testing.assert_allclose(before, expected, atol=1e-4)
    backend.unwhiten_weights()
    np.testing.assert_allclose(backend.outputs(plain, logarithms=False), before, atol=1e-4)
    held = {name: array.copy() for name, array in backend.arrays().items()}
    backend.prepare(how, MOST_VALUES)  # plain rows again
    assert backend.arrays()["weights"].shape == (d, spec.n_columns)
    loss_of(backend, batch_of(plain, d), 0.1)
    backend.close()
    names = ("weights", "bias", "projection")
    trained = open_backend(
        device, spec, weights={name: held[name] for name in names}, dense=True, basis=True,
        n_more=more,
    )  # fmt: skip
    np.testing.assert_allclose(trained.outputs(plain, logarithms=False), before, atol=1e-4)
    trained.close()


def test_untouched_features_keep_their_weights(device, rng):
    spec = spec_of(20, 9, 4, 3)
    backend, _ = both(device, spec, training(batch_size=6), dense=False)
    x = np.zeros((6, 9))
    x[:, :4] = rng.random((6, 4))
    backend.step(batch_of(dense_block(x, rng.integers(0, 20, 6)), 9), 0.5)
    weights = backend.arrays()["weights"]
    assert (weights[4:] == 0).all()
    assert (weights[:4] != 0).any()
    backend.close()


def test_empty_rows_train_the_bias_alone(device):
    spec = spec_of(20, 9, 4, 3)
    backend, _ = both(device, spec, training(batch_size=6), dense=False)
    backend.step(batch_of(dense_block(np.zeros((6, 9)), np.full(6, 7)), 9), 0.5)
    assert (backend.arrays()["weights"] == 0).all()
    assert (backend.arrays()["bias"] != 0).all()
    backend.close()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", ["independent", "joint"])
@pytest.mark.skipif(SIMULATED, reason="threads of the host compute nothing there")
def test_the_number_of_threads_does_not_change_a_bit(device, optimizer, shape, loss, rng):
    n_classes, n_features = shape[:2]
    spec, n = spec_of(*shape), MOST_ROWS if loss == "joint" else 40
    blocks = [block_of(rng, n, n_features, n_classes) for _ in range(3)]
    held = []
    for threads in (1, 2, 5):
        how = training(optimizer=optimizer, label_smoothing=0.1, batch_size=n, loss=loss)
        backend, _ = both(device, spec, how, dense=False, threads=threads)
        losses = [loss_of(backend, batch_of(b, n_features), 0.3) for b in blocks]
        held.append((losses, {k: v.tobytes() for k, v in backend.arrays().items()}))
        backend.close()
    assert held[0] == held[1] == held[2]


def test_every_loss_is_returned_once_however_late(device, rng):
    spec, how = spec_of(20, 9, 4, 3), training(batch_size=6)
    batches = [batch_of(block_of(rng, 2 + i % 5, 9, 20), 9) for i in range(21)]
    backend, _ = both(device, spec, how, dense=False)
    expected = [loss_of(backend, batch, 0.5) for batch in batches]
    backend.prepare(how, MOST_VALUES)
    backend.step(batches[0], 0.5)
    backend.prepare(how, MOST_VALUES)  # what was not asked for is gone
    total, rows, done = 0.0, 0, 0
    for batch in batches:
        known = backend.step(batch, 0.5)
        total, rows, done = total + known.total, rows + known.n_rows, done + 1
        ends = np.cumsum([b.n_rows for b in batches[:done]]).tolist()
        assert rows in [0, *ends]
        assert total == pytest.approx(sum(expected[: [0, *ends].index(rows)]))
    late = backend.drain_losses()
    assert rows + late.n_rows == sum(b.n_rows for b in batches)
    assert total + late.total == pytest.approx(sum(expected))
    assert backend.drain_losses() == (0, 0)
    backend.close()


def test_preparing_again_starts_from_zero(device, rng):
    spec = spec_of(20, 9, 4, 3)
    backend, _ = both(device, spec, training(batch_size=10), dense=False)
    block = block_of(rng, 10, 9, 20)
    first = loss_of(backend, batch_of(block, 9), 0.5)
    once = backend.arrays()["weights"].copy()
    backend.prepare(training(batch_size=10), MOST_VALUES)
    assert loss_of(backend, batch_of(block, 9), 0.5) == first
    assert backend.arrays()["weights"].tobytes() == once.tobytes()
    backend.close()
