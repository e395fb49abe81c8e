"""Probabilities of labels of lists: fitted on held-out rows, each label on its own."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.model.calibration import (
    CANDIDATES,
    LEAST_INFORMATION,
    Calibration,
    fit_calibration,
    label_probabilities,
)
from streammach.model.model import Model
from streammach.prediction.metrics import FIRST
from streammach.rows.label_lists import LabelLists
from tests.builders import block_of
from tests.model.models import model_of
from tests.prediction.test_calibration import plain_ece
from tests.prediction.test_metrics import summed

LINE = (0.0, 0.25, 0.5, 1.0), (0.0, 0.125, 0.75, 1.0)
LISTED = Calibration(0.8, -1.5, *LINE, lead=-0.3, level=0.2)


def drawn(rng, n, n_labels=50):
    """Best scores of rows, and lists of labels that are there more often where a row's lead is."""
    scores = -np.cumsum(rng.exponential(0.5, (n, CANDIDATES)), axis=1) + rng.normal(3, 2, (n, 1))
    z = 0.9 * scores - 0.5 * scores[:, :1]
    there = rng.random(scores.shape) < 1 / (1 + np.exp(-np.cbrt(z) - 0.3 * z))
    ids = np.array([rng.permutation(n_labels)[:CANDIDATES] for _ in range(n)])
    lists = LabelLists.of([i[t].tolist() for i, t in zip(ids, there, strict=True)])
    return ids, scores.astype(np.float32), lists


def fitted_on(rng, ids, scores, lists, importance=None):
    rows = block_of(rng, len(ids), 9, 4)
    rows = replace(rows, classes=lists.first, importance=importance).with_labels(lists)
    return fit_calibration(rows, lambda *_: (ids, scores), 50)


def test_stated_probabilities_are_the_share_that_is_right(rng):
    ids, scores, lists = drawn(rng, 4000)
    some, rest = slice(0, 2000), slice(2000, None)
    part = [lists.part(0, 2000), lists.part(2000, 4000)]
    fitted = fitted_on(rng, ids[some], scores[some], part[0])
    p, right = label_probabilities(scores[rest], fitted), part[1].match(ids[rest])
    assert (np.diff(p, axis=1) <= 0).all()
    assert fitted.lead < 0 < fitted.beta
    assert len(fitted.stated) > 5
    numbers = replace(fitted, stated=(), right=())
    before = label_probabilities(scores[rest], numbers)
    ece = [plain_ece(x.ravel().tolist(), right.ravel().tolist()) for x in (p, before)]
    assert ece[0] < 0.02 < 2 * ece[1]
    for low in (0.5, 0.7, 0.9):
        told = p >= low
        assert p[told].mean() == pytest.approx(right[told].mean(), abs=0.03)


def plain_probabilities(scores, best, map_):
    """The equation in the words of Calibration, one row after another."""
    for row, own in zip(scores.astype(float).tolist(), best.astype(float).tolist(), strict=True):
        there = [s for s in own[:CANDIDATES] if np.isfinite(s)]
        middle = np.median(there)
        for s in row:
            z = map_.beta * (s - middle) + map_.lead * (there[0] - middle)
            q = 1 / (1 + np.exp(-(z + map_.level * middle + map_.other)))
            yield np.interp(q, map_.stated, map_.right) if map_.stated else q


@pytest.mark.parametrize("map_", [LISTED, replace(LISTED, stated=(), right=())])
def test_probabilities_are_those_of_plain_arithmetic(map_, rng):
    _, best, _ = drawn(rng, 30)
    best[3, 5:] = best[7, 1:] = -np.inf  # labels that may not be ranked
    scores = rng.normal(size=(30, 4)).astype(np.float32)
    wanted = list(plain_probabilities(scores, best, map_))
    found = label_probabilities(scores, map_, best)
    np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-6)
    wanted = list(plain_probabilities(best, best, map_))
    np.testing.assert_allclose(label_probabilities(best, map_).ravel(), wanted, rtol=1e-6)


def test_few_rows_give_no_line_and_odd_ones_give_numbers(rng):
    ids, scores, lists = drawn(rng, 10)
    assert fitted_on(rng, ids, scores, lists).stated == ()
    p = label_probabilities(scores, fitted_on(rng, ids, scores, lists))
    assert (p * (1 - p)).sum() < 2 * LEAST_INFORMATION
    none = LabelLists.of([[] for _ in range(10)])
    every = LabelLists.of([list(range(50)) for _ in range(10)])
    for own in (none, every):
        for values in (scores, np.zeros_like(scores), np.full_like(scores, -np.inf)):
            fitted = fitted_on(rng, ids, values, own)
            assert np.isfinite([fitted.beta, fitted.other, fitted.lead, fitted.level]).all()
            assert fitted.beta > 0
    weightless = fitted_on(rng, ids, scores, lists, np.zeros(10, np.float32))
    assert weightless == Calibration(1.0, 0.0)


def test_a_row_that_counts_twice_is_two_rows(rng):
    ids, scores, lists = drawn(rng, 300)
    one = fitted_on(rng, ids, scores, lists, np.full(300, 2, np.float32))
    both = LabelLists.concat([lists, lists])
    two = fitted_on(rng, np.tile(ids, (2, 1)), np.tile(scores, (2, 1)), both)
    for name in ("beta", "other", "lead", "level"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-4, abs=1e-4)


def test_a_model_of_lists_keeps_its_numbers_and_its_line(rng, tmp_path):
    counts = np.arange(1, 1 + model_of(rng).spec.n_classes)
    model = model_of(rng, calibration=LISTED, label_counts=counts, n_rows=99)
    model = replace(model, training=replace(model.training, label_share="each"))
    model.save(tmp_path / "model")
    assert Model.load(tmp_path / "model").calibration == LISTED


def test_the_error_that_is_told_is_that_of_the_ten_best_labels(rng):
    ids, scores, lists = drawn(rng, 200)
    parts = [(ids[some], scores[some], lists.part(some.start, some.stop))
             for some in (slice(0, 80), slice(80, 200))]  # fmt: skip
    sums = summed(np.ones(50, np.int64), 9, parts, LISTED)
    p = label_probabilities(scores, LISTED)[:, :FIRST]
    right = lists.match(ids)[:, :FIRST]
    wanted = plain_ece(p.ravel().tolist(), right.ravel().tolist())
    assert sums.fields()["ece"] == pytest.approx(wanted)
