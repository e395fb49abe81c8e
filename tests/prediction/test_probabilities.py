"""Calibrated probabilities of predictions: they add up, keep the order, and are those of a map."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.model.calibration import (
    CANDIDATES,
    Calibration,
    class_probabilities,
    label_probabilities,
    own_logs,
)
from streammach.prediction.predictor import Predictor
from streammach.system.errors import UsageError


def scores_of(rng, n, m, spread=3.0):
    """Scores of m classes, falling along each row."""
    return -np.sort(rng.exponential(spread, (n, m)), axis=1).astype(np.float32)


def plain_probabilities(scores, n_classes, calibration):
    """One row after another: exponentials, what is left, and the fewest classes levelled."""
    for row in scores.tolist():
        best = row[:CANDIDATES]
        parts = [np.exp(calibration.beta * s) for s in best]
        n_others = n_classes - len(best)
        other = np.exp(calibration.other) if n_others else 0.0
        total = sum(parts) + other
        p, left, pooled = [x / total for x in parts], other / total, n_others
        while n_others and p and p[-1] < left / pooled:
            left, pooled = left + p.pop(), pooled + 1
        level = left / pooled if pooled else 0.0
        yield [*p, *[level] * (n_classes - len(p))]


@pytest.mark.parametrize("n_classes", [1, 2, 31, 32, 33, 40, 1000])
@pytest.mark.parametrize("other", [-30.0, -3.0, 5.0])
def test_probabilities_are_those_of_plain_arithmetic(n_classes, other, rng):
    scores = scores_of(rng, 20, min(n_classes, 60))
    map_ = Calibration(0.8, other)
    p, others = class_probabilities(scores, n_classes, map_)
    wanted = np.array(list(plain_probabilities(scores, n_classes, map_)))
    np.testing.assert_allclose(p, wanted[:, : p.shape[1]], rtol=1e-10, atol=1e-300)
    total = p.sum(axis=1) + (n_classes - p.shape[1]) * others
    np.testing.assert_allclose(total, 1, rtol=1e-12)
    assert (np.diff(p, axis=1) <= 0).all()
    if n_classes > p.shape[1]:
        assert (p[:, -1] >= others).all()


def test_equal_scores_have_equal_probabilities_and_strange_ones_are_numbers():
    low = np.float32(-np.inf)
    scores = np.array([[2, 2, 1, 1], [low] * 4, [0, low, low, low], [3e38, 3e38, 0, low]])
    p, _ = class_probabilities(scores.astype(np.float32), 4, Calibration(1.5, -3.0))
    assert p[0, 0] == p[0, 1] > p[0, 2] == p[0, 3]
    assert p[1:].tolist() == [[0.25] * 4, [1, 0, 0, 0], [0.5, 0.5, 0, 0]]


def test_logarithms_are_those_of_the_probabilities(rng):
    scores, map_ = scores_of(rng, 50, 40), Calibration(0.8, -2.0)
    ids = np.array([rng.permutation(90)[:40] for _ in range(50)])
    classes = rng.integers(0, 90, 50).astype(np.int32)
    p, others = class_probabilities(scores, 90, map_)
    logs = own_logs(scores, ids == classes[:, None], 90, map_)
    for row, label in enumerate(classes):
        place = np.flatnonzero(ids[row] == label)
        own = p[row, place[0]] if len(place) else others[row]
        assert logs[row] == pytest.approx(np.log(own))
    assert 0 < (ids == classes[:, None]).any(axis=1).sum() < 50


def test_a_predictor_gives_them_in_place_of_scores(trained):
    data, model = trained
    rows = data.rows(0, 60)
    with Predictor(model) as predictor:
        labels, scores = predictor.topk(rows, 5)
        same, p = predictor.topk(rows, 5, probabilities=True)
        ids, everything = predictor.rank(rows, 1000, probabilities=True)
        best, _ = predictor.rank(rows, 1000)
        wanted, _ = class_probabilities(predictor.rank(rows, 32)[1], 20, model.calibration)
    assert labels.tolist() == same.tolist()
    assert (p.dtype, p.shape) == (np.float32, scores.shape)
    assert everything.shape == (60, 20)
    assert ids.tolist() == best.tolist()
    np.testing.assert_array_equal(p, everything[:, :5])
    np.testing.assert_array_equal(everything, wanted.astype(np.float32))
    np.testing.assert_allclose(everything.sum(axis=1), 1, rtol=1e-6)
    assert (np.diff(everything, axis=1) <= 0).all()


def test_probabilities_of_another_ranking_than_the_calibrated_one_are_refused(trained, tiny):
    data, model = trained
    rows, path = data.rows(0, 9), tiny.text("t.vw", tiny.lines(9, 20))
    with Predictor(model, estimator="mean") as predictor:
        for asked in (
            lambda: predictor.topk(rows, probabilities=True),
            lambda: next(predictor.stream(path, probabilities=True)),
        ):
            with pytest.raises(UsageError, match="those of the ranking logsum, not of mean"):
                asked()
        ids, _ = predictor.rank(rows, 3, "logsum", probabilities=True)
    with Predictor(model, estimator="logsum") as predictor:
        assert predictor.rank(rows, 3)[0].tolist() == ids.tolist()
        with pytest.raises(UsageError, match="not of min"):
            predictor.rank(rows, 3, "min", probabilities=True)
    with Predictor(replace(model, estimator="median")) as predictor:  # chosen in training
        found = predictor.rank(rows, 3, probabilities=True)[0]
        assert found.tolist() == ids.tolist()


def test_labels_of_lists_have_probabilities_of_their_own(trained):
    data, model = trained
    listed = replace(model, training=replace(model.training, label_share=0.2))
    rows = data.rows(0, 40)
    with Predictor(listed) as predictor:
        scores = predictor.rank(rows, 32)[1]
        _, p = predictor.rank(rows, 4, probabilities=True)
        likely, said = predictor.rank(rows, 4, threshold=0.0)
    wanted = label_probabilities(scores, model.calibration)[:, :4].astype(np.float32)
    assert p.tolist() == wanted.tolist() == said.tolist()
    assert (likely >= 0).all()


def test_without_rows_to_calibrate_on_a_score_of_lists_is_a_logarithm(rng):
    scores = scores_of(rng, 5, 6)
    scores[0, 0] = 0.5
    p = label_probabilities(scores, Calibration())
    np.testing.assert_allclose(p, np.minimum(np.exp(scores.astype(float)), 1))
