"""Smaller models: what is dropped, what stays as it was, and how large the result is."""

import dataclasses

import numpy as np
import pytest

import streammach as sm
from streammach.errors import BudgetError, ModelError, UsageError
from streammach.model.model import Calibration, Model
from streammach.model.shrink import Size, shrink, size_for
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from tests.builders import block_of, spec_of, training

D, K, B, R = 40, 30, 8, 5
ALL = 10**9


@pytest.fixture
def model(rng):
    """A model with counts, two features of which have gains for all classes."""
    table = rng.integers(-5, 2000, (D, K)) * (rng.random((D, K)) < 0.3)
    wide = np.array([3, 17])
    listed = [np.flatnonzero(table[f]) if f not in wide else [] for f in range(D)]
    wide_of = np.full(D, -1, np.int32)
    wide_of[wide] = [1, 0]
    counts = {
        "starts": np.concatenate([[0], np.cumsum([len(c) for c in listed])]),
        "classes": np.concatenate([*listed]).astype(np.int32),
        "gains": np.concatenate([table[f, c] for f, c in enumerate(listed) if len(c)]).astype(
            np.int16
        ),
        "wide_of": wide_of,
        "wide": table[[17, 3]].astype(np.int16),
        "penalty": rng.random(D).astype(np.float32),
        "base": rng.normal(size=K).astype(np.float32),
        "log_values": rng.random(K).astype(np.float32),
    }
    weights = rng.normal(size=(D, B * R)).astype(np.float32)
    weights[7] = 0
    return Model(
        spec_of(K, D, B, R), training(), False, "blend", Calibration(), "digest", 2, {},
        Names.of([f"label {i}" for i in range(K)]), Names.of([f"f{i}" for i in range(D)]),
        weights, rng.normal(size=B * R).astype(np.float32), counts, 2.0,
    ), table  # fmt: skip


def dense_gains(counts):
    """The gains of every feature and class."""
    out = np.zeros((D, K), int)
    for f in range(D):
        if counts["wide_of"][f] >= 0:
            out[f] = counts["wide"][counts["wide_of"][f]]
        a, b = counts["starts"][f : f + 2]
        out[f, counts["classes"][a:b]] = counts["gains"][a:b]
    return out


def topk(model, block, k=K):
    with sm.Predictor(model, threads=1) as predictor:
        return predictor.topk_ids(block, k)


def test_narrow_weights_are_near_the_others(model, rng):
    whole, _ = model
    small = shrink(whole, Size(True, R, ALL))
    assert small.weights.dtype == np.int8
    back = small.weights * small.scale[:, None]
    assert (np.abs(back - whole.weights) <= 0.5001 * small.scale[:, None]).all()
    assert np.abs(small.weights).max() == 127
    block = block_of(rng, 30, D, K)
    floats = dataclasses.replace(small, weights=back.astype(np.float32), scale=None)
    for name in ("logsum", "mean"):
        expected, got = (
            np.sort(topk(dataclasses.replace(m, estimator=name), block)[1], axis=1)
            for m in (floats, small)
        )
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_the_first_repetitions_stay_as_they_were(model, rng):
    whole, _ = model
    small = shrink(whole, Size(False, 2, ALL))
    assert np.array_equal(small.weights, whole.weights[:, : 2 * B])
    assert np.array_equal(small.bias, whole.bias[: 2 * B])
    assert small.spec.hash_a == whole.spec.hash_a[:2]
    assert small.hashed_weight == pytest.approx(whole.hashed_weight * (2 / R) ** 0.25)
    assert topk(small, block_of(rng, 5, D, K))[0].shape == (5, K)


@pytest.mark.parametrize("n_pairs", [0, 1, 50, 200, ALL])
def test_the_pairs_of_the_largest_gains_stay(model, n_pairs):
    whole, table = model
    small = shrink(whole, Size(False, R, n_pairs))
    gains = dense_gains(small.counts)
    assert small.n_pairs == min(n_pairs, whole.n_pairs)
    kept = gains != 0
    assert np.array_equal(gains[kept], table[kept])
    left_out = table[~kept & (table != 0)]
    if kept.any() and len(left_out):
        assert gains[kept].min() >= left_out.max()


def test_all_pairs_give_the_same_scores(model, rng):
    whole, _ = model
    block = block_of(rng, 20, D, K)
    small = shrink(whole, Size(False, R, ALL))
    for a, b in zip(topk(whole, block), topk(small, block), strict=True):
        assert np.array_equal(a, b)


def test_a_small_model_comes_back_as_it_was_saved(model, tmp_path, rng):
    whole, _ = model
    small = shrink(whole, Size(True, 3, 100))
    small.save(tmp_path / "small")
    again = Model.load(tmp_path / "small")
    block = block_of(rng, 10, D, K)
    for a, b in zip(topk(small, block), topk(again, block), strict=True):
        assert np.array_equal(a, b)
    assert again.n_bytes == small.n_bytes
    with pytest.raises(UsageError, match="shrunk one"):
        shrink(again, Size(True, 1, 1))


def test_weights_without_their_scale_are_refused(model, tmp_path):
    small = shrink(model[0], Size(True, R, ALL))
    dataclasses.replace(small, scale=None).save(tmp_path / "a")
    with pytest.raises(ModelError, match="weights has the wrong shape or type"):
        Model.load(tmp_path / "a")


@pytest.mark.parametrize("share", [0.99, 0.7, 0.5, 0.4])
def test_a_model_fits_its_bytes(model, share):
    whole, _ = model
    wanted = int(whole.n_bytes * share)
    small = shrink(whole, size_for(whole, wanted))
    assert small.n_bytes <= wanted
    assert small.scale is not None


def test_what_cannot_be_kept_is_refused(model):
    whole, _ = model
    assert size_for(whole, whole.n_bytes) == Size(False, R, whole.n_pairs)
    with pytest.raises(BudgetError, match="the smallest model with one repetition has"):
        size_for(whole, 1000)
    with pytest.raises(UsageError, match="the model has 5 repetitions"):
        shrink(whole, Size(True, 6, ALL))
    with pytest.raises(UsageError, match="float32 weights"):
        shrink(dataclasses.replace(whole, dense=True), Size(True, R, ALL))


def test_rows_without_features_are_ranked_too(model):
    nothing = np.zeros(0, np.int32)
    row = RowBlock(np.zeros(2, np.int64), nothing, np.zeros(0, np.float32), np.array([0], np.int32))
    small = shrink(model[0], Size(True, R, 10))
    ids, _ = topk(small, row)
    assert sorted(ids[0].tolist()) == list(range(K))
