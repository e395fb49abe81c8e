"""A row of importance w counts as w rows: in counts, closed form, spread, fits, measures, maps."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from streammach.counts.learning import Evidence, evidence, weigh
from streammach.counts.pair_learning import PairLearner
from streammach.counts.scores import CountScorer
from streammach.counts.table import GroupWeights, count_pairs
from streammach.model.calibration import LEAST_ROWS, fit_calibration
from streammach.parts.counts.group_fit import _Problem
from streammach.parts.counts.group_kernels import CandidateFeatures
from streammach.parts.discriminant.class_sums import Discriminant
from streammach.parts.discriminant.part import _measure_shares as reached_by_shares
from streammach.parts.whitening.part import Spread
from streammach.prediction.selection_metrics import measure_ids
from streammach.rows.label_lists import LabelLists
from streammach.system.threads import Workers
from tests.builders import block_of, dense_block, packed, spread

D, K = 25, 12


def copied(block):
    """Each row as often as its importance says."""
    times = block.importance.astype(int)
    return replace(block.take(np.repeat(np.arange(block.n_rows), times)), importance=None)


def weighing(rng, block, most=4):
    """Rows with whole importances, some of them 0."""
    return replace(block, importance=rng.integers(0, most, block.n_rows).astype(np.float32))


def listed(rng, block):
    lists = [sorted(rng.choice(K, int(n), replace=False).tolist())
             for n in rng.integers(1, 4, block.n_rows)]  # fmt: skip
    return block.with_labels(LabelLists.of(lists))


def table_of(block, held=None, mark_bytes=1 << 20):
    held = np.zeros(block.n_rows, bool) if held is None else held

    def blocks():
        half = block.n_rows // 2
        for some in (slice(0, half), slice(half, block.n_rows)):
            for rows, numbers in block.part(some.start, some.stop).rows_by_label():
                yield rows, held[some][numbers]

    return count_pairs(
        blocks, D, K, max_pairs=5 * block.nnz, mark_bytes=mark_bytes, threads=2,
        weighted=block.importance is not None,
    )  # fmt: skip


def pairs_of(table):
    return {
        (f, int(table.classes[z])): float(table.counts[z])
        for f in range(D) for z in range(table.starts[f], table.starts[f + 1]) if table.counts[z]
    }  # fmt: skip


def summed(block, held):
    """The sums of importances by pair, by class, and by class of values, in plain Python."""
    pairs, rows, values = {}, np.zeros(K), np.zeros(K)
    for i in np.flatnonzero(~held):
        w, own = float(block.weights[i]), block.features[block.indptr[i] : block.indptr[i + 1]]
        lists = block.lists
        for c in lists.classes[lists.starts[i] : lists.starts[i + 1]].tolist():
            rows[c], values[c] = rows[c] + w, values[c] + w * len(own)
            for f in own.tolist():
                pairs[f, c] = pairs.get((f, c), 0) + w
    return {pair: n for pair, n in pairs.items() if n}, rows, values


def group_weights(**more):
    slope, match, penalty = (np.float32([a, b]) for a, b in ((0.1, 0.4), (0.6, 0.3), (0.1, 0.2)))
    group = (np.arange(D) % 2).astype(np.int32)
    return GroupWeights(group=group, slope=slope, match=match, penalty=penalty, prior=0.3,
                        hashed=0.0, **{"learnt": 0.0, **more})  # fmt: skip


@pytest.fixture(params=["one label", "lists"])
def block(request, rng):
    found = weighing(rng, block_of(rng, 160, D, K))
    return listed(rng, found) if request.param == "lists" else found


@pytest.mark.parametrize("mark_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_pairs_are_the_sums_of_importances(block, rng, mark_bytes, scale):
    block = replace(block, importance=(block.importance * np.float32(scale)))
    held = rng.random(block.n_rows) < 0.3
    table = table_of(block, held, mark_bytes)
    pairs, rows, values = summed(block, held)
    assert pairs_of(table) == pytest.approx(pairs, rel=1e-6)
    np.testing.assert_allclose(table.class_rows, rows, rtol=1e-6)
    np.testing.assert_allclose(table.class_values, values, rtol=1e-6)
    for rows, _ in block.take(np.flatnonzero(held)).rows_by_label():
        table.add(rows)
    assert pairs_of(table) == pytest.approx(summed(block, held & False)[0], rel=1e-5)


def test_whole_importances_score_as_copies_do(block):
    """Counts, gains, scores and the evidence of fits: to the last bit."""
    one, other = table_of(block), table_of(copied(block))
    kept = one.counts > 0  # rows of importance 0 have places
    np.testing.assert_array_equal(one.counts[kept], other.counts)
    np.testing.assert_array_equal(one.classes[kept], other.classes)
    np.testing.assert_allclose(one.entropies(), other.entropies(), rtol=1e-6)
    weights, best = group_weights(), []
    for table in (one, other):
        scorer = CountScorer(weigh(table, weights), 1)
        best.append(scorer.topk(block, K))
        ids = np.tile(np.arange(K, dtype=np.int32), (block.n_rows, 1))
        best[-1] += evidence(table, block, ids, weights=weights, each=scorer.each)
        scorer.close()
    for a, b in zip(*best, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_pair_of_less_than_a_row_adds_that_part_of_what_a_row_adds(rng):
    block = block_of(rng, 120, D, K)
    gains = []
    for w in (1e-6, 0.25, 1.0):
        table = table_of(replace(block, importance=np.full(block.n_rows, w, np.float32)))
        one = table.counts <= 1  # rows of the pair, or of most pairs
        learnt = group_weights(learnt=0.5, theta=np.full(table.n_pairs, 0.2, np.float32),
                               delta=np.full(D, -0.1, np.float32))  # fmt: skip
        gains.append((weigh(table, learnt).gains, table.counts, one))
    few = gains[2][2]  # pairs of one row
    assert (gains[0][0] == 0).all()
    np.testing.assert_allclose(gains[1][0][few], gains[2][0][few] / 4, atol=1)


def test_pairs_are_learnt_with_each_row_left_out_by_its_importance(block):
    """A row alone in its pairs teaches nothing; one of importance 0 leaves all as it is."""
    kept = block.take(np.flatnonzero(block.importance))
    learnt = []
    for rows in (block, kept):
        table = table_of(rows)
        with PairLearner(table, group_weights(), threads=1) as learner:
            learner.learn(rows)
            found = learner.weights()
            place = table.counts > 0
            learnt.append((found.theta[place], found.delta))
    for a, b in zip(*learnt, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (learnt[0][0] != 0).any()
    alone = replace(kept.take(np.arange(1)), importance=np.float32([0.1]))
    table = table_of(alone)
    with PairLearner(table, group_weights(), threads=1) as learner:
        learner.learn(alone)
        assert not learner.weights().theta.any()


@pytest.mark.parametrize("part", [50, 1000])
def test_the_closed_form_takes_importances_for_copies(rng, part):
    x = (rng.normal(size=(160, 5)) @ rng.normal(size=(5, 5))).astype(np.float32)
    y = rng.integers(0, K, 160).astype(np.int32)
    for block in (dense_block(x, y), listed(rng, dense_block(x, y))):
        weighted, found = weighing(rng, block), []
        for rows in (weighted, copied(weighted)):
            sums, weights = Discriminant(np.zeros((K, 5), np.float32)), np.empty((5, K), np.float32)
            for a in range(0, rows.n_rows, part):
                sums.add(rows.part(a, min(a + part, rows.n_rows)))
            found.append((weights, sums.solve(0.3, weights)))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_a_basis_takes_importances_for_copies(rng):
    x = (rng.normal(size=(400, 5)) @ rng.normal(size=(5, 5))).astype(np.float32)
    y = rng.integers(0, K, 400).astype(np.int32)
    for block in (dense_block(x, y), listed(rng, dense_block(x, y))):
        weighted, bases = weighing(rng, block), []
        for rows in (weighted, copied(weighted)):
            spread = Spread(5)
            spread.add(rows)
            bases.append(spread.make_map())
        np.testing.assert_allclose(bases[0].rotation, bases[1].rotation, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(bases[0].shift, bases[1].shift, rtol=1e-3, atol=1e-4)


def test_group_weights_see_importances_as_copies(rng):
    n, m, g = 40, 6, 2
    counted, held = rng.normal(size=(n, 2 * g + 1, m)).astype(np.float32), rng.random((n, g)) < 0.7
    arrays = dict(zip(("log_rows", "log_values", "hashed"),
                      rng.normal(size=(3, n, m)).astype(np.float32), strict=True))  # fmt: skip
    weights = rng.integers(0, 4, n)
    found = CandidateFeatures(
        **arrays, **packed(counted, held.astype(np.float32))._asdict(),
        repeated=np.zeros((n, m), bool), number=np.arange(n),
        targets=np.eye(m, dtype=np.float32)[rng.integers(0, m, n)],
        weights=weights.astype(np.float32), listed=False,
    )  # fmt: skip
    rows = np.repeat(np.arange(n), weights)
    arrays = {name: x[rows] for name, x in found._asdict().items()
              if isinstance(x, np.ndarray) and name not in Evidence._fields}  # fmt: skip
    arrays |= packed(spread(found)[rows], found.groups[rows])._asdict()
    copies = found._replace(**{**arrays, "weights": np.ones(len(rows), np.float32)})
    start, active = rng.normal(size=3 * g + 3), np.ones(3 * g + 3, bool)
    one, other = (_Problem(some, start, active, Workers(1, "fit")) for some in (found, copies))
    x = rng.normal(size=3 * g + 3)
    for a, b in zip(one.loss(x), other.loss(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


def test_measures_and_maps_see_importances_as_copies(block, rng):
    many = block.take(np.arange(8 * LEAST_ROWS // 4) % block.n_rows)
    scores = rng.normal(size=(K, K)).astype(np.float32)

    def ranking(rows, k):
        ids = np.argsort(-scores[rows.classes, :-4], axis=1, kind="stable")[:, :k]
        return ids, np.take_along_axis(scores[rows.classes], ids, axis=1)

    maps = []
    for rows in (many, copied(many)):
        ids = ranking(rows, 5)[0]
        maps.append(fit_calibration(rows, ranking, K + 5))
        found = measure_ids(rows, ids)
        wanted = measure_ids(copied(many), ranking(copied(many), 5)[0])
        assert found.accuracy == pytest.approx(wanted.accuracy)
        assert found.top_5_accuracy == pytest.approx(wanted.top_5_accuracy)
    assert maps[0].beta == pytest.approx(maps[1].beta, rel=5e-2)
    assert maps[0].other == pytest.approx(maps[1].other, abs=5e-2)
    assert many.n_alike < many.n_rows


def test_shares_of_the_closed_form_are_judged_by_importances(rng):
    x, y = rng.normal(size=(50, 5)).astype(np.float32), rng.integers(0, K, 50).astype(np.int32)
    trained, closed = ((rng.normal(size=(5, K)).astype(np.float32), np.zeros(K, np.float32))
                       for _ in range(2))  # fmt: skip
    lists = listed(rng, dense_block(x, y))
    gains = rng.uniform(1, 5, lists.labels.n_labels).astype(np.float32)
    rare = lists.with_labels(replace(lists.labels, weights=gains))
    for block in (dense_block(x, y), lists, rare):
        weighted = weighing(rng, block)
        one, other = (list(reached_by_shares(rows, trained, closed))
                      for rows in (weighted, copied(weighted)))  # fmt: skip
        for (_, a), (_, b) in zip(one, other, strict=True):
            assert (a.accuracy, a.top_5_accuracy) == pytest.approx((b.accuracy, b.top_5_accuracy))
            assert (a.psp_5 or 0) == pytest.approx(b.psp_5 or 0)
            assert (a.psp_5 is None) == (block is not rare)
        ids = np.argsort(-(x @ trained[0] + trained[1]), axis=1)[:, :5]
        assert msgspec.structs.astuple(dict(one)[0.0]) == pytest.approx(
            msgspec.structs.astuple(measure_ids(weighted, ids))
        )
