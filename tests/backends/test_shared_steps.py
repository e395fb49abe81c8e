"""Threads that share a step: features wait until all rows are done, whoever does them."""

import threading

import numpy as np

from streammach.backends.cpu import kernels, products
from streammach.backends.cpu.kernels import (
    DONE,
    FEATURES,
    ROWS,
    TURN_FEATURES,
    TURN_ROWS,
    TURNS,
    OptimizerStep,
    RowLosses,
    RowTargets,
    SparseRows,
)
from streammach.options.optimizers import ADAGRAD
from streammach.rows.batch import ByFeature

N, D, B, R, K = 3 * TURN_ROWS + 1, 2 * TURN_FEATURES, 4, 3, 7


def step_of(rng):
    """Every row has every feature: what share_step takes but for turns, and its tables."""
    features, values = np.tile(np.arange(D, dtype=np.int32), N), np.ones(N * D, np.float32)
    rows = SparseRows(
        np.arange(N + 1) * D, features, values, rng.integers(0, K, N).astype(np.int32)
    )  # fmt: skip
    targets = RowTargets(
        rng.integers(0, B, (K, R)).astype(np.uint8), np.ones(N, np.float32), np.float32(0), B
    )
    by_feature = ByFeature(
        np.arange(D, dtype=np.int32), np.arange(D + 1) * N,
        np.tile(np.arange(N, dtype=np.int32), D), values,
    )  # fmt: skip
    weights = rng.normal(size=(D, B * R)).astype(np.float32)

    def how(table):
        return OptimizerStep(
            ADAGRAD, table, np.zeros((len(table), R), np.float32), np.zeros((1, 1), np.float32),
            np.float32(0.5), np.float32(1), np.zeros(2, np.float32), B,
        )  # fmt: skip

    out = RowLosses(*(np.zeros((N, n), np.float32) for n in (B * R, R, R)))
    return rows, targets, by_feature, how(weights), how(np.zeros((1, B * R), np.float32)), out


def test_features_wait_for_the_rows_of_a_slow_thread():
    given, alike = step_of(np.random.default_rng(0)), step_of(np.random.default_rng(0))
    kernels.share_step(*alike, np.zeros(TURNS, np.int64))
    rows, targets, _, how, bias, out = given
    before, turns = how.weights.copy(), np.zeros(TURNS, np.int64)
    turns[ROWS] = 1  # the first turn is a slow thread's
    quick = threading.Thread(target=kernels.share_step, args=(*given, turns))
    quick.start()
    quick.join(0.2)
    assert quick.is_alive()
    assert turns[DONE] == -(-N // TURN_ROWS) - 1
    assert turns[FEATURES] == 0
    assert (how.weights == before).all()
    products.logits(*rows[:3], 0, TURN_ROWS, how.weights, bias.weights[0], out.z)
    kernels.residuals(rows.classes, targets, out, 0, TURN_ROWS)
    turns[DONE] += 1
    quick.join()
    for mine, other in ((how, alike[3]), (bias, alike[4])):
        assert np.allclose(mine.weights, other.weights, atol=1e-6)
        assert np.allclose(mine.accumulated, other.accumulated, rtol=1e-5)


def test_the_bias_is_updated_by_the_sum_of_what_rows_give():
    rows, targets, by_feature, how, bias, out = step_of(np.random.default_rng(1))
    kernels.share_step(rows, targets, by_feature, how, bias, out, np.zeros(TURNS, np.int64))
    gradient = out.z.sum(axis=0, dtype=np.float64)
    squares = (gradient.reshape(R, B) ** 2).sum(axis=1)
    assert np.allclose(bias.accumulated[0], squares, rtol=1e-4)
    wanted = -0.5 * gradient / np.repeat(np.sqrt(squares + 1), B)
    assert np.allclose(bias.weights[0], wanted, atol=1e-5)
