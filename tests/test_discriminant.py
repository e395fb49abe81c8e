"""Linear discriminant analysis against the textbook's formulas in plain NumPy."""

import numpy as np
import pytest

import streammach as sm
from streammach.parts.discriminant import class_sums as discriminant
from streammach.parts.discriminant.class_sums import RIDGE, Discriminant, label_ranks
from streammach.rows import dense
from streammach.rows.dense import expanded, parts
from streammach.rows.label_lists import LabelLists
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
    monkeypatch.setattr(dense, "PIECE_BYTES", 700)  # several pieces
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


def lists_by_the_book(x, rows, shares, n_classes, prior_rows):
    """The same where each row counts under its labels with shares."""
    x, d = x.astype(np.float64), x.shape[1]
    own = [[(i, w) for i, row in enumerate(rows) for c, w in zip(row, shares[i], strict=True)
            if c == y] for y in range(n_classes)]  # fmt: skip
    within, free = np.zeros((d, d)), 0.0
    total, sums = sum(x[i] * w for pairs in own for i, w in pairs), []
    for pairs in own:
        n = sum(w for _, w in pairs)
        sums.append((n, sum((w * x[i] for i, w in pairs), np.zeros(d))))
        for i, w in pairs:
            apart = x[i] - sums[-1][1] / n
            within += w * np.outer(apart, apart)
        free += n - sum(w * w for _, w in pairs) / n if n else 0
    mean = total / sum(n for n, _ in sums)
    within /= free
    within += RIDGE * np.trace(within) / d * np.eye(d)
    weights, bias = np.empty((d, n_classes)), np.empty(n_classes)
    for c, (n, of_class) in enumerate(sums):
        m = (of_class + prior_rows * mean) / (n + prior_rows) if n + prior_rows else mean
        weights[:, c] = np.linalg.solve(within, m)
        bias[c] = np.log(max(n, 0.5)) - m @ weights[:, c] / 2
    common = np.linalg.solve(within, mean)
    shift = np.log(sum(n for n, _ in sums)) - mean @ common / 2
    return weights, bias, common, shift


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("prior_rows", [0.0, 0.3])
def test_a_row_counts_under_each_of_its_labels_with_its_share(prior_rows, weighted, monkeypatch):
    monkeypatch.setattr(dense, "PIECE_BYTES", 700)
    monkeypatch.setattr(discriminant, "SOLVED", 3)
    rng = np.random.default_rng(1)
    rows = [sorted(rng.choice(6, int(n), replace=False).tolist()) for n in rng.integers(0, 4, 90)]
    x = rng.normal(size=(90, 5)) @ rng.normal(size=(5, 5))
    x += np.array([[sum(row), len(row), 0, 0, 1] for row in rows])
    x = x.astype(np.float32)
    lists = LabelLists.of(rows)
    if weighted:
        weights = rng.uniform(0.5, 3, lists.n_labels).astype(np.float32)
        lists = LabelLists(lists.starts, lists.classes, weights)
    block = dense_block(x).with_labels(lists)
    sums = Discriminant(np.full((7, 5), 9, np.float32))  # a class without rows
    sums.add(block.part(0, 40))
    sums.add(block.part(40, 90))
    shares = [lists.shares[a:b] for a, b in zip(lists.starts, lists.starts[1:], strict=False)]
    expected = lists_by_the_book(x, rows, shares, 7, prior_rows)
    weights = np.empty((5, 7), np.float32)
    bias = sums.solve(prior_rows, weights)
    np.testing.assert_allclose(weights, expected[0], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(bias, expected[1], rtol=2e-3, atol=2e-3)
    bias = sums.solve(prior_rows, weights, centred=True)
    np.testing.assert_allclose(weights, expected[0] - expected[2][:, None], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(bias, expected[1] - expected[3], rtol=2e-3, atol=2e-3)


def test_ranks_of_labels_are_their_places_in_a_sort():
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 6, (40, 12)).astype(np.float32)  # with ties
    lengths, ids = rng.integers(0, 5, 40).tolist(), np.arange(-1, 12)
    lists = LabelLists.of([rng.choice(ids, n, replace=False).tolist() for n in lengths])
    out = np.empty(lists.n_labels, np.int64)
    label_ranks(lists.starts, lists.classes, scores, out)
    places = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    expected = [12 if c < 0 else places[i, c]
                for i, c in zip(lists.rows, lists.classes, strict=True)]  # fmt: skip
    assert out.tolist() == expected


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
    found = list(parts(block, dense.PIECE_BYTES // 3))
    assert [part.n_rows for part in found] == [3] * 6 + [2]
    assert np.array_equal(np.concatenate([expanded(part, 2) for part in found]), x)


def test_rows_that_are_equal_within_each_class():
    x = np.hstack([np.eye(4)[np.arange(120) % 4][:, :3] + 0.1, np.zeros((120, 1))])
    model = sm.train(x, np.arange(120) % 4, memory="1GB", epochs=3).model
    assert (model.predict(x) == np.arange(120) % 4).all()
