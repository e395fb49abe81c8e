"""Whether every way of decoding gives the ids and the bits of scoring all classes.

    python -m benchmarks.decode_check QUERIES [--seed N] [--json FILE]

Random shapes (B 2 to 512, R 1 to 29, K 100 to 3,000, many a class more or less than a multiple of
64), batches of 1 to 70 rows, values as models give them and as they hardly ever do, all estimators
(the mean is the sum, log-sum that of logarithms), k from 1 to K; also with classes in ranges, as
threads share them. A query is one row decoded in one way. It ends at the first difference.
"""

import time
from collections import Counter

import numpy as np

from benchmarks.machine_facts import facts, parser, report
from streammach import hashing
from streammach.backends.cpu.decoder import WAYS, Decoder, permutes
from streammach.spec.estimators import MEDIAN, MINIMUM, SUM
from streammach.spec.model import ModelSpec
from tests.reference.decoding import SHAPES, differences, values_like

BUCKETS = [2, 3, 16, 32, 50, 64, 65, 100, 128, 129, 200, 256, 257, 300, 512]
KINDS = {"mean": ("sum", SUM), "logsum": ("sum", SUM), "min": ("min", MINIMUM),
         "median": ("median", MEDIAN)}  # fmt: skip


def drawn_model(rng):
    """A model's shape and hashes."""
    b, r, k = int(rng.choice(BUCKETS)), int(rng.integers(1, 30)), int(rng.integers(100, 3000))
    if rng.random() < 0.4:
        k = 64 * int(rng.integers(2, 47)) + int(rng.integers(-1, 2))
    k = max(k, b + 1)
    first, second = hashing.draw(int(rng.integers(1 << 30)), k, b, r)
    return ModelSpec(
        n_classes=k, n_features=1, n_buckets=b, n_repetitions=r, hash_a=first, hash_b=second
    )


def one_by_one(work, pieces):
    for first, last in pieces:
        work(first, last)


def check(decoder, p, estimator, k, threads):
    """Decode rows whole and by ranges of classes; differences from scoring all classes."""
    name, branch = KINDS[estimator]
    scores, ids = np.empty((len(p), k), np.float32), np.empty((len(p), k), np.int64)
    for a, b in decoder.parts(len(p), threads):
        decoder.decode(p[a:b], branch, scores[a:b], ids[a:b])
    spec = decoder.spec
    found = differences(p, spec.codes(), spec.n_buckets, name, ids, scores)
    if len(p) <= 8:
        decoder.decode_shared(p, branch, scores, ids, one_by_one, 3)
        found += differences(p, spec.codes(), spec.n_buckets, name, ids, scores)
    return found


def main():
    arguments = parser(__doc__)
    arguments.add_argument("queries", type=int)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    rng, done, began = np.random.default_rng(options.seed), Counter(), time.monotonic()
    while done.total() < options.queries:
        spec = drawn_model(rng)
        decoder, n = Decoder(spec, by_class=False), int(rng.integers(1, 71))
        for shape in rng.choice(SHAPES, 3, replace=False).tolist():
            p = values_like(shape, n, spec.n_buckets, spec.n_repetitions, rng)
            estimator = str(rng.choice(list(KINDS)))
            if estimator == "logsum":
                p = np.log(np.maximum(p, np.float32(1e-9)))
            k = int(rng.choice([1, 5, 100, spec.n_classes], p=[0.3, 0.4, 0.25, 0.05]))
            for way in WAYS[1:]:
                if way == "perm" and not permutes(spec):
                    continue
                decoder.want(way)
                wrong = check(decoder, p, estimator, min(k, spec.n_classes), 1 + done.total() % 3)
                if wrong:
                    raise SystemExit(f"{way} differs: {spec.shape}, {shape}, {estimator}, "
                                     f"k = {k}, rows {wrong} of {n}")  # fmt: skip
                done[way] += n
    seconds = time.monotonic() - began
    print(f"{done.total():,} queries, no difference, {seconds:.0f} s: {dict(done)}")
    figures = {"queries": dict(done), "differences": 0, "seed": options.seed, "seconds": seconds,
               "machine": facts()}  # fmt: skip
    report(figures, options.json)


if __name__ == "__main__":
    main()
