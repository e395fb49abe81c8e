"""The kernel of benchmarks.changes against NumPy."""

import numpy as np

from benchmarks.changes import count_buckets

K, B, R = 6, 3, 2


def test_rows_are_counted_by_feature_and_bucket():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, B, (K, R)).astype(np.uint8)
    classes = rng.integers(0, K, 5).astype(np.int32)
    x = rng.random((5, 4)) < 0.5
    indptr = np.concatenate([[0], np.cumsum(x.sum(axis=1))])
    features = np.nonzero(x)[1].astype(np.int32)
    pairs, buckets = np.zeros((4, R * B), np.float32), np.zeros(R * B, np.float32)
    rows = np.zeros(4, np.float32)
    count_buckets(indptr, features, classes, codes, B, pairs, buckets, rows)
    hot = np.zeros((5, R * B))
    for r in range(R):
        hot[np.arange(5), r * B + codes[classes, r]] = 1
    np.testing.assert_array_equal(pairs, x.T.astype(float) @ hot)
    np.testing.assert_array_equal(buckets, hot.sum(axis=0))
    np.testing.assert_array_equal(rows, x.sum(axis=0))
