"""Scores of linear classifiers, held to sums over all weights as a matrix."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.linear.weights import LinearScorer, LinearWeights
from tests.builders import block_of
from tests.model.models import linear_of

N, D, K = 50, 12, 30


def matrix_of(w):
    """The weights as a matrix (d, K)."""
    found = np.zeros((w.n_features, w.n_classes))
    found[np.repeat(np.arange(w.n_features), np.diff(w.starts)), w.classes] = w.weights
    return found


def plain_values(w, rows):
    """Rows as a matrix (n, d), scaled and at unit length."""
    x = np.zeros((rows.n_rows, w.n_features))
    values = rows.values.astype(float) if w.valued else np.ones(rows.nnz)
    x[np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr)), rows.features] = values
    x *= w.scale
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(lengths < 1e-12, 1, lengths)


def scores_of(w, rows, candidates=None, threads=1):
    scorer = LinearScorer(w, threads)
    try:
        return scorer.scores(rows, candidates)
    finally:
        scorer.close()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("m", [1, 7])  # of one class long lists are searched
def test_scores_are_sums_over_all_weights(rng, valued, threads, m):
    w, rows = linear_of(rng, D, K, valued=valued), block_of(rng, N, D, K, values="normal")
    w = replace(w, empty=rng.normal(size=K).astype(np.float32))
    wanted = plain_values(w, rows) @ matrix_of(w) + w.bias
    wanted[rows.empty] = w.empty
    every = scores_of(w, rows, threads=threads)
    np.testing.assert_allclose(every, wanted, rtol=1e-4, atol=1e-5)
    candidates = np.argsort(rng.random((N, K + 1)), axis=1)[:, :m] - 1
    some = scores_of(w, rows, candidates, threads)
    there = candidates >= 0
    own = np.take_along_axis(every, np.maximum(candidates, 0), axis=1)
    assert some.tobytes() == np.where(there, own, np.float32(0)).tobytes()
    assert scores_of(w, rows, candidates, 4 - threads).tobytes() == some.tobytes()


def test_features_are_chosen_and_arrays_are_read(rng):
    w, chosen = linear_of(rng, D, K, valued=True), rng.random(D) < 0.6
    fewer = w.of_features(chosen)
    assert np.array_equal(matrix_of(fewer), matrix_of(w)[chosen])
    assert np.array_equal(fewer.scale, w.scale[chosen])
    arrays = w.arrays("late_")
    same = LinearWeights.of(arrays, "late_", valued=True)
    assert all(
        np.array_equal(a, b) for a, b in zip(same.arrays().values(), arrays.values(), strict=True)
    )
    for name, wrong in (("classes", w.classes + K), ("weights", w.weights[1:]),
                        ("starts", w.starts + 1)):  # fmt: skip
        with pytest.raises(ValueError, match="the linear weights are wrong"):
            LinearWeights.of({**arrays, f"late_{name}": wrong}, "late_", valued=True)
