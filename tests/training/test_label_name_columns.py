"""Names of labels from a column of a table: kept in stores, used by every door to a training."""

import numpy as np
import pandas as pd
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.store.dataset import Dataset
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import DataError, UsageError

K = 20
WORDS = [
    a + b
    for a in ("borra", "dulfe", "gatse", "himmo")
    for b in ("dk", "lf", "mn", "pr", "st", "zw")
]
SMALL = {
    "memory": "1GB", "n_buckets": 8, "n_repetitions": 2, "epochs": 1, "learning_rate": 1.0,
    "transform": "l2", "linear": "off", "counts": "on"
}  # fmt: skip
TABLE = ["--label", "category_id", "--label-names", "category_name", "--text", "text"]


def command(*words):
    return main([str(word) for word in words])


def train_words(store, out, *more):
    fixed = (
        "--memory 1GB --buckets 8 --repetitions 2 --epochs 1 --learning-rate 1 --transform l2 "
        "--linear off --counts on"
    )
    return ["train", store, "--out", out, *fixed.split(), *more]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    rows = []
    for i in range(1400):
        own = WORDS[i % K] if rng.random() < 0.7 else "other"
        noise = [f"noise{n}" for n in rng.integers(0, 30, 3)]
        rows.append((100 + i % K, f"{WORDS[i % K].capitalize()} of it", " ".join([own, *noise])))
    return pd.DataFrame(rows, columns=["category_id", "category_name", "text"])


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    place = tmp_path_factory.mktemp("columns")
    table.to_csv(place / "t.csv", index=False)
    table.to_parquet(place / "t.parquet")
    assert command("convert", place / "t.csv", place / "t.zarr", *TABLE) == 0
    assert command(*train_words(place / "t.zarr", place / "run")) == 0
    return place


def titles_of(model):
    return dict(zip([*model.labels], [*model.titles], strict=True))


def test_a_store_keeps_the_names_and_they_are_no_features(table, folder):
    wanted = dict(zip(table.category_id, table.category_name, strict=True))
    for source in ("t.zarr", "p.zarr"):
        if source == "p.zarr":
            assert command("convert", folder / "t.parquet", folder / source, *TABLE) == 0
        with Dataset.open(folder / source) as data:
            names = data.stored_names
            labels = data.labels.values(names.classes)
            assert dict(zip(labels, [*names.texts], strict=True)) == wanted
            assert not {"category_name^of", "text^category_name"} & {*data.features}
            assert data.verify() == []
    assert titles_of(sm.Model.load(folder / "run")) == wanted


def test_a_frame_a_command_and_an_iterator_make_the_same_model(table, folder):
    command_model = sm.Model.load(folder / "run")
    options = SMALL | {"text": "text", "label_names": "category_name"}
    halves = [table[:800], table[800:]]
    for rows in (table, iter(halves), table.to_dict("records")):
        with sm.train(rows, "category_id", progress=False, **options) as made:
            for name, array in command_model.arrays().items():
                assert np.array_equal(array, made.model.arrays()[name]), name


def test_fit_takes_a_column_or_a_file(table, folder, tmp_path):
    pairs = dict(zip(table.category_id, table.category_name, strict=True)).items()
    (tmp_path / "names.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    fixed = train_words("", "")[4:]
    for names in ("category_name", tmp_path / "names.tsv"):
        out = tmp_path / f"run{len(str(names))}"
        words = [*TABLE[:3], names, *TABLE[4:], *fixed]
        assert command("fit", folder / "t.csv", "--out", out, *words) == 0
        assert titles_of(sm.Model.load(out)) == dict(pairs)


def test_lists_of_labels_have_as_many_names(tmp_path):
    rows = [
        (f"l{i % 5};l{(i + 1) % 5}", f"name {i % 5};name {(i + 1) % 5}", f"w{i} x")
        for i in range(60)
    ]
    rows[7] = (rows[7][0], "", rows[7][2])
    frame = pd.DataFrame(rows, columns=["y", "called", "text"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    how = {"label": "y", "label_names": "called", "label_separator": ";", "text": "text"}
    sm.convert(tmp_path / "t.csv", tmp_path / "t.zarr", **how)
    lists = frame.assign(y=frame.y.str.split(";"), called=frame.called.str.split(";"))
    lists.loc[7, "called"] = None
    del how["label_separator"]
    sm.convert(lists, tmp_path / "lists.zarr", **how)
    for name in ("t.zarr", "lists.zarr"):
        with Dataset.open(tmp_path / name) as data:
            names = data.stored_names
            found = dict(zip(data.labels.values(names.classes), [*names.texts], strict=True))
            assert found == {f"l{i}": f"name {i}" for i in range(5)}
    lists.loc[9, "called"] = ["only one"]
    with pytest.raises(DataError, match="called: it has not as many names as there are labels"):
        sm.convert(lists, tmp_path / "bad.zarr", **how)
    assert (
        sum(sm.convert(lists, tmp_path / "bad.zarr", on_bad_row="skip", **how).skipped.values())
        == 1
    )


def test_a_label_may_have_several_names_in_the_order_of_rows(tmp_path):
    rows = [("a", ["Ship", "Vessel"], "x y"), ("b", ["Tree"], "y z"), ("a", ["Boat"], "z x")] * 400
    frame = pd.DataFrame(rows, columns=["y", "called", "text"])
    sm.convert(frame, tmp_path / "t.zarr", label="y", label_names="called", text="text", threads=2)
    with Dataset.open(tmp_path / "t.zarr") as data:
        names = data.stored_names
        assert [*zip(data.labels.values(names.classes), names.texts, strict=True)] == [
            ("a", "Ship"), ("a", "Vessel"), ("a", "Boat"), ("b", "Tree")
        ]  # fmt: skip


def test_stores_that_extend_one_keep_its_names_and_take_new_ones(table, folder, tmp_path):
    more = table[:50].assign(category_id=900, category_name="New one")
    more.to_csv(tmp_path / "more.csv", index=False)
    out, like = tmp_path / "more.zarr", tmp_path / "like.zarr"
    assert command("convert", tmp_path / "more.csv", out, "--extend", folder / "t.zarr") == 0
    with Dataset.open(out) as data, Dataset.open(folder / "t.zarr") as old:
        assert data.stored_names.texts[:K] == old.stored_names.texts[:]
        assert data.stored_names.texts[K:] == ["New one"]
        assert data.labels[int(data.stored_names.classes[-1])] == 900
    # Test data need no such column, and what they call labels is not asked for.
    table[["category_id", "text"]].to_csv(tmp_path / "test.csv", index=False)
    assert command("convert", tmp_path / "test.csv", like, "--like", folder / "t.zarr") == 0
    assert command("evaluate", folder / "run", like) == 0
    assert command("evaluate", folder / "run", tmp_path / "test.csv") == 0
    assert command("evaluate", folder / "run", folder / "t.csv") == 0


def test_parts_merge_into_a_run_of_the_names(folder, tmp_path):
    parts = [tmp_path / "1", tmp_path / "2"]
    for i, part in enumerate(parts, 1):
        assert command(*train_words(folder / "t.zarr", part, "--part", f"{i}/2")) == 0
    assert command("merge", tmp_path / "merged", *parts) == 0
    merged, whole = sm.Model.load(tmp_path / "merged"), sm.Model.load(folder / "run")
    for name, array in whole.arrays().items():
        assert np.array_equal(array, merged.arrays()[name]), name


def test_names_that_are_given_come_instead_of_those_that_are_kept(table, folder):
    with LabelFacts().view(Dataset.open(folder / "t.zarr")) as data:
        assert data.facts.label_name_bytes > 0
        assert sm.plan(folder / "t.zarr", memory="1GB").facts.digest == data.digest
    options = SMALL | {"text": "text"}
    with sm.train(
        table, "category_id", label_names={100: "Alone"}, progress=False, **options
    ) as made:
        assert titles_of(made.model)[100] == "Alone"


@pytest.mark.parametrize(
    ("given", "message"),
    [("nothing", "no column 'nothing': label_names"), ("category_id", "is named twice")],
)
def test_a_wrong_column_is_refused(given, message, table):
    with pytest.raises(UsageError, match=message):
        sm.train(table, "category_id", label_names=given, text="text", **SMALL)


def test_labels_with_names_alone_do_not_come_before_those_with_rows(table, folder):
    before = sm.Model.load(folder / "run")
    more = sm.add(folder / "run", label_names={1: WORDS[1], 2: f"Other {WORDS[0]}"})
    assert more.spec.n_classes == K + 2
    rows = table[["text"]], table.category_id
    reached = [sm.evaluate(model, *rows).accuracy for model in (before, more)]
    assert reached[1] > reached[0] - 0.02
