"""What a process does on a machine of the tests: it prints what it found as JSON, work by work.

python -m tests.backends.fake_driver.work WORK...

A work is "dense", "lists", "counts", "steps OPTIMIZER", "predictions SHAPE" or
"choices LACKING".
"""

import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import cupy
import numpy as np

from streammach.backends.registry import BACKENDS
from streammach.options.estimators import ESTIMATORS
from streammach.rows.batch import RowIdBatch
from streammach.rows.dense import RowMap
from tests.builders import batch_of, block_of, config_of, open_backend, spec_of, training
from tests.contracts.test_lists import MOST_LABELS, listed
from tests.contracts.test_lists import batch_of as listed_batch

SHAPES = [(40, 30, 32, 5), (40, 30, 7, 3), (3000, 30, 300, 4)]  # K, d, B, R
ARRAY_WORDS = 7  # object, parent, elements, bytes of one, address, length, stride
MOST_VALUES = 400
asked = []  # kernels that were launched, and to how many words their arguments come
compiled = []  # names of kernels


def watch():
    """Write down every launch that the backend asks for, and what it compiles."""
    from streammach.backends.cuda import launcher
    from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory, kind_of

    compile_it, kinds = launcher.compile_cubin, {}

    def watched_compiler(function, *how):
        compiled.append(function.__name__)
        return compile_it(function, *how)

    launcher.compile_cubin = watched_compiler
    launch = DeviceMemory.launch

    def watched(memory, kernel, grid, threads, *arguments):
        words = sum(ARRAY_WORDS if isinstance(a, DeviceArray) else 1 for a in arguments)
        types = [kind_of(a) for a in arguments]
        assert kinds.setdefault(kernel, types) == types, "compiled for its first arguments"
        asked.append((kernel.function.__name__, words))
        launch(memory, kernel, grid, threads, *arguments)

    DeviceMemory.launch = watched


def drawn(shape, n=30):
    return block_of(np.random.default_rng(1), n, shape[1], shape[0])


def opened(shape, how, *, batch, labels=0, basis=None, keep=False, weights="float32", dense=False):
    facts = SimpleNamespace(n_rows=batch.n_rows, nnz=len(batch.features), n_labels=labels)
    spec = spec_of(*shape)
    config = config_of(spec.shape, "cuda", dense=dense, weights=weights, resident=keep)
    backend = BACKENDS["cuda"].open(spec, config, facts=facts)
    backend.prepare(how, MOST_VALUES, basis, labels)
    return backend


def trained(backend, batch, *, keep=False, n_steps=2):
    if keep:
        backend.row_cache.keep(batch, "rows")
        starts = None if batch.labels is None else batch.labels.starts
        batch = RowIdBatch(np.arange(batch.n_rows), batch.indptr, starts)
    for _ in range(n_steps):
        backend.step(batch, 0.1)
    backend.drain_losses()


def steps(optimizer):
    """Steps on sparse rows, sent and kept, with each type of weights."""
    keep = optimizer == "adagrad"
    for shape in SHAPES if keep else SHAPES[1:2]:
        batch = batch_of(drawn(shape), shape[1])
        for weights in ("float32", "bfloat16"):
            how = training(optimizer=optimizer, batch_size=30)
            backend = opened(shape, how, batch=batch, keep=keep, weights=weights)
            trained(backend, batch, keep=keep)
            backend.close()


def predictions(number):
    """Outputs and best classes of sparse rows, in one group and once in several."""
    shape, rows = SHAPES[int(number)], drawn(SHAPES[int(number)])
    for waves in (1, 2) if shape is SHAPES[0] else (1,):
        backend = open_backend("cuda", spec_of(*shape), waves=waves, optimizer="adagrad")
        for logistic in (False, True):
            backend.logistic = logistic
            for logarithms in (False, True):
                backend.outputs(rows, logarithms=logarithms)
        for kind in ESTIMATORS.values():
            if kind.join is None:
                k = min(5, shape[0])
                scores, ids = np.empty((30, k), np.float32), np.empty((30, k), np.int64)
                backend.rank(rows, kind, scores, ids)
        backend.close()


def dense():
    """Steps on dense rows, plain, whitened and with cosines."""
    rng, shape = np.random.default_rng(2), SHAPES[0]
    batch, d = batch_of(drawn(shape), shape[1]), shape[1]
    white = RowMap(np.eye(d, dtype=np.float32), np.zeros(d, np.float32))
    waves = replace(white, projection=rng.normal(size=(d + 2, 8)).astype(np.float32))
    for basis in (None, white, waves):
        for optimizer in ("adagrad", "adam"):
            how = training(optimizer=optimizer, batch_size=30, whitened=basis is not None)
            backend = opened(shape, how, batch=batch, basis=basis, dense=True)
            trained(backend, batch)
            backend.outputs(drawn(shape), logarithms=False)
            backend.close()


def lists():
    """Steps with lists of labels, sent and kept, and the joint loss of both kinds of rows."""
    for shape in SHAPES[:2]:
        rows = listed(np.random.default_rng(3), drawn(shape), shape[0])
        batch = listed_batch(rows, shape[1], np.ones(30, np.float32), shared=True)
        for loss in ("independent", "logistic", "joint"):
            for keep in (False, True):
                how = training(batch_size=30, loss=loss)
                backend = opened(shape, how, batch=batch, labels=MOST_LABELS, keep=keep)
                trained(backend, batch, keep=keep)
                backend.close()
        batch = batch_of(drawn(shape), shape[1])
        backend = opened(shape, training(batch_size=30, loss="joint"), batch=batch)
        trained(backend, batch)
        backend.close()


def counts():
    """Launches and calls of CuPy in 16 steps, of rows that are sent and of rows that are kept."""
    shape, found = SHAPES[0], {}
    batch = batch_of(drawn(shape), shape[1])
    for keep in (False, True):
        backend = opened(shape, training(batch_size=30), batch=batch, keep=keep)
        trained(backend, batch, keep=keep, n_steps=1)
        asked.clear()
        named = RowIdBatch(np.arange(batch.n_rows), batch.indptr, None) if keep else batch
        cupy.calls.clear()
        for _ in range(16):
            backend.step(named, 0.1)
        found["kept" if keep else "sent"] = {
            "launches": [name for name, _ in asked], "calls": dict(cupy.calls),
        }  # fmt: skip
        backend.close()
    return found


def lack(part):
    """Make this process one that lacks a part of what a card needs."""
    import streammach.system.jit  # noqa: F401  # loads what the CPU needs

    if part in ("nvvm", "nvJitLink"):
        from cuda import pathfinder

        load = pathfinder.load_nvidia_dynamic_lib

        def loaded(name):
            if name == part:
                raise pathfinder.DynamicLibNotFoundError(f"no {name} of the tests")
            return load(name)

        pathfinder.load_nvidia_dynamic_lib = loaded
    elif part == "libdevice":
        for name in ("isfile", "exists"):
            plain = getattr(os.path, name)
            setattr(os.path, name, lambda p, f=plain: "libdevice" not in str(p) and f(p))
    elif part == "NumPy":
        del np.column_stack  # as NumPy 2.5 dropped row_stack
    elif part:
        raise ValueError(part)


def choices(part=""):
    """The device and the reason of each choice, or the exit code and the line of its error."""
    from streammach.backends.registry import choose_device
    from streammach.system.errors import StreammachError

    lack(part)
    found = {}
    for wanted in ("cuda", "auto"):
        try:
            found[wanted] = choose_device(wanted)
        except StreammachError as error:
            found[wanted] = error.exit_code, error.as_command()
    return found


if __name__ == "__main__":
    works = {work: work.split() for work in sys.argv[1:]}
    if all(name != "choices" for name, *_ in works.values()):
        watch()
    found = {}
    for work, (name, *given) in works.items():
        asked.clear()
        compiled.clear()
        result = globals()[name](*given)
        found[work] = {"asked": asked[:], "compiled": compiled[:], "found": result}
    json.dump(found, sys.stdout)
