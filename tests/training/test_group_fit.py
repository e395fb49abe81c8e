"""The fit of group weights: its gradient, its bounds, and weights that are known."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.parts.counts.group_fit import (
    CandidateFeatures,
    _Problem,
    fit_groups,
    in_order,
    start_weights,
)

N, M, G = 300, 6, 3
START = start_weights(np.arange(G, dtype=np.int32))


def evidence(rng, *, hashed_sign=1.0):
    """Rows whose class is drawn from a softmax of known weights."""
    counted = np.zeros((N, M, 2 * G + 1), np.float32)
    counted[:, :, :G] = rng.gamma(1.0, size=(N, M, G))
    counted[:, :, G : 2 * G] = rng.integers(0, 4, (N, M, G))
    counted[:, :, -1] = rng.normal(size=(N, M))
    groups = rng.integers(0, 4, (N, G)).astype(np.float32)
    log_rows, log_values, hashed = rng.normal(size=(3, N, M)).astype(np.float32)
    repeated = np.zeros((N, M), bool)
    repeated[::5, -1] = True
    true = np.array([1, 0.5, 0.2, 0.3, 0.1, 0.8, 0.9])
    z = counted @ true - (groups @ [0.2, 0.1, 0.4])[:, None] * log_values
    z += 0.6 * log_rows + hashed_sign * 2 * hashed
    z[repeated] = -np.inf
    place = np.array([rng.choice(M, p=np.exp(r - r.max()) / np.exp(r - r.max()).sum()) for r in z])
    return CandidateFeatures(
        counted=counted, groups=groups, log_rows=log_rows, log_values=log_values, hashed=hashed,
        repeated=repeated, number=np.arange(N), targets=np.eye(M, dtype=np.float32)[place],
        weights=np.ones(N, np.float32), listed=False,
    )  # fmt: skip


def problem_of(found, *, hashed, learnt):
    """The problem from the common start, with these parts."""
    sizes = [G, G, 1, G, 1, 1]
    start = np.repeat([0.3, 2.7, float(learnt), 0.3, 0.3, 9.0 * hashed], sizes)
    active = np.repeat([True, True, learnt, True, True, hashed], sizes)
    return _Problem(found, start, active)


def listed(found, rng):
    """The same rows with up to three labels each among their candidates."""
    n, m = found.repeated.shape
    targets = (rng.random((n, m)) < 1.5 / m) & ~found.repeated
    return replace(found, targets=np.maximum(found.targets, targets), listed=True)


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize("lists", [False, True])
def test_the_gradient_is_that_of_the_loss(rng, hashed, learnt, lists):
    found = evidence(rng)
    found = listed(found, rng) if lists else found
    problem = problem_of(found, hashed=hashed, learnt=learnt)
    if lists:
        z = found.scores(problem.start).astype(np.float64)
        logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        expected = -(logs * found.targets).sum()
        assert problem.loss(np.zeros(len(problem.start)), problem.scale())[0] == pytest.approx(
            expected, rel=1e-4
        )
    scale = problem.scale()
    u = rng.normal(size=len(scale))
    _, gradient = problem.loss(u, scale)
    for j in range(len(u)):
        step = np.zeros(len(u))
        step[j] = 0.05
        up, down = (problem.loss(u + s, scale)[0] for s in (step, -step))
        assert gradient[j] == pytest.approx((up - down) / 0.1, rel=0.02, abs=0.05)


def test_the_fit_is_below_its_start_and_finds_what_matters(rng):
    found = evidence(rng)
    problem = problem_of(found, hashed=True, learnt=True)
    scale = problem.scale()
    weights = fit_groups(found, START, hashed=True, learnt=True)
    x = in_order(weights)
    before = problem.loss(np.zeros(len(scale)), scale)[0]
    assert problem.loss((x - problem.start) / scale, scale)[0] < 0.8 * before
    assert weights.learnt == pytest.approx(0.9, abs=0.4)
    assert weights.hashed == pytest.approx(2, abs=0.7)


def test_what_takes_no_part_has_no_weight(rng):
    weights = fit_groups(evidence(rng), START, hashed=False, learnt=False)
    assert (weights.hashed, weights.learnt) == (0.0, 0.0)


def test_hashed_models_that_mislead_get_no_weight_below_zero(rng):
    found = evidence(rng, hashed_sign=-1.0)
    assert fit_groups(found, START, hashed=True, learnt=False).hashed == 0.0


def test_parts_are_chosen_by_number(rng):
    found = evidence(rng)
    assert found.part(10, 25).number.tolist() == list(range(10, 25))
    assert found.part(10, 25).counted.shape == (15, M, 2 * G + 1)
    start = start_weights(np.array([0, 2, 1], np.int32))
    assert start.n_groups == 3


def test_a_group_that_no_row_holds_is_weighed_like_the_others(rng):
    found = evidence(rng)
    found.counted[:, :, [2, G + 2]] = 0
    found.groups[:, 2] = 0
    weights = fit_groups(found, START, hashed=True, learnt=True)
    one = fit_groups(found.merged(), START, hashed=True, learnt=True)
    for name in ("slope", "match", "penalty"):
        assert getattr(weights, name)[2] == pytest.approx(getattr(one, name)[0], abs=0.02)
