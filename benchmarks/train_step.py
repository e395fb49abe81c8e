"""How fast a training step is, and how far from what this machine's memory allows.

    python -m benchmarks.train_step STORE [--json FILE]

Three things take turns on the same batches, with the same threads, in one process:

- step: forward, softmax and row-wise Adagrad at (32, 25), as a run does them;
- floor: loops that only touch the memory a step must touch, in the same order and with the same
  threads: each non-zero's row of the table read, each non-zero's row of residuals read, each
  feature's row of the table read and written;
- torch: the same step written with torch.nn.EmbeddingBag (sum, sparse gradients), cross entropy
  with label smoothing over R x B logits, and row-wise Adagrad on the coalesced gradient; also with
  torch.optim.Adagrad, which keeps one accumulator a weight. Left out where torch is not installed.

The ratios are medians over turns, so that a machine whose speed drifts does not bend them.
"""

import itertools
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report, text_of
from streammach.backends.cpu import kernels
from streammach.backends.registry import BACKENDS
from streammach.options.training import TrainSpec
from streammach.planning.choose import plan
from streammach.rows.batch import Batch, ByFeature
from streammach.store.dataset import Dataset
from streammach.store.reader import Reader
from streammach.system.jit import kernel

RATE, SMOOTHING, EPSILON = 0.5, 0.1, 1.0


@kernel(allocates=True)
def read_rows(indptr, ids, first, last, table, out):
    """Read the table's row of every value of rows first:last: a forward pass without arithmetic."""
    ones = np.ones(1 << 16, np.float32)
    for i in range(first, last):
        kernels.add_rows(
            out[i], ones, ids[indptr[i] : indptr[i + 1]], 0, indptr[i + 1] - indptr[i], table
        )


@kernel(allocates=True)
def rewrite_rows(ids, starts, rows, first, last, residuals, table, scratch):
    """Read each feature's residuals, read and write its row: a backward pass without arithmetic."""
    ones = np.ones(1 << 16, np.float32)
    for u in range(first, last):
        kernels.add_rows(
            scratch, ones, rows[starts[u] : starts[u + 1]], 0, starts[u + 1] - starts[u], residuals
        )
        row = table[ids[u]]
        for c in range(row.shape[0]):
            row[c] += np.float32(1)


class Ours:
    """The step of a run, and its floor on the same buffers."""

    def __init__(self, chosen, threads):
        self.backend = BACKENDS["cpu"].open(chosen.model, chosen.config)
        spec = TrainSpec(
            epochs=1, batch_size=chosen.config.batching.batch_size, learning_rate=RATE,
            transform="binary", label_smoothing=SMOOTHING, optimizer="adagrad", epsilon=EPSILON,
            seed=0,
        )  # fmt: skip
        self.backend.prepare(spec, chosen.config.batching.batch_nnz)

    def step(self, batches):
        for batch in batches:
            self.backend.step(batch, RATE)

    def floor(self, batches):
        backend = self.backend
        table, residuals = backend.arrays()["weights"], backend.buffers["z"]
        scratch = {}
        for batch in batches:
            n, found = batch.n_rows, batch.by_feature
            pieces = cut(np.arange(n + 1), backend.threads)
            backend.run(
                lambda a, b, x=batch: read_rows(x.indptr, x.features, a, b, table, residuals),
                pieces,
            )
            cost = found.starts + 6 * np.arange(len(found.ids) + 1)
            backend.run(
                lambda a, b, x=found: rewrite_rows(
                    x.ids, x.starts, x.rows, a, b, residuals, table,
                    scratch.setdefault(a, np.zeros(table.shape[1], np.float32)),
                ),
                cut(cost, backend.threads),
            )  # fmt: skip


def cut(cost, threads):
    """Pieces of equal cost, eight to a thread."""
    edges = np.searchsorted(cost, np.linspace(0, cost[-1], 8 * threads + 1)[1:-1]).tolist()
    ends = [0, *edges, len(cost) - 1]
    return [(a, b) for a, b in itertools.pairwise(ends) if a < b]


def in_torch(chosen, codes, threads, *, rowwise):
    """Return the same step in PyTorch, as a function of batches."""
    from benchmarks.torch_mach import TorchMach

    model = chosen.model
    mach = TorchMach(
        model.n_features, model.n_buckets, model.n_repetitions, codes, threads,
        rate=RATE, smoothing=SMOOTHING, epsilon=EPSILON, rowwise=rowwise,
    )  # fmt: skip

    def step(batches):
        for batch in batches:
            mach.step(batch.indptr, batch.features, batch.classes)

    return step


def copied(batch):
    f = batch.by_feature
    by_feature = ByFeature(f.ids.copy(), f.starts.copy(), f.rows.copy(), f.values.copy())
    arrays = {name: array.copy() for name, array in vars(batch).items() if name != "by_feature"}
    return Batch(**arrays, by_feature=by_feature)


def main():
    arguments = parser(__doc__)
    arguments.add_argument("store")
    arguments.add_argument("--rows", type=int, default=60_000, help="rows of a turn")
    arguments.add_argument("--turns", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    with Dataset.open(options.store) as data:
        chosen = plan(data, n_buckets=32, n_repetitions=25, threads=options.threads)
        room = chosen.config.batching
        reader = Reader(
            data, seed=0, batch_size=room.batch_size, batch_nnz=room.batch_nnz,
            pool_blocks=room.pool_blocks, transform="binary", by_feature=True, rows=options.rows,
        )  # fmt: skip
        batches = [copied(batch) for batch in reader.epoch(0)]
    n = sum(batch.n_rows for batch in batches)
    nnz = sum(len(batch.features) for batch in batches)
    unique = sum(len(batch.by_feature.ids) for batch in batches)
    ours = Ours(chosen, options.threads)
    contenders = {"step": ours.step, "floor": ours.floor}
    try:
        codes = ours.backend.codes
        contenders["torch"] = in_torch(chosen, codes, options.threads, rowwise=True)
        contenders["torch per-weight"] = in_torch(chosen, codes, options.threads, rowwise=False)
    except ImportError:
        print("torch is not installed: pip install torch==2.13.0")
    seconds = {name: [] for name in contenders}
    for turn in range(options.turns + 1):
        for name, run in contenders.items():
            began = time.perf_counter()
            run(batches[: 2 if turn == 0 else None])  # the first turn only warms up
            if turn:
                seconds[name].append(time.perf_counter() - began)
    row_bytes = 4 * chosen.model.n_columns
    touched = row_bytes * (2 * nnz + 2 * unique)
    figures = {
        "store": Path(options.store).name, "shape": [32, 25], "batch": room.batch_size, "rows": n,
        "values_per_row": nnz / n, "features_per_value": unique / nnz, "threads": options.threads,
        "rows_per_second": {k: n / statistics.median(v) for k, v in seconds.items()},
        "range": {k: [n / max(v), n / min(v)] for k, v in seconds.items()},
        "share_of_floor": ratio(seconds, "floor", "step"),
        "floor_gb_per_second": touched / statistics.median(seconds["floor"]) / 1e9,
        "machine": facts(*(["torch"] if "torch" in seconds else [])),
    }  # fmt: skip
    if "torch" in seconds:
        figures["times_torch"] = ratio(seconds, "torch", "step")
        figures["times_torch_per_weight"] = ratio(seconds, "torch per-weight", "step")
    print(text_of(figures))
    report(figures, options.json)
    ours.backend.close()


def ratio(seconds, a, b):
    """Median over turns of the time of `a` over that of `b`."""
    return statistics.median(x / y for x, y in zip(seconds[a], seconds[b], strict=True))


if __name__ == "__main__":
    main()
