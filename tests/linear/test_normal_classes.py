"""The linear discriminant, held to a plain one, and where it takes the place of kernels."""

from functools import partial

import numpy as np

from streammach.linear.kernel_fit import (
    FOLDS,
    PRIOR_ROWS,
    SHRUNK,
    fit_discriminant,
    fit_kernel,
    score_by_folds,
)
from streammach.linear.kernel_map import KernelMap

N, D, K = 600, 8, 20


def normal_rows(rng, n=N):
    """Rows of classes that are normal distributions of one shape."""
    middles, classes = rng.normal(size=(K, D)), rng.integers(0, K, n)
    mixed = rng.normal(size=(D, D)) / 3 + np.eye(D)
    return (middles[classes] + rng.normal(size=(n, D)) @ mixed).astype(np.float32), classes


def test_scores_are_those_of_a_plain_discriminant(rng):
    x, classes = normal_rows(rng)
    weights = rng.integers(1, 4, N).astype(np.float32)
    own = KernelMap.of(x, None, 5, 0)
    found = fit_discriminant(own, x, classes, weights, K)
    rows = np.repeat(np.arange(N), weights.astype(int))  # each as often as it weighs
    level, y = own.level(x).astype(float)[rows], classes[rows]
    counts = np.bincount(y, minlength=K)
    means = np.array([level[y == c].sum(axis=0) for c in range(K)])
    means = (means + PRIOR_ROWS * level.mean(axis=0)) / (counts + PRIOR_ROWS)[:, None]
    within = (level - means[y]).T @ (level - means[y]) / len(y)
    within += (SHRUNK * np.trace(within) / D + 1e-9) * np.eye(D)
    inverse = np.linalg.inv(within)
    share = np.log((counts + PRIOR_ROWS) / (len(y) + K * PRIOR_ROWS))
    some = own.level(x).astype(float)
    wanted = some @ inverse @ means.T - np.einsum("kd,de,ke->k", means, inverse, means) / 2 + share
    np.testing.assert_allclose(found.scores(x), wanted, rtol=1e-3, atol=1e-3)
    assert found.map.centres.shape == (0, D)


def test_rows_are_scored_by_other_folds(rng):
    x, classes = normal_rows(rng)
    own, ones = KernelMap.of(x, None, 5, 0), np.ones(N, np.float32)
    scores = score_by_folds(own, x, classes, ones, K)
    fold = np.arange(N) % FOLDS
    rest = fold != 2
    one = fit_discriminant(own, x[rest], classes[rest], ones[rest], K)
    np.testing.assert_array_equal(scores[fold == 2], one.scores(x[fold == 2]))


def test_normal_classes_take_the_place_of_kernels_and_rings_do_not(rng):
    x, classes = normal_rows(rng)
    angle, ring = rng.uniform(0, 2 * np.pi, N), np.arange(N) % 2
    round_rows = (1 + ring)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for rows, y, kernels in ((x, classes, False), (round_rows.astype(np.float32), ring, True)):
        blocks = [(rows, y, np.ones(N, np.float32))]
        found = fit_kernel(partial(list, blocks), int(y.max()) + 1)
        assert (len(found.weights.map.centres) > 0) == kernels
        assert found.scores.shape == (N, y.max() + 1)
