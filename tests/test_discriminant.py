"""Linear discriminant analysis against the textbook's formulas in plain NumPy."""

import numpy as np
import pytest

import streammach as sm
from streammach.parts.discriminant import class_sums as discriminant
from streammach.parts.discriminant.class_sums import RIDGE, Discriminant, label_ranks
from streammach.rows import dense
from streammach.rows.dense import expand_rows, parts
from streammach.rows.label_lists import LabelLists
from tests.builders import dense_block


def by_the_book(x, rows, shares, n_classes, prior_rows):
    """Weights (d, K) and bias (K,) where each row counts under its labels with shares, in float64.

    And the weights and the bias that all classes have in common.
    """
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


def solved(sums, prior_rows, **how):
    weights = np.empty((5, 7), np.float32)
    return weights, sums.solve(prior_rows, weights, **how)


def alike(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("of", ["one label", "lists", "weighted lists"])
@pytest.mark.parametrize("prior_rows", [0.0, 0.3, 2.0])
def test_weights_are_those_of_the_formulas(prior_rows, of, monkeypatch):
    monkeypatch.setattr(dense, "PIECE_BYTES", 700)  # several pieces
    monkeypatch.setattr(discriminant, "SOLVED", 3)
    rng = np.random.default_rng(1)
    lengths = np.ones(90, int) if of == "one label" else rng.integers(0, 4, 90)
    rows = [sorted(rng.choice(6, int(n), replace=False).tolist()) for n in lengths]
    x = rng.normal(size=(90, 5)) @ rng.normal(size=(5, 5))
    x += np.array([[sum(row), len(row), 0, 0, 1] for row in rows])
    x, lists = x.astype(np.float32), LabelLists.of(rows)
    if of == "weighted lists":
        weights = rng.uniform(0.5, 3, lists.n_labels).astype(np.float32)
        lists = LabelLists(lists.starts, lists.classes, weights)
    block = dense_block(x).with_labels(lists)
    if of == "one label":
        block = dense_block(x, lists.classes)
    sums = Discriminant(np.full((7, 5), 9, np.float32))  # a class without rows
    sums.add(block.part(0, 40))
    sums.add(block.part(40, 90))
    shares = [lists.shares[a:b] for a, b in zip(lists.starts, lists.starts[1:], strict=False)]
    weights, bias, common, shift = by_the_book(x, rows, shares, 7, prior_rows)
    alike(solved(sums, prior_rows), (weights, bias))
    alike(solved(sums, prior_rows, centred=True), (weights - common[:, None], bias - shift))


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
    assert np.array_equal(np.concatenate([expand_rows(part, 2) for part in found]), x)


def test_rows_that_are_equal_within_each_class():
    x = np.hstack([np.eye(4)[np.arange(120) % 4][:, :3] + 0.1, np.zeros((120, 1))])
    model = sm.train(x, np.arange(120) % 4, memory="1GB", epochs=3).model
    assert (model.predict(x) == np.arange(120) % 4).all()
