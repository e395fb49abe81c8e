"""Tests of ridge regression on mapped rows: its sums, rows left out, and what is chosen."""

import numpy as np
import pytest

from streammach.linear import kernel_fit
from streammach.linear.kernel_fit import (
    BALANCE,
    Sums,
    fit_bytes,
    fit_kernel,
    judge_scores,
    sample_rows,
    targets_of,
    weigh_classes,
)
from streammach.linear.kernel_map import KernelMap


def rings(rng, n=300):
    """Rows of two classes that no plane parts, and a class in one place."""
    x = rng.normal(size=(n, 3)).astype(np.float32)
    classes = (np.square(x[:, :2]).sum(axis=1) > 1.4).astype(np.int64)
    x[: n // 5, 2] += 9
    classes[: n // 5] = 2
    return x, classes, np.ones(n, np.float32)


def solved(own, x, classes, weights, ridge):
    """Return the weights by the equations of the text-book: float64 (m + d + 1, K)."""
    columns = np.c_[own.apply(x), np.ones(len(x))].astype(np.float64)
    penalty = np.eye(columns.shape[1])
    penalty[:-1, :-1] = own.penalty()
    targets = 2.0 * (classes[:, None] == np.arange(3)) - 1
    squares = columns.T @ (weights[:, None] * columns) + ridge * penalty
    return np.linalg.solve(squares, columns.T @ (weights[:, None] * targets))


def test_weights_are_those_of_a_ridge_regression(rng):
    x, classes, _ = rings(rng)
    weights = rng.uniform(0.5, 2, len(x)).astype(np.float32)
    own = KernelMap.of(x, None, 40, 0).at_bandwidth(2)
    sums = Sums(own, 3)
    for some in np.array_split(np.arange(len(x)), 3):
        sums.add(x[some], classes[some], weights[some])
    found, _ = sums.solve(0.1)
    expected = solved(own, x, classes, weights, 0.1)
    np.testing.assert_allclose(found.weights, expected[:-1], atol=1e-3)
    np.testing.assert_allclose(found.bias, expected[-1], atol=1e-3)


def test_a_row_that_is_left_out_scores_what_the_others_say(rng):
    x, classes, _ = rings(rng, 80)
    weights = rng.uniform(0.5, 2, len(x)).astype(np.float32)
    own = KernelMap.of(x, None, 40, 0).at_bandwidth(2)
    sums = Sums(own, 3)
    sums.add(x, classes, weights)
    scores = sums.leave_out(sums.solve(0.1), (x, classes, weights))
    for row in (0, 17, 79):
        left = np.arange(80) != row
        others = solved(own, x[left], classes[left], weights[left], 0.1)
        expected = own.apply(x[row : row + 1]) @ others[:-1] + others[-1]
        np.testing.assert_allclose(scores[row], expected[0], atol=2e-3)


def test_rare_classes_count_more_and_all_rows_one():
    counts = np.array([1000, 10, 1, 0])
    found = weigh_classes(counts)
    np.testing.assert_allclose(found[0] / found[1], 100**-BALANCE, rtol=1e-5)
    assert found[:3] @ counts[:3] == pytest.approx(counts.sum(), rel=1e-5)
    assert np.isfinite(found).all()


def test_a_sample_is_all_rows_in_their_order_or_some(rng, monkeypatch):
    x, classes, weights = rings(rng)
    blocks = [(x[a : a + 64], classes[a : a + 64], weights[a : a + 64]) for a in range(0, 300, 64)]
    found, counts = sample_rows(lambda: blocks, 4, 0)
    assert (found[0] == x).all()
    assert counts.tolist() == [*np.bincount(classes), 0]
    monkeypatch.setattr(kernel_fit, "SAMPLE", 50)
    found, counts = sample_rows(lambda: blocks, 4, 0)
    assert len(found[0]) == len(found[1]) == 50
    assert counts.sum() == 300
    places = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in found[0]]
    assert places == sorted(set(places))
    assert places[-1] > 200


@pytest.mark.parametrize("way", ["left out", "held", "sample"])
def test_classes_that_no_plane_parts_are_told_apart(rng, monkeypatch, way):
    rows, test = rings(rng, 500), rings(rng, 500)
    if way == "sample":
        monkeypatch.setattr(kernel_fit, "SAMPLE", 200)
    held = rings(rng, 200) if way == "held" else None
    seen = []
    fit = fit_kernel(lambda: [rows], 3, held=held, seed=1, check=lambda: seen.append(1))
    right = fit.weights.scores(test[0]).argmax(axis=1) == test[1]
    assert right.mean() > 0.9
    assert seen
    assert fit.weights.map.bandwidth[0] in kernel_fit.BANDWIDTHS
    assert fit.ridge in kernel_fit.RIDGES
    if way == "sample":
        assert fit.scores is None
        return
    judged = rows if held is None else held
    assert fit.scores.shape == (len(judged[0]), 3)
    assert (fit.scores.argmax(axis=1) == judged[1]).mean() > 0.9


def test_the_same_seed_gives_the_same_weights(rng):
    rows = rings(rng, 100)
    first, again = (fit_kernel(lambda: [rows], 3, seed=1).weights.arrays() for _ in range(2))
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)


def test_rows_that_judged_may_be_learnt_too(rng):
    rows, held = rings(rng, 200), rings(rng, 100)
    fit, more = (fit_kernel(lambda: [rows], 3, held=held, learn_held=it) for it in (False, True))
    assert (more.scores == fit.scores).all()
    assert (more.weights.weights != fit.weights.weights).any()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_few_rows_and_classes_without_any_do(n):
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    fit = fit_kernel(lambda: [(x, np.arange(n) % 2, np.ones(n, np.float32))], 4)
    assert np.isfinite(fit.weights.scores(x)).all()


def test_columns_of_one_value_do(rng):
    x, classes, weights = rings(rng, 60)
    x[:, 1] = 1e30
    x[:, 2] = 0
    fit = fit_kernel(lambda: [(x, classes, weights)], 3)
    assert np.isfinite(fit.weights.scores(x)).all()


def test_a_loss_falls_as_classes_are_told_apart(rng):
    classes, weights = rng.integers(0, 3, 200), np.ones(200, np.float32)
    noise = rng.normal(size=(200, 3), scale=0.3).astype(np.float32)
    targets = targets_of(classes, 3)
    losses = [judge_scores(noise + a * targets, classes, weights) for a in (0, 0.5, 1)]
    assert losses == sorted(losses, reverse=True)
    both = (
        judge_scores(noise, classes, weights),
        judge_scores(noise[:100], classes[:100], weights[:100]),
    )
    assert judge_scores(noise, classes, np.repeat([1, 0], 100)) == pytest.approx(both[1])


def test_bytes_grow_to_a_limit():
    assert fit_bytes(10, 1000, 5) < fit_bytes(10, 10**6, 5) == fit_bytes(10, 10**7, 5)


def test_no_more_is_tried_when_the_time_is_over(rng):
    x = rng.normal(size=(300, 4)).astype(np.float32)
    blocks = [(x, (x[:, 0] > 0).astype(np.int64), np.ones(300, np.float32))]
    asked = []
    found = fit_kernel(lambda: blocks, 2, most_centres=64, is_over=lambda: not asked.append(1))
    assert len(asked) < 8
    assert len(found.weights.map.centres) in (0, 64)
    assert found.scores.shape == (300, 2)
