"""Counts, their scores and what is learnt on top of them, held to plain dictionaries."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.counts.class_scores import HashedScores
from streammach.counts.learning import evidence, weigh
from streammach.counts.scores import CountScorer
from streammach.counts.table import CountTable, GroupWeights, count_pairs
from streammach.rows import pairs
from streammach.rows.pairs import CountWeights
from streammach.system.threads import Workers
from tests.builders import block_of, spread
from tests.model.models import counts_of
from tests.reference import counts as reference

D, K = 25, 12


def whole(block, held):
    """The rows as two blocks that can be read again and again."""
    half = block.n_rows // 2

    def blocks():
        yield block.part(0, half), held[:half]
        yield block.part(half, block.n_rows), held[half:]

    return blocks


def counted(block, *, held=None, mark_bytes=1 << 20, threads=2):
    held = np.zeros(block.n_rows, bool) if held is None else held
    return count_pairs(
        whole(block, held), D, K, max_pairs=block.nnz, mark_bytes=mark_bytes, threads=threads
    )


def as_pairs(table):
    return {
        (f, int(table.classes[z])): int(table.counts[z])
        for f in range(table.n_features)
        for z in range(table.starts[f], table.starts[f + 1])
    }


def group_weights(rng, n_groups=3, **learnt):
    group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, D - n_groups)])
    slope, match, penalty = rng.uniform(0.1, 1, (3, n_groups)).astype(np.float32)
    return GroupWeights(group=group.astype(np.int32), slope=slope, match=match, penalty=penalty,
                        prior=0.4, hashed=0.0, **{"learnt": 0.0, **learnt})  # fmt: skip


def drawn(rng, table, learnt):
    theta, delta = (rng.normal(size=n).astype(np.float32) for n in (table.n_pairs, D))
    return {"learnt": learnt, "theta": theta, "delta": delta}


@pytest.fixture
def block(rng):
    return block_of(rng, 120, D, K)


@pytest.mark.parametrize("mark_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_pairs_are_counted(block, mark_bytes, threads):
    table = counted(block, mark_bytes=mark_bytes, threads=threads)
    pairs, rows, values = reference.pair_counts(block)
    assert as_pairs(table) == pairs
    assert {c: n for c, n in enumerate(table.class_rows.tolist()) if n} == rows
    assert {c: n for c, n in enumerate(table.class_values.tolist()) if n} == {
        c: n for c, n in values.items() if n
    }
    for f in range(D):
        own = table.classes[table.starts[f] : table.starts[f + 1]]
        assert (np.diff(own) > 0).all()


def test_held_out_rows_have_places_and_are_counted_later(block, rng):
    held = rng.random(block.n_rows) < 0.4
    table = counted(block, held=held)
    assert {p: n for p, n in as_pairs(table).items() if n} == reference.pair_counts(block, held)[0]
    rows = np.flatnonzero(held)
    for i in rows:
        table.add(block.part(i, i + 1))
    pairs, rows, _ = reference.pair_counts(block)
    assert as_pairs(table) == pairs
    assert int(table.class_rows.sum()) == block.n_rows


def test_more_pairs_than_there_is_room_for_are_refused(block):
    n_pairs = counted(block).n_pairs
    held = np.zeros(block.n_rows, bool)
    options = {"mark_bytes": 1 << 20, "threads": 1}
    count_pairs(whole(block, held), D, K, max_pairs=n_pairs, **options)
    with pytest.raises(OverflowError):
        count_pairs(whole(block, held), D, K, max_pairs=n_pairs - 1, **options)


@pytest.mark.parametrize("mark_bytes", [200, 1 << 20])
@pytest.mark.parametrize("room", [0.8, 0.3, 0.01])
def test_the_pairs_that_add_most_are_kept_where_not_all_fit(block, rng, room, mark_bytes):
    held = rng.random(block.n_rows) < 0.2
    pairs = reference.pair_counts(block, held)[0]
    slope, match = (rng.uniform(0.2, 2, D).astype(np.float32) for _ in range(2))
    max_pairs = int(room * len(pairs))
    table = count_pairs(
        whole(block, held), D, K, max_pairs=max_pairs, mark_bytes=mark_bytes, threads=2,
        gains=replace(
            group_weights(rng), group=np.arange(D, dtype=np.int32), slope=slope, match=match
        ),
    )  # fmt: skip
    kept = as_pairs(table)
    assert all(pairs[pair] == n for pair, n in kept.items())
    gains = {(f, c): slope[f] * np.log(n) + match[f] for (f, c), n in pairs.items()}
    dropped = [gains[pair] for pair in pairs if pair not in kept]
    assert 0.9 * max_pairs - 2 <= len(kept) <= max_pairs
    assert max(dropped) <= min((gains[pair] for pair in kept), default=99) + 1 / 64


def test_entropies_are_those_of_the_classes(block):
    table = counted(block)
    for f in range(D):
        n = table.counts[table.starts[f] : table.starts[f + 1]].astype(float)
        p = n / n.sum()
        assert table.entropies()[f] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-6)


@pytest.mark.parametrize("with_learnt", [False, True])
def test_scores_equal_the_reference(block, rng, with_learnt):
    table = counted(block)
    weights, theta, delta = group_weights(rng), {}, {}
    if with_learnt:
        weights = group_weights(rng, **drawn(rng, table, 0.7))
        theta = dict(zip(as_pairs(table), weights.theta.tolist(), strict=True))
        delta = dict(enumerate(weights.delta.tolist()))
    scorer = CountScorer(weigh(table, weights), 2)
    expected = reference.ReferenceScores(block, K, weights, theta, delta)
    ids, scores = scorer.topk(block, K)
    for i in range(block.n_rows):
        row = block.features[block.indptr[i] : block.indptr[i + 1]]
        wanted = expected.scores(row.tolist())
        np.testing.assert_allclose(scores[i], wanted[ids[i]], rtol=1e-4, atol=2e-3)
        assert sorted(ids[i].tolist()) == list(range(K))
    scorer.close()


def test_means_are_those_of_the_codes(rng):
    codes = rng.integers(0, 4, (K, 3)).astype(np.uint8)
    logs = rng.normal(size=(6, 12)).astype(np.float32)
    candidates = rng.integers(0, K, (6, 5)).astype(np.int32)
    found = HashedScores(logs, codes.reshape(-1), 4, 3).means(candidates)
    for i in range(6):
        for j in range(5):
            own = [logs[i, r * 4 + codes[candidates[i, j], r]] for r in range(3)]
            assert found[i, j] == pytest.approx(np.mean(own), rel=1e-5)


def test_evidence_is_what_scores_are_made_of(block, rng):
    """The groups' sums times their weights give the score back."""
    table = counted(block)
    weights = group_weights(rng, **drawn(rng, table, 1.0))
    scorer = CountScorer(weigh(table, weights), 1)
    ids, scores = scorer.topk(block, 4)
    found = spread(evidence(table, block, ids.astype(np.int32), weights=weights, each=scorer.each))
    columns = np.concatenate([weights.slope, weights.match, [weights.learnt]])
    w = scorer.weights
    for i in range(block.n_rows):
        row = block.features[block.indptr[i] : block.indptr[i + 1]]
        rest = w.base[ids[i]] - w.penalty[row].sum() * w.log_values[ids[i]]
        np.testing.assert_allclose(
            columns @ found[i] + rest, scores[i], rtol=1e-4, atol=6 * 0.5 / 1024 + 1e-4
        )
    scorer.close()


@pytest.mark.parametrize("threads", [2, 16])
def test_weights_do_not_depend_on_the_number_of_threads(block, rng, threads):
    table = counted(block)
    weights = group_weights(rng, **drawn(rng, table, 1.0))
    one = weigh(table, weights)
    gains, workers = one.gains.copy(), Workers(threads, "weigh")
    table.gains[:] = 0  # which both share
    other = weigh(table, weights, workers)
    workers.close()
    assert np.array_equal(gains, other.gains)
    assert np.array_equal(one.wide, other.wide)


def test_types_shapes_and_bytes_are_those_of_the_schema(rng):
    counts = counts_of(rng, n_wide=0)
    for name, (shape, dtype) in CountWeights.shapes(features=12, classes=30).items():
        array = getattr(counts, name)
        assert array.dtype == dtype
        assert all(m in (None, n) for n, m in zip(array.shape, shape, strict=True))
    n_pairs = len(counts.classes)
    assert CountWeights.footprint(features=12, classes=30, pairs=n_pairs) == counts.n_bytes - 8
    assert CountTable.footprint(features=1, classes=100, pairs=10_000) == 8 + 1600 + 80_000


def test_pairs_of_lists_and_of_all_classes_are_the_same_pairs(rng):
    counts = counts_of(rng)
    listed = counts.as_lists()
    assert listed.n_pairs == len(listed.classes) == counts.n_pairs
    for f in range(listed.n_features):
        assert (np.diff(listed.classes[listed.starts[f] : listed.starts[f + 1]]) > 0).all()
    for name, array in listed.merge_wide().as_lists().arrays().items():
        assert np.array_equal(array, getattr(listed, name))
    twice = replace(listed, wide_of=counts.wide_of, wide=counts.wide)
    for name, array in twice.drop_wide_lists().arrays().items():
        assert np.array_equal(array, getattr(counts, name))


def pairs_in(counts):
    """Return the gains of lists by pair, in their order."""
    features = np.repeat(np.arange(counts.n_features), np.diff(counts.starts))
    return dict(zip(zip(features, counts.classes, strict=True), counts.gains, strict=True))


@pytest.mark.parametrize("piece", [1, 20, pairs.PIECE_PAIRS])
@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_some_pairs_are_kept_piece_by_piece(rng, monkeypatch, share, piece):
    monkeypatch.setattr(pairs, "PIECE_PAIRS", piece)
    listed = counts_of(rng).as_lists()
    listed = replace(listed, gains=np.where(listed.gains == 0, np.int16(32), listed.gains))
    chosen = rng.random(len(listed.classes)) < share
    wanted = {pair: gain for (pair, gain), is_one in
              zip(pairs_in(listed).items(), chosen, strict=True) if is_one}  # fmt: skip
    kept = listed.merge_wide(chosen)
    numbers = np.bincount([f for f, _ in wanted], minlength=listed.n_features)
    assert np.array_equal(kept.wide_of >= 0, numbers * 6 > 2 * listed.n_classes)
    assert (np.diff(kept.starts)[kept.wide_of >= 0] == 0).all()
    assert list(pairs_in(kept.as_lists()).items()) == list(wanted.items())
    gains = np.where(chosen, listed.gains, 0).astype(np.int16)
    nonzero = replace(listed, classes=listed.classes.copy(), gains=gains).without_zeros()
    assert list(pairs_in(nonzero).items()) == list(wanted.items())


@pytest.mark.parametrize("piece", [1, 20, pairs.PIECE_PAIRS])
def test_gains_of_some_features_come_in_pieces(rng, monkeypatch, piece):
    monkeypatch.setattr(pairs, "PIECE_PAIRS", piece)
    counts = counts_of(rng)
    chosen = rng.random(counts.n_features) < 0.5
    found = np.concatenate([*counts.gains_of(chosen), np.zeros(0, np.int16)])
    wanted = [gain for (f, _), gain in pairs_in(counts.as_lists()).items() if chosen[f]]
    assert sorted(found[found != 0]) == sorted(wanted)
