"""What is measured of the CUDA backend, one question a function; each returns JSON-ready figures.

Times are wall time between two waits for the device, the median of several repeats: the cost of
launching is in them. Floors are arithmetic on the rates that the first stage measured.
"""

import hashlib
import statistics
import time
from dataclasses import replace
from itertools import cycle, islice

import msgspec
import numpy as np

from benchmarks.gpu.floors import Card, decode_floor, presence, step_floors
from benchmarks.gpu.shapes import Rows, random_shapes
from streammach.backends.cuda import kernels
from streammach.backends.cuda.group import Rule
from streammach.backends.registry import BACKENDS
from streammach.rows.batch import RowIdBatch
from streammach.spec.estimators import ESTIMATORS
from streammach.spec.training import TrainingOptions

GB = 1e9


def seconds(backend, work, repeats, warm=2):
    """Median time of some work, the device idle before and after."""
    memory, found = backend._memory, []
    with memory.use():
        for i in range(warm + repeats):
            memory.wait()
            began = time.perf_counter()
            work()
            memory.wait()
            if i >= warm:
                found.append(time.perf_counter() - began)
    return statistics.median(found)


def opened(shape, *, limit=0, waves=1, weights="float32", keep=0):
    """A backend that is ready to train, with room for so many batches that stay there."""
    config = shape.config(waves=waves, weights=weights, resident=keep > 0)
    backend = BACKENDS["cuda"].open(shape.model, config, facts=shape.kept(keep), device_bytes=limit)
    backend.prepare(shape.training, shape.batch_nnz)
    return backend


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


def facts(options):
    """The device, its copies, and what products of matrices reach."""
    shape = options.sparse
    backend = opened(shape)
    memory, n = backend._memory, options.copy_bytes // 4
    with memory.use():
        a, b = memory.zeros(n, np.float32), memory.zeros(n, np.float32)
        host = memory.page_locked(n, np.float32)
        host[:] = 1
        m = options.product
        x, y, z = (memory.zeros(m * m, np.float32).values.reshape(m, m) for _ in range(3))

    def copy():
        b.values[:] = a.values

    small = options.cached_bytes // 8  # elements of each of two arrays that the L2 holds
    several = 20

    def copy_cached():
        for _ in range(several):
            b.values[:small] = a.values[:small]

    attributes = memory._device.attributes if hasattr(memory, "_device") else {}
    found = {
        "free_bytes": BACKENDS["cuda"].memory(),
        "capability": list(memory.capability),
        "multiprocessors": memory.multiprocessors,
        "l2_bytes": attributes.get("L2CacheSize", 1 << 20),
        "clock_hz": 1e3 * attributes.get("ClockRate", 1e6),
        "cached_copy_gb_per_s": several * 8 * small
        / seconds(backend, copy_cached, options.repeats) / GB,
        "copy_gb_per_s": 8 * n / seconds(backend, copy, options.repeats) / GB,
        "host_to_device_gb_per_s": 4 * n
        / seconds(backend, lambda: memory.send(a, host), options.repeats) / GB,
        "product_tflops": 2 * m**3
        / seconds(backend, lambda: memory.product(x, y, z), options.repeats) / 1e12,
    }  # fmt: skip
    backend.close()
    return found


def card(options):
    """The rates of the present card, as the first stage found them; None without it."""
    found = options.found.get("facts", {})
    if "copy_gb_per_s" not in found:
        return None
    return Card(
        GB * found["copy_gb_per_s"], GB * found["cached_copy_gb_per_s"], found["l2_bytes"],
        found["multiprocessors"] * found["clock_hz"],
    )  # fmt: skip


def correctness(options):
    """Steps and decisions on random shapes beside the CPU's; failures are listed."""
    from streammach.rows.batch import BatchSlot

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


def kernel_times(options):
    """Forward, sorting, backward and top-k of one batch, beside the bytes that they move."""
    shape = options.sparse
    backend = opened(shape)
    rows = Rows(shape)
    batches, rates = rows.batches(3), card(options)
    for batch in batches:
        backend.step(batch, 0.5)
    floors = {}
    if rates:
        p = presence(rows.edges, shape.row_nnz)
        columns = shape.n_buckets * shape.n_repetitions
        floors = step_floors(p, shape.batch_size, columns, shape.n_repetitions, rates)
    steps, group, batch = backend._trains, backend._group, batches[-1]
    held, n, nnz = steps._held, batch.n_rows, len(batch.features)
    rate, smoothing, one = (np.float32(x) for x in (0.1, 0.1, 1))
    rule = Rule(rate=rate, epsilon=one, smoothing=smoothing, key=np.uint32(0))
    slot = steps._slots.next()
    with backend._memory.use():
        entries = slot.load(batch)
    columns, unique = shape.n_buckets * shape.n_repetitions, len(np.unique(batch.features))
    work = {
        "fill and send": (lambda: slot.load(batch), 16 * entries),
        "forward": (lambda: group.forward(
            slot, n, kernels.RESIDUALS, z=held["z"], losses=held["losses"], smoothing=smoothing
        ), 4 * columns * (nnz + 2 * n)),
        "sorting": (lambda: steps._sorter.sort(slot, n, nnz, entries), 40 * entries),
        "backward": (lambda: group.backward(
            steps._sorter, rule, n + nnz, z=held["z"], partial=held["partial"]
        ), 4 * columns * (nnz + n) + unique * (8 * columns + 8 * shape.n_repetitions)),
    }  # fmt: skip
    found = {"rows": n, "values": nnz, "unique_features": unique, "columns": columns}
    for name, (call, n_bytes) in work.items():
        took = seconds(backend, call, options.repeats)
        found[name] = {"seconds": took, "gb_per_s": n_bytes / took / GB}
        if name in floors:
            found[name]["floor_seconds"] = floors[name]
            found[name]["share_of_floor"] = floors[name] / took
    in_kernels = sum(found[name]["seconds"] for name in ("forward", "sorting", "backward"))
    found["seconds_an_epoch_in_kernels"] = in_kernels * shape.n_rows / n
    backend.close()
    return found


def top_k(options):
    """Microseconds a row of exact top-1 and top-5, forward pass included and without it."""
    shape = options.sparse
    backend = opened(shape)
    backend.step(Rows(shape).batches(1)[0], 0.5)
    block = Rows(shape, 2).block(options.queries)
    found = {}
    for how in ESTIMATORS:
        for k in (1, 5):
            took = seconds(backend, lambda k=k, how=how: backend.topk(block, k, how), 3, warm=1)
            found[f"{how} top-{k}"] = 1e6 * took / block.n_rows
    took = seconds(backend, lambda: backend.outputs(block, logarithms=False), 3, warm=1)
    found["forward pass and copy"] = 1e6 * took / block.n_rows
    backend.close()
    out = {"microseconds_a_row": found, "rows": block.n_rows}
    if rates := card(options):
        floor = decode_floor(shape.n_classes, shape.n_repetitions, shape.n_buckets, rates)
        out["floor_microseconds_a_row"] = 1e6 * floor
    return out


def epoch(options, shape, *, limit=0, waves=1, weights="float32", resident=False):
    """Seconds of an epoch of drawn batches in turn, sent or kept; memory beside the plan."""
    keep = options.distinct if resident else 0
    backend = opened(shape, limit=limit, waves=waves, weights=weights, keep=keep)
    batches = shown(backend, Rows(shape).batches(options.distinct))
    in_all = -(-shape.n_rows // shape.batch_size)
    measured = min(in_all, options.steps_timed)

    def run(count, *, waiting=False):
        began = time.perf_counter()
        for wave in range(backend.n_waves):
            backend.select_wave(wave)
            for batch in islice(cycle(batches), count):
                backend.step(batch, 0.1)
                if waiting:
                    backend.drain_losses()
            backend.drain_losses()
        return time.perf_counter() - began

    run(2)
    took, waiting = (run(measured, waiting=wait) * in_all / measured for wait in (False, True))
    taken, allowed = backend.device_bytes()
    config = shape.config(waves=waves, weights=weights, resident=keep > 0)
    lines = BACKENDS["cuda"].footprint(config, shape.kept(keep))[1]
    backend.close()
    return {
        "shape": vars(shape), "waves": waves, "weights": weights, "resident": resident,
        "batches": in_all, "batches_measured": measured, "seconds": took,
        "seconds_with_a_wait_after_each_step": waiting,
        "projected_bytes": sum(lines.values()) - lines["context"], "taken_bytes": taken,
        "allowed_bytes": allowed,
    }  # fmt: skip


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


def whole_run(options):
    """A store trained on both devices with the same settings: seconds, accuracy, memory."""
    import tempfile
    from pathlib import Path

    import streammach as sm
    from streammach.prediction.evaluate import evaluate

    found = {}
    shape = {"n_buckets": options.run_shape[0], "n_repetitions": options.run_shape[1]}
    for name in ("cuda", "cuda streamed", "cpu"):
        device = name.split()[0]
        plan = sm.plan(
            options.store, device=device, counts="off", batch_size=options.batch_size, **shape
        )
        if name == "cuda streamed":
            placement = replace(plan.config.placement, resident=False)
            plan = replace(plan, config=replace(plan.config, placement=placement))
        trainer = sm.Trainer(
            plan,
            TrainingOptions(
                epochs=options.epochs,
                learning_rate=options.rate,
                transform="binary",
                model_size="full",
            ),
        )
        with tempfile.TemporaryDirectory() as folder:
            run = trainer.fit(options.store, Path(folder) / "run")
            entry = {
                "seconds": run.result.seconds,
                "rows_per_second": run.result.history[-1].rows_per_second,
                "resident": plan.config.placement.resident,
                "held_out": msgspec.to_builtins(run.result.validation),
                "device_peak_bytes": run.result.device_peak_bytes,
                "device_projected_bytes": run.result.device_projected_bytes,
            }
            if options.test_store:
                with sm.Predictor(run.model, device=device) as predictor:
                    report = evaluate(predictor, options.test_store)
                entry["test_p_at_1"] = report.accuracy
        found[name] = entry
    return found
