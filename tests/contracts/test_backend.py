"""What every backend must do: one suite over all of them, held to plain NumPy in float64."""

import numpy as np
import pytest

from streammach.backends.base import DEVICES, open_backend
from streammach.errors import DeviceError
from streammach.rows.batch import BatchSlot
from tests.builders import block_of, dense_block, spec_of, training
from tests.reference.mach import ReferenceMach


@pytest.fixture(params=DEVICES)
def device(request):
    try:
        open_backend(request.param, spec_of(3, 2, 2, 1), dense=False, threads=1).close()
    except DeviceError as error:
        if request.param in request.config.getoption("--require-backend"):
            raise
        pytest.skip(str(error))
    return request.param


def batch_of(block, n_features, weights=None):
    """All rows of a block as one batch, feature by feature too."""
    slot = BatchSlot(block.n_rows, max(block.nnz, 1), n_features, by_feature=True)
    if weights is not None:
        block = type(block)(block.indptr, block.features, block.values, block.labels, weights)
    assert slot.add(block, np.arange(block.n_rows), "raw") == block.n_rows
    return slot.batch()


def both(device, spec, spec_training, *, dense, threads=1):
    """A backend and the reference of the same model."""
    backend = open_backend(device, spec, dense=dense, threads=threads)
    backend.prepare(spec_training)
    reference = ReferenceMach(
        spec.n_features, backend.codes, spec.n_buckets, spec_training.optimizer,
        spec_training.epsilon, spec_training.label_smoothing,
    )  # fmt: skip
    return backend, reference


SHAPES = [  # K, d, B, R
    (40, 12, 8, 5),
    (40, 12, 7, 3),  # odd B
    (9, 12, 9, 1),  # a bucket for every class
    (1, 5, 4, 2),  # one class
    (100, 30, 33, 4),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("optimizer", ["adagrad", "sgd", "adam"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_steps_equal_the_reference(device, shape, optimizer, dense, smoothing, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    how = training(optimizer=optimizer, label_smoothing=smoothing, batch_size=30, epsilon=1e-3)
    backend, reference = both(device, spec, how, dense=dense)
    for _ in range(4):
        block = block_of(rng, 30, n_features, n_classes)
        weights = rng.uniform(0.5, 2, 30).astype(np.float32)
        if dense and optimizer == "adam":  # dense Adam moves every row: let every row be touched
            block = dense_block(rng.uniform(0.1, 1, (30, n_features)), block.labels)
        loss = backend.step(batch_of(block, n_features, weights), 0.1)
        arrays = (block.indptr, block.features, block.values, block.labels, weights)
        assert loss == pytest.approx(reference.step(*arrays, 0.1), rel=1e-4)
    held = backend.arrays()
    np.testing.assert_allclose(held["weights"], reference.W, atol=2e-5, rtol=2e-4)
    np.testing.assert_allclose(held["bias"], reference.b, atol=2e-5, rtol=2e-4)
    backend.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_step_follows_finite_differences(device, shape, dense, smoothing, rng):
    """Plain SGD moves by the gradient: compare it with differences of the objective itself."""
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    how = training(optimizer="sgd", label_smoothing=smoothing, batch_size=12)
    backend, reference = both(device, spec, how, dense=dense)
    start = rng.normal(size=(n_features, spec.n_columns)).astype(np.float32) * 0.3
    backend.arrays()["weights"][:] = reference.W[:] = start
    block = block_of(rng, 12, n_features, n_classes, values="normal")
    weights = np.ones(12, np.float32)
    backend.step(batch_of(block, n_features, weights), 1.0)
    moved = start.astype(np.float64) - backend.arrays()["weights"]
    arrays = (block.indptr, block.features, block.values, block.labels, weights)
    h = 1e-5
    places = list(zip(*np.nonzero(np.abs(moved) > 1e-7), strict=True))
    rng.shuffle(places)
    for f, c in places[:25]:
        reference.W[f, c] += h
        above = reference.objective(*arrays)
        reference.W[f, c] -= 2 * h
        below = reference.objective(*arrays)
        reference.W[f, c] += h
        assert moved[f, c] == pytest.approx((above - below) / (2 * h), abs=2e-4)
    reference_bias = [
        (reference_objective_at(reference, arrays, c, h)) for c in range(spec.n_columns)
    ]
    np.testing.assert_allclose(-backend.arrays()["bias"], reference_bias, atol=3e-4)
    backend.close()


def reference_objective_at(reference, arrays, c, h):
    reference.b[c] += h
    above = reference.objective(*arrays)
    reference.b[c] -= 2 * h
    below = reference.objective(*arrays)
    reference.b[c] += h
    return (above - below) / (2 * h)


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


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd", "adam"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_number_of_threads_does_not_change_a_bit(device, optimizer, shape, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    blocks = [block_of(rng, 40, n_features, n_classes) for _ in range(3)]
    held = []
    for threads in (1, 2, 5):
        how = training(optimizer=optimizer, label_smoothing=0.1, batch_size=40)
        backend, _ = both(device, spec, how, dense=False, threads=threads)
        losses = [backend.step(batch_of(b, n_features), 0.3) for b in blocks]
        held.append((losses, {k: v.tobytes() for k, v in backend.arrays().items()}))
        backend.close()
    assert held[0] == held[1] == held[2]


def test_preparing_again_starts_from_zero(device, rng):
    spec = spec_of(20, 9, 4, 3)
    backend, _ = both(device, spec, training(batch_size=10), dense=False)
    block = block_of(rng, 10, 9, 20)
    first = backend.step(batch_of(block, 9), 0.5)
    once = backend.arrays()["weights"].copy()
    backend.prepare(training(batch_size=10))
    assert backend.step(batch_of(block, 9), 0.5) == first
    assert backend.arrays()["weights"].tobytes() == once.tobytes()
    backend.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_equal_the_reference(device, shape, dense, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    backend, reference = both(device, spec, training(), dense=dense)
    weights = rng.normal(size=(n_features, spec.n_columns)).astype(np.float32)
    backend.arrays()["weights"][:] = reference.W[:] = weights
    block = block_of(rng, 70, n_features, n_classes)
    expected = reference.probabilities(block.indptr, block.features, block.values)
    found = backend.outputs(block, logarithms=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    logs = backend.outputs(block, logarithms=True)
    np.testing.assert_allclose(logs, np.log(expected), atol=2e-5)
    backend.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("optimizer", ["adagrad", "sgd", "adam"])
def test_the_ledger_states_what_is_allocated(device, dense, optimizer):
    spec = spec_of(300, 50, 16, 6)
    backend, _ = both(device, spec, training(optimizer=optimizer, batch_size=32), dense=dense)
    stated = type(backend).footprint(
        spec, optimizer=optimizer, dense=dense, batch_size=32, threads=1
    )
    held = backend.arrays()
    state = [a for name, a in held.items() if name not in ("weights", "bias", "steps")]
    assert stated["weights"] == held["weights"].nbytes + held["bias"].nbytes
    assert stated["optimizer"] == sum(a.nbytes for a in state)
    assert stated["residuals"] == sum(a.nbytes for a in backend._buffers.values())
    assert stated["tables"] == backend.codes.nbytes
    backend.close()
