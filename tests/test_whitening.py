"""Whitening: the basis against NumPy, and what is the same model in both."""

import tracemalloc

import numpy as np
import pytest

from streammach.parts.whitening import part as whitening
from streammach.parts.whitening.part import Spread
from streammach.rows import dense
from streammach.rows.dense import RowMap
from streammach.rows.label_lists import LabelLists
from tests.builders import dense_block


def stretched(rng, n, d, classes):
    """Rows around class means, stretched alike within all classes; labels."""
    stretch = rng.normal(size=(d, d)) * np.geomspace(5, 0.2, d)
    labels = rng.integers(0, classes, n)
    x = 3 + rng.normal(size=(classes, d))[labels] + rng.normal(size=(n, d)) @ stretch
    return x.astype(np.float32), labels


def power_of(covariance, exponent):
    values, vectors = np.linalg.eigh(covariance)
    return vectors @ np.diag(values**exponent) @ vectors.T


def basis_of(x, labels, pieces=1):
    spread = Spread(x.shape[1])
    for some in np.array_split(np.arange(len(x)), pieces):
        spread.add(dense_block(x[some], labels[some]))
    assert spread.n_rows == len(x)
    return spread, spread.make_map()


def within(x, rows):
    """The covariance of pairs of rows and labels, 1/n of each, around the means of the labels."""
    x, total, free = x.astype(np.float64), np.zeros((x.shape[1],) * 2), 0.0
    for c in range(max(max(row, default=-1) for row in rows) + 1):
        own = [i for i, row in enumerate(rows) if c in row]
        w = np.array([1 / len(rows[i]) for i in own])
        apart = x[own] - w @ x[own] / w.sum()
        total += (apart * w[:, None]).T @ apart
        free += w.sum() - (w**2).sum() / w.sum()
    return total / free


@pytest.mark.parametrize("most", [1, 4])
def test_the_basis_is_a_power_of_the_covariance_within_labels(most, rng, monkeypatch):
    """Of rows with one label each, and of lists, under each of whose labels a row has a share."""
    monkeypatch.setattr(whitening, "PIECE_BYTES", 1 << 16)  # pairs in several steps
    x, labels = stretched(rng, 4000, 6, 10)
    rows = [[c] for c in labels.tolist()]
    if most > 1:
        more = rng.integers(0, most, 4000).tolist()
        rows = [[*{*row, *rng.choice(10, n, replace=False)}] if n else [] for row, n in
                zip(rows, more, strict=True)]  # fmt: skip
    lists = dense_block(x).with_labels(LabelLists.of(rows))
    spread = Spread(6)
    spread.add(dense_block(x, labels) if most == 1 else lists)
    assert spread.enough
    covariance = within(x, rows)
    covariance += whitening.RIDGE * np.trace(covariance) / 6 * np.eye(6)
    expected = power_of(covariance, -whitening.POWER / 2)
    basis = spread.make_map()
    scale = basis.rotation[0, 0] / expected[0, 0]
    np.testing.assert_allclose(basis.rotation, scale * expected, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(basis.shift, x.mean(axis=0) @ basis.rotation, rtol=2e-3, atol=1e-4)


def test_whitened_rows_are_as_large_as_before(rng):
    x, labels = stretched(rng, 4000, 6, 10)
    _, basis = basis_of(x, labels)
    out = np.empty_like(x)
    basis.apply(x, out)
    sizes = [np.sqrt(np.mean(a.astype(np.float64) ** 2)) for a in (x, out)]
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-3)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-3)


def test_rows_in_pieces_give_nearly_the_same_basis(rng):
    x, labels = stretched(rng, 6000, 6, 10)
    whole, parts = (basis_of(x, labels, pieces)[1] for pieces in (1, 5))
    np.testing.assert_allclose(parts.rotation, whole.rotation, rtol=0.05, atol=0.01)


def test_where_classes_are_single_rows_all_rows_are_whitened(rng):
    x, _ = stretched(rng, 3000, 6, 10)
    spread, basis = basis_of(x, np.arange(3000))
    assert not spread.enough
    white = np.empty_like(x)
    basis.apply(x, white)
    spreads = [np.linalg.eigvalsh(np.cov(a.T)) for a in (x, white)]
    narrow, wide = (s[-1] / s[0] for s in reversed(spreads))
    assert narrow < wide ** (1 - whitening.POWER) * 2


def test_features_that_never_vary_do_not_matter(rng):
    x, labels = stretched(rng, 2000, 6, 10)
    x[:, 2] = 7.0
    _, basis = basis_of(x, labels)
    assert np.isfinite(basis.rotation).all()
    white = np.empty_like(x)
    basis.apply(x, white)
    assert np.abs(white).max() < 100


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("shape", [(3000, 150), (20_000, 12)])
def test_the_footprint_bounds_what_is_allocated(rng, shape, listed):
    x, labels = rng.normal(size=shape).astype(np.float32), rng.integers(0, 50, shape[0])
    block, of = dense_block(x, labels), (0, 0)
    if listed:
        lists = LabelLists.of([rng.choice(5000, n, replace=False) for n in labels % 7])
        block, of = block.with_labels(lists), (lists.n_labels, 6)
    tracemalloc.start()
    spread = Spread(shape[1])
    spread.add(block)
    basis = spread.make_map()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.isfinite(basis.rotation).all()
    assert peak <= whitening.footprint(shape[1], shape[0], of)


def test_weights_fold_back(rng, monkeypatch):
    monkeypatch.setattr(dense, "COLUMNS", 3)  # in pieces, the last one partial
    basis = RowMap(*(rng.normal(size=s).astype(np.float32) for s in ((5, 5), 5)))
    weights = rng.normal(size=(5, 8)).astype(np.float32)
    bias, x = rng.normal(size=8).astype(np.float32), rng.normal(size=(4, 5)).astype(np.float32)
    white = np.empty_like(x)
    basis.apply(x, white)
    expected = white @ weights + bias
    basis.unwhiten_weights(weights, bias)
    np.testing.assert_allclose(x @ weights + bias, expected, rtol=1e-4, atol=1e-4)
