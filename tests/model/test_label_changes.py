"""Labels are renamed, merged, removed and get titles; what they score does not change."""

import csv
import gzip
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.model.calibration import CANDIDATES, Calibration
from streammach.model.label_changes import LabelChanges, entitle, rename
from streammach.model.model import Model
from streammach.model.shrink import Size, shrink
from streammach.model.size import size_in_file, size_in_memory
from streammach.prediction.metric_table import EvaluationRequest, MetricSums
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranked_rows import rank_rows
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import Names
from streammach.system.errors import DataError, ModelError, UsageError
from tests.builders import block_of
from tests.model.models import model_of
from tests.prediction.test_allowed import (
    LIMITS,
    MODELS,
    NAMES,
    D,
    K,
    N,
    predictor_of,
    reference,
    said,
    ways,
)

# Of those that were renamed or removed.
pytestmark = pytest.mark.filterwarnings("ignore:the model does not know")
CHANGES = {
    3: "label 7", 5: "label 7", 11: "new", 12: "new", 13: "", 14: "", 20: "label 21",
    21: "label 20", 30: "label 30", 31: "label 30", 40: "ä name",
}  # fmt: skip


def written(path, changes):
    path.write_text("".join(f"{NAMES[i]}\t{name}\n" for i, name in changes.items()) + "\r\n")
    return path


def as_changed(labels, scores):
    """What all labels of rows become: each once, at its best place."""
    ids = {name: i for i, name in enumerate(NAMES)}
    for row, own in zip(labels.tolist(), scores.tolist(), strict=True):
        found = {}
        for label, score in zip(row, own, strict=True):
            name = CHANGES.get(ids[label], label)
            if name:
                found.setdefault(name, score)
        yield list(found.items())


@pytest.fixture
def changes(tmp_path):
    return written(tmp_path / "changes.tsv", CHANGES)


@pytest.mark.parametrize("name", MODELS)
def test_a_label_has_the_score_of_the_best_of_its_classes(name, changes, rng, tmp_path):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    changed, done = rename(replace(model, majority=13), changes)  # it is removed
    assert done == LabelChanges(renamed=4, merged=4, removed=2)
    assert changed.majority == 0
    assert changed.n_labels == K - 6
    changed.save(tmp_path / "saved")
    forms = [changed, Model.load(tmp_path / "saved")]
    for estimator, way in ways(model, name):
        with predictor_of(model, estimator, way, 1) as predictor:
            every = list(as_changed(*predictor.topk(block, K)))
        with predictor_of(changed, estimator, way, 1) as predictor:
            why = [[one.score for one in row] for row in predictor.explain(block, 4)]
            np.testing.assert_allclose(why, predictor.topk(block, 4)[1], atol=1e-4)
        for form in forms:
            with predictor_of(form, estimator, way, 2) as predictor:
                for k in (1, 4, K):
                    found = predictor.topk(block, k)
                    assert found[0].shape == (N, min(k, K - 6))
                    assert list(said(*found)) == [row[:k] for row in every]
        if way is not None:
            continue
        with Predictor(changed, estimator=estimator, threads=1) as predictor:
            for why, row in zip(predictor.explain(block.part(0, 3), K), every, strict=False):
                assert [one.label for one in why] == [label for label, _ in row]
                scores = [score for _, score in row]
                assert [one.score for one in why] == pytest.approx(scores, rel=1e-3, abs=1e-3)
        labels, scores = np.array([[*zip(*row, strict=True)] for row in every], object).swapaxes(
            0, 1
        )
        with Predictor(changed, estimator=estimator, threads=1) as predictor:
            for limit in ("few", "both", "own never"):
                wanted = LIMITS[limit](rng)
                # A label that was merged is the one by which it is said.
                own = {word: [[new(x) for x in row] if isinstance(row, list) else new(row)
                              for row in given] for word, given in wanted.items()}  # fmt: skip
                found = said(*predictor.topk(block, 4, **wanted))
                assert list(found) == reference(labels, scores, 4, **own)


def test_rows_in_memory_with_a_merged_label_count_as_those_of_the_other(changes, rng):
    model, _ = rename(MODELS["hashed"](rng), changes)
    rows = [{f"f{i}": 1.0 + i for i in rng.choice(D, 3, replace=False).tolist()} for _ in range(N)]
    merged, own, gone = (
        sm.evaluate(model, rows, [label] * N) for label in ("label 3", "label 7", "label 13")
    )
    assert (merged.accuracy, merged.log_loss) == (own.accuracy, own.log_loss)
    assert (merged.n_unseen, own.n_unseen, gone.n_unseen) == (0, 0, N)


def new(label):
    """The label by which what is now called so is said; of a name that is gone, nothing."""
    merged = {"label 3": "label 7", "label 5": "label 7", "label 12": "new", "label 31": "label 30"}
    return "" if label in ("label 11", "label 40") else merged.get(label, label)


@pytest.mark.parametrize("name", ["hashed", "lists", "blend"])
def test_probabilities_fall_and_add_up(name, changes, rng):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    if not model.listed:
        line = Calibration(1.5, -3.0, (0.0, 0.4, 1.0), (0.0, 0.2, 1.0))
        model = replace(model, calibration=line)
    with Predictor(rename(model, changes)[0], threads=1) as predictor:
        p = predictor.topk(block, K, probabilities=True)[1]
    assert (np.diff(p, axis=1) <= 0).all()
    assert model.listed or p.sum(axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["lists", "counts, lists"])
def test_labels_of_lists_keep_their_probabilities(name, changes, rng):
    model, block = MODELS[name](rng), block_of(rng, N, D, K)
    with Predictor(model, threads=1) as predictor:
        every = list(as_changed(*predictor.topk(block, K, probabilities=True)))
        best = predictor.topk(block, 9, threshold=0.01, only=NAMES[50:])
    with Predictor(rename(model, changes)[0], threads=1) as predictor:
        assert list(said(*predictor.topk(block, K, probabilities=True))) == every
        found = predictor.topk(block, 9, threshold=0.01, only=NAMES[50:])
        sums = MetricSums(predictor.model, EvaluationRequest(threshold=0.01, by_class=True))
        lists = LabelLists.of([[label] for label in np.arange(N)])
        rows = replace(block, classes=lists.first, numbers=np.arange(N)).with_labels(lists)
        sums.add(sums.count(rank_rows(predictor, rows, 5, "rows")))
    assert all(np.array_equal(*pair) for pair in zip(found, best, strict=True))
    likely = sum(p >= 0.01 for row in every for _, p in row[:CANDIDATES])
    assert sum(sums.fields()["by_class"].predictions) == likely


@pytest.mark.parametrize("turned", [False, True])
def test_changes_follow_one_another_and_a_smaller_model_has_them(turned, changes, rng, tmp_path):
    model, block = MODELS["blend"](rng), block_of(rng, N, D, K)
    changed, _ = rename(model, changes)
    (tmp_path / "more.tsv").write_text("new\tlabel 7\nlabel 20\t\n")
    changed, done = rename(changed, tmp_path / "more.tsv")
    assert done == LabelChanges(merged=1, removed=1)
    lines = ["label 7\tseven\n", "<label 12>\ttwelve\tn\n", "other\tx\n"]
    (tmp_path / "titles.tsv").write_text("".join(lines[::-1] if turned else lines))
    changed, done = entitle(changed, tmp_path / "titles.tsv")
    assert done == LabelChanges(titles=1)  # label 12 is said by label 7, which has its own title
    assert changed.titles[7] == "seven"
    small = shrink(changed, Size("int4", 3, changed.n_pairs))
    small.save(tmp_path / "small")
    small = Model.load(tmp_path / "small")
    assert np.array_equal(small.says, changed.says)
    assert small.titles.same_as(changed.titles)
    assert size_in_file(tmp_path / "small").n_bytes == size_in_memory(small).n_bytes
    for form in (changed, small):
        with Predictor(form, threads=1) as predictor:
            labels = {*predictor.topk(block, K)[0].ravel().tolist()}
        assert labels.isdisjoint({"new", "label 3", "label 13", "label 20", "label 11"})
        assert len(labels) == form.n_labels == K - 8


@pytest.mark.parametrize("form", ["text", "gzip", "JSON"])
def test_titles_by_the_numbers_of_lines(form, rng, tmp_path):
    model = model_of(rng, D, 30, labels=Names.of(range(30)))
    text = b"zero\none word\n\nthree\n"
    if form == "JSON":
        lines = [b'{"uid": "B0", "title": "%b"}' % line for line in text.split(b"\n")[:-1]]
        text = b"\n".join(lines).replace(b"one word", rb"one\tword")
    (tmp_path / "Yf.txt").write_bytes(text if form == "text" else gzip.compress(text))
    titled, done = entitle(model, tmp_path / "Yf.txt")
    assert done.titles == 3
    assert [titled.titles[i] for i in range(5)] == ["zero", "one word", "", "three", ""]
    with pytest.raises(UsageError, match="the model knows no label of it"):
        entitle(MODELS["hashed"](rng), tmp_path / "Yf.txt")
    for bad, message in ((b'{"name": 3}', "no object with a title.*line 1"),
                         (gzip.compress(text)[:-9], "the gzip stream ends before")):  # fmt: skip
        (tmp_path / "Yf.txt").write_bytes(bad)
        with pytest.raises(DataError, match=message):
            entitle(model, tmp_path / "Yf.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label 1\tx\nother\tx\n", "it is no label of the model: 'other'.*2"),
        ("label 1\tx\nlabel 1\ty\n", "it is there twice"),
        ("label 1\n", "it is not a label, a tab and a name"),
        ("label 1\tlabel 2\nlabel 3\tlabel 1\n", "merged or removed has that name: 'label 1'"),
        ("label 1\t\nlabel 3\tlabel 1\n", "merged or removed has that name: 'label 1'"),
        ("".join(f"{name}\t\n" for name in NAMES), "no label is left"),
    ],
)
def test_changes_that_cannot_be_are_refused(text, message, rng, tmp_path):
    (tmp_path / "changes.tsv").write_text(text)
    with pytest.raises((DataError, UsageError), match=message):
        rename(MODELS["hashed"](rng), tmp_path / "changes.tsv")


def test_a_file_with_wrong_labels_of_classes_is_refused(changes, rng, tmp_path):
    model, _ = rename(MODELS["hashed"](rng), changes)
    for wrong in (K, -2, 13):  # 13 is said no more
        says = model.says.copy()
        says[0] = wrong
        replace(model, says=says).save(tmp_path / "model", force=True)
        with pytest.raises(ModelError, match="labels by which classes are said are wrong"):
            Model.load(tmp_path / "model")


def test_the_command_changes_what_all_doors_say(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.folder)
    tiny.store(n_rows=300, n_classes=12)
    train = ["train", "train.zarr", "--out", "run", "--buckets", "8", "--repetitions", "4"]
    assert main([*train, "--epochs", "1", "--transform", "binary", "--progress", "none"]) == 0
    (tiny.folder / "c.tsv").write_text("class-1\tclass-2\nclass-3\tdrei\nclass-4\t\n")
    (tiny.folder / "v.tsv").write_text('class-2\ttwo words\ndrei\tthree, "in" German\n')
    rows = tiny.lines(60, 12)
    tiny.text("rows.vw", rows)
    capsys.readouterr()
    asked = ["labels", "run", "--rename", "c.tsv", "--vocabulary", "v.tsv", "--out", "changed"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counted = {"labels": 10, "renamed": 1, "merged": 1, "removed": 1, "titles": 2}
    assert {name: found[name] for name in counted} == counted
    assert main(asked) != 0  # it is there
    assert main(["report", "changed", "--out", "page.html"]) == 4
    assert "It is a model alone" in capsys.readouterr().err
    assert main(["labels", "run", "--out", "none"]) != 0
    before, after = (sm.evaluate(run, "rows.vw") for run in ("run", "changed"))
    text, stored = (sm.evaluate("changed", f"train.zarr{ending}") for ending in (".vw", ""))
    assert stored == replace(text, seconds=stored.seconds)  # labels of the model's own store, too
    gone = sum(row.split()[0] in ("class-3", "class-4") for row in rows)
    assert after.n_unseen == gone  # rows of class-1 are rows of class-2
    assert after.accuracy >= before.accuracy - gone / 60
    capsys.readouterr()
    tiny.text("wrong.vw", [row.replace("class-7 ", "class-2 ") for row in rows])
    asked = ["evaluate", "changed", "wrong.vw", "--confusions", "99", "--by-class", "each.csv"]
    assert main(asked) == main([*asked, "--force"]) == 0  # it is ours
    each = sm.evaluate("changed", "wrong.vw", by_class=True).classes
    titles = {"class-2": "two words", "drei": 'three, "in" German'}
    assert each["title"] == [titles.get(label, "") for label in each["label"]]
    assert each["confusion_title"] == [titles.get(label, "") for label in each["confusion"]]
    with open("each.csv", newline="") as file:
        told = csv.DictReader(file)
        assert [line["title"] for line in told] == each["title"]
        assert told.fieldnames == [*each]
    assert "two words -> class-7" in capsys.readouterr().out
    for name in ("t.tsv", "t.csv", "t.jsonl", "t.parquet"):
        sm.predict("changed", "rows.vw", name, k=20, threshold=0.001)
        sm.predict("changed", "rows.vw", name, k=20, threshold=0.001, force=True)  # it is ours
    table = pq.read_table("t.parquet")
    assert table.column_names[:5] == ["row", "tag", "label_1", "title_1", "score_1"]
    lines = [line.split("\t") for line in (tiny.folder / "t.tsv").read_text().splitlines()]
    assert lines[0] == table.column_names
    objects = [json.loads(line) for line in (tiny.folder / "t.jsonl").read_text().splitlines()]
    for line, own, row in zip(lines[1:], objects, table.to_pylist(), strict=True):
        n = len(own["labels"])
        assert own["titles"] == [titles.get(label, "") for label in own["labels"]]
        assert [row[f"title_{i + 1}"] for i in range(10)] == [*own["titles"], *[None] * (10 - n)]
        assert line[2::3] == [*own["labels"], *[""] * (10 - n)]
        assert line[3::3] == [*own["titles"], *[""] * (10 - n)]
    tiny.text("new.vw", ["thirteen |w own5_1 pair2 |x noise3", "thirteen |w own5_2"])
    assert main(["add", "changed", "new.vw", "--out", "more"]) == 0
    more = Model.load("more")
    assert more.n_labels == 11
    assert "thirteen" in more.predict([{"w^own5_1": 1.0}], k=11)
    assert [more.titles[i] for i in (1, 12)] == ["two words", ""]
