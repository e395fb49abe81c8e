"""Classifiers that score the best labels again: what they learn from, how they rank; a training."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import streammach as sm
from streammach.conversion.convert import convert
from streammach.linear.late import BEST, examples_of, rank_again
from streammach.linear.weights import LinearScorer
from streammach.model.shrink import shrink_to
from streammach.model.size import size_in_file, size_in_memory
from streammach.parts.counts import late_fit
from streammach.rows.label_lists import LabelLists
from tests.builders import block_of, fit, listed_lines, model_files
from tests.model.models import late_of, model_of

N, D, K = 40, 12, 60


def test_examples_are_rows_with_a_label_and_those_taken_for_it(rng):
    rows = [rng.choice(K, i % 4, replace=False).tolist() for i in range(N)]
    rows[3] = [-1, 5]
    best = np.argsort(rng.random((N, K)), axis=1)[:, :7].astype(np.int32)
    write, most = examples_of(LabelLists.of(rows), best, K)
    room, sizes = np.zeros(most, np.int32), []
    for c in range(K):
        n = write(c, room)
        sizes.append(n)
        own = {2 * i + 1 for i in range(N) if c in rows[i]}
        others = {2 * i for i in range(N) if c in best[i] and c not in rows[i]}
        assert sorted(room[:n]) == sorted(own | others)
    assert max(sizes) == most


def test_the_best_are_sorted_by_sums_and_others_stay_behind(rng):
    late, rows = late_of(rng, D, K), block_of(rng, N, D, K)
    ids = np.argsort(rng.random((N, K)), axis=1)
    scores = -np.sort(rng.random((N, K)), axis=1).astype(np.float32)
    scorer = LinearScorer(late, 1)
    own = scorer.scores(rows, ids)
    found, sums = rank_again(rows, (ids, scores), scorer, 2.0)
    for i in range(N):
        pairs = [(scores[i, j] + np.float32(2) * own[i, j], ids[i, j]) for j in range(BEST)]
        pairs.sort(key=lambda pair: -pair[0])
        assert found[i].tolist() == [c for _, c in pairs] + ids[i, BEST:].tolist()
        assert sums[i, :BEST].tolist() == [s for s, _ in pairs]
        assert (sums[i, BEST:] == np.minimum(scores[i, BEST:], pairs[-1][0])).all()
    first, _ = rank_again(rows, (ids[:, :3], scores[:, :3]), scorer, 2.0)
    assert (np.sort(first, axis=1) == np.sort(ids[:, :3], axis=1)).all()
    scorer.close()


def test_the_largest_weights_are_kept_and_new_classes_have_the_usual_bias(rng):
    late = late_of(rng, D, K)
    fewer = late.largest(len(late.weights) // 4)
    n = len(fewer.weights)
    assert n == len(late.weights) // 4
    assert np.abs(fewer.weights).min() >= np.sort(np.abs(late.weights))[-n]
    assert fewer.starts[-1] == n
    model = model_of(rng, D, 3000, late=late_of(rng, D, 3000))
    small = shrink_to(model, 45_000)
    assert 0 < len(small.late.weights) < len(model.late.weights)
    assert small.file_bytes() <= 45_000
    more = late.with_classes(3)
    assert more.bias[K:].tolist() == [np.median(late.bias)] * 3


@pytest.fixture
def weighed(monkeypatch):
    """Classifiers weigh 2, whatever held-out rows say."""
    fit_them = late_fit._fit
    monkeypatch.setattr(
        late_fit, "_fit", lambda *given: msgspec.structs.replace(fit_them(*given), weight=2.0)
    )


def test_a_training_learns_them_last(weighed, tiny, rng):
    train, made = tiny.folder / "train.zarr", []
    convert(tiny.text("a.vw", listed_lines(rng, 1500)), train, multilabel="on")
    with sm.Dataset.open(train) as data:
        for threads in (1, 2):
            plan = sm.plan(data, threads=threads, counts="on", n_repetitions=0)
            made.append(fit(data, tiny.folder / f"run{threads}", plan))
        rows = data.rows(0, 200)
    run = made[0]
    assert model_files(run) == model_files(made[1])
    assert any("learnt last, weigh 2" in reason for reason in run.reasons)
    model = run.model
    assert model.late.weight == 2
    assert model.late.n_features == len(model.features)
    assert size_in_file(run.path).n_bytes >= size_in_memory(model).n_bytes
    ids = model.features.ids_of(data.features)
    rows = rows.with_values(ids[rows.features] >= 0)
    rows = replace(rows, features=ids[rows.features].astype(np.int32))
    with sm.Predictor(model) as predictor, sm.Predictor(replace(model, late=None)) as without:
        found, base = predictor.rank(rows, 5), without.rank(rows, BEST)
        scorer = LinearScorer(model.late, 1)
        wanted = rank_again(rows, base, scorer, 2.0)
        some = np.flatnonzero(np.diff(rows.indptr) > 0)
        assert np.array_equal(found[0][some], wanted[0][some, :5])
        assert found[1][some].tobytes() == wanted[1][some, :5].tobytes()
        scorer.close()
