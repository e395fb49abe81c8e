"""Similar training rows: found as plain Python finds them, and added to scores exactly."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from streammach.counts import neighbour_search
from streammach.counts.neighbour_search import NeighbourSearch
from streammach.counts.scores import CountScorer
from streammach.rows.candidate_lists import CandidateLists
from streammach.rows.label_lists import LabelLists
from streammach.rows.layouts import ends
from streammach.rows.neighbours import MOST_ROWS, SHARE, Neighbours, gather_rows
from streammach.rows.packed import PackedCounts
from tests.builders import block_of
from tests.counts.test_bounded import hashed_of
from tests.model.models import counts_of, near_of
from tests.reference.counts import blended_scores
from tests.reference.neighbours import gains, norms, rows_of, worth

D, K = 40, 30


def listed(rng, n, *, d=D, most=6, importance=False):
    """Rows with up to three labels each; a quarter count nothing where that is asked for."""
    block = block_of(rng, n, d, K, most=most)
    lists = LabelLists.of([rng.choice(K, rng.integers(0, 4), replace=False) for _ in range(n)])
    weights = (rng.random(n) > 0.25).astype(np.float32) if importance else None
    return replace(block.with_labels(lists), importance=weights)


def labels_of(block):
    lists = block.lists
    return [own.tolist() for own in np.split(lists.classes, lists.starts[1:-1])]


def found_by(search, rows):
    lists, gained = search.gains(rows.indptr, rows.features, lambda n, work: work(0, n))
    return [
        dict(zip(lists.classes[a:b].tolist(), gained[a:b].tolist(), strict=True))
        for a, b in zip(lists.first, lists.last, strict=True)
    ]


@pytest.mark.parametrize("importance", [False, True])
@pytest.mark.parametrize("n", [1, 30, 400])
def test_neighbours_are_those_of_plain_python(n, importance, rng):
    d = 150
    block, held = listed(rng, n, d=d, most=14, importance=importance), rng.random(n) < 0.2
    parts = [slice(0, n // 3), slice(n // 3, n)]
    blocks = [(block.part(own.start, own.stop), held[own]) for own in parts]
    found, every = gather_rows(lambda: blocks, d, 1 << 30)
    there = np.flatnonzero(block.weights > 0)
    known, labels = rows_of(block.take(there)), labels_of(block.take(there))
    rows, idf = listed(rng, 25, d=d, most=14), worth(known, min(len(there) // SHARE, MOST_ROWS))
    assert every == pytest.approx(norms(known, idf), rel=1e-3)
    assert found.norms.tolist() == np.where(held[there], 0, every).tolist()
    for some in (found.norms, every):
        search = NeighbourSearch(replace(found, norms=some, weight=0.7), K)
        expected = gains(rows, known, labels, some.tolist(), idf, 0.7)
        for own, wanted in zip(found_by(search, rows), expected, strict=True):
            assert own.keys() == wanted.keys()
            assert [own[c] for c in own] == pytest.approx([wanted[c] for c in own], rel=1e-4)


@pytest.mark.parametrize("n_rows", [0, 1, 133, 134, 399, 400])
def test_as_many_rows_as_there_is_room_for(n_rows, rng):
    block, held = listed(rng, 400), rng.random(400) < 0.2
    blocks = [(block.part(0, 133), held[:133]), (block.part(133, 400), held[133:])]
    first = block.part(0, n_rows)
    size = Neighbours.footprint(features=D, nnz=first.nnz, rows=n_rows, labels=first.lists.n_labels)
    found, every = gather_rows(lambda: blocks, D, size)
    alone, others = gather_rows(lambda: [(first, held[:n_rows])], D, 1 << 30)
    assert len(found.norms) == n_rows
    assert every.tobytes() == others.tobytes()
    for name, array in found.arrays("").items():
        assert array.tobytes() == alone.arrays("")[name].tobytes()
    assert found.n_bytes + every.nbytes <= size + 16


def expected_scores(rows, weights, hashed, search):
    """All scores, some of them higher by what neighbours say."""
    scores = blended_scores(rows, weights, hashed)
    for i, own in enumerate(found_by(search, rows)):
        for label, gained in own.items():
            scores[i, label] += np.float32(gained)
    return scores


@pytest.mark.parametrize(
    ("packed", "beside", "threads"), list(product([False, True], [False, True], [1, 2]))
)
def test_the_best_are_those_of_all_scores(packed, beside, threads, rng, monkeypatch):
    monkeypatch.setattr(neighbour_search, "JOINED", 12_000)  # of 400 rows
    n = 700
    near = near_of(rng, D, K, 50)
    weights = replace(counts_of(rng, D, K), near=near)
    rows = listed(rng, n)
    hashed = hashed_of(rng, n, K, 8, 3) if beside else None
    wanted = expected_scores(rows, weights, hashed, NeighbourSearch(near, K))
    scorer = CountScorer(PackedCounts.of(weights, 32) if packed else weights, threads)
    order = np.argsort(-wanted, axis=1, kind="stable")
    for k in (1, 5, K):
        ids, scores = scorer.topk(rows, k, hashed)
        assert ids.tolist() == order[:, :k].tolist()
        assert scores.tobytes() == np.take_along_axis(wanted, ids, axis=1).tobytes()
    one = rows.part(3, 4)
    first = None if hashed is None else hashed._replace(logs=hashed.logs[3:4])
    assert scorer.topk(one, 5, first)[0].tolist() == order[3:4, :5].tolist()
    allowed = [np.sort(rng.choice(K, rng.integers(0, K), replace=False)) for _ in range(n)]
    starts = ends(np.array([len(own) for own in allowed]))
    classes = np.concatenate(allowed).astype(np.int32)
    some = CandidateLists(starts[:-1], starts[1:], classes, classes)
    scores = scorer.score_listed(rows, some, hashed)
    assert scores.tobytes() == wanted[some.rows, classes].tobytes()
    scorer.close()


def test_features_that_are_left_out(rng):
    near, kept = near_of(rng, D, K, 50), rng.random(D) < 0.6
    some = near.of_features(kept)
    rows = listed(rng, 20)
    there = rows.with_values(kept[rows.features])
    renamed = replace(there, features=(np.cumsum(kept) - 1)[there.features].astype(np.int32))
    assert found_by(NeighbourSearch(near, K), there) == found_by(NeighbourSearch(some, K), renamed)
