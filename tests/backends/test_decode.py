"""Exact decoding: every method gives the ids and the bits of scoring all classes."""

import numpy as np
import pytest

from streammach import hashing
from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.cpu.decode import decode_one, decode_tile
from streammach.spec.estimators import MEDIAN, MINIMUM, SUM
from tests.builders import dense_block, spec_of, training
from tests.reference.decoding import topk

KINDS = {"sum": SUM, "min": MINIMUM, "median": MEDIAN}


def distribution(name, n, n_buckets, n_repetitions, rng):
    """Bucket values as models give them, and as they hardly ever do."""
    shape = (n, n_repetitions, n_buckets)
    if name == "tied":
        p = rng.integers(1, 3, shape).astype(np.float32)
    elif name == "equal":
        p = np.ones(shape, np.float32)
    elif name == "peaked":
        p = rng.dirichlet(np.full(n_buckets, 0.05), shape[:2]).astype(np.float32) + np.float32(1e-7)
    else:
        p = rng.random(shape, np.float32)
    return (p / p.sum(axis=2, keepdims=True)).astype(np.float32).reshape(n, -1)


def decode(method, p, codes, n_buckets, kind, k):
    n_classes, n_repetitions = codes.shape
    scores, ids = np.empty((len(p), k), np.float32), np.empty((len(p), k), np.int64)
    flat = codes.reshape(-1)
    if method == "one":
        decode_one(p, flat, n_classes, n_repetitions, n_buckets, KINDS[kind], scores, ids)
        return ids, scores
    columns = n_buckets * n_repetitions
    by_column, table = np.zeros(columns * 64, np.float32), np.zeros(columns * 64, np.uint8)
    decode_tile(
        p, flat, n_classes, n_repetitions, n_buckets, KINDS[kind], by_column, table, scores, ids
    )
    return ids, scores


@pytest.mark.parametrize("name", ["random", "tied", "equal", "peaked"])
@pytest.mark.parametrize("kind", ["sum", "min", "median"])
@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("method", ["one", "tile"])
def test_every_method_equals_scoring_all_classes(method, kind, name, logarithms, rng):
    for n_classes, n_buckets, n_repetitions, n, k in (
        (700, 32, 7, 5, 5), (1000, 50, 4, 64, 1), (1500, 300, 3, 9, 20), (65, 2, 9, 3, 5),
        (3000, 16, 12, 31, 5),
    ):  # fmt: skip
        a, b = hashing.draw(int(rng.integers(1 << 30)), n_classes, n_buckets, n_repetitions)
        codes = hashing.codes(a, b, n_classes, n_buckets)
        p = distribution(name, n, n_buckets, n_repetitions, rng)
        p = np.log(p) if logarithms else p
        ids, scores = decode(method, p, codes, n_buckets, kind, k)
        for q in range(n):
            expected_ids, expected = topk(p[q], codes, n_buckets, kind, k)
            assert ids[q].tolist() == expected_ids.tolist()
            assert scores[q].view(np.int32).tolist() == expected.view(np.int32).tolist()


def test_a_row_does_not_depend_on_the_others(rng):
    a, b = hashing.draw(1, 900, 32, 6)
    codes = hashing.codes(a, b, 900, 32)
    p = distribution("peaked", 40, 32, 6, rng)
    ids, scores = decode("tile", p, codes, 32, "sum", 5)
    for q in (0, 17, 39):
        alone = decode("tile", p[q : q + 1], codes, 32, "sum", 5)
        assert alone[0][0].tolist() == ids[q].tolist()
        assert alone[1][0].tolist() == scores[q].tolist()


def test_best_class_at_the_very_end_is_found(rng):
    a, b = hashing.draw(2, 5000, 32, 8)
    codes = hashing.codes(a, b, 5000, 32)
    p = np.full((6, 8 * 32), 0.01, np.float32)
    for r in range(8):
        p[:, r * 32 + codes[4999, r]] = 0.5
    ids, _ = decode("tile", p, codes, 32, "sum", 3)
    assert (ids[:, 0] == 4999).all()


@pytest.mark.parametrize("estimator", ["mean", "min", "median", "logsum"])
@pytest.mark.parametrize("n_classes", [1, 3, 64, 65, 500])
def test_more_classes_than_there_are_gives_all_of_them(estimator, n_classes, rng):
    spec = spec_of(n_classes, 6, 4, 5)
    backend = CpuBackend(spec, dense=False, threads=2)
    backend.prepare(training(), 1000)
    backend.arrays()["weights"][:] = rng.normal(size=(6, spec.n_columns))
    ids, scores = backend.topk(dense_block(rng.random((9, 6))), 700, estimator)
    assert ids.shape == scores.shape == (9, n_classes)
    assert all(sorted(row) == list(range(n_classes)) for row in ids.tolist())
    assert (np.diff(scores, axis=1) <= 0).all()
    backend.close()


def test_estimates_follow_the_paper(rng):
    spec = spec_of(50, 6, 8, 5)
    backend = CpuBackend(spec, dense=False, threads=1)
    backend.prepare(training(), 1000)
    backend.arrays()["weights"][:] = rng.normal(size=(6, spec.n_columns))
    rows = dense_block(rng.random((4, 6)))
    p = backend.outputs(rows, logarithms=False).reshape(4, 5, 8)
    chosen = p[:, np.arange(5)[None, :], backend.codes[:, :]]  # (4, K, R)
    ids, scores = backend.topk(rows, 50, "mean")
    unbiased = 8 / 7 * (chosen.mean(axis=2) - 1 / 8)
    np.testing.assert_allclose(scores, np.take_along_axis(unbiased, ids, 1), atol=1e-6)
    ids, scores = backend.topk(rows, 50, "logsum")
    logs = np.log(chosen).mean(axis=2)
    np.testing.assert_allclose(scores, np.take_along_axis(logs, ids, 1), atol=1e-5)
    backend.close()
