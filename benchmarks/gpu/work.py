"""Times of a training and of predictions on a card: each question a function, figures as JSON.

A kernel's time is the device's; that of an epoch and of predictions is wall time between two waits
for the device, with all that the host does. Floors are arithmetic on the rates that the first stage
measured.
"""

import statistics
import time
from itertools import cycle, islice

import numpy as np

from benchmarks.gpu.checks import shown
from benchmarks.gpu.floors import decode_floor, presence, step_floors
from benchmarks.gpu.rates import card
from benchmarks.gpu.shapes import Rows
from benchmarks.gpu.timing import GB, opened, times
from streammach.backends.cuda import kernels
from streammach.backends.cuda.group import Rule
from streammach.backends.cuda.transfers import N_SLOTS
from streammach.backends.registry import BACKENDS
from streammach.options.estimators import ESTIMATORS


def wall(work, turns=3):
    """Median seconds of calls that wait for the device themselves, after a first one."""
    found = []
    for _ in range(turns + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


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
    n, nnz = batch.n_rows, len(batch.features)
    rate, smoothing, one = (np.float32(x) for x in (0.1, 0.1, 1))
    losses = backend._losses
    rule = Rule(rate=rate, epsilon=one, smoothing=smoothing, key=np.uint32(0))
    slot = next(steps._slots)
    with backend._memory.use():
        entries = slot.load(batch)
    columns, unique = shape.n_buckets * shape.n_repetitions, len(np.unique(batch.features))
    work = {
        "fill and send": (lambda: slot.load(batch), 16 * entries),
        "forward": (lambda: group.forward(
            slot, n, kernels.RESIDUALS, z=steps.z, losses=steps.losses, smoothing=smoothing
        ), 4 * columns * (nnz + 2 * n)),
        "sorting": (lambda: steps._sorter.sort(slot, n, nnz, entries), 40 * entries),
        "backward": (
            lambda: steps._backward(group, rule, n + nnz),
            4 * columns * (nnz + n) + unique * (8 * columns + 8 * shape.n_repetitions),
        ),
        "losses": (
            lambda: losses.take(steps.losses, n * shape.n_repetitions, n),
            4 * n * shape.n_repetitions,
        ),
    }  # fmt: skip
    found = {"rows": n, "values": nnz, "unique_features": unique, "columns": columns}
    for name, (call, n_bytes) in work.items():
        took = times(backend._memory, call, options.repeats)
        found[name] = {
            "seconds": took.device, "host_seconds": took.host,
            "gb_per_s": n_bytes / took.device / GB,
        }  # fmt: skip
        if name in floors:
            found[name]["floor_seconds"] = floors[name]
            found[name]["share_of_floor"] = floors[name] / took.device
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
            took = wall(lambda k=k, how=how: backend.topk(block, k, how))
            found[f"{how} top-{k}"] = 1e6 * took / block.n_rows
    took = wall(lambda: backend.outputs(block, logarithms=False))
    found["forward pass and copy"] = 1e6 * took / block.n_rows
    backend.close()
    out = {"microseconds_a_row": found, "rows": block.n_rows}
    if rates := card(options):
        floor = decode_floor(shape.n_classes, shape.n_repetitions, shape.n_buckets, rates)
        out["floor_microseconds_a_row"] = 1e6 * floor
    return out


def epoch(options, shape, *, limit=0, resident=False, **placement):
    """Seconds of an epoch of drawn batches in turn, sent or kept; memory beside the plan."""
    keep = options.distinct if resident else 0
    backend = opened(shape, limit=limit, keep=keep, **placement)
    batches = shown(backend, Rows(shape).batches(options.distinct, backend.host_room))
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
    turn = cycle(batches)
    # The host's own: with a slot for each step it waits for none.
    host = times(
        backend._memory, lambda: backend.step(next(turn), 0.1), options.repeats, queued=N_SLOTS
    ).host
    backend.drain_losses()
    taken, allowed = backend.device_bytes()
    config = shape.config(resident=keep > 0, **placement)
    lines = BACKENDS["cuda"].footprint(config, shape.kept(keep))[1]
    found = {
        "shape": vars(shape), "resident": resident, **placement,
        "batches": in_all, "batches_measured": measured, "seconds": took,
        "seconds_a_step": took / in_all / backend.n_waves, "host_seconds_a_step": host,
        "seconds_with_a_wait_after_each_step": waiting,
        "projected_bytes": sum(lines.values()) - lines["context"], "taken_bytes": taken,
        "allowed_bytes": allowed,
    }  # fmt: skip
    backend.close()
    return found
