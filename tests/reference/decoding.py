"""Top-k classes by scoring every class: float32, in the order of the repetitions."""

import numpy as np


def scores_of(p, codes, n_buckets, kind):
    """Score of every class for one row; kind: sum, min or median."""
    n_repetitions = codes.shape[1]
    v = np.stack([p[r * n_buckets + codes[:, r].astype(int)] for r in range(n_repetitions)])
    if kind == "sum":
        total = v[0].copy()
        for r in range(1, n_repetitions):
            total += v[r]
        return total
    v = np.sort(v, axis=0)
    if kind == "min":
        return v[0]
    return (v[n_repetitions // 2] + v[(n_repetitions - 1) // 2]) * np.float32(0.5)


def topk(p, codes, n_buckets, kind, k):
    """Ids and scores of the k best classes, ties to the smaller id."""
    s = scores_of(p, codes, n_buckets, kind)
    order = np.lexsort((np.arange(len(s)), -s))[:k]
    return order, s[order]
