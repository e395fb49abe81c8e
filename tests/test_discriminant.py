"""Linear discriminant analysis against the textbook's formulas in plain NumPy."""

import numpy as np
import pytest

from streammach.parts.discriminant import sums as discriminant
from streammach.parts.discriminant.sums import RIDGE, Discriminant, parts
from streammach.rows.dense import expanded
from tests.builders import dense_block


def by_the_book(x, y, n_classes, prior_rows):
    """Weights (d, K) and bias (K,), class by class, in float64."""
    x, d = x.astype(np.float64), x.shape[1]
    within = np.zeros((d, d))
    rows = np.bincount(y, minlength=n_classes)
    for i in np.flatnonzero(rows):
        centred = x[y == i] - x[y == i].mean(axis=0)
        within += centred.T @ centred
    within /= len(x) - np.count_nonzero(rows)
    within += RIDGE * np.trace(within) / d * np.eye(d)
    weights, bias = np.empty((d, n_classes)), np.empty(n_classes)
    for i in range(n_classes):
        total = x[y == i].sum(axis=0) + prior_rows * x.mean(axis=0)
        mean = total / (rows[i] + prior_rows) if rows[i] + prior_rows else x.mean(axis=0)
        weights[:, i] = np.linalg.solve(within, mean)
        bias[i] = np.log(max(rows[i], 0.5)) - mean @ weights[:, i] / 2
    return weights, bias


@pytest.mark.parametrize("prior_rows", [0.0, 0.3, 2.0])
def test_weights_are_those_of_the_formulas(prior_rows, monkeypatch):
    monkeypatch.setattr(discriminant, "PIECE_BYTES", 700)  # several pieces
    monkeypatch.setattr(discriminant, "SOLVED", 3)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 7, 90).astype(np.int32)
    y[y == 4] = 5  # a class without rows
    x = (rng.normal(size=(90, 6)) @ rng.normal(size=(6, 6)) + y[:, None]).astype(np.float32)
    sums = Discriminant(np.full((7, 6), 9, np.float32))
    sums.add(dense_block(x[:50], y[:50]))
    sums.add(dense_block(x[50:], y[50:]))
    weights = np.empty((6, 7), np.float32)
    bias = sums.solve(prior_rows, weights)
    expected = by_the_book(x, y, 7, prior_rows)
    np.testing.assert_allclose(weights, expected[0], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(bias, expected[1], rtol=2e-3, atol=2e-3)


def test_a_feature_that_never_varies_is_no_obstacle():
    x = np.array([[1, 0, 2], [2, 0, 1], [5, 0, 5], [6, 0, 4]], np.float32)
    sums = Discriminant(np.zeros((2, 3), np.float32))
    sums.add(dense_block(x, [0, 0, 1, 1]))
    weights = np.empty((3, 2), np.float32)
    bias = sums.solve(0.0, weights)
    assert ((x @ weights + bias).argmax(axis=1) == [0, 0, 1, 1]).all()


@pytest.mark.parametrize("seed", range(5))
def test_many_classes_of_a_single_row_are_no_obstacle(seed):
    """What rounding leaves of their rows is more than the few others say."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(340), rng.integers(0, 340, 60)].astype(np.int32)
    x = (np.abs(rng.normal(size=(340, 128))) ** 3)[y].astype(np.float32)
    x[340:] *= 1 + 1e-3 * rng.random((60, 128), np.float32)
    sums = Discriminant(np.zeros((340, 128), np.float32))
    sums.add(dense_block(x, y))
    weights = np.empty((128, 340), np.float32)
    assert np.isfinite(sums.solve(0.3, weights)).all()
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1e4])
def test_features_that_never_vary_within_a_class_are_no_obstacle(value):
    x = np.full((6, 2), value, np.float32)
    x[:, 1] = [0, 0, 0, value, value, value]
    sums = Discriminant(np.zeros((2, 2), np.float32))
    sums.add(dense_block(x, [0, 0, 0, 1, 1, 1]))
    weights = np.empty((2, 2), np.float32)
    assert np.isfinite(sums.solve(0.0, weights)).all()
    assert np.isfinite(weights).all()


def test_rows_come_in_small_parts():
    x = np.arange(1, 41, dtype=np.float32).reshape(20, 2)
    block = dense_block(x)
    found = list(parts(block, discriminant.PIECE_BYTES // 3))
    assert [part.n_rows for part in found] == [3] * 6 + [2]
    assert np.array_equal(np.concatenate([expanded(part, 2) for part in found]), x)
