"""The fit of group weights: its gradient, its bounds, and weights that are known."""

import numpy as np
import pytest

from streammach.parts.counts.group_fit import (
    SPREAD,
    STRENGTH,
    _Problem,
    fit_groups,
    in_order,
    start_weights,
    top_k_hits,
)
from streammach.parts.counts.group_kernels import CandidateFeatures
from streammach.system.threads import Workers
from tests.builders import packed, spread

N, M, G = 300, 6, 3
ALONE = Workers(1, "alone")
START = start_weights(np.arange(G, dtype=np.int32))


def evidence(rng, *, hashed_sign=1.0):
    """Rows whose class is drawn from a softmax of known weights."""
    groups = rng.integers(0, 4, (N, G)).astype(np.float32)
    counted = np.zeros((N, 2 * G + 1, M), np.float32)
    counted[:, :G] = rng.gamma(1.0, size=(N, G, M))
    counted[:, G : 2 * G] = rng.integers(0, 4, (N, G, M))
    counted[:, :-1] *= np.tile(groups > 0, 2)[:, :, None]
    counted[:, -1] = rng.normal(size=(N, M))
    log_rows, log_values, hashed = rng.normal(size=(3, N, M)).astype(np.float32)
    repeated = np.zeros((N, M), bool)
    repeated[::5, -1] = True
    true = np.array([1, 0.5, 0.2, 0.3, 0.1, 0.8, 0.9])
    z = true @ counted - (groups @ [0.2, 0.1, 0.4])[:, None] * log_values
    z += 0.6 * log_rows + hashed_sign * 2 * hashed
    z[repeated] = -np.inf
    place = np.array([rng.choice(M, p=np.exp(r - r.max()) / np.exp(r - r.max()).sum()) for r in z])
    return CandidateFeatures(
        **packed(counted, groups)._asdict(), log_rows=log_rows, log_values=log_values,
        hashed=hashed, repeated=repeated, number=np.arange(N),
        targets=np.eye(M, dtype=np.float32)[place], weights=np.ones(N, np.float32), listed=False,
    )  # fmt: skip


def problem_of(found, *, hashed, learnt):
    """The problem from the common start, with these parts."""
    sizes = [G, G, 1, G, 1, 1]
    start = np.repeat([0.3, 2.7, float(learnt), 0.3, 0.3, 9.0 * hashed], sizes)
    active = np.repeat([True, True, learnt, True, True, hashed], sizes)
    return _Problem(found, start, active, ALONE)


def reference(found, start, x):
    """The scores in plain NumPy, float64; the loss at weights, and its derivatives."""
    g = found.n_groups
    n, m = found.repeated.shape
    columns = np.empty((3 * g + 3, n, m))  # what each weight is multiplied with
    columns[: 2 * g + 1] = np.moveaxis(spread(found), 1, 0)
    columns[2 * g + 1 : -2] = -found.groups.T[:, :, None] * found.log_values
    columns[-2:] = found.log_rows, found.hashed
    z = np.tensordot(x, columns, 1)
    z[found.repeated] = -1e9
    logs = z - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True))
    logs -= z.max(1, keepdims=True)
    p, w, labels = np.exp(logs), found.weights[:, None], found.targets.sum(1, keepdims=True)
    pull = STRENGTH / np.repeat(SPREAD, [g, g, 1, g, 1, 1]) ** 2
    loss = -(found.targets * logs * w).sum() + (pull * (x - start) ** 2).sum() / 2
    gradient = (columns * (labels * p - found.targets) * w).sum((1, 2)) + pull * (x - start)
    apart = columns - (columns * p).sum(2, keepdims=True)
    curvature = np.einsum("anm,bnm,nm->ab", apart, apart, labels * p * w) + np.diag(pull)
    return z, loss, gradient, curvature


def test_all_groups_as_one_have_the_sums_of_all(rng):
    found = evidence(rng)
    one, g, dense = found.merge_groups(), found.n_groups, spread(found)
    wanted = [dense[:, :g].sum(axis=1), dense[:, g:-1].sum(axis=1), dense[:, -1]]
    np.testing.assert_array_equal(one.counted.reshape(N, 3, M), np.stack(wanted, axis=1))
    np.testing.assert_array_equal(one.groups[:, 0], found.groups.sum(axis=1))


def listed(found, rng):
    """The same rows with up to three labels each among their candidates."""
    n, m = found.repeated.shape
    targets = (rng.random((n, m)) < 1.5 / m) & ~found.repeated
    return found._replace(targets=np.maximum(found.targets, targets), listed=True)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("lists", [False, True])
def test_the_loss_and_its_derivatives_are_those_of_the_reference(rng, lists, threads):
    found = evidence(rng)
    found = listed(found, rng) if lists else found
    found = found._replace(weights=rng.integers(0, 3, N).astype(np.float32))
    problem = problem_of(found, hashed=True, learnt=True)
    problem._workers = Workers(threads, "fit")
    x = problem.start + rng.normal(size=len(problem.start)) / 5
    z, *wanted = reference(found, problem.start, x)
    np.testing.assert_allclose(found.scores(x, problem._workers), z, rtol=1e-5, atol=1e-4)
    for one, other in zip(problem.loss(x), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_fit_is_where_the_loss_is_least(rng, sign):
    found = evidence(rng, hashed_sign=sign)
    problem = problem_of(found, hashed=True, learnt=True)
    x = problem.solve()
    _, least, gradient, _ = reference(found, problem.start, x)
    assert least < 0.8 * reference(found, problem.start, problem.start)[1]
    free = slice(None) if x[-1] > 0 else slice(-1)
    assert np.abs(gradient[free]).max() < 0.5
    for _ in range(20):
        other = x + rng.normal(size=len(x)) * 0.05
        other[-1] = max(other[-1], 0)
        assert reference(found, problem.start, other)[1] > least


def test_bytes_do_not_depend_on_the_number_of_threads(rng):
    found, fits = evidence(rng), []
    for threads in (1, 2, 16):
        workers = Workers(threads, "fit")
        fits.append(fit_groups(found, START, hashed=True, learnt=True, workers=workers))
        hits = [top_k_hits(found, fits[i], some) for i, some in ((-1, workers), (0, ALONE))]
        np.testing.assert_array_equal(*hits)
    assert len({in_order(weights).tobytes() for weights in fits}) == 1


def test_the_fit_finds_what_matters(rng):
    weights = fit_groups(evidence(rng), START, hashed=True, learnt=True, workers=ALONE)
    assert weights.learnt == pytest.approx(0.9, abs=0.4)
    assert weights.hashed == pytest.approx(2, abs=0.7)


def test_what_takes_no_part_has_no_weight(rng):
    weights = fit_groups(evidence(rng), START, hashed=False, learnt=False, workers=ALONE)
    assert (weights.hashed, weights.learnt) == (0.0, 0.0)


def test_hashed_models_that_mislead_get_no_weight_below_zero(rng):
    found = evidence(rng, hashed_sign=-1.0)
    weights = fit_groups(found, START, hashed=True, learnt=False, workers=ALONE)
    assert weights.hashed == 0.0


def test_parts_are_chosen_by_number(rng):
    found = evidence(rng)
    some = found.part(40, 90).part(50, 65)
    assert some.number.tolist() == list(range(50, 65))
    np.testing.assert_array_equal(spread(some), spread(found)[50:65])
    start = start_weights(np.array([0, 2, 1], np.int32))
    assert start.n_groups == 3


def test_a_group_that_no_row_holds_is_weighed_like_the_others(rng):
    found = evidence(rng)
    groups = found.groups * np.array([1, 1, 0], np.float32)
    found = found._replace(**packed(spread(found), groups)._asdict())
    weights, one = (
        fit_groups(some, START, hashed=True, learnt=True, workers=ALONE)
        for some in (found, found.merge_groups())
    )
    for name in ("slope", "match", "penalty"):
        assert getattr(weights, name)[2] == pytest.approx(getattr(one, name)[0], abs=0.05)
