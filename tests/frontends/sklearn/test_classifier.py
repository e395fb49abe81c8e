"""The estimator: labels of every type, sets, weights, pickles, and scikit-learn's tools."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import streammach as sm
from streammach.conversion.memory_rows import MemoryRows
from streammach.system.errors import BudgetError, ModelError, UsageError
from tests.builders import NO_PARTS

MACHClassifier = sm.MACHClassifier
PARTS = {"transform": "raw", "loss": "independent", **NO_PARTS}
# Nothing is searched.
EXACT = {"epochs": 5, "learning_rate": 0.1, "n_jobs": 1, "options": {**PARTS, "counts": "off"}}
SETS = {**EXACT, "epochs": 20, "options": {**EXACT["options"], "label_loss": "logistic"}}
HASHED = {**EXACT, "n_buckets": 4, "n_repetitions": 8}


@pytest.fixture
def data(rng):
    y = rng.integers(0, 10, 400)
    x = rng.random((400, 25)) * (rng.random((400, 25)) < 0.2)
    x[np.arange(400), y] += 3
    return x, y


def same(one, other):
    weights = [np.asarray(clf.model_.weights) for clf in (one, other)]
    return np.array_equal(*weights)


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y, lambda y: y.astype(np.uint8), lambda y: y - 5, lambda y: y / 1.0,
        lambda y: y.astype(str), lambda y: np.array([f"class {c}" for c in y], object),
        lambda y: y % 2 == 0, lambda y: np.array([bool(c % 2) for c in y], object),
        lambda y: [f"{c}" for c in y],
    ],
)  # fmt: skip
def test_labels_of_any_type(data, labels):
    x, y = data[0], labels(data[1])
    clf = MACHClassifier(**EXACT).fit(x, y)
    found = clf.predict(x)
    assert (found == np.asarray(y)).mean() > 0.9
    assert type(found.tolist()[0]) is type(np.asarray(y).tolist()[0])
    assert np.array_equal(clf.classes_, np.unique(y))
    best, scores = clf.predict_topk(x, 2)
    assert np.array_equal(best[:, 0], found)
    assert (scores[:, 0] >= scores[:, 1]).all()


@pytest.mark.parametrize("first", [2**53, 2**63])
@pytest.mark.parametrize("dtype", ["Int64", "{}int64", "{}int64[pyarrow]", "object", "list"])
def test_whole_numbers_that_no_float_holds_stay_apart(data, dtype, first):
    pandas = pytest.importorskip("pandas")
    x, y = data[0], [first + int(c) for c in data[1]]
    dtype = dtype.format("u" if first == 2**63 else "")
    dtype = "UInt64" if dtype == "Int64" and first == 2**63 else dtype
    clf = MACHClassifier(**EXACT).fit(x, y if dtype == "list" else pandas.Series(y, dtype=dtype))
    assert clf.classes_.tolist() == list(range(first, first + 10))
    assert (clf.predict(x).astype(object) == np.array(y, object)).mean() > 0.9
    assert all(label in y for label in clf.model_.predict(x[:20]).tolist())


@pytest.mark.parametrize("dtype", [">f8", np.longdouble, np.float16])
def test_values_of_any_type(data, dtype):
    x = np.where(data[0] > 0, data[1][:, None] + 1.5, 0)
    one, other = (MACHClassifier(**EXACT).fit(rows, data[1]) for rows in (x, x.astype(dtype)))
    assert same(one, other)


@pytest.mark.parametrize("options", [EXACT, HASHED])
def test_probabilities(data, options):
    x, y = data
    clf = MACHClassifier(**options).fit(x, y)
    p = clf.predict_proba(x)
    assert p.shape == (400, 10)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(x))
    assert np.array_equal(clf.predict_proba(x, classes=[7, 2]), p[:, [7, 2]])
    for wrong in (11, 1.5, "1"):
        with pytest.raises(UsageError, match="is no class that was trained on"):
            clf.predict_proba(x, classes=[wrong])
    clf.memory = 1000
    with pytest.raises(BudgetError, match="predict_topk"):
        clf.predict_proba(x)
    assert clf.predict_proba(x, classes=[3]).shape == (400, 1)
    assert clf.score(x, y) > 0.9


@pytest.mark.filterwarnings("ignore:the model does not know 1 label, left out. 'none'")
@pytest.mark.parametrize("label", [int, float, "class {}".format, lambda c: c % 2 == 0])
def test_only_some_labels_may_be_said(data, label):
    x, y = data
    clf = MACHClassifier(**EXACT).fit(x, [label(c) for c in y.tolist()])
    p, (one, two) = clf.predict_proba(x), clf.classes_[:2].tolist()
    for wanted, said in (
        ({"only": [one, two, "none"]}, [0, 1]),
        ({"never": np.array([one])}, None),
    ):
        right = np.isin(np.arange(p.shape[1]), said) if said else np.arange(p.shape[1]) > 0
        assert np.array_equal(clf.predict_proba(x, **wanted), np.where(right, p, 0))
        best = np.where(right, p, -1).argmax(axis=1)
        assert clf.predict(x, **wanted).tolist() == clf.classes_[best].tolist()
        assert clf.predict_topk(x, 2, **wanted)[0][:, 0].tolist() == clf.classes_[best].tolist()
    assert np.array_equal(clf.predict_proba(x, classes=[two]), p[:, 1:2])
    with pytest.raises(UsageError, match="is no class that was trained on"):
        clf.predict_proba(x, classes=[f"{two} and more"])
    own = [[one], [], [two, one], *[[two]] * 397]
    assert clf.predict(x, only=own).tolist()[:2] == [one, ""]
    assert clf.predict_proba(x, only=own)[1].sum() == 0
    with pytest.raises(UsageError, match="no label that the model knows may be said"):
        clf.predict(x, only=["none"])


@pytest.mark.parametrize("form", ["lists", "array", "sparse"])
def test_only_some_labels_of_sets_may_be_said(data, form):
    x, y = data
    sets = np.eye(12, dtype=np.int64)[y]
    sets[:, 11] = 1
    given = {"lists": [np.flatnonzero(row).tolist() for row in sets],
             "sparse": scipy.sparse.csr_array(sets)}.get(form, sets)  # fmt: skip
    clf = MACHClassifier(**SETS).fit(x, given)

    def predicted(**wanted):
        found = clf.predict(x, **wanted)
        if form == "lists":
            return [set(row) for row in found]
        found = found.toarray() if form == "sparse" else found
        return [set(np.flatnonzero(row).tolist()) for row in found]

    every = predicted()
    assert np.mean([11 in row for row in every]) > 0.9
    assert predicted(never=[11]) == [row - {11} for row in every]
    own = [[int(c), 11] if i % 2 else [] for i, c in enumerate(y)]
    assert predicted(only=own) == [a & set(b) for a, b in zip(every, own, strict=True)]


@pytest.mark.parametrize("combine", ["mean", "median", "min", "logsum"])
def test_ways_to_combine_repetitions(data, combine):
    x, y = data
    clf = MACHClassifier(combine=combine, **HASHED).fit(x, y)
    assert clf.score(x, y) > 0.8
    assert np.allclose(clf.predict_proba(x).sum(axis=1), 1)
    few, many = {**HASHED, "n_repetitions": 3, "epochs": 2}, np.arange(400)[::-1] % 40
    clf = MACHClassifier(combine=combine, **few).fit(x, many)  # equal scores
    for wanted in ({}, {"never": [39, 3]}):
        p = clf.predict_proba(x, **wanted)
        assert np.array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(x, **wanted))


def test_sets_of_labels(data, rng):
    x, y = data
    sets = np.zeros((400, 11), np.int64)
    sets[np.arange(400), y] = 1
    more = np.flatnonzero(x[:, 9] > 1)
    sets[more, 9] = 1
    clf = MACHClassifier(**SETS).fit(x, sets)
    assert clf.score(x, sets) > 0.8
    assert clf.predict(x).shape == sets.shape
    sparse = MACHClassifier(**SETS).fit(x, scipy.sparse.csr_matrix(sets))
    found = sparse.predict(x)
    assert scipy.sparse.issparse(found)
    assert np.array_equal(found.toarray(), clf.predict(x))
    assert clf.predict_proba(x)[:, 10].max() == 0  # no row has this label
    with pytest.raises(UsageError, match="lists of labels: class_weight"):
        MACHClassifier(class_weight="balanced").fit(x, sets)


# Lists of two rows, and whether they are an indicator: what scikit-learn takes for one.
FORMS = {
    "0 and 1": ([[0, 1, 1], [1, 0, 0]], True),
    "tuples": (((0, 1, 1), (1, 0, 0)), True),
    "floats": ([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], True),
    "arrays": ([np.array([0, 1, 1]), np.array([1, 0, 0])], True),
    "of several lengths": ([[0, 1], [1]], False),
    "one label": ([[0], [1]], False),
    "numbers": ([[3, 7], [7, 3]], False),
    "strings": ([["0", "1"], ["1", "0"]], False),
    "empty ones": ([[0, 1], []], False),
}


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_lists_of_0_and_1_are_an_indicator(form, partly, rng):
    (one, other), indicator = FORMS[form]
    y = [one, other] * 20 if isinstance(FORMS[form][0], list) else (one, other) * 20
    x = np.eye(2)[np.arange(40) % 2] + rng.normal(0, 0.1, (40, 2))
    few = {**HASHED, "epochs": 20, "n_buckets": 3, "n_repetitions": 2}
    clf = MACHClassifier(**few)
    clf = clf.partial_fit(x, y) if partly else clf.fit(x, y)
    found = clf.predict(x)
    assert isinstance(found, np.ndarray) is indicator
    if indicator:
        array = MACHClassifier(**few)
        array = array.partial_fit(x, np.array(y)) if partly else array.fit(x, np.array(y))
        assert found.tolist() == array.predict(x).tolist()
        assert clf.score(x, y) == array.score(x, np.array(y))
        assert clf.classes_.tolist() == [0, 1, 2]
    else:
        assert clf.classes_.tolist() == sorted({*one, *other})


def test_few_rows_in_any_order_and_repeated(data, rng):
    x, y = data[0][:60], data[1][:60]
    order, weights = rng.permutation(60), np.ones(60)
    weights[:20] = 2
    twice = MACHClassifier().fit(np.concatenate([x, x[:20]]), np.concatenate([y, y[:20]]))
    assert same(twice, MACHClassifier().fit(x, y, weights))
    assert same(twice, MACHClassifier().fit(scipy.sparse.csr_array(x), y, weights))
    assert same(twice, MACHClassifier().fit(x[order], y[order], weights[order]))
    weights[40:] = 0
    assert not same(twice, MACHClassifier().fit(x, y, weights))


def test_the_seed_decides(data):
    x, y = data
    one, two = (MACHClassifier(**HASHED, random_state=seed).fit(x, y) for seed in (0, 1))
    assert not same(one, two)
    assert same(one, MACHClassifier(**HASHED).fit(x, y))
    state = MACHClassifier(**HASHED, random_state=np.random.RandomState(3)).fit(x, y)
    assert state.score(x, y) > 0.9
    assert same(one, MACHClassifier(**{**HASHED, "n_jobs": 2}).fit(scipy.sparse.csr_array(x), y))


def test_weights_of_classes(data):
    x, y = data
    by_class = MACHClassifier(**EXACT, class_weight={3: 0.0}).fit(x, y)
    assert (by_class.predict(x) != 3).all()
    assert 3 in by_class.classes_
    assert MACHClassifier(**EXACT, class_weight="balanced").fit(x, y).score(x, y) > 0.9


@pytest.mark.filterwarnings("ignore:held-out")
def test_held_out_rows_end_a_fit(data, rng):
    x, y = data[0], rng.permutation(data[1])  # nothing can be learnt
    clf = MACHClassifier(**{**EXACT, "epochs": 60, "options": {**PARTS, "held_out_rows": 40}}).fit(
        x, y
    )
    assert clf.n_iter_ < 60
    assert len(clf.loss_curve_) == clf.n_iter_
    assert clf.plan_.config.batching.held_out_rows == 40


def test_warm_start(data):
    x, y = data
    clf = MACHClassifier(**{**EXACT, "epochs": 1}, warm_start=True).fit(x, y)
    before = clf.loss_curve_[0]
    clf.fit(x, y)
    assert clf.loss_curve_[0] < before
    hashed = MACHClassifier(**HASHED, warm_start=True).fit(x, y)
    assert (
        hashed.fit(x, y).loss_curve_[0]
        < hashed.set_params(warm_start=False).fit(x, y).loss_curve_[0]
    )
    other = hashed.set_params(warm_start=True, random_state=5).fit(x, y)
    assert other.score(x, y) > 0.9  # its hashes are those of the fit before
    with pytest.raises(ValueError, match="warm_start"):
        clf.fit(x, y.astype(str))
    texts = MACHClassifier(**EXACT, warm_start=True).fit(x, y.astype(str))
    assert texts.fit(x, y.astype(str).astype(object)).score(x, y.astype(str)) > 0.9


@pytest.mark.parametrize("shape", [EXACT, HASHED])
def test_warm_start_takes_new_classes(data, shape):
    x, y = data
    known, new = y > 2, y <= 2
    clf = MACHClassifier(**shape, warm_start=True).fit(x[known], y[known])
    before = clf.model_.spec
    clf.fit(np.concatenate([x[new], x[:100]]), np.concatenate([y[new], y[:100]]))
    assert clf.classes_.tolist() == np.unique(y).tolist()
    assert (clf.model_.spec.hash_a, clf.model_.spec.exact) == (before.hash_a, before.exact)
    assert (clf.score(x[known], y[known]) > 0.6) & (clf.score(x[new], y[new]) > 0.6)


def test_callbacks(data):
    class Watch:
        epochs = 0

        def on_epoch_end(self, state):
            self.epochs += 1
            if self.epochs == 2:
                state.stop("enough")

    watch = Watch()
    clf = MACHClassifier(**{**EXACT, "epochs": 9}, callbacks=[watch]).fit(*data)
    assert clf.n_iter_ == watch.epochs == 2


@pytest.mark.parametrize("options", [EXACT, HASHED])
def test_pickles_are_the_models_own_files(data, options):
    x, y = data
    clf = MACHClassifier(**options).fit(x, y)
    restored, (files, kind) = clf.__getstate__()["_model"].__reduce__()
    assert sorted(files) == ["model.json", "model.safetensors"]
    for other in (pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)):
        assert np.array_equal(other.predict_proba(x), clf.predict_proba(x))
        assert np.array_equal(other.classes_, clf.classes_)
    with pytest.raises(NotFittedError):
        clone(clf).predict(x)
    with pytest.raises(ModelError):
        restored({**files, "model.safetensors": files["model.safetensors"][:-1] + b"?"}, kind)
    assert not hasattr(pickle.loads(pickle.dumps(MACHClassifier())), "classes_")


def test_threads_may_ask_at_the_same_time(data):
    x, y = data
    clf = MACHClassifier(**{**HASHED, "n_jobs": 2}).fit(x, y)
    whole = clf.predict_proba(x)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: clf.predict_proba(x[i : i + 20]), range(0, 400, 20)))
    assert np.allclose(np.concatenate(parts), whole, rtol=1e-6)


def test_numbers_of_a_grid_may_be_numpys(data, tmp_path):
    x, y = data
    grid = {"epochs": np.arange(1, 3), "learning_rate": np.logspace(-2, -1, 2),
            "n_buckets": [np.int64(4)], "n_repetitions": [np.uint8(3)]}  # fmt: skip
    best = GridSearchCV(MACHClassifier(**EXACT), grid, cv=2, error_score="raise").fit(x, y)
    assert best.best_estimator_.model_.spec.n_buckets == 4
    clf = MACHClassifier(learning_rate=np.float32(0.1), batch_size=np.int64(32)).partial_fit(x, y)
    assert pickle.loads(pickle.dumps(clf)).predict(x).tolist() == clf.predict(x).tolist()
    fixed = {"epochs": np.int64(2), "learning_rate": np.float64(0.1), **PARTS}
    run = sm.train(x, y, out=tmp_path / "run", **fixed)
    assert run.settings.training.epochs == 2


def test_tools_of_scikit_learn(data):
    x, y = data
    pipe = make_pipeline(StandardScaler(), MACHClassifier(**EXACT))
    assert cross_val_score(pipe, x, y, cv=3).min() > 0.8
    grid = GridSearchCV(pipe, {"machclassifier__epochs": [1, 2]}, cv=2).fit(x, y)
    assert grid.best_score_ > 0.8
    assert grid.predict(x[:3]).shape == (3,)
    rows = [{f"w{j}": float(v) for j, v in enumerate(row) if v} for row in x]
    assert (
        make_pipeline(DictVectorizer(), MACHClassifier(**EXACT)).fit(rows, y).score(rows, y) > 0.9
    )


def test_tables(data):
    pandas = pytest.importorskip("pandas")
    x, y = data
    frame = pandas.DataFrame(x, columns=[f"c{j}" for j in range(25)])
    clf = MACHClassifier(**EXACT).fit(frame, pandas.Series(y))
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    assert same(clf, MACHClassifier(**EXACT).fit(frame, y))
    assert np.array_equal(clf.model_.predict(frame), clf.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[frame.columns[::-1]])
    pipe = make_pipeline(StandardScaler(), MACHClassifier(**EXACT)).set_output(transform="pandas")
    assert pipe.fit(frame, y).score(frame, y) > 0.8
    assert pipe[-1].feature_names_in_.tolist() == list(frame.columns)


def test_rows_touch_a_disk_only_where_they_do_not_fit(data, monkeypatch):
    whole = MACHClassifier(**EXACT).fit(*data)
    assert whole.plan_.facts.held_bytes > 0
    monkeypatch.setattr(MemoryRows, "intake_bytes", 10**12)
    stored = MACHClassifier(**EXACT).fit(*data)
    assert stored.plan_.facts.held_bytes == 0
    assert same(stored, whole)


def test_budgets_are_kept(data):
    with pytest.raises(BudgetError):
        MACHClassifier(memory="50MB").fit(*data)


def test_probabilities_of_more_classes_than_candidates_are_calibrated(rng):
    y = rng.integers(0, 40, 2000)
    x = rng.random((2000, 40)) < 0.05
    x[np.arange(2000), y] |= rng.random(2000) < 0.8
    clf = MACHClassifier(epochs=5, n_buckets=20, n_repetitions=8)
    p = clf.fit(x[:1500].astype(float), y[:1500]).predict_proba(x[1500:].astype(float))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    every = clf.predict_proba(x[1500:].astype(float), never=[])  # for which all are ranked
    assert np.array_equal(p, every)
    best, _ = clf.predict_topk(x[1500:].astype(float), 40)
    ranked = np.take_along_axis(p, np.searchsorted(clf.classes_, best), axis=1)
    assert (np.diff(ranked, axis=1) <= 0).all()  # as the scores
    assert (ranked[:, 32:] == ranked[:, 32:33]).all()
    assert clf.model_.calibration.stated
    found = ranked[np.arange(500), (best == y[1500:, None]).argmax(axis=1)]
    assert -np.log(found).mean() < 0.6 * np.log(40)
    assert np.array_equal(clf.predict_proba(x[1500:].astype(float), classes=[3, 1]), p[:, [3, 1]])
