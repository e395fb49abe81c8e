"""Weights of classes: views of stores whose rows count by their class."""

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.store.label_facts import weigh_classes
from streammach.system.errors import DataError, UsageError
from tests.builders import fit, listed_lines

FIXED = {"epochs": 2, "learning_rate": 0.5, "transform": "binary"}


@pytest.fixture
def data(tiny):
    with tiny.dataset(n_rows=300, n_classes=12) as found:
        yield found


def test_balanced_is_what_scikit_learn_has(data):
    view = weigh_classes(data, "balanced")
    rows = view.rows(0, view.n_rows)
    expected = data.n_rows / (data.n_classes * data.label_counts)
    np.testing.assert_allclose(rows.importance, expected[rows.classes], rtol=1e-6)
    sums = np.bincount(rows.classes, rows.importance)
    np.testing.assert_allclose(sums, data.n_rows / data.n_classes, rtol=1e-5)
    assert view.weighted
    assert view.digest != data.digest
    np.testing.assert_array_equal(data.rows(0, 300).features, rows.features)
    assert data.rows(0, 300).importance is None


def test_a_file_and_a_dict_say_the_same(data, tiny):
    path = tiny.folder / "weights.tsv"
    path.write_bytes(b"class-1\t3\r\nclass-2\t0\n")
    by_file, by_name = weigh_classes(data, path), weigh_classes(data, {"class-1": 3, "class-2": 0})
    assert by_file.digest == by_name.digest
    names = [data.labels.label(i) for i in range(12)]
    rows = by_file.first(100).rows(0, 100)
    expected = {"class-1": 3.0, "class-2": 0.0}
    assert rows.importance.tolist() == [expected.get(names[c], 1.0) for c in rows.classes]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"class-1 3\n", "it is no label, tab and weight: 'class-1 3'"),
     (b"class-1\t1\nclass-1\t2\n", "a label is there twice"),
     (b"class-1\tmany\n", "the weight 'many' of 'class-1' is no number from 0 to 1e9"),
     (b"class-1\t-1\n", "is no number from 0 to 1e9"),
     (b"nobody\t1\n", "no row has the label 'nobody'")],
)  # fmt: skip
def test_bad_files_are_one_line(data, tiny, content, said):
    (tiny.folder / "w.tsv").write_bytes(content)
    with pytest.raises(DataError, match=said):
        weigh_classes(data, tiny.folder / "w.tsv")


def test_lists_of_labels_have_none(tiny, rng):
    sm.convert(tiny.text("a.vw", listed_lines(rng, 50)), tiny.folder / "a.zarr", multilabel="on")
    with sm.Dataset.open(tiny.folder / "a.zarr") as listed, pytest.raises(UsageError):
        weigh_classes(listed, "balanced")


def test_classes_that_no_held_out_row_has_may_weigh_all(data):
    rows = np.eye(3)[np.arange(200) % 3]
    named = {"all": 0, "few": 1}
    model = sm.train(rows, ["few", *["all"] * 199], class_weight=named, epochs=1).model
    assert model.predict(rows[:1]) == ["few"]
    with pytest.raises(DataError, match="all classes have the weight 0"):
        weigh_classes(data, dict.fromkeys(data.labels.values(np.arange(data.n_classes)), 0))


def test_training_learns_as_from_weights_of_rows(tiny):
    plain = {"n_buckets": 4, "n_repetitions": 3, "threads": 1, "counts": "off"}
    lines, models = tiny.lines(300, 12), []
    for name, weight in (("one", 1), ("four", 4)):  # as many bytes, so the same order of rows
        some = [line.replace("class-0 |", f"class-0 {weight} |") for line in lines]
        sm.convert(tiny.text(f"{name}.vw", some), tiny.folder / f"{name}.zarr")
        with sm.Dataset.open(tiny.folder / f"{name}.zarr") as data:
            rows = weigh_classes(data, {"class-0": 4}) if weight == 1 else data
            run = fit(rows, tiny.folder / name, sm.plan(rows, **plain), **FIXED)
            models.append(np.asarray(run.model.weights))
    np.testing.assert_array_equal(*models)


def test_the_command_and_python(data, tiny, capsys):
    call = [
        "train", str(data.path), "--buckets", "4", "--repetitions", "3", "--epochs", "1",
        "--learning-rate", "0.5", "--transform", "binary", "--class-weight", "balanced",
        "--progress", "none", "--out",
    ]  # fmt: skip
    assert main([*call, str(tiny.folder / "run")]) == 0
    assert "counts" in capsys.readouterr().out
    assert sm.Run.open(tiny.folder / "run").plan.config.part("counts") is not None
    assert main([*call, str(tiny.folder / "run"), "--resume"]) == 0
    rows = np.eye(6)[np.arange(60) % 6]
    made = sm.train(rows, np.arange(60) % 6, class_weight={0: 2.0}, epochs=1, learning_rate=0.1)
    assert made.plan.facts.weighted
