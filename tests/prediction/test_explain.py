"""Why a class has its score: lines add up to it, and features add what they are said to add."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.options.estimators import BLEND, estimators
from streammach.options.model_spec import ModelSpec
from streammach.prediction.explain import LINES, Explainer, gains_at
from streammach.prediction.predictor import Predictor
from streammach.rows.layouts import ends
from streammach.rows.packed import PackedCounts, PackedRows
from streammach.rows.pairs import CountWeights
from streammach.rows.quantize import round_rows
from streammach.system.errors import UsageError
from tests.builders import block_of, spec_of, training
from tests.model.models import counts_of, late_of, model_of, near_of

D, K, B, R, MORE = 12, 30, 8, 3, 4
SHAPES = ("hashed", "exact", "dense", "cosines", "counts alone", "neighbours", "classifiers")
LEVELS = {"float32": 0, "int8": 127, "int4": 7}
CASES = [("float32", shape, logistic) for shape in SHAPES for logistic in (False, True)]
CASES += [(form, shape, False) for form in ("int8", "int4") for shape in ("hashed", "exact")]
NEAR = {"rtol": 1e-5, "atol": 1e-4}


def model_like(rng, form, shape, logistic):
    """A model of a kind; where its weights are packed its counts are, too."""
    spec = spec_of(K, D, K, 1) if shape == "exact" else spec_of(K, D, B, R)
    spec = ModelSpec.unhashed_of(spec.shape) if shape == "counts alone" else spec
    weights = rng.normal(size=(D, spec.n_columns)).astype(np.float32)
    changes, counts = {"stored": None}, counts_of(rng, D, K)
    if shape == "neighbours":
        counts = replace(counts, near=near_of(rng, D, K))
    if shape == "classifiers":
        changes["late"] = late_of(rng, D, K)
    if LEVELS[form]:
        rows, scale = round_rows(weights, LEVELS[form])
        weights, counts = PackedRows.of([rows], rows.shape), PackedCounts.of(counts, 32)
        changes = {"stored": form, "scale": scale}
    if shape == "cosines":
        changes["projection"] = rng.normal(size=(D + 2, MORE)).astype(np.float32)
        more = rng.normal(size=(MORE, spec.n_columns)).astype(np.float32)
        weights = np.concatenate([weights, more])
    return model_of(
        rng, D, K, counts=counts, weights=weights, spec=spec, dense=shape in ("dense", "cosines"),
        bias=rng.normal(size=spec.n_columns).astype(np.float32),
        training=training(loss="logistic" if logistic else "independent"), **changes,
    )  # fmt: skip


def score_of(predictor, row, class_id, name):
    """The predictor's score of a class."""
    ids, scores = predictor.rank(row, K, name)
    return scores[ids == class_id][0]


@pytest.mark.parametrize(("form", "shape", "logistic"), CASES)
def test_all_adds_up_and_what_is_left_out_is_missed(form, shape, logistic, rng):
    model = model_like(rng, form, shape, logistic)
    assert model.training.logistic == logistic
    rows = block_of(rng, 9, D, K, values="normal")
    with Predictor(model, threads=1) as predictor:
        for name in [BLEND] if shape == "counts alone" else [BLEND, *estimators()]:
            ids, scores = predictor.rank(rows, 3, name)
            why = predictor.scorers.explainer(name)
            reasons = why.reasons(rows, ids, D)  # of all features
            assert np.allclose(reasons["score"], scores, **NEAR), name
            lines = dict(zip(LINES, np.moveaxis(reasons["lines"], 2, 0), strict=True))
            total = reasons["contributions"].sum(axis=2) + sum(lines.values())
            assert np.allclose(total, scores, **NEAR), name
            linear = name in (BLEND, "logsum")
            if linear:
                assert np.allclose(lines["rest"], 0, atol=1e-4), name
            if linear and not logistic:  # the same for all classes of a row
                assert np.allclose(lines["normaliser"], lines["normaliser"][:, :1], **NEAR), name
            if shape == "classifiers" and name == BLEND:  # rows have unit length without it, too
                continue
            for i in np.flatnonzero(np.diff(rows.indptr) > 1)[:4].tolist():
                row, own = rows.part(i, i + 1), ids[i : i + 1, :1]
                less = row.with_values(row.features != reasons["features"][i, 0, 0])
                lost = scores[i, 0] - score_of(predictor, less, own[0, 0], name)
                if linear:  # what is not linear are the other lines
                    other = why.reasons(less, own, D)["lines"][0, 0]
                    lost -= (reasons["lines"][i, 0] - other)[:-1].sum()
                assert np.isclose(lost, reasons["contributions"][i, 0, 0], **NEAR), name


def test_features_that_the_hashed_models_have_not_add_what_counts_say(rng):
    whole = model_like(rng, "float32", "hashed", logistic=False)
    first = replace(whole, weights=whole.weights[: D - 5])
    whole.weights[D - 5 :] = 0
    rows, ids = block_of(rng, 6, D, K), rng.integers(0, K, (6, 4))
    ids[2, 1:] = -1
    for name in (BLEND, "logsum", "mean"):
        cut, same = (Explainer(model, name).reasons(rows, ids, 3) for model in (first, whole))
        assert (cut["features"] == same["features"]).all()
        assert np.allclose(cut["lines"], same["lines"], atol=1e-5)
        assert (cut["features"][2, 1:] == -1).all()
        assert not cut["lines"][2, 1:].any()


def test_gains_of_pairs_are_those_of_a_plain_search(rng):
    k = 200_000  # packed lists have steps without a pair of their own
    lists = [[0, 65535, 65536, 199_999], [], [131_070], np.sort(rng.choice(k, 500, replace=False))]
    classes = np.concatenate(lists).astype(np.int32)
    zeros = np.zeros(k, np.float32)
    plain = CountWeights(
        starts=ends([len(one) for one in lists]), classes=classes,
        gains=(8 * rng.integers(1, 99, len(classes))).astype(np.int16), base=zeros, hashed=1.0,
        log_values=zeros, penalty=zeros[:4], wide_of=np.full(4, -1, np.int32),
        wide=np.zeros((0, k), np.int16),
    )  # fmt: skip
    asked = np.concatenate([classes, rng.integers(0, k, 50), [65534, 131_070]]).astype(np.int64)
    for f in range(4):
        some = slice(plain.starts[f], plain.starts[f + 1])
        own = dict(zip(plain.classes[some].tolist(), plain.gains[some].tolist(), strict=True))
        for counts in (plain, PackedCounts.of(plain, 8)):
            found = gains_at(counts, f, asked).tolist()
            assert found == [own.get(c, 0) for c in asked.tolist()]


@pytest.mark.parametrize("transform", ["raw", "binary", "log1p", "l2"])
def test_a_model_explains_rows_by_names(transform, rng):
    model = replace(
        model_like(rng, "float32", "hashed", logistic=False), training=training(transform=transform)
    )
    row = {"f1": 3.0, "f4": 1.0, "f7": 2.0, "f9": 0.5, "f10": 2.0}
    values = {
        "raw": row, "binary": dict.fromkeys(row, 1.0),
        "log1p": {f: np.log1p(x) for f, x in row.items()},
        "l2": {f: x / np.sqrt(18.25) for f, x in row.items()},
    }[transform]  # fmt: skip
    for n in (1, 2, 9):
        labels, scores = model.predict_topk([row, {}], 2)
        found, empty = model.explain([row, {}], 2, n)
        assert [one.label for one in found] == labels[0].tolist()
        for one, score in zip(found, scores[0], strict=True):
            assert one.score == pytest.approx(score, abs=1e-4)
            total = sum(c.contribution for c in one.contributions) + sum(one.lines.values())
            assert total == pytest.approx(score, abs=1e-4)
            assert ([*one.lines], one.lines["cosines"]) == ([*LINES], 0)
            added = [c.contribution for c in one.contributions]
            assert added == sorted(added, key=abs, reverse=True)
            assert max(sum(x > 0 for x in added), sum(x < 0 for x in added)) <= n
            for c in one.contributions:
                assert c.value == pytest.approx(values[c.feature], rel=1e-5)
        assert empty[0].contributions == []
    with pytest.raises(UsageError, match="0 features are asked for"):
        model.explain([row], n=0)
