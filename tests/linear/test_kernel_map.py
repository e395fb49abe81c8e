"""Tests of the map of dense rows: quantiles of columns, kernels of rows and centres."""

import numpy as np
import pytest
from scipy.stats import norm

from streammach.linear.kernel_map import (
    JITTER,
    LINEAR,
    KernelMap,
    KernelWeights,
    find_flags,
    level_column,
)
from streammach.rows.names import Names


def made(rng, n=60, d=4, m=12):
    x = rng.normal(size=(n, d)).astype(np.float32)
    return x, KernelMap.of(x, None, m, 3).at_bandwidth(1.7)


def test_a_column_becomes_normal_whatever_its_scale(rng):
    x = np.exp(3 * rng.normal(size=5000)).astype(np.float32)
    found = np.interp(x, *level_column(x))
    ranks = (x.argsort().argsort() + 0.5) / len(x)
    middle = (ranks > 0.01) & (ranks < 0.99)
    np.testing.assert_allclose(found[middle], norm.ppf(ranks[middle]), atol=0.06)
    assert np.abs(found).max() < 2.91


def test_equal_values_lie_in_their_middle():
    x = np.array([5] * 50 + [1] * 30 + [9] * 20, np.float32)
    found = np.interp([1, 5, 9, -4, 12], *level_column(x))
    middles = norm.ppf([0.15, 0.55, 0.9])
    np.testing.assert_allclose(found, [*middles, middles[0], middles[2]], atol=1e-6)


def test_truth_values_stay_and_a_single_value_is_zero():
    for x in (np.array([0, 1, 1, 0], np.float32), np.array([1, 0], np.float32)):
        assert np.interp([0, 1], *level_column(x)).tolist() == [0, 1]
    for x in (np.full(5, 7, np.float32), np.zeros(0, np.float32)):
        assert np.interp([0, 7, 9], *level_column(x)).tolist() == [0, 0, 0]


def test_missing_cells_lie_in_the_middle_and_say_nothing_of_others(rng):
    x = np.exp(rng.normal(size=(300, 2))).astype(np.float32)
    missing = np.arange(300) % 3 == 0
    x[:, 1] = missing
    x[missing, 0] = 0
    own = KernelMap.of(x, np.array([1, -1]), 5, 0)
    level = own.level(x)
    assert (level[missing, 0] == 0).all()
    assert (level[:, 1] == missing).all()
    np.testing.assert_allclose(own.knots[0], level_column(x[~missing, 0])[0])


def test_the_columns_are_kernels_and_what_is_level(rng):
    x, own = made(rng)
    level = own.level(x).astype(np.float64)
    centres = own.centres.astype(np.float64)
    squares = np.square(level[:, None] - centres).sum(axis=2)
    expected = np.exp(-1.7 / (2 * 4) * squares)
    found = own.apply(x)
    assert found.shape == (60, own.n_columns)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[:, :12], expected, atol=1e-6)
    np.testing.assert_allclose(found[:, 12:], level * LINEAR / 2, atol=1e-6)
    assert {tuple(row) for row in own.centres} <= {tuple(row) for row in own.level(x)}
    penalty = own.penalty()
    np.testing.assert_allclose(penalty, penalty.T)
    squares = np.square(centres[:, None] - centres).sum(axis=2)
    kernels = np.exp(-1.7 / (2 * 4) * squares) + JITTER * np.eye(12)
    np.testing.assert_allclose(penalty[:12, :12], kernels, atol=1e-6)
    np.testing.assert_allclose(penalty[12:, 12:], (1 + JITTER) * np.eye(4))


def test_scores_are_products_of_weights_in_pieces(rng, monkeypatch):
    monkeypatch.setattr("streammach.linear.kernel_map.PIECE_BYTES", 1000)
    x, own = made(rng)
    weights = rng.normal(size=(16, 3)).astype(np.float32)
    model = KernelWeights(own, weights, np.arange(3, dtype=np.float32))
    expected = own.apply(x) @ weights + np.arange(3)
    np.testing.assert_allclose(model.scores(x), expected, atol=1e-5)
    again = KernelWeights.of(model.arrays())
    assert again.scores(x).tobytes() == model.scores(x).tobytes()
    assert all(array.dtype == np.float32 for array in model.arrays().values())
    assert model.n_bytes == sum(array.nbytes for array in model.arrays().values())


def test_what_says_that_a_column_is_missing_is_found_by_its_name():
    names = Names.of(["a", "b", "missing^b", "missing^c", "c"])
    assert find_flags(names).tolist() == [-1, 2, -1, -1, 3]


@pytest.mark.parametrize("n", [1, 30])
def test_there_are_no_more_centres_than_rows(rng, n):
    x = rng.normal(size=(n, 3)).astype(np.float32)
    own = KernelMap.of(x, None, 20, 0)
    assert len(own.centres) == min(n, 20)
    assert np.isfinite(own.apply(x)).all()
