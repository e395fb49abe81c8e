"""Linear classifiers as the whole model: kinds of rows by every door, and what models answer."""

import functools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.cli.main import main
from streammach.linear.kernel_map import KernelWeights
from streammach.linear.learner import LinearLearner, LinearOptions, every_row, scale_features
from streammach.linear.weights import LinearScorer
from streammach.options.training import TrainingOptions
from streammach.planning.choose import plan
from streammach.prediction.explain import LINES
from streammach.rows.block import RowBlock
from streammach.system.errors import BudgetError, UsageError
from streammach.training.small_training import train_few

pytestmark = pytest.mark.usefixtures("linear")
WORDS = [["red", "rose", "tulip"], ["iron", "steel", "rust"], ["salt", "sea", "wave"]]


def texts(rng, n=120):
    """Rows whose class is told by two of its words, beside words of all."""
    classes = rng.integers(0, 3, n)
    rows = [
        " ".join([*rng.choice(WORDS[c], 2), *(f"w{i}" for i in rng.integers(0, 300, 4))])
        for c in classes
    ]
    return rows, [f"c{c}" for c in classes]


def kinds(rng, n=120):
    """Rows of each kind with their labels."""
    rows, y = texts(rng, n)
    words = sorted({w for row in rows for w in row.split()})
    counts = sp.csr_array(
        np.array([[row.split().count(w) for w in words] for row in rows], np.float32)
    )
    mixed = pd.DataFrame({"text": rows, "place": rng.choice(["a", "b"], n), "n": rng.random(n)})
    near = np.array([int(label[1]) for label in y])[:, None] * [3.0, -2, 0, 5] + rng.normal(
        size=(n, 4)
    )
    return {
        "text": (rows, y), "counts": (counts, y), "mixed": (mixed, y),
        "numbers": (near.astype(np.float32), y),
    }  # fmt: skip


@pytest.fixture(params=["text", "counts", "mixed", "numbers"])
def labelled(request):
    """Rows and labels of a kind, and the model that is trained on them."""
    return trained(request.param)


@functools.cache
def trained(kind):
    rows, y = kinds(np.random.default_rng(4))[kind]
    return rows, y, sm.train(rows, y, threads=1).model


def test_model_of_few_classes_is_linear_and_answers_as_its_arrays_say(labelled):
    rows, y, model = labelled
    assert model.linear is not None
    assert model.spec.unhashed
    assert (model.counts, model.calibrated_ranking) == (None, "blend")
    assert np.mean(model.predict(rows) == np.array(y)) > 0.95
    labels, scores = model.predict_topk(rows, 3)
    assert (np.diff(scores, axis=1) <= 0).all()
    p = model.predict_topk(rows, 3, probabilities=True)[1]
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    only = model.predict(rows, only=["c1", "c2"])
    assert set(only) <= {"c1", "c2"}
    best = {tuple(row): s for row, s in zip(labels.tolist(), scores.tolist(), strict=True)}
    for row, said in zip(labels.tolist(), only, strict=True):
        assert said == next(label for label in row if label != "c0"), best


def test_scores_are_those_of_numpy(labelled):
    rows, _, model = labelled
    from streammach.prediction.predictor import Predictor

    with Predictor(model, threads=1) as predictor:
        block = predictor.rows.block(rows, None)
        ids, scores = predictor.rank(block, 3)
    w = model.linear
    if isinstance(w, KernelWeights):
        np.testing.assert_allclose(scores, -np.sort(-w.scores(rows), axis=1), rtol=1e-5, atol=1e-6)
        return
    dense = np.zeros((w.n_features, w.n_classes))
    of = np.repeat(np.arange(w.n_features), np.diff(w.starts))
    dense[of, w.classes] = w.weights
    for i in range(block.n_rows):
        some = slice(block.indptr[i], block.indptr[i + 1])
        f, v = block.features[some], block.values[some].astype(np.float64)
        x = w.scale[f] * (v if w.valued else 1)
        s = w.bias + x @ dense[f] / max(np.sqrt((x * x).sum()), 1e-12) if len(f) else w.empty
        np.testing.assert_allclose(scores[i], np.sort(s)[::-1], rtol=1e-4, atol=1e-5)
        assert ids[i, 0] == s.argmax()


def test_explanations_add_up_to_scores(labelled):
    rows, _, model = labelled
    _, scores = model.predict_topk(rows, 2)
    for own, score in zip(model.explain(rows, k=2, n=50), scores, strict=True):
        for one, s in zip(own, score, strict=True):
            total = sum(part.contribution for part in one.contributions)
            total += sum(one.lines.values())
            assert set(one.lines) == set(LINES)
            np.testing.assert_allclose([one.score, total], s, rtol=1e-4, atol=1e-5)


def test_threads_and_doors_give_the_same_bytes(labelled, tmp_path):
    rows, y, one = labelled
    many = sm.train(rows, y, threads=3).model
    again = pickle.loads(pickle.dumps(many))
    again.save(tmp_path / "m")
    for other in (many, again, sm.Model.load(tmp_path / "m")):
        for name, array in one.linear.arrays().items():
            np.testing.assert_array_equal(array, other.linear.arrays()[name], err_msg=name)


def test_store_gives_the_model_of_rows_in_memory(rng, tmp_path, capsys):
    rows, y = texts(rng)
    frame = pd.DataFrame({"text": rows, "label": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    here = sm.train(frame, "label").model
    assert main(["convert", str(tmp_path / "t.csv"), str(tmp_path / "s"), "--label", "label"]) == 0
    assert main(["train", str(tmp_path / "s"), "--out", str(tmp_path / "r")]) == 0
    model = sm.Run.open(tmp_path / "r").model
    np.testing.assert_array_equal(model.linear.weights, here.linear.weights)
    for command in (
        ["evaluate", str(tmp_path / "r"), str(tmp_path / "t.csv")],
        ["predict", str(tmp_path / "r"), str(tmp_path / "t.csv"), "--explain", "2"],
        ["report", str(tmp_path / "r"), "--on", str(tmp_path / "s")],
        ["info", str(tmp_path / "r")],
    ):
        assert main(command) == 0, command
    assert "linear classifiers, C 1" in capsys.readouterr().out


def test_rare_values_weigh_no_more_where_that_is_wrong_more_often(rng):
    """Rows of a class share a common value; rare ones, which many classes have, say little."""
    n = 900
    classes = rng.integers(0, 3, n)
    frame = pd.DataFrame({
        "kind": [f"k{c if rng.random() < 0.8 else rng.integers(3)}" for c in classes],
        "owner": [f"o{i}" for i in rng.integers(0, 250, n)], "label": [f"c{c}" for c in classes],
    })  # fmt: skip
    (chosen,) = [r for r in sm.train(frame, "label").reasons if r.startswith("linear classifiers")]
    assert "no idf: 5-fold cross-validated accuracy" in chosen


def test_scale_of_features_is_the_formula_or_one(rng):
    block = RowBlock(
        indptr=np.array([0, 2, 3]), features=np.array([0, 2, 2], np.int32),
        values=np.ones(3, np.float32), classes=np.zeros(2, np.int32),
    )  # fmt: skip
    np.testing.assert_allclose(scale_features(block, 3), [1 + np.log(3 / 2), 0, 1], rtol=1e-3)
    np.testing.assert_array_equal(scale_features(block, 3, idf=False), [1, 0, 1])


@pytest.mark.parametrize(
    "options", [{"epochs": 1}, {"n_buckets": 2, "n_repetitions": 2}, {"counts": "on"},
                {"linear": "off"}, {"learning_rate": 0.5}],
    ids=str,
)  # fmt: skip
def test_options_of_hashed_models_ask_for_these(rng, options):
    rows, y = texts(rng)
    assert sm.train(rows, y, **options).model.linear is None


@pytest.mark.parametrize("what", ["lists", "classes", "epochs"])
def test_what_cannot_be_linear_is_refused_where_it_is_asked_for(rng, what):
    rows, y = texts(rng)
    options = {"linear": "on"}
    if what == "lists":
        y = [[label] for label in y]
    elif what == "classes":
        rows, y = rows * 3, [str(i) for i in range(3 * len(rows))]
    else:
        options["epochs"] = 3
    with pytest.raises(UsageError, match="linear"):
        sm.train(rows, y, **options)


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_smaller_model_keeps_to_its_bytes(rng, tmp_path, share):
    rows, y = kinds(rng)["text"]
    run = sm.train(rows, y, out=tmp_path / "run")
    size = sum(file.stat().st_size for file in (tmp_path / "run" / "model").iterdir())
    most = int(share * size)
    try:
        small = sm.train(rows, y, out=tmp_path / "small", model_size=f"{most}B").model
    except BudgetError:
        assert share < 0.9
        return
    assert sum(f.stat().st_size for f in (tmp_path / "small" / "model").iterdir()) <= most
    assert len(small.linear.weights) < len(run.model.linear.weights)


def test_rows_without_a_known_feature_go_by_rows_like_them(rng):
    rows, y = texts(rng, 90)
    lonely = [f"only{i}" for i in range(12)]  # of one class, which is rare otherwise
    model = sm.train(rows + lonely, y + ["c2"] * 12).model
    most = max(sorted(set(y)), key=y.count)
    said = model.predict(["nothing that is known", "neither"])
    assert set(said) == {"c2"}, most


def test_weights_of_rows_count_as_repeated_rows(rng):
    x, y = kinds(rng, 60)["counts"]
    block = RowBlock(
        indptr=x.indptr.astype(np.int64), features=x.indices.astype(np.int32),
        values=x.data, classes=np.array([int(label[1]) for label in y], np.int32),
    )  # fmt: skip
    heavy = np.arange(60) % 2 == 0
    scale = scale_features(block, x.shape[1])
    twice = block.take(np.concatenate([np.arange(60), np.flatnonzero(heavy)]))
    weighed = RowBlock(
        indptr=block.indptr, features=block.features, values=block.values, classes=block.classes,
        importance=np.where(heavy, 2, 1).astype(np.float32),
    )  # fmt: skip
    found = [
        LinearScorer(
            LinearLearner(rows, scale, LinearOptions(cost=1.0), 1).learn(
                3, every_row(rows.classes), rows.n_rows
            ), 1,
        ).scores(block)
        for rows in (twice, weighed)
    ]  # fmt: skip
    np.testing.assert_allclose(*found, atol=0.05)


def test_plan_says_why(rng, tmp_path):
    rows, y = texts(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = sm.train(rows, y, out=tmp_path / "run")
    made = plan(run.plan.facts)
    assert made.config.part("linear") is not None
    assert any("a linear classifier for each of 3 classes" in why for why in made.reasons)
    assert made.projected_bytes <= made.limits.host
    assert any("+-" in why for why in run.result.reasons)


@pytest.mark.parametrize("kind", ["text", "dense"])
def test_kernels_are_compiled_by_a_small_training_like_it(rng, tmp_path, kind):
    rows, y = texts(rng)
    rows = rng.normal(size=(len(y), 5)) if kind == "dense" else rows
    run = sm.train(rows, y, out=tmp_path / "run")
    train_few(str(tmp_path / "few"), (), run.plan, TrainingOptions())
    assert sm.Run.open(tmp_path / "few" / "run").model.linear is not None
