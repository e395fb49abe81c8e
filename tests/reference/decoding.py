"""Top-k classes by scoring every class: float32, in the order of the repetitions."""

import numpy as np

WAYS = ("tile", "buckets", "one")  # to find the best classes


def scores_of(p, codes, n_buckets, kind):
    """Score of every class for one row; kind: sum, min or median."""
    n_repetitions = codes.shape[1]
    v = np.stack([p[r * n_buckets + codes[:, r].astype(int)] for r in range(n_repetitions)])
    if kind == "sum":
        total = v[0].copy()
        for r in range(1, n_repetitions):
            total += v[r]
        return total
    v = np.sort(v, axis=0, kind="stable")  # of zeros of both signs the first one
    if kind == "min":
        return v[0]
    return (v[n_repetitions // 2] + v[(n_repetitions - 1) // 2]) * np.float32(0.5)


def topk(p, codes, n_buckets, kind, k):
    """Ids and scores of the k best classes, ties to the smaller id."""
    s = scores_of(p, codes, n_buckets, kind)
    order = np.lexsort((np.arange(len(s)), -s))[:k]
    return order, s[order]


def possible(way, spec):
    """Whether the shape allows a way."""
    return way != "buckets" or not spec.exact


def by_way(decoder, way):
    """Let a decoder go one way, whatever shape and rows ask for."""
    decoder.way = lambda n_rows=64: way
    return decoder


SHAPES = ("random", "tied", "equal", "peaked", "flat", "alone", "tiny", "zeros")  # of probabilities


def values_like(name, n, n_buckets, n_repetitions, rng):
    """Bucket values as models give them, and as they hardly ever do: float32 (n, R*B)."""
    shape = (n, n_repetitions, n_buckets)
    if name == "tied":
        p = rng.integers(1, 3, shape).astype(np.float32)
    elif name == "equal":
        p = np.ones(shape, np.float32)
    elif name == "peaked":
        p = rng.dirichlet(np.full(n_buckets, 0.05), shape[:2]) + 1e-7
    elif name == "flat":
        p = 1 + 0.01 * rng.random(shape)
    elif name == "alone":  # one bucket holds all but a trace
        p = np.full(shape, 1e-7 / n_buckets)
        np.put_along_axis(p, rng.integers(0, n_buckets, (*shape[:2], 1)), 1 - 1e-7, axis=2)
    elif name == "tiny":  # numbers below the normal ones
        return (rng.integers(1, 9, shape) * 2.0**-147).astype(np.float32).reshape(n, -1)
    elif name == "zeros":  # of both signs
        return np.where(rng.random(shape) < 0.5, np.float32(0), np.float32(-0.0)).reshape(n, -1)
    else:
        p = rng.random(shape)
    return (p / p.sum(axis=2, keepdims=True)).astype(np.float32).reshape(n, -1)


def differences(p, codes, n_buckets, kind, ids, scores):
    """Rows whose ids or bits of scores are not those of scoring all classes."""
    found = []
    for q in range(len(p)):
        expected_ids, expected = topk(p[q], codes, n_buckets, kind, ids.shape[1])
        same = (expected_ids == ids[q]).all()
        if not same or (expected.view(np.int32) != scores[q].view(np.int32)).any():
            found.append(q)
    return found
