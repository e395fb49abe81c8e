"""How long a prediction takes on the CPU: finding the best classes, and all of it.

    python -m benchmarks.predict [RUN=TEST ...] [--shapes odp,imagenet,large] [--json FILE]

Shapes have drawn hashes and random weights, one thread. `decode` is finding the 5 best classes from
bucket probabilities, which are those of a Zipf distribution over classes with noise, as models of
real data give them; `whole` is a sparse row of 34 features, through softmax to its best classes.

- single: one row at a time, p50 and p99; batch: microseconds a row of 64 together, as a
  thread takes them;
- numpy: the same probabilities gathered for all classes, summed and partitioned, a row at a time;
- grown: memory that the model's codes and scratch take, beside its weights;
- floor: reading the codes once for as many rows as share them (1; tile 64).

Runs are measured on the first rows of a store: one row at a time, and 4,096 together, with one and
two threads, by the run's own way of ranking and by its hashed models alone. What is compared takes
turns; the best turn of each counts, since others may use the machine.
"""

import json
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report
from streammach import hashing
from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.cpu.decoder import TILE_ROWS
from streammach.model.model import Model
from streammach.options.estimators import SUM
from streammach.options.model_spec import ModelSpec
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.store.dataset import Dataset
from streammach.system.jit import kernel
from streammach.system.simd import LANES, aligned_zeros

SHAPES = {  # K, B, R, features, queries of the median
    "odp": (105_033, 32, 25, 100_000, 2000),
    "imagenet": (21_841, 512, 20, 5_000, 1000),
    "large": (10_000_000, 1_024, 16, 2_000, 20),
}
BATCH, TOP, ROW_VALUES, RUN_ROWS = 64, 5, 34, 4096
LONG_TURNS, MANY = 3, 1_000_000  # of runs and of so many classes
SHARED = {"tile": LANES, "one": 1}


@kernel()
def read(words):
    """Return the sum of uint64 (n,): one reading of it."""
    total = np.uint64(0)
    for i in range(words.shape[0]):
        total += words[i]
    return total


def spec_of(n_classes, n_buckets, n_repetitions, n_features):
    a, b = hashing.draw(0, n_classes, n_buckets, n_repetitions)
    return ModelSpec(
        n_classes=n_classes, n_features=n_features, n_buckets=n_buckets,
        n_repetitions=n_repetitions, hash_a=a, hash_b=b,
    )  # fmt: skip


def zipf_rows(spec, n, rng, most=20_000):
    """Probabilities of buckets: classes in random order by Zipf's law, and noise of the models."""
    weights = np.arange(1, most + 1.0) ** -1.5
    out = np.empty((n, spec.n_repetitions, spec.n_buckets))
    a, b = (np.array(x, np.int64) for x in (spec.hash_a, spec.hash_b))
    for i in range(n):
        classes = rng.integers(0, spec.n_classes, most)
        for r in range(spec.n_repetitions):
            buckets = (a[r] * classes + b[r]) % hashing.P % spec.n_buckets
            out[i, r] = np.bincount(buckets, weights, spec.n_buckets)
    out += 0.05 * weights.sum() / spec.n_buckets
    out *= np.exp(0.3 * rng.standard_normal(out.shape))
    return (out / out.sum(axis=2, keepdims=True)).astype(np.float32).reshape(n, -1)


def sparse_rows(n, n_features, rng):
    features = np.sort(rng.integers(0, n_features, (n, ROW_VALUES)), axis=1).astype(np.int32)
    return RowBlock(
        indptr=np.arange(0, n * ROW_VALUES + 1, ROW_VALUES), features=features.reshape(-1),
        values=np.ones(n * ROW_VALUES, np.float32), classes=np.zeros(n, np.int32),
    )  # fmt: skip


def in_numpy(p, codes, n_buckets):
    """Best classes of a row, as one writes it in NumPy."""
    first = np.arange(codes.shape[0])[:, None] * n_buckets
    totals = p[codes + first].sum(axis=0)
    return np.argpartition(-totals, TOP)[:TOP]


def held_mb():
    """Megabytes that this process holds now; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def spread(work, n):
    """Microseconds of n calls with 0 .. n-1: p50 and p99."""
    taken = [1e6 * seconds_of(lambda i=i: work(i)) for i in range(n)]
    return {"p50": float(np.percentile(taken, 50)), "p99": float(np.percentile(taken, 99))}


class Decoding:
    """Best classes from probabilities that are there."""

    def __init__(self, backend, p):
        self.backend, self.p = backend, p
        self.scores, self.ids = np.empty((len(p), TOP), np.float32), np.empty((len(p), TOP), int)

    def rows(self, first, last):
        some = slice(first, last)
        self.backend.decoder.decode(self.p[some], SUM, self.scores[some], self.ids[some])

    def batch(self):
        for first, last in self.backend.decoder.parts(len(self.p), 1):
            self.rows(first, last)


def floor_of(spec, turns):
    """Seconds that reading all codes takes."""
    width = 1 if spec.n_buckets <= 256 else 2
    words = aligned_zeros(spec.n_classes * spec.n_repetitions * width // 8 * 8)
    words[:] = 1
    words = words.view(np.uint64)
    return min(seconds_of(lambda: read(words)) for _ in range(turns + 1))


def of_shape(name, turns, rng):
    n_classes, n_buckets, n_repetitions, n_features, queries = SHAPES[name]
    spec = spec_of(n_classes, n_buckets, n_repetitions, n_features)
    weights = {
        "weights": rng.standard_normal((n_features, spec.n_columns), np.float32),
        "bias": np.zeros(spec.n_columns, np.float32),
    }
    before = held_mb()
    backend = CpuBackend(spec, dense=False, threads=1, weights=weights)
    decoding = Decoding(backend, zipf_rows(spec, BATCH, rng))
    rows = sparse_rows(BATCH, n_features, rng)
    turns = min(turns, LONG_TURNS) if n_classes > MANY else turns
    parts = [rows.part(i, i + 1) for i in range(BATCH)]
    decoding.batch()
    decoding.rows(0, 1)
    backend.topk(rows, TOP, "logsum")
    backend.topk(parts[0], TOP, "logsum")
    grown = held_mb() - before
    way = backend.decoder.way()
    alone = backend.decoder.way(1)
    floor = floor_of(spec, turns)
    figures = {
        "shape": [n_classes, n_buckets, n_repetitions], "ways": {"single": alone, "batch": way},
        "grown_mb": grown, "floor_us": 1e6 * floor,
        "decode": {"single_us": spread(lambda i: decoding.rows(i % BATCH, i % BATCH + 1), queries)},
        "whole": {
            "single_us": spread(lambda i: backend.topk(parts[i % BATCH], TOP, "logsum"), queries)
        },
    }  # fmt: skip
    codes = np.ascontiguousarray(spec.codes().T.astype(np.int32))
    taken = {"decode": [], "whole": [], "numpy": []}
    some = decoding.p[: 1 if n_classes > MANY else 8]
    for _ in range(turns):
        taken["decode"].append(seconds_of(decoding.batch) / BATCH)
        taken["whole"].append(seconds_of(lambda: backend.topk(rows, TOP, "logsum")) / BATCH)
        one = [seconds_of(lambda p=p: in_numpy(p, codes, n_buckets)) for p in some]
        taken["numpy"].append(min(one))
    for part in ("decode", "whole"):
        figures[part]["batch_us"] = 1e6 * min(taken[part])
    single, batch = figures["decode"]["single_us"]["p50"], figures["decode"]["batch_us"]
    figures |= {
        "numpy_us": 1e6 * min(taken["numpy"]),
        "times_numpy": {
            "single": 1e6 * min(taken["numpy"]) / single,
            "batch": 1e6 * min(taken["numpy"]) / batch,
        },
        "share_of_floor": {
            "single": 1e6 * floor / single,
            "batch": 1e6 * floor / SHARED[way] / batch,
        },
    }
    backend.close()
    return figures


def first_rows(model, store):
    with Dataset.open(store) as data:
        rows = data.rows(0, min(RUN_ROWS, data.n_rows))
        return canonicalize(
            rows, model.features.ids_of(data.features), model.labels.ids_of(data.labels)
        )


def of_run(folder, store, turns):
    model = Model.load(folder)
    rows = first_rows(model, store)
    rankers = [model.estimator]
    if model.counts is not None and not model.spec.unhashed:
        rankers.append("logsum")
    figures = {"shape": str(model.spec), "rows": rows.n_rows}
    for ranker in rankers:
        taken, found = {1: [], 2: []}, {}
        predictors = {
            threads: Predictor(model, estimator=ranker, device="cpu", threads=threads)
            for threads in taken
        }
        for threads, predictor in predictors.items():
            parts = [rows.part(i, i + 1) for i in range(min(rows.n_rows, 300))]
            predictor.scorers.topk(parts[0], TOP)
            predictor.scorers.topk(rows, TOP)
            found[f"single_us_{threads}"] = spread(
                lambda i, ask=predictor, parts=parts: ask.scorers.topk(parts[i], TOP), len(parts)
            )
        for _ in range(turns):
            for threads, predictor in predictors.items():
                work = seconds_of(lambda ask=predictor: ask.scorers.topk(rows, TOP))
                taken[threads].append(work / rows.n_rows)
        for threads, predictor in predictors.items():
            found[f"batch_us_{threads}"] = 1e6 * min(taken[threads])
            predictor.close()
        found["two_over_one"] = min(taken[1]) / min(taken[2])
        figures[ranker] = found | {"decoding": predictors[1].decoding}
    return figures


def main():
    arguments = parser(__doc__)
    arguments.add_argument("runs", nargs="*", metavar="RUN=TEST")
    arguments.add_argument("--shapes", default=",".join(SHAPES), help="some of them, or nothing")
    arguments.add_argument("--turns", type=int, default=40)
    options = arguments.parse_args()
    figures = {"batch": BATCH, "k": TOP, "tile_rows": TILE_ROWS, "shapes": {}, "runs": {}}
    for name in filter(None, options.shapes.split(",")):
        figures["shapes"][name] = of_shape(name, options.turns, np.random.default_rng(0))
        print(name, json.dumps(figures["shapes"][name]), flush=True)
    for pair in options.runs:
        folder, _, store = pair.partition("=")
        found = of_run(folder, store, min(options.turns, LONG_TURNS))
        figures["runs"][Path(folder).name] = found
        print(Path(folder).name, found)
    report(figures | {"machine": facts()}, options.json)


if __name__ == "__main__":
    main()
