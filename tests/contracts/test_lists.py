"""What every backend does with rows that have lists of labels, held to plain NumPy in float64."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.backends.registry import BACKENDS
from streammach.options.model_spec import ModelShape
from streammach.rows.batch import BatchSlot
from streammach.rows.label_lists import LabelLists
from tests.builders import block_of, config_of, dense_block, open_backend, spec_of, training
from tests.contracts.test_backend import MOST_VALUES, SHAPES, SIMULATED, begin, device, few, loss_of
from tests.reference.mach import JointListMach, ListMach, LogisticMach

__all__ = ["device"]
MOST_LABELS = 800
REFERENCES = {"independent": ListMach, "logistic": LogisticMach, "joint": JointListMach}


def listed(rng, block, n_classes):
    """The rows of a block with up to six labels each, some with none."""
    rows = [
        rng.choice(n_classes, min(int(n), n_classes), replace=False).tolist()
        for n in rng.integers(0, 7, block.n_rows)
    ]
    return block.with_labels(LabelLists.of(rows))


def batch_of(block, n_features, importance, *, shared):
    """All rows of a block as one batch."""
    block = replace(block, importance=importance)
    slot = BatchSlot(
        block.n_rows, max(block.nnz, 1), n_features, by_feature=True, n_labels=MOST_LABELS,
        shared=shared,
    )  # fmt: skip
    assert slot.add(block, np.arange(block.n_rows), "raw") == block.n_rows
    return slot.batch()


def targets(batch):
    """Each row's labels with their shares."""
    lists = batch.labels
    pairs = list(zip(lists.classes.tolist(), lists.weights.astype(float).tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(lists.starts, lists.starts[1:], strict=False)]


def both(device, spec, how, *, dense, threads=1):
    """A backend and the reference of the same model."""
    backend = open_backend(device, spec, dense=dense, threads=threads)
    backend.prepare(how, MOST_VALUES, None, MOST_LABELS)
    reference = REFERENCES[how.loss](
        spec.n_features, backend.codes, spec.n_buckets, how.optimizer, how.epsilon,
        how.label_smoothing,
    )  # fmt: skip
    return backend, reference


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    ("loss", "shared", "smoothing"),
    [("independent", True, 0.0), ("independent", True, 0.2), ("independent", False, 0.1),
     ("logistic", False, 0.0), ("logistic", False, 0.1), ("logistic", True, 0.2),
     ("joint", True, 0.0), ("joint", True, 0.2), ("joint", False, 0.1)],
)  # fmt: skip
def test_steps_equal_the_reference(device, shape, optimizer, dense, loss, shared, smoothing, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    n = few(device, 90 if loss == "joint" else 30)  # joint: more than are decoded at once
    how = training(
        optimizer=optimizer, label_smoothing=smoothing, batch_size=n, epsilon=1e-3, loss=loss
    )
    backend, reference = both(device, spec, how, dense=dense)
    begin(backend, reference, rng)
    rate = 0.01 if (loss, optimizer) == ("joint", "sgd") else 0.1  # many rows go far
    for _ in range(few(device, 4)):
        block = block_of(rng, n, n_features, n_classes)
        if dense and optimizer == "adam":
            block = dense_block(rng.uniform(0.1, 1, (n, n_features)), block.classes)
        weights = rng.uniform(0.5, 2, n).astype(np.float32)
        batch = batch_of(listed(rng, block, n_classes), n_features, weights, shared=shared)
        arrays = (block.indptr, block.features, block.values, targets(batch), weights)
        if not reference.decided(*arrays[:3]):
            continue
        found = loss_of(backend, batch, rate)
        assert found == pytest.approx(reference.step(*arrays, rate), rel=1e-4, abs=1e-5)
    held = backend.arrays()
    reference.check(held["weights"], held["bias"], atol=2e-5, rtol=2e-4)
    backend.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", REFERENCES)
@pytest.mark.parametrize("shared", [True, False])
def test_a_step_follows_finite_differences(device, shape, shared, loss, rng):
    n_classes, n_features = shape[:2]
    spec, n = spec_of(*shape), few(device, 12)
    how = training(optimizer="sgd", label_smoothing=0.2, batch_size=12, loss=loss)
    backend, reference = both(device, spec, how, dense=False)
    start, _ = begin(backend, reference, rng)
    block = listed(rng, block_of(rng, n, n_features, n_classes, values="normal"), n_classes)
    weights = np.ones(n, np.float32)
    batch = batch_of(block, n_features, weights, shared=shared)
    backend.step(batch, 1.0)
    moved = start.astype(np.float64) - backend.arrays()["weights"]
    arrays = (block.indptr, block.features, block.values, targets(batch), weights)
    places = list(zip(*np.nonzero(np.abs(moved) > 1e-7), strict=True))
    for place in places[:: max(1, len(places) // 12)]:
        before = reference.W[place]
        found = []
        for h in (1e-5, -1e-5):
            reference.W[place] = before + h
            found.append(reference.objective(*arrays))
        reference.W[place] = before
        assert moved[place] == pytest.approx((found[0] - found[1]) / 2e-5, rel=2e-3, abs=2e-5)
    backend.close()


@pytest.mark.parametrize("loss", ["independent", "joint"])
def test_lists_of_one_label_train_as_that_label(device, loss, rng):
    shape = SHAPES[0]
    n_classes, n_features = shape[:2]
    spec, n = spec_of(*shape), few(device, 20)
    block, found = block_of(rng, n, n_features, n_classes), []
    weights = np.ones(n, np.float32)
    for rows in (block, block.with_labels(LabelLists.single(block.classes))):
        backend = open_backend(device, spec, dense=False, threads=1)
        most = 0 if rows.labels is None else MOST_LABELS
        backend.prepare(training(batch_size=n, loss=loss), MOST_VALUES, None, most)
        slot = BatchSlot(n, rows.nnz, n_features, by_feature=True, n_labels=most)
        slot.add(replace(rows, importance=weights), np.arange(n), "raw")
        found.append((loss_of(backend, slot.batch(), 0.3), backend.arrays()["weights"].copy()))
        backend.close()
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=2e-6)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_sigmoids_start_at_the_bias_and_equal_the_reference(device, shape, dense, rng):
    n_classes, n_features = shape[:2]
    spec = spec_of(*shape)
    how = training(loss="logistic", bucket_share=0.01)
    backend, reference = both(device, spec, how, dense=dense)
    block = block_of(rng, few(device, 30), n_features, n_classes)
    np.testing.assert_allclose(backend.outputs(block, logarithms=False), 0.01, rtol=1e-5)
    weights = rng.normal(size=(n_features, spec.n_columns)).astype(np.float32)
    backend.arrays()["weights"][:] = reference.W[:] = weights
    backend.restore()
    reference.b[:] = np.log(0.01 / 0.99)
    expected = reference.probabilities(block.indptr, block.features, block.values)
    found = backend.outputs(block, logarithms=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    logs = backend.outputs(block, logarithms=True)
    np.testing.assert_allclose(logs, np.log(expected), atol=2e-5)
    ids, scores = backend.topk(block, 3, "mean")
    means = expected.reshape(block.n_rows, -1, spec.n_buckets)
    own = np.stack([means[:, r, backend.codes[:, r]] for r in range(spec.n_repetitions)]).mean(0)
    if not spec.exact:
        total = expected.sum(axis=1, keepdims=True) / spec.n_repetitions
        own = (spec.n_buckets * own - total) / (spec.n_buckets - 1)
    np.testing.assert_allclose(scores, -np.sort(-own, axis=1)[:, :3], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(own, ids, 1), scores, atol=1e-5)
    held = {name: backend.arrays()[name] for name in ("weights", "bias")}
    again = open_backend(device, spec, dense=dense, weights=held, logistic=True)
    np.testing.assert_array_equal(again.outputs(block, logarithms=True), logs)
    backend.close()
    again.close()


@pytest.mark.skipif(SIMULATED, reason="threads of the host compute nothing there")
@pytest.mark.parametrize("loss", REFERENCES)
def test_the_number_of_threads_does_not_change_a_bit(device, loss, rng):
    shape, n = SHAPES[0], 90
    spec = spec_of(*shape)
    blocks = [listed(rng, block_of(rng, n, shape[1], shape[0]), shape[0]) for _ in range(3)]
    held = []
    for threads in (1, 2, 3):
        how = training(batch_size=n, loss=loss)
        backend, _ = both(device, spec, how, dense=False, threads=threads)
        for block in blocks:
            batch = batch_of(block, shape[1], np.ones(n, np.float32), shared=True)
            backend.step(batch, 0.1)
        held.append(backend.arrays()["weights"].tobytes())
        backend.close()
    assert len(set(held)) == 1


@pytest.mark.parametrize("dense", [False, True])
def test_the_ledger_states_what_the_cpu_holds(dense):
    spec, how = spec_of(*SHAPES[0]), training(batch_size=30, loss="joint")
    backend, _ = both("cpu", spec, how, dense=dense)
    config = config_of(spec.shape, dense=dense, optimizer="adagrad", rows=30, nnz=MOST_VALUES)
    config = replace(config, batching=replace(config.batching, batch_labels=MOST_LABELS))
    stated, _ = BACKENDS["cpu"].footprint(config, None)
    assert stated["residuals"] == sum(array.nbytes for array in backend.buffers.values())
    backend.close()


def test_the_ledger_states_the_labels(device):
    shape = ModelShape(n_classes=40, n_features=12, n_buckets=8, n_repetitions=5)
    config = config_of(shape, device, optimizer="adagrad", rows=30, nnz=200)
    more = replace(config, batching=replace(config.batching, batch_labels=MOST_LABELS))

    def stated(config):
        host, there = BACKENDS[device].footprint(config, None)
        return sum(host.values()), sum(there.values())

    # Of two slots; of the CPU a number for each label, of the joint loss.
    slots = 2 * (4 * 31 + 8 * MOST_LABELS)
    needed = (slots, slots) if device == "cuda" else (4 * MOST_LABELS, 0)
    for plain, listed, bytes_more in zip(stated(config), stated(more), needed, strict=True):
        assert bytes_more <= listed - plain <= bytes_more + 6 * 512
