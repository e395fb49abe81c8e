"""The floors of the GPU benchmark, on cards whose figures are known."""

import numpy as np
import pytest

from benchmarks.gpu.floors import Card, decode_floor, hit_rate, passes, presence, step_floors
from benchmarks.gpu.shapes import ODP, Rows

H100 = Card(3.35e12, 5.5e12, 50e6, 132 * 1.75e9)


def test_rows_hold_as_many_features_as_they_should():
    edges = np.cumsum(np.array([0.7, 0.2, 0.06, 0.04]))
    p = presence(edges, 2)
    assert p.sum() == pytest.approx(2)
    assert (p <= 0.95).all()
    assert (np.diff(p) <= 0).all()


def test_a_cache_of_all_rows_misses_none_and_of_none_misses_all():
    p = presence(np.cumsum(np.full(1000, 1e-3)), 10)
    assert hit_rate(p, 1000) == 1
    assert hit_rate(p, 500) == pytest.approx(0.5, abs=0.01)
    assert hit_rate(p, 1) == pytest.approx(0.001, abs=1e-3)


def test_an_epoch_of_odp_on_an_h100():
    """38 ms forward and 61 ms backward: the cache's rate decides both."""
    floors = step_floors(presence(Rows(ODP).edges, ODP.row_nnz), 4096, 800, 25, H100)
    batches = ODP.n_rows / 4096
    assert batches * floors["forward"] == pytest.approx(0.038, abs=0.002)
    assert batches * floors["backward"] == pytest.approx(0.061, abs=0.004)


def test_a_decision_takes_its_look_ups():
    assert passes(32) == 1
    assert passes(512) == pytest.approx(3.3, abs=0.1)
    assert decode_floor(105_033, 25, 32, H100) == pytest.approx(0.36e-6, abs=0.01e-6)
