"""Only some labels may be said: the answers are those of all labels, filtered, to the last bit."""

import os
from dataclasses import replace

import numpy as np
import pytest

from streammach.model.calibration import Calibration
from streammach.options.estimators import ESTIMATORS, EstimatorKind
from streammach.options.model_spec import ModelShape, ModelSpec
from streammach.prediction.predictor import Predictor
from streammach.rows.names import Names
from streammach.rows.packed import PackedCounts
from streammach.system.errors import UsageError
from tests.builders import block_of, training
from tests.model.models import counts_of, late_of, model_of, near_of
from tests.reference.decoding import WAYS, by_way, possible

pytestmark = pytest.mark.filterwarnings("ignore:the model does not know 1 label, left out")
N, D, K = 40, 12, 230
NAMES = [f"label {i}" for i in range(K)]
LISTED = {
    "training": training(label_share="shared", loss="logistic"), "n_rows": 9,
    "label_counts": np.ones(K, np.int64),
}  # fmt: skip


def unhashed(rng, **changes):
    none = ModelSpec.unhashed_of(
        ModelShape(n_classes=K, n_features=D, n_buckets=1, n_repetitions=0)
    )
    model = model_of(rng, D, K, counts=counts_of(rng, D, K), **changes)
    return replace(model, spec=none, weights=model.weights[:, :0], bias=model.bias[:0])


def with_near(rng):
    return replace(counts_of(rng, D, K), near=near_of(rng, D, K))


MODELS = {
    "hashed": lambda rng: model_of(rng, D, K),
    "exact": lambda rng: model_of(rng, D, K, K, 1),
    "dense": lambda rng: model_of(rng, D, K, dense=True),
    "lists": lambda rng: model_of(rng, D, K, **LISTED),
    "blend": lambda rng: model_of(rng, D, K, counts=counts_of(rng, D, K)),
    "packed": lambda rng: model_of(rng, D, K, counts=PackedCounts.of(counts_of(rng, D, K), 32)),
    "neighbours": lambda rng: model_of(rng, D, K, counts=with_near(rng)),
    "counts": unhashed,
    "classifiers": lambda rng: model_of(rng, D, K, counts=with_near(rng), late=late_of(rng, D, K)),
    "hashed, classifiers": lambda rng: model_of(rng, D, K, late=late_of(rng, D, K)),
    "lists, classifiers": lambda rng: unhashed(rng, late=late_of(rng, D, K), **LISTED),
    "counts, lists": lambda rng: unhashed(rng, **LISTED),
}
NAMED = {
    "hashed": ["mean", "min", "median", "logsum"], "lists": ["mean", "logsum"],
    "blend": ["blend", "logsum"],
}  # fmt: skip


def picked(rng, n):
    return [NAMES[i] for i in rng.choice(K, n, replace=False).tolist()]


LIMITS = {
    "few": lambda rng: {"only": picked(rng, 5)},
    "one": lambda rng: {"only": [*picked(rng, 1), "unknown"]},
    "many": lambda rng: {"only": picked(rng, K // 2)},
    "all but some": lambda rng: {"never": [*picked(rng, 20), "unknown"]},
    "both": lambda rng: {"only": picked(rng, 50), "never": picked(rng, 100)},
    "own": lambda rng: {"only": [picked(rng, i % 9) for i in range(N)]},
    "own never": lambda rng: {"never": [picked(rng, 40 * (i % 5)) for i in range(N)]},
    "own both": lambda rng: {
        "only": [picked(rng, 30) for _ in range(N)], "never": [picked(rng, 200)] * N,
    },
    "few without own": lambda rng: {
        "only": picked(rng, 9), "never": [picked(rng, i) for i in range(N)],
    },
}  # fmt: skip


def reference(labels, scores, k, only=None, never=None):
    """The first k of all labels of each row that may be said, and their scores."""
    rows = []
    for i in range(len(labels)):
        own = [x[i] if x and isinstance(x[0], list) else x for x in (only, never)]
        pairs = zip(labels[i].tolist(), scores[i].tolist(), strict=True)
        right = [pair for pair in pairs if own[0] is None or pair[0] in own[0]]
        rows.append([pair for pair in right if pair[0] not in (own[1] or ())][:k])
    return rows


def said(labels, scores):
    """The labels and scores that are there, and zeros behind them."""
    for row, own in zip(labels.tolist(), scores.tolist(), strict=True):
        there = [pair for pair in zip(row, own, strict=True) if pair[0] != ""]
        assert own[len(there) :] == [0] * (len(row) - len(there))
        yield there


def compare(found, wanted, *, dense):
    """Products of matrices of other shapes, as of fewer rows, may have other last bits."""
    found = list(found)
    if not dense:
        assert found == wanted
        return
    assert [[label for label, _ in row] for row in found] == [
        [label for label, _ in row] for row in wanted
    ]
    scores = ([score for row in rows for _, score in row] for rows in (found, wanted))
    np.testing.assert_allclose(*scores, rtol=1e-6)


def ways(model, name):
    """Every way to rank and to decode that a model has."""
    shape = model.spec
    for estimator in NAMED.get(name, [None]):
        yield estimator, None
    for way in WAYS if not shape.unhashed and model.counts is None else ():
        if possible(way, shape):
            yield None, way


def predictor_of(model, estimator, way, threads):
    predictor = Predictor(model, estimator=estimator, threads=threads, device="cpu")
    if way is not None:
        by_way(predictor._backend.decoder, way)
    return predictor


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_all_labels_filtered(name, limit, rng):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    wanted = LIMITS[limit](rng)
    for estimator, way in ways(model, name):
        with predictor_of(model, estimator, way, 2) as predictor:
            every = predictor.topk(block, K)
            for k in (1, 4, K):
                labels, scores = predictor.topk(block, k, **wanted)
                compare(said(labels, scores), reference(*every, k, **wanted), dense=model.dense)
                if "own" not in limit:
                    assert "" not in labels.ravel().tolist()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", MODELS)
def test_models_and_queries_answer_the_same(name, limit, rng):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    wanted, x = LIMITS[limit](rng), np.zeros((N, D))
    names = {"columns": [f"f{i}" for i in range(D)]}
    x[np.repeat(np.arange(N), np.diff(block.indptr)), block.features] = block.values
    with Predictor(model, threads=1) as predictor:
        labels, scores = predictor.topk(x, 3, **names, **wanted)
        likely = {"threshold": 0.02, **names, **wanted}
        found = model.predict(x, 3, **likely)
        assert found.tolist() == predictor.topk(x, 3, **likely)[0].tolist()
        assert model.predict(x, 3, **names, **wanted).tolist() == labels.tolist()
        for i in range(0, N, 9):
            own = {word: x[i] if x and isinstance(x[0], list) else x for word, x in wanted.items()}
            features = np.flatnonzero(x[i]).astype(np.int32)
            if not labels[i].any():
                with pytest.raises(UsageError, match="no label that the model knows"):
                    predictor.query(features, x[i, features], 3, **own)
                continue
            found, reached = predictor.query(features, x[i, features], 3, **own)
            n = len(found)  # fewer columns where fewer labels may be said
            assert found.tolist() == labels[i, :n].tolist() or model.dense
            assert not labels[i, n:].any()
            np.testing.assert_allclose(reached, scores[i, :n], rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_rows_whose_best_labels_may_not_be_said_are_ranked_on(name, rng):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    with Predictor(model, threads=2) as predictor:
        every = predictor.topk(block, K)
        own = [row[: 5 * i].tolist() for i, row in enumerate(every[0])]
        for wanted in ({"never": own}, {"never": own[-1]}, {"only": every[0][3, 120:].tolist()}):
            found = said(*predictor.topk(block, 3, **wanted))
            compare(found, reference(*every, 3, **wanted), dense=model.dense)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    "name", ["hashed", "lists", "blend", "counts, lists", "classifiers", "lists, classifiers"]
)
def test_probabilities_are_those_among_all_labels(name, limit, rng):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    if not model.listed:
        line = Calibration(1.5, -3.0, (0.0, 0.4, 1.0), (0.0, 0.2, 1.0))
        model = replace(model, calibration=line)
    wanted = LIMITS[limit](rng)
    with Predictor(model, threads=1) as predictor:
        every = predictor.topk(block, K, probabilities=True)
        found = predictor.topk(block, 4, probabilities=True, **wanted)
        for own, right in zip(said(*found), reference(*every, 4, **wanted), strict=True):
            # Of labels beyond the 32 best with one probability any may come first.
            assert [label for label, _ in own] == [label for label, _ in right]
            np.testing.assert_allclose([p for _, p in own], [p for _, p in right], rtol=2e-6)
        likely = predictor.topk(block, 4, threshold=0.02, **wanted)
        for own, all_of_them in zip(said(*likely), said(*found), strict=True):
            assert own == [pair for pair in all_of_them if pair[1] >= np.float32(0.02)]


@pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") != "1", reason="the simulator's turn")
@pytest.mark.parametrize("name", ["hashed", "blend"])
def test_a_device_gives_the_same_labels(name, rng):
    model, block = MODELS[name](rng), block_of(rng, 4, D, K)
    for estimator in ("median", "blend" if name == "blend" else "logsum"):
        with Predictor(model, estimator=estimator, device="cuda", threads=1) as predictor:
            every = predictor.topk(block, K)
            for wanted in ({"only": NAMES[3:9]}, {"never": [NAMES[i : i + 50] for i in range(4)]}):
                found = said(*predictor.topk(block, 2, **wanted))
                assert list(found) == reference(*every, 2, **wanted)


def test_an_estimator_that_no_kernel_knows(rng, monkeypatch):
    kind = EstimatorKind(name="largest", join=lambda values: values.max(axis=1))
    monkeypatch.setitem(ESTIMATORS, "largest", kind)
    model, block = MODELS["hashed"](rng), block_of(rng, N, D, K)
    with Predictor(model, estimator="largest", threads=1) as predictor:
        every = predictor.topk(block, K)
        for limit in LIMITS.values():
            wanted = limit(rng)
            found = said(*predictor.topk(block, 4, **wanted))
            for own, right in zip(found, reference(*every, 4, **wanted), strict=True):
                assert [score for _, score in own] == [score for _, score in right]


def test_what_cannot_be_is_refused(rng):
    model, block = MODELS["hashed"](rng), block_of(rng, 3, D, K)
    with Predictor(model, threads=1) as predictor:
        for wrong in ({"only": ["unknown"]}, {"only": []}, {"never": NAMES}):
            with pytest.raises(UsageError, match="no label that the model knows may be said"):
                predictor.topk(block, **wrong)
        with pytest.raises(UsageError, match="2 lists of labels for 3 rows: never"):
            predictor.topk(block, never=[["label 1"], []])
        assert predictor.topk(block, 5, only=NAMES[:2])[0].shape == (3, 2)


def test_uris_may_stand_without_their_brackets(rng):
    names = [f"<http://e.org/{i}>" if i % 3 else f"http://e.org/{i}" for i in range(K)]
    model, block = model_of(rng, D, K, labels=Names.of(names)), block_of(rng, N, D, K)
    with Predictor(model, threads=1) as predictor:
        wanted = predictor.topk(block, 4, only=names[:9])
        bare = [name.strip("<>") for name in names[:9]]
        for way in ({"only": bare}, {"never": [n.strip("<>") for n in names[9:]]}):
            assert all(map(np.array_equal, predictor.topk(block, 4, **way), wanted))
        with pytest.raises(UsageError, match=r"Its labels look like 'http://e.org/0'"):
            predictor.topk(block, only=["e.org/1"])


def test_labels_of_other_types(rng):
    model = model_of(rng, D, K, labels=Names.of(range(K)))
    block = block_of(rng, N, D, K)
    with Predictor(model, threads=1) as predictor:
        wanted = predictor.topk(block, 2, only=[3, 5, 8])
        assert wanted[0].dtype == np.int64
        for labels in (
            np.array([8, 3, 5]),
            ["3", "5", "8"],
            [b"3", b"5", b"8"],
            [8.0, 3, np.float32(5)],
        ):
            found = predictor.topk(block, 2, only=labels)
            assert found[0].tolist() == wanted[0].tolist()
