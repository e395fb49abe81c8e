"""Rows without a feature that a model knows: classes by frequency, through every door."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.options.estimators import BLEND, ESTIMATORS, estimators
from streammach.options.model_spec import ModelSpec
from streammach.prediction.explain import LINES, Explainer
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import by_counts, by_hashes
from streammach.rows.packed import PackedCounts
from tests.builders import block_of, spec_of, training
from tests.model.models import counts_of, model_of, near_of

D, K, B, R = 12, 30, 8, 3
SHAPES = ("hashed", "exact", "alone")
COUNTS = ("none", "plain", "packed", "neighbours")
CASES = [(shape, counts, listed) for shape in SHAPES for counts in COUNTS for listed in (0, 1)
         if (shape, counts) != ("alone", "none")]  # fmt: skip


def model_like(rng, shape, counts, listed):
    """A model of a kind, and the rows of each class as it knows them; None where it does not."""
    spec = spec_of(K, D, K, 1) if shape == "exact" else spec_of(K, D, B, R)
    spec = ModelSpec.unhashed_of(spec.shape) if shape == "alone" else spec
    rows, some, changes = rng.integers(0, 40, K), None, {}
    if counts != "none":  # what a class has before any feature says nothing
        some = replace(counts_of(rng, D, K), log_values=np.log(rows + 1).astype(np.float32))
        some = PackedCounts.of(some, 32) if counts == "packed" else some
        some = replace(some, near=near_of(rng, D, K)) if counts == "neighbours" else some
    if listed:
        how = training(label_share="shared")
        changes = {"label_counts": rows, "n_rows": 90, "training": how}
    known = None if some is None else rows + 1
    made = model_of(
        rng, D, K, counts=some, weights=rng.normal(size=(D, spec.n_columns)).astype(np.float32),
        spec=spec, bias=rng.normal(size=spec.n_columns).astype(np.float32), **changes,
    )  # fmt: skip
    return made, rows if listed else known


@pytest.mark.parametrize(("shape", "counts", "listed"), CASES)
def test_classes_come_by_frequency_through_every_door(rng, shape, counts, listed):
    model, known = model_like(rng, shape, counts, listed)
    rows = block_of(rng, 9, D, K)
    full = np.diff(rows.indptr) > 0
    with Predictor(model, threads=2) as predictor:
        names = [] if shape == "alone" else estimators()
        for name in names + [BLEND] * (counts != "none"):
            if name == BLEND:
                way = by_counts(predictor._backend, predictor.scorers._counts, "raw")
            else:
                way = by_hashes(predictor._backend, name, "raw")
            ids, scores = predictor.rank(rows, K, name)
            own = way(rows, K)
            assert np.array_equal(ids[full], own[0][full])
            assert scores[full].tobytes() == own[1][full].tobytes()
            if known is None:
                assert np.array_equal(ids, own[0])
                continue
            order = np.lexsort((np.arange(K), -np.maximum(known, 0.5)))
            assert (ids[~full] == order).all()
            log = name == BLEND or ESTIMATORS[name].logarithms
            told = np.exp(model.calibration.beta * scores[~full]) if log else scores[~full]
            shares = np.maximum(known[order], 0.5) / (90 if listed else known.sum())
            np.testing.assert_allclose(told, np.tile(shares, (len(told), 1)), rtol=1e-4)
            why = Explainer(model, name).reasons(rows, ids, 3)[~full]
            assert np.array_equal(why["score"], scores[~full])
            assert np.array_equal(why["lines"][..., LINES.index("prior")], scores[~full])
            assert (why["features"] == -1).all()


@pytest.mark.parametrize(("shape", "counts", "listed"), CASES)
def test_labels_that_may_be_said_keep_scores_and_probabilities(rng, shape, counts, listed):
    model, _ = model_like(rng, shape, counts, listed)
    rows = block_of(rng, 2, D, K)
    empty = rows.with_values(np.zeros(rows.nnz, np.bool_))
    with Predictor(model, threads=1) as predictor:
        labels, scores = predictor.topk(empty, K)
        assert predictor.query(["new"], k=K)[0].tolist() == labels[1].tolist()
        p = predictor.topk(empty, K, probabilities=True)
        assert p[0].tolist() == labels.tolist()
        assert (np.diff(p[1]) <= 1e-7).all()
        by = dict(zip(labels[0].tolist(), scores[0].tolist(), strict=True))
        for some in (labels[0, 5:9], labels[0, 3:]):
            for words in ({"only": some}, {"never": np.setdiff1d(labels[0], some)},
                          {"only": [some.tolist()] * 2}):  # fmt: skip
                found, reached = predictor.topk(empty, 4, **words)
                assert found.tolist() == [some[:4].tolist()] * 2
                assert reached[0].tolist() == [by[label] for label in some[:4].tolist()]
    merged = replace(model, says=np.where(np.arange(K) == 3, 7, np.arange(K)).astype(np.int32))
    with Predictor(merged, threads=1) as predictor:
        for words in ({}, {"only": ["label 7", "label 5"]}):
            found, reached = predictor.topk(empty, K, **words)
            best = max(by["label 3"], by["label 7"])
            assert "label 3" not in found[0].tolist()
            assert reached[0][found[0].tolist().index("label 7")] == pytest.approx(best)
