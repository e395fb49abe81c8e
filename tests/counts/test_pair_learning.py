"""What is learnt of features and pairs, where pairs lie, and candidates, held to dictionaries."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.counts import count_kernels, pair_learning
from streammach.counts import pair_updates as lessons
from streammach.counts.count_kernels import bits, find_places
from streammach.counts.learning import evidence, weigh
from streammach.counts.pair_learning import PairLearner
from streammach.counts.scores import CountScorer
from streammach.counts.table import count_pairs
from streammach.rows.label_lists import LabelLists
from tests.builders import block_of
from tests.counts.test_counts import D, K, as_pairs, counted, drawn, group_weights
from tests.reference import counts as reference


def of_some_classes(rng, n=90):
    """Rows; one is the only one of its class."""
    block = block_of(rng, n, D, K)
    classes = block.classes.copy()
    classes[classes == 3] = 4
    classes[10] = 3
    return replace(block, classes=classes)


def with_lists(rng, block):
    """The rows with up to three labels each, some with none; the only row of a class stays it."""
    rows = [
        [3] if y == 3 else sorted({y, *rng.choice([c for c in range(K) if c != 3], 2).tolist()})
        for y in block.classes.tolist()
    ]
    return block.with_labels(LabelLists.of([[] if i % 9 == 4 else r for i, r in enumerate(rows)]))


def table_of_lists(block):
    """The counts of rows with lists of labels."""
    parts = [(rows, np.zeros(rows.n_rows, bool)) for rows, _ in block.rows_by_label()]
    most = sum(rows.nnz for rows, _ in parts)
    return count_pairs(lambda: parts, D, K, max_pairs=most, mark_bytes=1 << 20, threads=1)


def test_lists_of_labels_are_counted_label_by_label(rng, monkeypatch):
    block = with_lists(rng, of_some_classes(rng))
    wanted, rows, values = reference.pair_counts(block)
    for most in (1 << 20, 50):
        monkeypatch.setattr("streammach.rows.block.REPEATED_VALUES", most)
        table = table_of_lists(block)
        assert dict(zip(as_pairs(table), table.counts.tolist(), strict=True)) == wanted
        assert {c: n for c, n in enumerate(table.class_rows.tolist()) if n} == rows
        assert {c: n for c, n in enumerate(table.class_values.tolist()) if n} == values


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("batch", [7, 200])
def test_pairs_are_learnt_as_if_their_row_was_not_counted(rng, monkeypatch, threads, batch):
    monkeypatch.setattr(pair_learning, "BATCH_ROWS", batch)
    monkeypatch.setattr(pair_learning, "CANDIDATES", 5)
    block = of_some_classes(rng)
    table, weights = counted(block), group_weights(rng)
    with PairLearner(table, weights, threads=threads) as learner:
        learner.learn(block)
    found, scores = learner.weights(), reference.ReferenceScores(block, K, weights)
    best = reference.best_without(block, scores, 5)
    theta, delta = reference.learn(
        block, scores, best, batches=[(i, min(i + batch, 90)) for i in range(0, 90, batch)],
        far=lessons.FAR, pair_rate=pair_learning.PAIR_RATE,
        feature_rate=pair_learning.FEATURE_RATE,
        pair_prior=pair_learning.PAIR_PRIOR, feature_prior=pair_learning.FEATURE_PRIOR,
    )  # fmt: skip
    for z, pair in enumerate(as_pairs(table)):
        assert found.theta[z] == pytest.approx(theta.get(pair, 0.0), abs=2e-5)
    for f in range(D):
        assert found.delta[f] == pytest.approx(delta.get(f, 0.0), abs=2e-5)
    assert any(abs(x) > 1e-3 for x in theta.values())


def test_bytes_do_not_depend_on_threads_and_values_bound_a_batch(rng, monkeypatch):
    monkeypatch.setattr(pair_learning, "BATCH_VALUES", 20)
    block = of_some_classes(rng, 400)
    table, weights = counted(block), group_weights(rng)
    found = []
    for threads, together in ((1, 1), (2, 64), (5, 1 << 16)):
        monkeypatch.setattr(pair_learning, "TOGETHER_VALUES", together)
        with PairLearner(table, weights, threads=threads) as learner:
            learner.learn(block)
        found.append(learner.weights())
    for other in found[1:]:
        assert np.array_equal(found[0].theta, other.theta)
        assert np.array_equal(found[0].delta, other.delta)
    share, sizes = pair_learning.share_updates, []

    def watch(edges, rows, *others):
        sizes.extend(zip(np.diff(edges), np.diff(rows.indptr[edges]), strict=True))
        share(edges, rows, *others)

    monkeypatch.setattr(pair_learning, "share_updates", watch)
    with PairLearner(table, weights, threads=1) as learner:
        learner.learn(block)
    assert sum(n_rows for n_rows, _ in sizes) == 400
    assert all(n_values <= 20 or n_rows == 1 for n_rows, n_values in sizes)


def a_table(rng, n_rows=3000, n_features=6, n_classes=900):
    """Lists of many classes, of some, and of few."""
    block = block_of(rng, n_rows, n_features, n_classes)
    shares = np.array([1, 0.7, 0.4, 0.2, 0.02, 0.005])
    chosen = rng.random(block.nnz) < shares[block.features]
    rows = np.repeat(np.arange(n_rows), np.diff(block.indptr))[chosen]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    block = replace(block, indptr=indptr, features=block.features[chosen],
                    values=block.values[chosen])  # fmt: skip
    return block, n_features, n_classes


def table_of(block, d, k):
    nothing = np.zeros(block.n_rows, bool)
    return count_pairs(
        lambda: [(block, nothing)], d, k, max_pairs=block.nnz, mark_bytes=1 << 20, threads=1
    )


@pytest.mark.parametrize("read_whole", [0, 100, 5000])
@pytest.mark.parametrize("index_bytes", [0, 4, 400])
def test_places_of_pairs_are_found(rng, monkeypatch, read_whole, index_bytes):
    monkeypatch.setattr(count_kernels, "READ_WHOLE", read_whole)
    monkeypatch.setattr(count_kernels, "INDEX_BYTES", index_bytes)
    block, d, k = a_table(rng)
    table = table_of(block, d, k)
    assert table.pairs.marks.nbytes <= index_bytes * table.n_pairs
    wanted = np.concatenate([rng.choice(k, 30, replace=False), [-1, -1]]).astype(np.int32)
    row, slot = np.arange(d, dtype=np.int32), np.zeros(k, np.uint8)
    found = np.empty((d, 32), np.int32)
    find_places(row, wanted, 30, table.pairs, slot, found)
    assert not slot.any()
    for f in range(d):
        own = table.classes[table.starts[f] : table.starts[f + 1]].tolist()
        for j, c in enumerate(wanted.tolist()):
            assert found[f, j] == (own.index(c) if c in own else -1)


def test_bits_are_counted(rng):
    for word in [0, 1, 0xFFFFFFFF, *rng.integers(0, 1 << 32, 200).tolist()]:
        assert bits(np.uint32(word)) == bin(word).count("1")


def test_evidence_of_fewer_candidates_is_that_of_these(rng):
    block = of_some_classes(rng)
    table = counted(block)
    weights = group_weights(rng, **drawn(rng, table, 1.0))
    scorer = CountScorer(weigh(table, weights), 2)
    ids = scorer.topk(block, 4)[0].astype(np.int32)
    whole = evidence(table, block, ids, weights=weights, each=scorer.each).counted
    ids[:, 2:] = -1
    some = evidence(table, block, ids, weights=weights, each=scorer.each).counted
    scorer.close()
    assert np.array_equal(some[:, :2], whole[:, :2])
    assert not some[:, 2:].any()
