"""The best classes by bounds, held to all scores in plain NumPy, bit for bit."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from streammach.counts.class_scores import HashedScores
from streammach.counts.scores import CountScorer
from streammach.rows.block import RowBlock
from streammach.rows.packed import PackedCounts
from tests.builders import block_of
from tests.model.models import counts_of
from tests.reference.counts import blended_scores

D = 40


def counts(rng, n_classes, n_wide, *, levels=2000, hashed=0.7):
    """Random weights of many classes: some features in `wide`, some with no pair at all."""
    found = counts_of(rng, D, n_classes, n_wide=n_wide, longest=n_classes // 2 + 1)
    gains = rng.integers(-levels, 4 * levels, len(found.gains)).astype(np.int16)
    wide = rng.integers(0, 3, found.wide.shape) * rng.integers(0, levels, found.wide.shape)
    return replace(
        found, gains=gains, wide=wide.astype(np.int16), hashed=hashed,
        penalty=rng.normal(size=D).astype(np.float32),
        base=rng.normal(size=n_classes).astype(np.float32),
        log_values=rng.uniform(-1, 4, n_classes).astype(np.float32),
    )  # fmt: skip


def hashed_of(rng, n, n_classes, n_buckets, n_repetitions, levels=1000):
    logs = np.log(rng.integers(1, levels + 1, (n, n_buckets * n_repetitions)) / levels)
    codes = rng.integers(0, n_buckets, n_classes * n_repetitions)
    kind = np.uint8 if n_buckets <= 256 else np.uint16
    return HashedScores(logs.astype(np.float32), codes.astype(kind), n_buckets, n_repetitions)


def held(found, rows, weights, hashed, k):
    """Compare ids and bits of scores with those of all classes."""
    ids, reached = found
    expected = blended_scores(rows, weights, hashed)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    assert ids.tolist() == order.tolist()
    wanted = np.take_along_axis(expected, order, axis=1)
    assert reached.view(np.int32).tolist() == wanted.view(np.int32).tolist()


@pytest.mark.parametrize("n_classes", [1, 63, 64, 65, 700])
@pytest.mark.parametrize("n_wide", [0, 4])
def test_counts_alone(rng, n_classes, n_wide):
    weights = counts(rng, n_classes, n_wide)
    rows = block_of(rng, 25, D, n_classes, most=20)
    for one in (weights, PackedCounts.of(weights, 1)):
        scorer = CountScorer(one, 2)
        for k in (1, 5, 100, n_classes):
            held(scorer.topk(rows, k), rows, weights, None, min(k, n_classes))
        scorer.close()


@pytest.mark.parametrize(
    ("n_buckets", "n_repetitions"), [(3, 1), (64, 5), (128, 3), (200, 4), (300, 2)]
)
@pytest.mark.parametrize("weight", [0.0, 0.5, 40.0])
@pytest.mark.parametrize("levels", [2, 1000])  # few levels: many ties
def test_counts_beside_hashes(rng, n_buckets, n_repetitions, weight, levels):
    weights = counts(rng, 500, 3, levels=levels, hashed=weight)
    rows = block_of(rng, 20, D, 500, most=20)
    hashed = hashed_of(rng, 20, 500, n_buckets, n_repetitions, levels)
    scorer = CountScorer(weights, 1)
    for k in (1, 5, 100, 500):
        held(scorer.topk(rows, k, hashed), rows, weights, hashed, k)
    scorer.close()


def test_rows_without_values_and_with_one(rng):
    weights = counts(rng, 300, 2)
    rows = RowBlock(
        indptr=np.array([0, 0, 1]), features=np.array([7], np.int32),
        values=np.ones(1, np.float32), classes=np.zeros(2, np.int32),
    )  # fmt: skip
    scorer = CountScorer(weights, 1)
    held(scorer.topk(rows, 5), rows, weights, None, 5)
    assert scorer.topk(rows.part(0, 0), 5)[0].shape == (0, 5)
    scorer.close()


def test_a_row_is_ranked_alone_on_any_thread_as_it_is_among_others(rng):
    weights = counts(rng, 700, 3)
    rows, hashed = block_of(rng, 40, D, 700, most=20), hashed_of(rng, 40, 700, 64, 4)
    scorer = CountScorer(weights, 2)
    ids, reached = scorer.topk(rows, 7, hashed)
    fresh = CountScorer(weights, 1)  # whose tables are made by whichever thread comes first

    def own(i):
        return fresh.topk(rows.part(i, i + 1), 7, hashed._replace(logs=hashed.logs[i : i + 1]))

    with ThreadPoolExecutor(4) as pool:
        for i, found in enumerate(pool.map(own, list(range(40)) * 5)):
            assert found[0].tobytes() == ids[i % 40].tobytes()
            assert found[1].tobytes() == reached[i % 40].tobytes()
    for one in (scorer, fresh):
        one.close()


def test_arrays_that_cannot_be_written_serve(rng):
    weights = counts(rng, 300, 2)
    rows = block_of(rng, 5, D, 300)
    for array in (*weights.arrays().values(), rows.indptr, rows.features):
        array.flags.writeable = False
    scorer = CountScorer(weights, 1)
    held(scorer.topk(rows, 3), rows, weights, None, 3)
    scorer.close()


def test_scores_that_are_no_numbers_have_no_class(rng):
    weights = counts(rng, 200, 0)
    weights.base[:] = np.nan
    scorer = CountScorer(weights, 1)
    for k in (4, 200):
        assert (scorer.topk(block_of(rng, 3, D, 200), k)[0] == -1).all()
    scorer.close()


def test_tables_and_scratch_are_what_the_footprint_says(rng):
    weights, hashed = counts(rng, 700, 3), hashed_of(rng, 1, 700, 64, 4)
    scorer = CountScorer(weights, 1)
    scorer.topk(block_of(rng, 1, D, 700), 7, hashed)
    n_bytes = sum(a.nbytes for some in (scorer._lists[-4:], scorer._scratch.room) for a in some)
    most = CountScorer.footprint(700, 3, 4, 1)
    assert n_bytes <= most + 8
    scorer.close()


def test_sums_beyond_int16_beside_smaller_ones(rng):
    weights = counts(rng, 200, 0, levels=1)
    weights.gains[:] = rng.integers(20_000, 32_767, len(weights.gains))
    rows, one = block_of(rng, 30, D, 200, most=6), PackedCounts.of(weights, 1)
    reached = np.add.reduceat(one.peaks[rows.features].astype(int), rows.indptr[:-1])
    assert (reached > 32767).any()
    assert (reached <= 32767).any()
    scorer = CountScorer(one, 2)
    held(scorer.topk(rows, 7), rows, weights, None, 7)
    scorer.close()
