"""Dual coordinate descent, held to the least of the same sum by a plain solver."""

import numpy as np
import pytest
import scipy.optimize

from streammach.linear.descent import ClassRoom, Examples, UnitRows, learn_class
from streammach.linear.learner import LinearLearner, LinearOptions, every_row
from streammach.linear.weights import unit_values
from tests.builders import block_of

N, D, K = 80, 15, 4


def primal(w, x, y, costs):
    """``|w|^2 / 2 + sum cost max(0, 1 - y w x)^2`` and its gradient; the bias is a feature of 1."""
    slack = np.maximum(0, 1 - y * (x @ w))
    return w @ w / 2 + costs @ slack**2, w - 2 * (costs * slack * y) @ x


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_a_class_is_learnt_to_the_end(rng, gain):
    rows = block_of(rng, N, D, K, values="normal")
    values = unit_values(rows, np.ones(D, np.float32), valued=True)
    costs = rng.uniform(0.5, 5, N).astype(np.float32)
    own = rng.random(N) < 0.2
    some = np.flatnonzero(rng.random(N) < 0.8)
    room, examples = ClassRoom.of(D), Examples.of((2 * some + own[some]).astype(np.int32))
    unit = UnitRows(rows.indptr, rows.features, values, costs)
    m = learn_class(unit, examples, np.float32(gain), np.float32(1e-3), 2000, room)
    assert not room.place.any()
    weights = np.zeros(D + 1)
    weights[room.features[:m]], weights[D] = room.weights[1 : m + 1], room.weights[m + 1]
    x = np.zeros((N, D))
    x[np.repeat(np.arange(N), np.diff(rows.indptr)), rows.features] = values
    x = np.column_stack([x, np.ones(N)])[some]
    y, cost = np.where(own[some], 1.0, -1.0), costs[some] * np.where(own[some], gain, 1)
    best = scipy.optimize.minimize(primal, np.zeros(D + 1), (x, y, cost), "L-BFGS-B", jac=True)
    assert primal(weights, x, y, cost)[0] <= 1.01 * best.fun
    assert weights == pytest.approx(best.x, abs=0.02)


@pytest.mark.parametrize("least", [0.0, 0.1])
def test_all_classes_are_learnt_alike_by_any_threads(rng, least):
    rows = block_of(rng, N, D, K)
    found = []
    for threads in (1, 3):
        learner = LinearLearner(
            rows, np.ones(D, np.float32), LinearOptions(cost=1.0, least=least), threads
        )
        found.append(learner.learn(K, every_row(rows.classes), N).arrays())
    for name, array in found[0].items():
        assert array.tobytes() == found[1][name].tobytes(), name
    assert np.abs(found[0]["weights"]).min() > least
    assert found[0]["bias"].any()
