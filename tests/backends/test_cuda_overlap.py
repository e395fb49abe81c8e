"""Copies beside kernels: a device that does them as late as it may must give the same bytes."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 (tox -e cudasim)", allow_module_level=True)

from streammach.backends.cuda import backend as cuda_backend
from streammach.backends.cuda.dense_rows import DenseBuffer
from streammach.backends.cuda.transfers import BufferRoom, TransferBuffer
from streammach.rows.batch import RowIdBatch
from tests.backends.late import LateEvent, LateMemory
from tests.builders import batch_of, block_of, dense_block, open_backend, spec_of, training

N_BATCHES = 19  # more than losses are on their way


def trained(spec, how, batches, *, dense, keep):
    """The bytes and the loss of a training on batches, sent or named."""
    n_rows, nnz = sum(b.n_rows for b in batches), sum(len(b.features) for b in batches)
    backend = open_backend(
        "cuda",
        spec,
        dense=dense,
        resident=keep,
        facts=SimpleNamespace(n_rows=n_rows, nnz=nnz, n_labels=0),
    )
    backend.prepare(how, 200)
    if keep:
        first = 0
        for i, batch in enumerate(batches):
            backend.row_cache.keep(batch, "rows")
            batches[i] = RowIdBatch(np.arange(first, first + batch.n_rows), batch.indptr)
            first += batch.n_rows
    total = sum(backend.step(batch, 0.3).total for batch in batches) + backend.drain_losses().total
    held = {name: array.tobytes() for name, array in backend.arrays().items()}
    backend.close()
    return held, total


def drawn(rng):
    spec, how = spec_of(40, 9, 8, 3), training(batch_size=7, label_smoothing=0.1)
    batches = [batch_of(block_of(rng, 3 + i % 5, 9, 40), 9) for i in range(N_BATCHES)]
    return spec, how, batches


@pytest.mark.parametrize(("dense", "keep"), [(False, False), (False, True), (True, False)])
def test_late_copies_give_the_bytes_of_early_ones(dense, keep, rng, monkeypatch):
    spec, how, batches = drawn(rng)
    expected = trained(spec, how, list(batches), dense=dense, keep=keep)
    monkeypatch.setattr(cuda_backend, "DeviceMemory", LateMemory)
    found = trained(spec, how, list(batches), dense=dense, keep=keep)
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], rel=1e-12)


def test_dense_rows_have_left_their_arrays_when_their_slot_is_released(rng, monkeypatch):
    monkeypatch.setattr(LateEvent, "before", lambda moment, ahead=False: None)
    slot = DenseBuffer(LateMemory(1 << 30), BufferRoom(4, 20), n_features=5)
    rows = dense_block(rng.normal(size=(4, 5)))
    slot["values"].values[:] = np.nan
    slot.fill(rows.indptr, rows.features, rows.values)
    assert np.isnan(slot["values"].values).all()
    slot.release()
    assert slot["values"].values.tolist() == rows.values.tolist()


def test_each_rule_of_a_slot_is_needed(rng, monkeypatch):
    spec, how, batches = drawn(rng)
    expected = trained(spec, how, list(batches), dense=False, keep=False)
    monkeypatch.setattr(cuda_backend, "DeviceMemory", LateMemory)
    with monkeypatch.context() as patch:
        patch.setattr(TransferBuffer, "release", lambda slot: None)
        with pytest.raises(AssertionError, match="overwritten while it is in use"):
            trained(spec, how, list(batches), dense=False, keep=False)
    with monkeypatch.context() as patch:
        patch.setattr(LateEvent, "before", lambda moment, ahead=False: None)
        with pytest.raises(AssertionError, match="used before it was copied"):
            trained(spec, how, list(batches), dense=False, keep=False)
    with monkeypatch.context() as patch:
        patch.setattr(LateEvent, "reach", lambda moment: None)
        found = trained(spec, how, list(batches), dense=False, keep=False)
        assert found[1] != pytest.approx(expected[1], rel=1e-3)
