"""The kernels of benchmarks.changes against NumPy."""

import numpy as np
import pytest

from benchmarks.changes import count_buckets, joint_residuals

K, B, R = 6, 3, 2


def made(rng):
    """Return codes (K, R), labels (n,), logarithms (n, R*B)."""
    codes = rng.integers(0, B, (K, R)).astype(np.uint8)
    labels = rng.integers(0, K, 5).astype(np.int32)
    return codes, labels, rng.normal(0, 2, (5, R * B)).astype(np.float32)


@pytest.mark.parametrize("candidates", [K, 2])
def test_joint_residuals_are_the_gradient_of_the_joint_loss(candidates):
    codes, labels, z = made(np.random.default_rng(0))
    columns = codes + B * np.arange(R)
    sums = z[:, columns].sum(axis=2)
    ids = np.argsort(-sums, axis=1)[:, :candidates]
    importance = np.array([1, 2, 1, 0.5, 1], np.float32)
    out, losses = z.copy(), np.empty((5, R), np.float32)
    norms = np.empty((5, R), np.float32)
    scores = np.take_along_axis(sums, ids, axis=1)
    joint_residuals(codes, labels, importance, ids, scores, B, out, losses, norms)
    for i, label in enumerate(labels):
        some = sorted({*ids[i].tolist(), int(label)})
        p = np.exp(sums[i, some] / R)
        p /= p.sum()
        expected = np.zeros(R * B)
        for share, c in zip(p, some, strict=True):
            expected[columns[c]] += importance[i] * (share - (c == label))
        np.testing.assert_allclose(out[i], expected, atol=1e-5)
        own = importance[i] * -np.log(p[some.index(label)])
        np.testing.assert_allclose(losses[i].sum(), own, rtol=1e-4)
        squares = (expected.reshape(R, B) ** 2).sum(axis=1)
        np.testing.assert_allclose(norms[i], squares, atol=1e-5)


def test_rows_are_counted_by_feature_and_bucket():
    rng = np.random.default_rng(1)
    codes, labels, _ = made(rng)
    x = rng.random((5, 4)) < 0.5
    indptr = np.concatenate([[0], np.cumsum(x.sum(axis=1))])
    features = np.nonzero(x)[1].astype(np.int32)
    pairs, buckets = np.zeros((4, R * B), np.float32), np.zeros(R * B, np.float32)
    rows = np.zeros(4, np.float32)
    count_buckets(indptr, features, labels, codes, B, pairs, buckets, rows)
    hot = np.zeros((5, R * B))
    for r in range(R):
        hot[np.arange(5), r * B + codes[labels, r]] = 1
    np.testing.assert_array_equal(pairs, x.T.astype(float) @ hot)
    np.testing.assert_array_equal(buckets, hot.sum(axis=0))
    np.testing.assert_array_equal(rows, x.sum(axis=0))
