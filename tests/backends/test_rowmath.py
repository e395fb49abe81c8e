"""The scalar bodies that every device shares, on this machine and in the CUDA simulator."""

import math
import os

import numpy as np
import pytest

from streammach.backends import rowmath

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
if SIMULATED:
    from numba import cuda  # the simulator looks for this very name among a kernel's globals


def apply(function, *arrays):
    """Call a scalar body for every element: in a CUDA kernel where there is a simulator."""
    out = np.empty_like(arrays[0])
    if not SIMULATED:
        for i in range(len(out)):
            out[i] = function(*(a[i] for a in arrays))
        return out
    columns = np.stack(arrays)

    @cuda.jit
    def body(columns, out):
        i = cuda.grid(1)
        if i < out.shape[0]:
            if columns.shape[0] == 1:
                out[i] = function(columns[0, i])
            elif columns.shape[0] == 3:
                out[i] = function(columns[0, i], columns[1, i], columns[2, i])
            else:
                out[i] = function(columns[0, i], columns[1, i], columns[2, i], columns[3, i])

    threads = 32
    body[-(-len(out) // threads), threads](columns, out)
    return out


def test_exp_is_within_two_units_in_the_last_place(rng):
    x = -np.abs(rng.uniform(0, 40, 4000)).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(apply(rowmath.exp, x) - exact) / unit) < 2


def test_sigmoids_and_their_logarithms_are_right_to_a_millionth():
    x = np.concatenate([np.linspace(-60, 60, 4001), [-1e6, 0, 1e6]]).astype(np.float32)
    exact = -np.logaddexp(0, -x.astype(np.float64))
    found = apply(rowmath.log_sigmoid, x)
    assert np.max(np.abs(found - exact) / np.maximum(1, np.abs(exact))) < 3e-7
    assert np.max(np.abs(apply(rowmath.sigmoid, x) - np.exp(exact))) < 3e-7
    e = np.linspace(0, 1, 4001).astype(np.float32)
    assert np.max(np.abs(apply(rowmath.log_one_more, e) - np.log1p(e.astype(float)))) < 2e-7


@pytest.mark.parametrize("most", [1.0, 10.0, 1000.0, 6000.0])
def test_cosine_is_right_to_a_millionth(rng, most):
    x = rng.uniform(-most, most, 4000).astype(np.float32)
    exact = np.cos(x.astype(np.float64))
    assert np.max(np.abs(apply(rowmath.cosine, x) - exact)) < 1e-6
    assert apply(rowmath.cosine, np.zeros(1, np.float32)) == 1


def test_exp_of_zero_is_one_and_far_below_it_is_zero():
    x = np.array([0, -40.0001, -100, -1e30, -np.inf], np.float32)
    assert apply(rowmath.exp, x).tolist() == [1, 0, 0, 0, 0]


def test_exp_keeps_nan():
    assert math.isnan(apply(rowmath.exp, np.array([np.nan], np.float32))[0])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_residuals_of_a_model_sum_to_zero(smoothing, rng):
    p = rng.dirichlet(np.ones(7)).astype(np.float32)
    s, n = np.float32(smoothing), 7
    total = sum(float(rowmath.residual(p[b], b == 3, s, n)) for b in range(n))
    assert abs(total) < 1e-6


def test_adagrad_step_is_rate_over_root(rng):
    s = rng.uniform(0, 9, 50).astype(np.float32)
    rate, epsilon = np.full(50, 0.7, np.float32), np.full(50, 0.1, np.float32)
    found = apply(rowmath.adagrad_step, rate, s, epsilon)
    np.testing.assert_allclose(found, 0.7 / np.sqrt(s + np.float32(0.1)), rtol=1e-6)


def test_adam_moment_is_a_running_mean_without_subnormal_rest():
    args = [np.array(x, np.float32) for x in ([1.0, 1e-31, 0.0], [3.0, 0.0, 0.0], [0.9, 0.9, 0.9])]
    np.testing.assert_allclose(apply(rowmath.adam_moment, *args), [1.2, 0, 0], rtol=1e-6)


def test_adam_step_follows_its_formula():
    args = [np.array([x], np.float32) for x in (0.3, 0.04, 0.01, 1e-3)]
    found = apply(rowmath.adam_step, *args)[0]
    assert found == pytest.approx(0.01 * 0.3 / (0.2 + 1e-3), rel=1e-6)
