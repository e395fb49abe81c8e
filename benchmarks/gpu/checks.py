"""What must hold on a card: the CPU's results, the same bytes again, rounding without bias."""

import hashlib

import numpy as np

from benchmarks.gpu.shapes import Rows, random_shapes
from benchmarks.gpu.timing import opened
from streammach.backends.registry import BACKENDS
from streammach.options.estimators import ESTIMATORS
from streammach.rows.batch import BatchSlot, RowIdBatch


def shown(backend, batches):
    """Batches as a backend wants them: where it keeps rows, they are kept and then named."""
    if backend.row_cache is None:
        return batches
    first, out = 0, []
    for batch in batches:
        backend.row_cache.keep(batch, "drawn")
        out.append(RowIdBatch(np.arange(first, first + batch.n_rows), batch.indptr))
        first += batch.n_rows
    return out


def correctness(options):
    """Steps and decisions on random shapes beside the CPU's; failures are listed."""
    rng, worst, failures = np.random.default_rng(7), 0.0, []
    for shape in random_shapes(rng, options.shapes, largest=options.most_classes):
        rows = Rows(shape, 1)
        ours = opened(shape)
        cpu = BACKENDS["cpu"].open(shape.model, shape.config(device="cpu"))
        cpu.prepare(shape.training, shape.batch_nnz)
        for _ in range(options.steps):
            slot = BatchSlot(shape.batch_size, shape.batch_nnz, shape.n_features, by_feature=True)
            slot.add(rows.block(shape.batch_size), np.arange(shape.batch_size), "raw")
            batch = slot.batch()
            ours.step(batch, 0.1)
            cpu.step(batch, 0.1)
        found, expected = ours.arrays(), cpu.arrays()
        error = max(
            float(np.abs(found[n] - expected[n]).max() / max(np.abs(expected[n]).max(), 1e-30))
            for n in ("weights", "bias")
        )
        block = rows.block(10)
        same = all(ids_agree(ours, cpu, block, how) for how in ESTIMATORS)
        worst = max(worst, error)
        if error > 1e-5 * (100 if shape.dense else 1) or not same:
            failures.append({"shape": vars(shape), "error": error, "same_ids": same})
        ours.close()
        cpu.close()
    return {"shapes": options.shapes, "largest_relative_error": worst, "failures": failures}


def ids_agree(ours, cpu, block, how):
    """Whether the best classes are the CPU's, but for scores that are equal to 1e-5."""
    ids, scores = ours.topk(block, 5, how)
    expected_ids, expected = cpu.topk(block, 5, how)
    near = np.abs(scores - expected) <= 1e-5 * np.maximum(1, np.abs(expected))
    tied = np.isclose(expected[:, :, None], expected[:, None, :], rtol=1e-5, atol=1e-6).sum(2) > 1
    last = np.arange(ids.shape[1]) == ids.shape[1] - 1  # what ties with the sixth is not seen
    return bool(near.all() and ((ids == expected_ids) | tied | last).all())


def rounding(options):
    """How far bfloat16 weights are from float32 ones after a step, in units of the last place."""
    shape = options.sparse
    (batch,) = Rows(shape).batches(1)
    found = {}
    for weights in ("float32", "bfloat16"):
        backend = opened(shape, weights=weights)
        backend.step(batch, 0.1)
        found[weights] = backend.arrays()["weights"].copy()
        backend.close()
    exact = found["float32"][found["float32"] != 0].astype(np.float64)
    moved = found["bfloat16"][found["float32"] != 0] - exact
    moved /= 2.0 ** (np.floor(np.log2(np.abs(exact))) - 7)
    return {"largest": float(np.abs(moved).max()), "mean": float(moved.mean()), "n": len(moved)}


def repeat(options, weights="float32"):
    """Whether the same batches give the same bytes twice, in two waves, and where rows are kept."""
    shape, digests = options.sparse, []
    for waves, keep in ((1, 0), (1, 0), (2, 0), (1, options.distinct)):
        backend = opened(shape, waves=waves, weights=weights, keep=keep)
        batches = shown(backend, Rows(shape).batches(options.distinct))
        for wave in range(backend.n_waves):
            backend.select_wave(wave)
            for batch in batches:
                backend.step(batch, 0.1)
        digests.append(hashlib.sha256(backend.arrays()["weights"].data).hexdigest())
        backend.close()
    return {"same": len(set(digests)) == 1, "sha256": digests}
