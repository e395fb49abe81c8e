"""One row at a time: the classes of its best buckets alone, beside scoring all classes.

    python -m benchmarks.single_rows [KxBxR ...] [--run RUN --rows STORE] [--json FILE]

Each row is decoded in both ways, in turn, on one thread; the best five have to be the same, bit by
bit. Of shapes (classes, buckets, repetitions), hashes and probabilities are made up: logits are
normal with a deviation of 1, 2 or 3, and those of one class's buckets are 2, 8 or 14 higher (flat,
medium, peaked). Of a run, the rows are the first of a store, by the mean and by log-sum; it needs
hashes to many buckets, such as `--buckets 512`.
"""

import time

import numpy as np

from benchmarks.machine_facts import facts, parser, report
from benchmarks.predict import spec_of
from streammach.backends.cpu.decoder import Decoder
from streammach.backends.registry import open_to_predict
from streammach.data.store.dataset import Dataset
from streammach.model.model import Model
from streammach.prediction.inputs import InputCounts, Room, StoreRows
from streammach.rows.transforms import transformed
from streammach.spec.estimators import SUM

SHAPES = ["1000000x1024x16", "10000000x1024x16", "10000000x4096x16"]
LOGITS = {"flat": (1, 2), "medium": (2, 8), "peaked": (3, 14)}
WAYS, N_ROWS, K = ("one", "buckets"), 50, 5


def probabilities(spec, codes, kind, rng):
    """Made-up rows: float32 (n, R*B)."""
    deviation, more = LOGITS[kind]
    z = rng.normal(0, deviation, (N_ROWS, spec.n_repetitions, spec.n_buckets)).astype(np.float32)
    for row, label in zip(z, rng.integers(spec.n_classes, size=N_ROWS), strict=True):
        row[np.arange(spec.n_repetitions), codes[label]] += more
    p = np.exp(z - z.max(axis=2, keepdims=True))
    return (p / p.sum(axis=2, keepdims=True)).reshape(N_ROWS, -1)


def measured(name, spec, p, logarithms):
    """Times of both ways, which have to find the same."""
    decoders, seconds = {}, {way: [] for way in WAYS}
    for way in WAYS:
        decoders[way] = Decoder(spec, by_class=False)
        decoders[way].want(way)
    for q in range(-1, len(p)):
        row, found = p[abs(q)][None], set()
        for way in WAYS:
            scores, ids = np.empty((1, K), np.float32), np.empty((1, K), np.int64)
            began = time.perf_counter()
            decoders[way].decode(row, SUM, scores, ids)
            seconds[way].append(time.perf_counter() - began)
            found.add((scores.tobytes(), ids.tobytes()))
        assert len(found) == 1, (name, q)
    tops = p.reshape(len(p), spec.n_repetitions, -1).max(axis=2)
    times = {way: 1e6 * np.array(some[1:]) for way, some in seconds.items()}
    of = {
        "what": name, "rows": len(p),
        "best_bucket": float(np.mean(np.exp(tops) if logarithms else tops)),
        **{f"{way}_us": {"mean": some.mean(), "p50": np.median(some)}
           for way, some in times.items()},
        "times_as_fast": times["one"].mean() / times["buckets"].mean(),
    }  # fmt: skip
    print(
        f"{name}: best bucket {of['best_bucket']:.2f}, all classes {of['one_us']['mean']:.0f} us, "
        f"best buckets {of['buckets_us']['mean']:.0f} us (p50 {of['buckets_us']['p50']:.0f}), "
        f"{of['times_as_fast']:.1f} times as fast"
    )
    return of


def of_run(run, store, n_rows):
    """Times of a run's rows, by both estimators."""
    model = Model.load(run)
    room = Room(rows=n_rows, values=1 << 24, sorted_bytes=0, lines=())
    _, backend = open_to_predict(
        "cpu", model.spec, dense=model.dense, threads=1, weights=model.hashed,
        logistic=model.training.logistic,
    )  # fmt: skip
    with Dataset.open(store) as data:
        source = StoreRows(data, model, label_needed=False)
        block = next(source.blocks(0, n_rows, InputCounts(), room))
    rows = transformed(block, model.training.transform)
    for logarithms, name in ((False, "mean"), (True, "logsum")):
        p = backend.outputs(rows, logarithms=logarithms)
        yield measured(f"{model.spec.shape}, {name}", model.spec, p, logarithms)
    backend.close()


def main():
    arguments = parser(__doc__)
    arguments.add_argument("shapes", nargs="*", metavar="KxBxR")
    arguments.add_argument("--run")
    arguments.add_argument("--rows", metavar="STORE")
    arguments.add_argument("--n-rows", type=int, default=400)
    options, figures = arguments.parse_args(), []
    if options.run:
        figures.extend(of_run(options.run, options.rows, options.n_rows))
    for shape in options.shapes or ([] if options.run else SHAPES):
        rng = np.random.default_rng(0)
        spec = spec_of(*map(int, shape.split("x")), n_features=1)
        codes = spec.codes()
        for kind in LOGITS:
            p = probabilities(spec, codes, kind, rng)
            figures.append(measured(f"{shape} {kind}, mean", spec, p, logarithms=False))
        figures.append(measured(f"{shape} peaked, logsum", spec, np.log(p), logarithms=True))
    report({**facts(), "ways": figures}, options.json)


if __name__ == "__main__":
    main()
