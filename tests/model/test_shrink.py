"""Smaller models: what is dropped, what stays as it was, and how large the result is."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

import streammach as sm
from streammach.model import coding, loading
from streammach.model import shrink as shrink_module
from streammach.model.model import Model
from streammach.model.shrink import (
    LARGEST,
    PAIR_BYTES,
    UNIT,
    ShrinkTarget,
    Size,
    frequent,
    of_features,
    pairs_of,
    rounded_gains,
    shrink,
    shrink_to,
    spare_after,
    weights_as,
)
from streammach.rows import pairs as pairs_module
from streammach.rows.block import RowBlock
from streammach.rows.layouts import ends
from streammach.rows.packed import PackedCounts
from streammach.rows.pairs import CountWeights
from streammach.rows.quantize import nth_largest, numbers_of, round_rows
from streammach.system.errors import BudgetError, ModelError, UsageError
from streammach.training.model_form import ModelForm, _apply_form
from tests.builders import block_of
from tests.model.models import counts_of, model_of
from tests.reference import rounding

D, K, B, R = 40, 30, 8, 5
ALL = 10**9


@pytest.fixture
def model(rng):
    table = rng.integers(-5, 2000, (D, K)) * (rng.random((D, K)) < 0.3)
    wide = np.array([3, 17])
    listed = [np.flatnonzero(table[f] * (f not in wide)) for f in range(D)]
    wide_of = np.full(D, -1, np.int32)
    wide_of[wide] = [1, 0]
    counts = CountWeights(
        starts=ends([len(c) for c in listed]), classes=np.concatenate(listed).astype(np.int32),
        gains=np.concatenate([table[f, c] for f, c in enumerate(listed)]).astype(np.int16),
        wide_of=wide_of, wide=table[[17, 3]].astype(np.int16),
        penalty=rng.random(D).astype(np.float32), base=rng.normal(size=K).astype(np.float32),
        log_values=rng.random(K).astype(np.float32), hashed=2.0,
    )  # fmt: skip
    weights = rng.normal(size=(D, B * R)).astype(np.float32)
    weights[7] = 0
    bias = rng.normal(size=B * R).astype(np.float32)
    return model_of(rng, D, K, B, R, weights=weights, bias=bias, counts=counts), table


@pytest.fixture
def large(rng):
    """A model whose arrays are large beside its document."""
    counts = counts_of(rng, 400, 300, longest=12, n_wide=0)
    gains = rng.integers(-999, 3000, len(counts.gains)).astype(np.int16)
    return model_of(rng, 400, 300, 16, R, counts=dataclasses.replace(counts, gains=gains))


def dense_gains_of(model):
    """The gains of every feature and class."""
    return dense_gains(model.counts, model.spec.n_features, model.spec.n_classes)


def dense_gains(counts, d=D, n_classes=K):
    out = np.zeros((d, n_classes), int)
    for f in range(d):
        if counts.wide_of[f] >= 0:
            out[f] = counts.wide[counts.wide_of[f]]
        a, b = counts.starts[f : f + 2]
        out[f, counts.classes[a:b]] = counts.gains[a:b]
    return out


def topk(model, block, k=K):
    with sm.Predictor(model, threads=1) as predictor:
        return predictor.rank(block, k)


@pytest.mark.parametrize(("stored", "levels"), [("int8", 127), ("int4", 7)])
def test_narrow_weights_are_near_the_others(model, rng, stored, levels):
    whole, _ = model
    small = shrink(whole, Size(stored, R, ALL))
    assert small.weights.dtype == np.int8
    back = small.weights * small.scale[:, None]
    assert (np.abs(back - whole.weights) <= 0.5001 * small.scale[:, None]).all()
    largest = np.abs(whole.weights).max(axis=1)
    used = largest > 0
    assert (small.scale >= largest / levels)[used].all()
    assert (small.scale <= largest / levels * (1 + 2**-7))[used].all()
    assert levels - 1 <= np.abs(small.weights).max() <= levels
    assert not (small.scale.view(np.uint32) & 0xFFFF).any()
    block = block_of(rng, 30, D, K)
    floats = dataclasses.replace(small, weights=back.astype(np.float32), scale=None)
    for name in ("logsum", "mean"):
        expected, got = (
            np.sort(topk(dataclasses.replace(m, estimator=name), block)[1], axis=1)
            for m in (floats, small)
        )
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_the_smallest_and_largest_weights_stay_finite(rng):
    weights = rng.normal(size=(9, 70)).astype(np.float32)
    weights[:3] = 0
    weights[0, 0], weights[1, :2] = 1e-45, (3e38, -3e38)
    for levels in (7, 127):
        numbers, scale = round_rows(weights, levels)
        expected = rounding.whole_numbers(weights, levels)
        assert numbers.tobytes() == expected[0].tobytes()
        assert scale.tobytes() == expected[1].tobytes()
        assert np.isfinite(scale).all()
        assert (scale > 0).all()
        assert numbers[1, :3].tolist() == [-numbers[1, 1], numbers[1, 1], 0]
        assert np.abs(numbers[1]).max() >= levels - 1


def test_float16_weights_are_the_nearest(model):
    whole, _ = model
    large = dataclasses.replace(whole, weights=whole.weights * np.float32(1e5))
    for one in (whole, large):
        small = shrink(one, Size("float16", R, ALL))
        assert small.weights.dtype == np.float32
        expected = one.weights.clip(-65504, 65504).astype(np.float16)
        assert np.array_equal(small.weights, expected)


def test_float10_weights_are_the_nearest_with_four_bits(model):
    whole, _ = model
    for scale in (1, 1e5, 1e-3):
        one = dataclasses.replace(whole, weights=whole.weights * np.float32(scale))
        small = shrink(one, Size("float10", R, ALL))
        assert (small.stored, small.weights.dtype) == ("float16", np.float32)
        mantissa, exponent = np.frexp(one.weights.clip(-63488, 63488).astype(np.float16))
        nearest = np.ldexp(np.rint(mantissa * 32) / 32, exponent)  # 1 and 4 bits
        normal = np.abs(one.weights) >= 2.0**-14
        error = np.abs(small.weights - one.weights.clip(-63488, 63488))
        assert (error <= np.maximum(np.abs(one.weights) / 32, 2.0**-19)).all()
        halfway = np.abs(mantissa * 32 % 1 - 0.5) < 1e-6
        assert np.array_equal(small.weights[normal & ~halfway], nearest[normal & ~halfway])


@pytest.mark.parametrize("stored", ["int8", "int4"])
def test_gains_beside_narrow_weights_are_rounded(model, stored):
    whole, table = model
    gains = dense_gains(shrink(whole, Size(stored, R, ALL)).counts)
    assert np.array_equal(gains, np.rint(table / UNIT) * UNIT)
    assert not (gains % UNIT).any()


def test_the_largest_gains_are_rounded_within_their_type(rng):
    nothing = np.zeros(4, np.float32)
    counts = CountWeights(
        starts=np.array([0, 3]), classes=np.arange(3, dtype=np.int32),
        gains=np.array([32767, -32767, 15], np.int16), wide_of=np.array([-1], np.int32),
        wide=np.zeros((0, 4), np.int16), penalty=nothing[:1], base=nothing, log_values=nothing,
        hashed=1.0,
    )  # fmt: skip
    pairs = pairs_of(model_of(rng, 1, 4, counts=counts), "int8")
    assert pairs.gains.tolist() == [32736, -32736]
    assert pairs.largest(9).starts.tolist() == [0, 0]  # two of four classes stand in a table


def test_the_first_repetitions_stay_as_they_were(model, rng):
    whole, _ = model
    small = shrink(whole, Size("float32", 2, ALL))
    assert np.array_equal(small.weights, whole.weights[:, : 2 * B])
    assert np.array_equal(small.bias, whole.bias[: 2 * B])
    assert small.spec.hash_a == whole.spec.hash_a[:2]
    assert small.hashed_weight == pytest.approx(whole.hashed_weight * (2 / R) ** 0.25)
    assert topk(small, block_of(rng, 5, D, K))[0].shape == (5, K)


@pytest.mark.parametrize("n_pairs", [0, 1, 50, 200, ALL])
def test_the_pairs_of_the_largest_gains_stay(model, n_pairs):
    whole, table = model
    small = shrink(whole, Size("float32", R, n_pairs))
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
    small = shrink(whole, Size("float32", R, ALL))
    for a, b in zip(topk(whole, block), topk(small, block), strict=True):
        assert np.array_equal(a, b)


def test_a_small_model_comes_back_as_it_was_saved(model, tmp_path, rng):
    whole, _ = model
    small = shrink(whole, Size("int8", 3, 100))
    small.save(tmp_path / "small")
    again = Model.load(tmp_path / "small")
    block = block_of(rng, 10, D, K)
    for a, b in zip(topk(small, block), topk(again, block), strict=True):
        assert np.array_equal(a, b)
    assert again.n_bytes <= 1.3 * small.n_bytes  # numbers of chance take more than a byte packed
    assert again.stored == "int8"


def test_a_small_model_becomes_smaller_and_never_wider(model, rng):
    whole, _ = model
    small = shrink(whole, Size("int8", 3, 100))
    least = shrink(small, Size("int4", 2, 50))
    assert (least.stored, least.spec.n_repetitions, least.n_pairs) == ("int4", 2, 50)
    assert np.abs(least.weights).max() == 7
    back = least.weights * least.scale[:, None]
    before = (small.weights * small.scale[:, None])[:, : 2 * B]
    assert (np.abs(back - before) <= 0.5001 * least.scale[:, None]).all()
    same = shrink(small, Size("int8", 2, ALL))
    assert np.array_equal(same.weights, small.weights[:, : 2 * B])
    assert not np.shares_memory(same.weights, small.weights)
    assert same.hashed_weight == pytest.approx(whole.hashed_weight * (2 / R) ** 0.25)
    assert topk(least, block_of(rng, 5, D, K))[0].shape == (5, K)
    for wider in ("float32", "float16"):
        with pytest.raises(
            UsageError, match="has int8 weights, which do not become wider"
        ) as error:
            shrink(small, Size(wider, 3, ALL))
        assert "full" in error.value.hint
    with pytest.raises(UsageError, match="do not become wider"):
        shrink_to(least, 10**9, ShrinkTarget("int8"))
    fewer = shrink_to(small, int(0.9 * small.file_bytes()))
    assert fewer.file_bytes() <= 0.9 * small.file_bytes()
    kept = frequent(small, np.arange(D), 10)
    assert np.array_equal(kept.scale, small.scale[10:])


@pytest.mark.parametrize("stored", ["float32", "float16", "float10", "int8", "int4"])
def test_weights_written_over_the_others_are_those_of_a_copy(model, stored, monkeypatch):
    whole, _ = model
    expected = shrink(of_features(whole, np.arange(D) % 3 > 0), Size(stored, 3, 100))
    monkeypatch.setattr(shrink_module, "PIECE_BYTES", 500)  # three rows
    weights = whole.weights.copy()
    over = dataclasses.replace(whole, weights=weights)
    kept = of_features(over, np.arange(D) % 3 > 0, in_place=True)
    found = shrink(kept, Size(stored, 3, 100), in_place=True, threads=3)
    for name, array in expected.arrays().items():
        assert np.array_equal(array, found.arrays()[name]), name
    assert np.shares_memory(found.weights, weights)
    spare = spare_after(over, found)
    assert not np.shares_memory(spare, found.weights)
    assert len(spare) > 0


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3])
def test_a_model_that_is_fitted_over_itself_is_that_of_a_copy(large, share):
    room = int(large.file_bytes() * share)
    expected = shrink_to(large, room)
    found = shrink_to(dataclasses.replace(large, weights=large.weights.copy()), room, in_place=True)
    assert found.file_bytes() == expected.file_bytes() <= room
    for name, array in expected.arrays().items():
        assert np.array_equal(array, found.arrays()[name]), name
    with pytest.raises(BudgetError):
        shrink_to(large, 100)
    least = shrink_to(dataclasses.replace(large, weights=large.weights.copy()), 100, in_place=True)
    assert (least.stored, least.spec.n_repetitions, least.n_pairs) == ("int4", 1, 0)


@pytest.mark.parametrize("n", [0, 1, 7, 500, 999, 1000])
def test_the_nth_largest_gain_is_found(rng, n):
    gains = rng.integers(-32768, 32768, 1000).astype(np.int16)
    gains[:3] = 32767, -32768, 0
    ordered = np.sort(gains)[::-1]
    assert nth_largest(numbers_of([gains[:300], gains[300:]]), n) == ordered[max(n - 1, 0)]


def test_weights_without_their_scale_are_refused(model, tmp_path):
    small = shrink(model[0], Size("int8", R, ALL))
    dataclasses.replace(small, scale=None).save(tmp_path / "a")
    with pytest.raises(ModelError, match="has not the arrays that it should: scale"):
        Model.load(tmp_path / "a")


@pytest.mark.parametrize("stored", [None, "float32", "float16", "float10", "int8", "int4"])
@pytest.mark.parametrize("share", [0.99, 0.8, 0.6, 0.5])
def test_a_model_fits_its_bytes(large, share, stored, tmp_path):
    wanted = int(large.file_bytes() * share)
    small = shrink_to(large, wanted, ShrinkTarget(stored))
    small.save(tmp_path / "m")
    assert sum(file.stat().st_size for file in (tmp_path / "m").iterdir()) <= wanted
    expected = "float16" if stored == "float10" else stored
    assert small.stored == expected or (stored is None and small.stored in ("int8", "int4"))
    assert small.n_pairs > 0


def test_everything_stays_where_it_fits(large):
    assert shrink_to(large, large.file_bytes()) is large
    every = int((np.abs(dense_gains_of(large)) > UNIT / 2).sum())
    for stored in ("int8", "int4"):
        whole = shrink(large, Size(stored, R, ALL))
        found = shrink_to(large, whole.file_bytes() + 2000, ShrinkTarget(stored))
        assert (found.spec.n_repetitions, found.n_pairs) == (R, whole.n_pairs)
        assert every - whole.n_pairs in range(-5, 6)  # gains just half a unit


def test_what_is_asked_for_is_kept(large):
    room = int(0.7 * large.file_bytes())
    found = shrink_to(large, room, ShrinkTarget("int8", 2, 70))
    assert (found.stored, found.spec.n_repetitions, found.n_pairs) == ("int8", 2, 70)
    assert shrink_to(large, room, ShrinkTarget(n_repetitions=3)).spec.n_repetitions == 3
    assert shrink_to(large, room, ShrinkTarget(n_pairs=0)).n_pairs == 0
    bytes_ = shrink(large, Size("int4", 4, 0)).file_bytes()
    with pytest.raises(BudgetError, match="the smallest model that can be made has"):
        shrink_to(large, bytes_ - 100, ShrinkTarget(n_repetitions=4))
    assert shrink_to(large, bytes_ + 100, ShrinkTarget(n_repetitions=4)).spec.n_repetitions == 4


def test_a_dense_model_has_float_weights(large):
    dense = dataclasses.replace(large, dense=True, counts=None, estimator="logsum")
    sizes = [shrink(dense, Size(w, R, 0)).file_bytes() for w in ("float16", "float10")]
    found = [shrink_to(dense, size + 2000) for size in sizes]
    assert [one.stored for one in found] == ["float16", "float16"]
    low_bits = [(one.weights.astype(np.float16).view(np.uint16) & 63).any() for one in found]
    assert low_bits == [True, False]
    with pytest.raises(UsageError, match="float32, float16 or float10 weights: weights int8"):
        shrink_to(dense, 10**6, ShrinkTarget("int8"))


def test_what_cannot_be_kept_is_refused(model):
    whole, _ = model
    with pytest.raises(BudgetError, match="the smallest model that can be made has"):
        shrink_to(whole, 1000)
    with pytest.raises(UsageError, match="the model has 5 repetitions: n_repetitions 6"):
        shrink(whole, Size("float32", 6, ALL))
    with pytest.raises(UsageError, match="the model has 5 repetitions: n_repetitions 0"):
        shrink_to(whole, 10**6, ShrinkTarget(n_repetitions=0))
    with pytest.raises(UsageError, match="float32, float16 or float10 weights"):
        shrink(dataclasses.replace(whole, dense=True), Size("int8", R, ALL))


def test_rare_features_are_left_out(model, rng):
    whole, table = model
    rows = rng.integers(0, 9, D)
    rows[[3, 17]] = 9, 0  # of the two wide ones
    kept = np.flatnonzero(rows >= 4)
    small = frequent(whole, rows, 4)
    assert small.spec.n_features == len(small.features) == len(kept)
    assert [small.features.raw(i) for i in range(len(kept))] == [
        whole.features.raw(i) for i in kept
    ]
    assert np.array_equal(small.weights, whole.weights[kept])
    assert np.array_equal(small.counts.penalty, whole.counts.penalty[kept])
    assert np.array_equal(dense_gains_of(small), table[kept])
    block = block_of(rng, 20, len(kept), K)
    wide = dataclasses.replace(block, features=kept[block.features].astype(np.int32))
    for a, b in zip(topk(small, block), topk(whole, wide), strict=True):
        assert np.array_equal(a, b)
    assert frequent(whole, rows, 0).spec.n_features == D
    with pytest.raises(UsageError, match="no feature occurs in 10 rows: min_count 10"):
        frequent(whole, rows, 10)


def test_rows_without_features_are_ranked_too(model):
    nothing = np.zeros(0, np.int32)
    row = RowBlock(
        indptr=np.zeros(2, np.int64), features=nothing, values=np.zeros(0, np.float32),
        classes=np.array([0], np.int32),
    )  # fmt: skip
    small = shrink(model[0], Size("int8", R, 10))
    ids, _ = topk(small, row)
    assert sorted(ids[0].tolist()) == list(range(K))


@pytest.mark.parametrize("how", ["form", "features", "bytes"])
def test_pairs_become_fewer_within_their_bytes(rng, monkeypatch, how):
    """Beside the pairs of a model, which stay, those of PAIR_BYTES are enough."""
    monkeypatch.setattr(pairs_module, "PIECE_PAIRS", 1 << 12)
    monkeypatch.setattr(coding, "PIECE_WORDS", 1 << 12)
    d, k = 2000, 900
    counts = counts_of(rng, d, k, longest=400, n_wide=50)
    large = model_of(rng, d, k, n_repetitions=1, n_buckets=2, counts=counts)
    rows = np.where(np.arange(d) % 9 == 0, 1, 9) if how == "features" else np.full(d, 9)
    tracemalloc.start()
    try:
        if how == "bytes":
            small = shrink_to(large, 600_000, in_place=True)
        else:
            form = ModelForm(weights="int4", n_repetitions=1, least_rows=2, least_gain=960)
            small = _apply_form(large, form, rows, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < small.n_pairs < large.n_pairs
    assert peak <= PAIR_BYTES * large.n_pairs + 1_500_000


def test_counts_are_packed_where_that_saves_much_and_predict_the_same(large, tmp_path, monkeypatch):
    shrink(large, Size("int4", R, ALL)).save(tmp_path / "model")
    rows, found = [{f"f{i}": 1.0 for i in range(j, 400, 7)} for j in range(9)], []
    for least, kind in ((-(1 << 30), PackedCounts), (loading.LEAST_SAVED, CountWeights)):
        monkeypatch.setattr(loading, "LEAST_SAVED", least)
        one = Model.load(tmp_path / "model")
        assert type(one.counts) is kind
        found.append([answer.tolist() for answer in one.predict_topk(rows, 5)])
    assert found[0] == found[1]


def test_gains_are_rounded_to_the_nearest_unit():
    gains = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    expected = (np.rint(gains / np.float32(UNIT)) * UNIT).clip(-LARGEST, LARGEST)
    assert rounded_gains(gains).tolist() == expected.tolist()
    assert rounded_gains(gains.reshape(2, -1), gains.reshape(2, -1)).tolist() == [
        expected[: 1 << 15].tolist(), expected[1 << 15 :].tolist(),
    ]  # fmt: skip
    assert gains.tolist() == expected.tolist()


@pytest.mark.parametrize("stored", ["float16", "float10"])
def test_halves_are_rounded_as_numpy_rounds_them(stored):
    """All of them, what is beside them, and what is between two."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = np.sort(every[np.isfinite(every)])
    beside = [np.nextafter(every, np.float32(way)) for way in (-1e9, 1e9)]
    weights = np.concatenate([every, *beside, (every[1:] + every[:-1]) / 2])[None]
    for given in (weights, np.repeat(weights, 2, axis=1)[:, ::2]):
        found, scale = weights_as(stored, given)
        assert scale is None
        assert found.tobytes() == rounding.halves(weights, short=stored == "float10").tobytes()
