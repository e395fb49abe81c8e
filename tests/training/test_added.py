"""Classes added after training: old scores stay, new classes are found, and files say so."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach import hashing
from streammach.model.added import NewClasses, fitted_line, with_classes
from streammach.model.calibration import CANDIDATES, Calibration, class_probabilities
from streammach.model.shrink import Size, shrink
from streammach.options.documents import encode_json
from streammach.options.training import TrainingOptions
from streammach.prediction.new_classes import choose_unlike_buckets
from streammach.rows.names import Names
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import BudgetError, DataError, ModelError, UsageError
from streammach.training import derived as module
from tests.builders import TinyData, block_of, spec_of
from tests.model.models import counts_of, model_of

N_CLASSES, N_NEW, N_ROWS = 60, 4, 20
ALL = 10**9
OPTIONS = {"epochs": 3, "learning_rate": 0.5, "transform": "binary"}


USUAL = {"counts": "on", "buckets": 16, "repetitions": 6, "size": "full"}


def lines_of(words, classes, rng, n_rows=N_ROWS):
    """Rows that hold three of the words of their class, and two that say nothing."""
    out = []
    for y in np.repeat(classes, n_rows):
        own = " ".join(f"w{j}" for j in rng.choice(words[y], 3, replace=False))
        noise = " ".join(f"n{j}" for j in rng.choice(20, 2, replace=False))
        out.append(f"class-{y} |x {own} {noise}")
    return out


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Files of rows: of the known classes, of the new ones, and of all for a test; a run."""
    rng = np.random.default_rng(7)
    tiny = TinyData(tmp_path_factory.mktemp("usual"), rng)
    words = [rng.choice(40, 4, replace=False) for _ in range(N_CLASSES + N_NEW)]  # of each class
    known, new = range(N_CLASSES), range(N_CLASSES, N_CLASSES + N_NEW)
    tiny.text("train.vw", rng.permutation(lines_of(words, known, rng, 40)).tolist())
    tiny.text("new.vw", lines_of(words, new, rng))
    tiny.text("test.vw", lines_of(words, [*known, *new], rng, 5))
    trained(tiny.folder)
    return tiny.folder


@pytest.fixture
def texts(usual, tiny):
    """A copy of these."""
    return shutil.copytree(usual, tiny.folder, dirs_exist_ok=True)


def trained(folder, **shape):
    """Return a model of the known classes: the usual one is there already."""
    counts, buckets, repetitions, size = {**USUAL, **shape}.values()
    if (folder / "run").exists():
        if not shape:
            return sm.Model.load(folder / "run")
        shutil.rmtree(folder / "run")
    sm.convert(folder / "train.vw", folder / "train.zarr", force=True)
    plan = sm.plan(
        folder / "train.zarr", n_buckets=buckets if repetitions else None,
        n_repetitions=repetitions, counts=counts, threads=1,
    )  # fmt: skip
    training = TrainingOptions(**OPTIONS, model_size=size)
    return sm.Trainer(plan, training).fit(folder / "train.zarr", folder / "run").model


def ranked(model, path, k):
    """Ids and scores of all rows of a file."""
    with sm.Predictor(model, device="cpu", threads=1) as predictor:
        parts = list(predictor.stream(path, k))
    return [np.concatenate([getattr(p, name) for p in parts]) for name in ("ids", "scores")]


def without_new(ids, scores, n_known):
    """The known classes of each row, in their order."""
    old = ids < n_known
    n = old.sum(axis=1).min()
    return [np.array([a[o][:n] for a, o in zip(x, old, strict=True)]) for x in (ids, scores)]


def check_old(model, more, path, k=20):
    """Every known class has the score that it had, to the last bit."""
    n_new = more.spec.n_classes - model.spec.n_classes
    ids, scores = ranked(model, path, k)
    found = without_new(*ranked(more, path, k + n_new), model.spec.n_classes)
    np.testing.assert_array_equal(found[0][:, :k], ids)
    np.testing.assert_array_equal(found[1][:, :k], scores)


def shares(model, folder):
    """How many rows of known and of new classes are found."""
    ids, _ = ranked(model, folder / "test.vw", 1)
    labels = [line.split()[0] for line in (folder / "test.vw").read_text().splitlines()]
    right = np.array([model.labels.label(i) for i in ids[:, 0]]) == np.array(labels)
    n = 5 * N_CLASSES
    return right[:n].mean(), right[n:].mean()


@pytest.mark.parametrize(
    "shape",
    [
        {"counts": "on"},
        {"counts": "off"},
        {"counts": "on", "repetitions": 0},
        {"counts": "on", "size": "auto"},
    ],
    ids=["both", "hashes", "counts", "compact"],
)
def test_new_classes_are_found_and_old_scores_stay(texts, shape):
    model = trained(texts, **shape)
    more = sm.add(texts / "run", texts / "new.vw", texts / "more", threads=1)
    assert more.spec.n_classes == model.spec.n_classes + N_NEW
    saved = sm.Model.load(texts / "more")
    assert [saved.labels.raw(i).decode() for i in range(N_CLASSES, N_CLASSES + N_NEW)] == [
        f"class-{y}" for y in range(N_CLASSES, N_CLASSES + N_NEW)
    ]
    for one in (more, saved):
        check_old(model, one, texts / "test.vw")
    np.testing.assert_array_equal(np.asarray(model.weights), np.asarray(saved.weights))
    before, after = shares(model, texts), shares(saved, texts)
    assert before[1] == 0
    assert after[1] >= 0.25  # by chance: 0.02
    assert after[0] >= before[0] - 0.05
    assert more.predict([{"x^w1": 1.0}], k=3).shape == (1, 3)


@pytest.mark.parametrize("stored", ["int8", "int4", "float16"])
def test_smaller_models_take_classes(texts, stored):
    whole = trained(texts)
    small = shrink(whole, Size(stored, 4, 300))
    small.save(texts / "small")
    more = sm.add(texts / "small", texts / "new.vw", texts / "more", threads=1)
    saved = sm.Model.load(texts / "more")
    for one in (more, saved):
        check_old(sm.Model.load(texts / "small"), one, texts / "test.vw")
        assert one.stored == small.stored
    ids, scores = ranked(more, texts / "test.vw", 20)
    np.testing.assert_array_equal(ids, ranked(saved, texts / "test.vw", 20)[0])
    np.testing.assert_array_equal(scores, ranked(saved, texts / "test.vw", 20)[1])


def test_classes_are_added_twice_and_the_model_shrinks(texts, tiny):
    model = trained(texts)
    lines = (texts / "new.vw").read_text().splitlines()
    tiny.text("one.vw", lines[: 2 * N_ROWS])
    tiny.text("two.vw", lines[N_ROWS:])
    sm.add(texts / "run", texts / "one.vw", texts / "a", threads=1)
    found = module.add_classes(texts / "a", texts / "two.vw", threads=1, facts=LabelFacts())
    n_added = found.model.spec.n_classes - found.before.spec.n_classes
    assert (n_added, found.n_rows, found.left_out) == (2, 2 * N_ROWS, N_ROWS)
    check_old(model, found.model, texts / "test.vw")
    small = sm.shrink(texts / "a", texts / "small", weights="int4", repetitions=3)
    assert [len(code) for code in small.spec.added_codes] == [3, 3]
    assert small.spec.codes().shape == (N_CLASSES + 2, 3)
    again = sm.Model.load(texts / "small")
    assert again.spec == small.spec
    assert again.spec.codes().tolist() == model_codes(texts / "a")[:, :3].tolist()


def model_codes(folder):
    return sm.Model.load(folder).spec.codes()


def test_a_store_and_its_text_give_the_same_model(texts):
    trained(texts)
    sm.convert(texts / "new.vw", texts / "new.zarr", seed=3)
    models = [sm.add(texts / "run", texts / name, threads=1) for name in ("new.vw", "new.zarr")]
    scores = []
    for model in models:
        ids, found = ranked(model, texts / "test.vw", N_CLASSES + N_NEW)
        names = np.array([model.labels.label(i) for i in range(N_CLASSES + N_NEW)])
        order = np.argsort(names[ids], axis=1)
        scores.append(np.take_along_axis(found, order, axis=1))
    np.testing.assert_array_equal(*scores)


def test_rows_of_lists_of_labels(tiny, rng):
    lines = []
    for _ in range(600):
        own = rng.choice(25, 2, replace=False).tolist()
        lines.append(f"{','.join(f'c{c}' for c in own)} |x " + " ".join(
            f"p{c % 5} q{c // 5} n{rng.integers(90)}" for c in own))  # fmt: skip
    old = [line for line in lines if "c7" not in line.split()[0].split(",")]
    tiny.text("train.vw", old)
    model = trained(tiny.folder)
    tiny.text("new.vw", [line for line in lines if line not in old])
    tiny.text("test.vw", lines[:50])
    more = sm.add(tiny.folder / "run", tiny.folder / "new.vw", tiny.folder / "more", threads=1)
    n_new = len(lines) - len(old)
    assert more.spec.n_classes == 25
    assert more.label_counts.tolist() == [*model.label_counts.tolist(), n_new]
    assert more.n_rows == model.n_rows + n_new
    check_old(model, more, tiny.folder / "test.vw")
    saved = sm.Model.load(tiny.folder / "more")
    assert saved.listed
    found = sm.evaluate(saved, tiny.folder / "test.vw")
    assert found.n_unseen == 0
    assert found.sets is not None


def test_what_cannot_be_done_is_said(texts, tiny):
    model = trained(texts, buckets=N_CLASSES, repetitions=1)
    assert model.spec.exact
    with pytest.raises(UsageError, match="weights of its own") as found:
        sm.add(texts / "run", texts / "new.vw", texts / "more")
    assert "--buckets" in found.value.hint
    model_of(np.random.default_rng(0)).save(texts / "model")
    tiny.text("known.vw", ["'label 1'| f1", "other |y f1"])
    tiny.text("none.vw", ["class-1 |x w1"])
    with pytest.raises(UsageError, match="no such store"):
        sm.add(texts / "model", texts / "nothing.vw")
    with pytest.raises(UsageError):
        sm.add(texts / "model", texts / "new.vw", texts / "model")
    with pytest.raises(BudgetError):
        sm.add(texts / "model", texts / "new.vw", memory="10MB")
    assert not (texts / "more").exists()


def test_rows_without_a_new_label_are_bad_data(texts):
    trained(texts)
    with pytest.raises(DataError, match="no row has a label"):
        sm.add(texts / "run", texts / "train.vw", texts / "more")
    with pytest.raises(DataError, match="no row has a label"):
        sm.add(texts / "run", texts / "train.zarr", texts / "more")
    assert not (texts / "more").exists()


def test_rows_that_do_not_fit_are_refused(texts, monkeypatch):
    trained(texts)
    monkeypatch.setattr(module, "_room", lambda *given: (module_room(*given)[0], 100))
    with pytest.raises(BudgetError, match="rows of new classes"):
        sm.add(texts / "run", texts / "new.vw")


module_room = module._room


def test_codes_are_those_of_the_hashes_and_then_the_added_ones():
    spec = spec_of(30, 5, 8, 3)
    added = np.array([[1, 2, 3], [7, 0, 7]])
    more = spec.with_more_classes(added)
    assert more.n_classes == 32
    assert more.codes()[30:].tolist() == added.tolist()
    np.testing.assert_array_equal(more.codes()[:30], spec.codes())
    assert more.codes().dtype == spec.codes().dtype
    assert more.first(2).codes()[30:].tolist() == [[1, 2], [7, 0]]
    assert json.loads(encode_json(more))["added_codes"] == added.tolist()
    for wrong in (((1, 2),), ((1, 2, 8),), ((1, 2, -1),), ((1, 2, 3),) * 32):
        with pytest.raises(ValueError, match="added"):
            replace(more, added_codes=wrong)
    with pytest.raises(ValueError, match="without hashes"):
        replace(spec_of(8, 5, 8, 3), added_codes=((1,),))
    table = hashing.codes(spec.hash_a, spec.hash_b, 30, 8)
    np.testing.assert_array_equal(table, spec.codes())


def test_no_two_classes_have_the_same_code(rng):
    table = np.array([[1, 1, 1], [2, 2, 2]], np.uint8)
    best = np.array([[1, 1, 1], [3, 3, 3], [3, 3, 3], [2, 0, 2]])
    apart = rng.random((4, 3)).astype(np.float32)
    codes = choose_unlike_buckets(best, (best + 1) % 4, apart, table)
    assert len(np.unique(np.concatenate([table, codes]), axis=0)) == 6
    assert (codes == best).all(axis=1).tolist() == [False, True, False, True]
    assert ((codes != best).sum(axis=1) <= 1).all()
    least = apart[0].argmin()
    assert codes[0, least] == 2


@pytest.mark.parametrize("line", [(), (0.0, 0.4, 1.0)], ids=["scale", "line"])
@pytest.mark.parametrize("n_known", [20, 30, 32, 40])
def test_classes_that_score_less_take_little_of_probabilities(n_known, line, rng):
    other = 3.0 if n_known <= CANDIDATES else -3.0  # it is not fitted where there are no others
    model = model_of(rng, k=n_known, calibration=Calibration(1.2, other, line, line))
    scores = -20 - np.sort(rng.gamma(2.0, 2.0, (40, n_known)).astype(np.float32))
    before, more = class_probabilities(scores, n_known, model.calibration)[0], model
    for n in (1, 3):  # one after the other
        more = with_classes(more, NewClasses(
            labels=Names.of(f"{n} {i}" for i in range(n)), codes=np.zeros((n, 3), np.uint8),
            pairs=np.zeros((2, 0), np.int32), n_values=np.ones(n), n_rows=np.ones(n), n_distinct=n,
        ))  # fmt: skip
    scores = np.pad(scores, ((0, 0), (0, 4)), constant_values=scores.min() - 5)
    after = class_probabilities(scores, n_known + 4, more.calibration)[0]
    np.testing.assert_allclose(after[:, :n_known], before, atol=0.06)


def test_counts_of_new_classes(rng):
    counts = counts_of(rng)
    model = model_of(rng, counts=counts)
    pairs = np.array([[0, 11, 5, 10], [0, 0, 1, 1]], np.int32)
    more = with_classes(model, NewClasses(
        labels=Names.of(["x", "y"]), codes=np.zeros((2, 3), np.uint8), pairs=pairs,
        n_values=np.array([7, 0]), n_rows=np.array([2, 1]), n_distinct=3,
    )).counts  # fmt: skip
    for f, c in pairs.T.tolist():
        row = counts.wide[counts.wide_of[f]] if counts.wide_of[f] >= 0 else counts.gains[
            counts.starts[f] : counts.starts[f + 1]]  # fmt: skip
        row = row[row != 0] if counts.wide_of[f] >= 0 else row
        wanted = round(float(row.mean())) if len(row) else 0
        assert gain_of(more, f, 30 + c) == wanted
    start, slope = fitted_line(counts.log_values, counts.base)
    wanted = np.polyfit(counts.log_values.astype(float), counts.base.astype(float), 1)
    np.testing.assert_allclose([slope, start], wanted, rtol=1e-9)
    np.testing.assert_allclose(more.base[30:], start + slope * np.log([7, 0.5]), rtol=1e-6)
    assert fitted_line(np.ones(3, np.float32), np.arange(3, dtype=np.float32)) == (1.0, 0.0)
    block = block_of(rng, 20, 12, 30)
    block = block.take(np.flatnonzero(np.diff(block.indptr)))  # others go by frequency
    spec = model.spec.with_more_classes(np.zeros((2, 3), np.uint8))
    for one in (model, replace(model, counts=more, spec=spec)):
        with sm.Predictor(one, threads=1) as predictor:
            found = predictor.rank(block, 40)
        old = [a[found[0] < 30].reshape(-1, 30) for a in found]
        if one is model:
            first = old
    np.testing.assert_array_equal(old[0], first[0])
    np.testing.assert_array_equal(old[1], first[1])


def gain_of(counts, f, c):
    """What a pair adds."""
    if counts.wide_of[f] >= 0:
        return counts.wide[counts.wide_of[f], c]
    own = slice(counts.starts[f], counts.starts[f + 1])
    return counts.gains[own][counts.classes[own] == c].sum()


def test_the_document_says_which_classes_were_added(rng, tmp_path):
    model = model_of(rng)
    more = replace(
        model, spec=model.spec.with_more_classes(np.zeros((1, 3), np.uint8)),
        labels=model.labels.followed_by(Names.of(["new"])),
    )  # fmt: skip
    model.save(tmp_path / "model")
    more.save(tmp_path / "more")
    document = json.loads((tmp_path / "more/model.json").read_text())
    assert len(document["spec"]["added_codes"]) == 1
    assert sm.Model.load(tmp_path / "more").spec == more.spec
    (tmp_path / "more/model.json").write_text(json.dumps({**document, "n_rows": 5}))
    with pytest.raises(ModelError):
        sm.Model.load(tmp_path / "more")
