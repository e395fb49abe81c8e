"""Rows with many features on their way from a store to a step: rows a second, by threads.

    python -m benchmarks.dense_rows [--rows 20000] [--threads 1 2 4 8 16] [--turns 3] [--json FILE]

Made rows of 6,144 features like ImageNet's, with 1,900 of them (as there) and with all of them,
are written to a store, and read in batches of 4,096 as a training reads them.

- decode: blocks are decoded into a pool, and no batch is made.
- batches: a reader's epoch.
- steps: an epoch of 512 x 20 buckets on a card, if there is one, in TF32.

Best of the turns. Files are in the page cache. Threads share the machine with whatever else runs.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import streammach as sm
from benchmarks.gpu.shapes import IMAGENET
from benchmarks.machine_facts import facts, parser, report
from streammach.backends.registry import BACKENDS
from streammach.store.dataset import Dataset
from streammach.store.reader import Reader
from streammach.system.errors import DeviceError

D, BATCH, POOL = 6144, 4096, 8
PRESENT = {"1,900 features": 1900, "all features": D}


def made(folder, n_rows, present):
    """A store of rows that have so many of the features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, D)).astype(np.float32)
    for row in x if present < D else ():
        row[rng.permutation(D)[present:]] = 0
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", rng.integers(0, IMAGENET.n_classes, n_rows))
    store = folder / f"{present}.zarr"
    sm.convert(folder / "x.npy", store, labels=folder / "y.npy")
    return store


def reader_of(data, threads, make=np.empty):
    ids, nnz = not data.facts.whole, BATCH * data.facts.max_row_nnz
    return Reader(
        data, seed=0, batch_size=BATCH, batch_nnz=nnz, pool_blocks=POOL, transform="raw",
        by_feature=False, threads=threads, ids=ids, make=make,
    )  # fmt: skip


def best(n_rows, turns, work):
    """Rows a second of the best turn, after a first one."""
    seconds = []
    for turn in range(turns + 1):
        began = time.perf_counter()
        work(turn)
        seconds.append(time.perf_counter() - began)
    return n_rows / min(seconds[1:])


def opened(present):
    """A backend on a card that is ready for steps on such rows; DeviceError without a card."""
    shape = replace(IMAGENET, row_nnz=present, batch_size=BATCH)
    backend = BACKENDS["cuda"].open(shape.model, shape.config(tf32=True))
    backend.prepare(shape.training, shape.batch_nnz)
    return backend


def of_store(data, threads, turns):
    """Rows a second of each stage with so many threads."""
    reader = reader_of(data, threads)

    def decode(turn):
        for _ in reader._decode_groups(reader._order.pools(turn, 0)[0]):
            pass

    found = {
        "decode": best(data.n_rows, turns, decode),
        "batches": best(data.n_rows, turns, lambda turn: [None for _ in reader.epoch(turn)]),
    }
    try:
        backend = opened(data.facts.max_row_nnz)
    except DeviceError:
        return found
    sent = reader_of(data, threads, backend.host_room)

    def train(turn):
        for batch in sent.epoch(turn):
            backend.step(batch, 0.1)
        backend.drain_losses()

    found["steps"] = best(data.n_rows, turns, train)
    backend.close()
    return found


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=20_000)
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    arguments.add_argument("--turns", type=int, default=3)
    options = arguments.parse_args()
    figures = {"rows": options.rows, "rows_per_second": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for name, present in PRESENT.items():
            with Dataset.open(made(Path(scratch), options.rows, present)) as data:
                found = {n: of_store(data, n, options.turns) for n in options.threads}
            figures["rows_per_second"][name] = found
            print(name, found, flush=True)
    report(figures | {"machine": facts()}, options.json)


if __name__ == "__main__":
    main()
