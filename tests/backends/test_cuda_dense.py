"""Dense rows on the device in Numba's simulator: how they are sent, laid out, and multiplied."""

import os
from dataclasses import replace

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 (tox -e cudasim)", allow_module_level=True)

from streammach.backends.cuda.dense_rows import DenseBuffer
from streammach.backends.cuda.shapes import table_rows
from streammach.backends.cuda.transfers import BufferRoom, DeviceRows
from streammach.rows.batch import RowIdBatch
from streammach.rows.dense import RowMap
from streammach.system.errors import DeviceError
from tests.builders import batch_of, dense_block, open_backend, spec_of, training
from tests.simulator.memory import SimulatedMemory, round_to_tf32


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_dense_rows_are_laid_out_as_they_are(dense, keep, rng):
    """Rows with all features come and are kept without ids."""
    memory, d, width = SimulatedMemory(1 << 30), 5, table_rows(5)
    assert width == 8
    x = rng.normal(size=(23, d)).astype(np.float32)
    if not dense:
        x[rng.uniform(size=x.shape) < 0.5] = 0
    block, weights = dense_block(x, rng.integers(0, 7, 23)), rng.uniform(size=23)
    whole = batch_of(block, d, weights.astype(np.float32))
    kept = None
    if keep:
        kept = DeviceRows(memory, 23, block.nnz, ids=not dense)
        kept.keep(replace(whole, features=whole.features[: block.nnz * (not dense)]), "raw")
    room = BufferRoom(9, 9 * d, kept=keep)
    slot = DenseBuffer(memory, room, kept, n_features=d)
    out = memory.send_copy(np.full(9 * width, np.nan, np.float32))
    for n in (9, 4):
        rows = np.sort(rng.permutation(23)[:n])
        some = dense_block(x[rows], block.classes[rows])
        slot["features"].values[:] = -1
        if keep:
            slot.load(RowIdBatch(rows, some.indptr))
        else:
            slot.load(batch_of(some, d, whole.importance[rows]))
            assert (slot["features"].values[0] == -1) == dense
        slot.release()
        assert not slot.sent_as_given & slot._host.keys()  # nobody's rows are kept for longer
        laid = slot.expand(out, n, width)
        assert laid[:, :d].tolist() == x[rows].tolist()
        assert laid[:, d:].tolist() == [[1, 0, 0]] * n
        assert slot["classes"].values[:n].tolist() == block.classes[rows].tolist()
        assert slot["importance"].values[:n].tolist() == whole.importance[rows].tolist()


def test_products_in_tf32_are_those_of_rounded_factors(rng):
    memory = SimulatedMemory(1 << 30)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((30, 50), (50, 7)))
    found = {}
    for tf32 in (False, True):
        found[tf32] = np.empty((30, 7), np.float32)
        memory.product(a, b, found[tf32], tf32=tf32)
    assert (found[False] == a @ b).all()
    assert 1e-4 < np.abs(found[True] - a @ b).max() < 0.05
    # By hand: a fraction of 10 bits, halves to the even one.
    one = np.float32(1)
    numbers = {1 + 2**-11: 1, 1 + 3 * 2**-11: 1 + 2**-9, -1 - 2**-11 - 2**-20: -1 - 2**-10}
    for x, expected in numbers.items():
        assert round_to_tf32(np.array([x], np.float32))[0] == np.float32(expected)
    assert (round_to_tf32(np.array([np.inf, one], np.float32)) == [np.inf, 1]).all()
    memory.capability = (7, 5)
    with pytest.raises(DeviceError, match=r"TF32 needs compute capability 8\.0, .* is 7\.5"):
        memory.check_tf32()


@pytest.mark.parametrize("n_features", [4, 7, 8])
@pytest.mark.parametrize("whitened", [False, True])
def test_what_fills_tables_up_stays_zero(n_features, whitened, rng):
    """In waves of different width, whose tables lie in the same memory."""
    spec = spec_of(40, n_features, 8, 3)
    how = training(batch_size=6, optimizer="adam", epsilon=1e-3, whitened=whitened)
    rotation = np.eye(n_features, dtype=np.float32) * 2
    basis = RowMap(rotation, np.ones(n_features, np.float32)) if whitened else None
    backend = open_backend("cuda", spec, dense=True, optimizer="adam", waves=2)
    backend.prepare(how, 200, basis)
    batch = batch_of(dense_block(rng.normal(size=(6, n_features)), np.arange(6)), n_features)
    for wave in (0, 1, 0):
        backend.select_wave(wave)
        backend.step(batch, 0.1)
        tables, stride = backend._group.tables, backend._group.shape.stride
        assert tables["weights"].values[: n_features * stride].any()
        for name in ("weights", "first", "second"):
            behind = slice((n_features + 1) * stride, table_rows(n_features) * stride)
            assert not tables[name].values[behind].any(), name
    backend.close()


def test_a_step_in_tf32_is_that_of_rounded_factors(rng):
    """From zero weights the gradient alone is rounded: that of plain SGD is the step."""
    spec, how = spec_of(40, 9, 8, 3), training(batch_size=6, optimizer="sgd")
    x = rng.normal(size=(6, 9)).astype(np.float32)
    moved = {}
    for given, tf32 in ((x, False), (x, True), (round_to_tf32(x), True)):
        backend = open_backend("cuda", spec, dense=True, tf32=tf32)
        backend.prepare(how, 200)
        backend.step(batch_of(dense_block(given, np.arange(6)), 9), 1.0)
        moved[given is x, tf32] = backend.arrays()["weights"].copy()
        backend.close()
    assert (moved[True, True] == moved[False, True]).all()
    apart = np.abs(moved[True, True] - moved[True, False]).max()
    assert 0 < apart < 2e-3 * np.abs(moved[True, False]).max()
