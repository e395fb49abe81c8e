"""Figures of each class, confusions and examples: as scikit-learn and plain loops have them."""

import csv
import json
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import (
    classification_report,
    confusion_matrix,
    ndcg_score,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)

import streammach as sm
from streammach.cli.main import main
from streammach.prediction import by_class
from streammach.prediction.by_class import PairCounts
from streammach.prediction.evaluate import evaluate
from streammach.prediction.metric_table import EvaluationRequest
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import room_before
from streammach.system.errors import DataError, UsageError
from tests.builders import TinyData, fit, listed_lines
from tests.prediction.test_metrics import by_plain_loops

N, K = 10_000, 60


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A model of rows with lists of labels, text of other rows, and their lists."""
    rng = np.random.default_rng(3)
    tiny = TinyData(tmp_path_factory.mktemp("listed"), rng)
    lines = [line for line in listed_lines(rng, 900) if not line.startswith(" ")]
    store = sm.convert(tiny.text("a.vw", lines), tiny.folder / "a.zarr", multilabel="on").path
    with sm.Dataset.open(store) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=4, threads=1)
        model = fit(data, tiny.folder / "run", plan, epochs=3, learning_rate=0.5,
                    transform="binary").model  # fmt: skip
    test = [line.replace("c3", "never", 1) for line in listed_lines(rng, 300)]
    truth = [line.split(" ")[0] for line in test]
    learnt = [line.split(" ")[0].split(",") for line in lines]
    return model, tiny.text("b.vw", test), [t.split(",") if t else [] for t in truth], learnt


@pytest.fixture
def one(trained, tiny):
    """A model of rows with one label, text of rows with labels it does not know, their labels."""
    lines = [*tiny.lines(190, 24), "never |w own1_0", "never |w own2_0"]
    lines = [  # some have the label of another row
        f"{lines[i * 7 % 190 if i % 3 == 0 else i].split()[0]} {line.partition(' ')[2]}"
        for i, line in enumerate(lines)
    ]
    return trained[1], tiny.text("t.vw", lines), [line.split()[0] for line in lines]


def by_label(found):
    """The figures of each class by its label."""
    table = found.classes
    lines = (dict(zip(table, line, strict=True)) for line in zip(*table.values(), strict=True))
    return {line["label"]: line for line in lines}


def said_of(model, path, k=1, **options):
    with Predictor(model) as predictor:
        parts = [*predictor.stream(path, k, **options)]
        labels = np.concatenate([predictor.labels(part.ids) for part in parts])
    return labels, np.concatenate([part.scores for part in parts])


def test_classes_of_a_model_are_those_of_scikit_learn(one):
    model, path, truth = one
    found = evaluate(model, path, by_class=True, confusions=4)
    said, names = said_of(model, path)[0][:, 0], model.labels.values(np.arange(len(model.labels)))
    wanted = classification_report(truth, said, output_dict=True, zero_division=0)
    shown = by_label(found)
    assert shown.keys() == {*truth, *said} - ({*truth} - {*names})
    for name, line in shown.items():
        own = [wanted[name][x] for x in ("support", "precision", "recall", "f1-score")]
        assert [line[x] for x in ("rows", "precision", "recall", "f1")] == pytest.approx(own)
        assert line["predicted"] == (said == name).sum()
        missed = [i for i, t in enumerate(truth) if t == name != said[i]]
        assert line["examples"] == missed[:3]
        pairs = Counter(said[missed]).most_common()
        if pairs:
            assert line["confusion"] in {a for a, n in pairs if n == pairs[0][1]}
            assert line["share"] == pytest.approx(pairs[0][1] / line["rows"])
        else:
            assert (line["confusion"], line["share"]) == (None, 0)
    matrix = confusion_matrix(truth, said, labels=names)
    for one in found.confusions:
        n = matrix[names.index(one.label), names.index(one.predicted)]
        assert (one.n_rows, one.share) == (n, pytest.approx(n / shown[one.label]["rows"]))
    np.fill_diagonal(matrix, 0)
    assert [c.n_rows for c in found.confusions] == sorted(matrix.ravel().tolist())[:-5:-1]


def test_probabilities_by_class_are_means_of_those_of_the_labels(one, listed):
    for model, path, truth in (one, listed[:3]):
        shown = by_label(evaluate(model, path, by_class=True))
        labels, p = said_of(model, path, len(model.labels), probabilities=True)
        own = {}
        for i, true in enumerate(truth):
            for name in true if isinstance(true, list) else [true]:
                own.setdefault(name, []).append(p[i][labels[i] == name].sum())
        assert len(shown) > 15
        for name, line in shown.items():
            if line["rows"]:
                assert line["probability"] == pytest.approx(np.mean(own[name]), abs=1e-6)


def test_lists_are_counted_from_the_threshold_on(listed):
    model, path, truth, _ = listed
    found = evaluate(model, path, by_class=True, threshold=0.9, confusions=3)
    labels, p = said_of(model, path, 32, probabilities=True)
    said = [{*row[own >= 0.9].tolist()} for row, own in zip(labels, p, strict=True)]
    for name, line in by_label(found).items():
        right = sum(name in a and name in b for a, b in zip(truth, said, strict=True))
        counts = [sum(name in row for row in rows) for rows in (truth, said)]
        assert [line["rows"], line["predicted"]] == counts
        assert line["recall"] == pytest.approx(right / max(counts[0], 1))
        missed = [i for i, (a, b) in enumerate(zip(truth, said, strict=True))
                  if name in a and name not in b]  # fmt: skip
        assert line["examples"] == missed[:3]
    one = found.confusions[0]
    first = [next(x for x in row if x not in true) for row, true in zip(labels, truth, strict=True)]
    assert one.n_rows == sum(
        one.label in true and one.label not in own and other == one.predicted
        for true, own, other in zip(truth, said, first, strict=True)
    )


@pytest.mark.parametrize("kind", ["one", "listed"])
def test_all_is_the_same_however_rows_are_cut(kind, one, listed, monkeypatch):
    model, path, *_ = {"one": one, "listed": listed}[kind]
    asked = {"by_class": True, "confusions": 9, "at": (2, 7)}
    monkeypatch.setattr(by_class, "MOST_PAIRS", 20)
    monkeypatch.setattr(by_class, "WAITING", 16)
    whole = evaluate(model, path, **asked)
    assert whole.by_class.n_left_out > 0 or kind == "listed"
    monkeypatch.setattr("streammach.prediction.room.READ_ROWS", 7)
    with Predictor(model, threads=2) as predictor:
        again = evaluate(predictor, path, **asked)
    assert repr(again.classes) == repr(whole.classes)
    assert [*again.classes.items()].__repr__() == [*whole.classes.items()].__repr__()
    assert (again.confusions, again.by_class.n_left_out) == (
        whole.confusions, whole.by_class.n_left_out)  # fmt: skip


def test_the_most_frequent_pairs_stay_where_there_are_too_many(rng, monkeypatch):
    monkeypatch.setattr(by_class, "MOST_PAIRS", 100)
    monkeypatch.setattr(by_class, "WAITING", 50)
    pairs = np.minimum(rng.geometric(0.01, 5000) ** 2, 90_000)
    counted = PairCounts()
    for some in np.array_split(pairs, 77):
        counted.take(some)
    found, wanted = counted.counts(), Counter(pairs.tolist())
    assert len(found.ids) <= 100 < len(wanted)
    assert int(found.n.sum()) + counted.n_left_out == 5000
    often = [pair for pair, _ in wanted.most_common(9)]
    assert {*often} <= {*found.ids.tolist()}
    exact = dict(zip(found.ids.tolist(), found.n.tolist(), strict=True))
    assert all(wanted[p] - counted.n_left_out <= exact[p] <= wanted[p] for p in often)


def test_the_table_is_a_file_that_is_replaced_only_if_it_is_ours(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny = TinyData(tmp_path, np.random.default_rng(7))
    tiny.text("a.vw", [line.replace("c1 ", 'c"1 ') for line in tiny.lines(400, 20)])
    tiny.trained()
    command = ["evaluate", "run", "a.zarr", "--at", "1,10", "--by-class", "c.csv",
               "--confusions", "3", "--progress", "none"]  # fmt: skip
    assert main(command) == 0
    shown = capsys.readouterr().out
    found = evaluate("run", "a.zarr", by_class=True, confusions=3, at=(1, 10))
    with open("c.csv", newline="") as file:
        lines = [*csv.DictReader(file)]
    wanted = by_label(found)
    assert [line["label"] for line in lines] == [*wanted]
    for line, own in zip(lines, wanted.values(), strict=True):
        assert float(line["f1"]) == pytest.approx(own["f1"], rel=1e-5)
        assert line["examples"].split() == [*map(str, own["examples"])]
        assert line["confusion"] == (own["confusion"] or "")
    one = found.confusions[0]
    assert f"{one.n_rows:,} rows" in shown
    assert f"{one.label} -> {one.predicted}" in shown
    assert f"c.csv: {len(lines)} classes" in shown
    assert f"{found.at['N@10']:.3f}" in shown
    assert main(command) == 2
    assert main([*command, "--force", "--json"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["by_class"], document["R@10"]) == ("c.csv", found.at["R@10"])
    assert document["confusions"][0]["n_rows"] == one.n_rows
    plain = room_before("run", "evaluate", "a.zarr", 32, memory=None).projected_bytes
    more = sum(EvaluationRequest(by_class=True).beside(20).values())
    assert document["projected_bytes"] - plain == more
    assert more > found.by_class.examples.nbytes + found.by_class.p.nbytes + 4 * 20
    (tmp_path / "c.csv").write_text("mine\n")
    assert main([*command, "--force"]) == 2


def test_rows_in_memory_and_their_labels_come_in_any_form(one, tiny):
    model, path, truth = one
    pandas = pytest.importorskip("pandas")
    text = [line.partition(" |x")[0] for line in path.read_text().splitlines()]
    path, words = tiny.text("words.vw", text), [line.partition("|w ")[2].split() for line in text]
    dicts = [dict.fromkeys((f"w^{word}" for word in line), 1.0) for line in words]
    known = {*model.features.values(np.arange(len(model.features)))}
    frame = pandas.DataFrame(dicts).fillna(0.0)
    frame, wanted = frame[[*known & {*frame}]], evaluate(model, path, by_class=True)
    for rows, labels in (
        (dicts, truth), (frame, pandas.Series(truth)), (frame, np.array(truth)),
        (frame, [[label] for label in truth]),
    ):  # fmt: skip
        for given in ((rows, labels), ((rows, labels),)):
            found = evaluate(model, *given, by_class=True)
            assert (found.accuracy, found.log_loss) == (wanted.accuracy, wanted.log_loss)
            assert found.classes == wanted.classes
    for i in (0, 1):
        found = evaluate(model, dicts[i : i + 1], truth[i : i + 1], by_class=True)
        alone = evaluate(model, frame[i : i + 1], truth[i : i + 1], by_class=True)
        assert alone.classes == found.classes
        missed = sum(map(len, found.classes["examples"]))
        assert missed == sum(found.classes["rows"]) - found.accuracy
    assert [*pandas.DataFrame(wanted.classes)["label"]] == wanted.classes["label"]


def test_scores_of_others_have_the_figures_of_scikit_learn(rng):
    """Decision values of LinearSVC on 10,000 rows."""
    from sklearn.svm import LinearSVC

    y = np.minimum(rng.geometric(0.1, N + 900), 40) - 1
    x = rng.normal(size=(N + 900, 12)) + rng.normal(size=(K, 12))[y]
    svc = LinearSVC(dual=False, tol=0.1).fit(x[N:], y[N:])
    scores = svc.decision_function(x[:N])
    found = sm.metrics(y[:N], scores, labels=svc.classes_, train=y[N:], by_class=True,
                       confusions=10, at=(1, 10))  # fmt: skip
    said = svc.predict(x[:N])
    wanted = classification_report(y[:N], said, output_dict=True, zero_division=0)
    shown = by_label(found)
    assert {str(name) for name in shown} == wanted.keys() - {
        "accuracy", "macro avg", "weighted avg"}  # fmt: skip
    for name, line in shown.items():
        own = [wanted[str(name)][x] for x in ("support", "precision", "recall", "f1-score")]
        assert [line[x] for x in ("rows", "precision", "recall", "f1")] == pytest.approx(own)
    matrix = confusion_matrix(y[:N], said, labels=np.arange(K))
    assert len(found.confusions) == 10
    assert all(c.n_rows == matrix[c.label, c.predicted] for c in found.confusions)
    assert found.accuracy == pytest.approx(np.trace(matrix) / N)
    truth = y[:N][:, None] == svc.classes_
    for k in (1, 10):
        among = top_k_accuracy_score(y[:N], scores, k=k, labels=svc.classes_)
        assert found.at[f"R@{k}"] == pytest.approx(among)
        assert found.at[f"N@{k}"] == pytest.approx(ndcg_score(truth, scores, k=k))
        assert found.at[f"F1@{k}"] == pytest.approx(2 * among / (k + 1))
    assert found.majority == np.mean(y[:N] == np.bincount(y[N:]).argmax())


def test_lists_of_others_have_the_figures_of_their_definitions(rng):
    truth = rng.random((N, K)) < rng.random(K) * 0.1
    scores = rng.normal(size=(N, K)) + 2 * truth
    learnt = rng.random((500, K)) < 0.1
    found = sm.metrics(truth, scores, train=learnt, by_class=True, threshold=1.0, at=(2, 10))
    wanted = precision_recall_fscore_support(truth, scores >= 1, average=None, zero_division=0)
    shown = by_label(found)
    figures = [[line[x] for x in ("precision", "recall", "f1", "rows")] for line in shown.values()]
    places = [*shown]
    np.testing.assert_allclose(figures, np.transpose(wanted)[places])
    order = np.argsort(-scores, axis=1)
    some = np.flatnonzero(truth.any(axis=1))
    ndcg = ndcg_score(truth[some], scores[some], k=10) * len(some) / N
    assert found.sets.ndcg[10] == pytest.approx(ndcg)
    hits = np.take_along_axis(truth, order, 1)[:, :2].sum(axis=1)
    assert found.sets.f1[2] == pytest.approx(np.mean(2 * hits / (2 + truth.sum(axis=1))))
    small = slice(0, 60)
    rows = [np.flatnonzero(own).tolist() for own in truth[small]]
    found = sm.metrics(truth[small], scores[small], train=learnt)
    loops = by_plain_loops(order[small], rows, learnt.sum(axis=0), 500)
    assert found.sets.by_name() == pytest.approx(loops)
    assert np.isnan(sm.metrics(truth[small], scores[small]).sets.psp[1])


@pytest.mark.parametrize("kind", ["one", "listed"])
def test_two_models_of_any_make_compare(kind, one, listed, trained):
    """The scores of a model of ours, given as those of another system."""
    model, path, truth = one if kind == "one" else listed[:3]
    data, own = trained[0], evaluate(model, path, by_class=True, at=(4,))
    learnt = listed[3]
    if kind == "one":
        learnt = data.labels.values(data.rows(0, data.n_rows).classes)
    pair = said_of(model, path, 32, probabilities=True)
    found = sm.metrics(truth, pair, train=learnt, by_class=True, at=(4,))
    same = ("n_rows", "n_unseen", "accuracy", "top_5_accuracy", "macro_recall", "f1", "at")
    for name in same:
        assert getattr(found, name) == pytest.approx(getattr(own, name), nan_ok=True), name
    assert (found.sets is None) == (own.sets is None) == (kind == "one")
    if found.sets is not None:
        assert found.sets.by_name() == pytest.approx(own.sets.by_name())
    for name, line in by_label(found).items():
        for key in ("rows", "predicted", "precision", "recall", "examples"):
            assert line[key] == by_label(own)[name][key], key


def test_scores_that_cannot_be_read_are_refused():
    scores = np.eye(3)
    frame = pytest.importorskip("pandas").DataFrame(scores, columns=["a", "b", "c"])
    assert sm.metrics(["a", "b", "b"], frame).accuracy == pytest.approx(2 / 3)
    assert sm.metrics([2.0, 5.0], scores[:2], labels=np.array([2.0, 5.0, 9.0])).accuracy == 1
    sparse = pytest.importorskip("scipy.sparse").csr_array(scores)
    assert sm.metrics([0, 1, 2], sparse, at=(2,)).at["R@2"] == 1
    assert sm.metrics([0, 1, 0], sparse).top_5_accuracy == pytest.approx(2 / 3)  # others: unranked
    parts = np.array([0.6, 0.6, 1]), np.array([0, 0, 1]), np.array([0, 3])  # 0.6 + 0.6
    assert sm.metrics([0], type(sparse)(parts, shape=(1, 2))).accuracy == 1
    assert sm.metrics([0, 1], np.array([[np.inf, 1], [-np.inf, 3]])).accuracy == 1
    named = [["b", ""], ["a", "b"]], [[1.0, 9.0], [0.2, 0.1]]
    assert sm.metrics(["b", "c"], named, by_class=True).classes["predicted"] == [1, 1, 0]
    numbers = np.array([[5, ""], [7, 5]], object), named[1]  # as `only` leaves them
    assert sm.metrics([5, 9], numbers, by_class=True).classes["predicted"] == [1, 1, 0]
    for true, given, options, error in (
        ([0, 1], scores, {}, "2 labels for 3 rows"),
        ([0, 1, 2], scores, {"labels": ["a", "a"]}, "1 labels for 3 columns"),
        ([0, 1, 2], scores, {"labels": ["a", "b"]}, "2 labels for 3 columns"),
        ([0, 1, 2], scores * np.nan, {}, "NaN"),
        ([0, 1], ([[0], [1]], [0, 1]), {}, "shape"),
        ([0, 1], np.zeros((2, 0)), {}, "shape"),
        ([0, 1], (np.zeros((2, 0)), np.zeros((2, 0))), {}, "shape"),
        ([0, 1], ([[0, 1], [3, 3]], [[0, 1], [2, 1]]), {}, "row 1 .* ranks a label twice"),
        ([0, 1, 2], scores, {"at": (0,)}, "0 is not a number from 1"),
        ([], np.zeros((0, 3)), {}, "no rows"),
        (np.ones((3, 4)), scores, {}, "more columns"),
    ):  # fmt: skip
        with pytest.raises((DataError, UsageError), match=error):
            sm.metrics(true, given, **options)
