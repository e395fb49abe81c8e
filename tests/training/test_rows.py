"""Training on rows in memory: the model of a store, without one."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import streammach as sm
from streammach.conversion.memory_rows import MemoryRows
from streammach.system.errors import BudgetError, DataError, Interrupted, MismatchError, UsageError
from tests.builders import NO_PARTS, Stop, fit

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
PARTS = {"loss": "independent", **NO_PARTS}
PLAIN = {"epochs": 3, "transform": "raw", "learning_rate": 0.05, **PARTS}


@pytest.fixture
def data(rng):
    y = rng.integers(0, 12, 500)
    x = rng.random((500, 30)).astype(np.float32) * (rng.random((500, 30)) < 0.2)
    x[np.arange(500), y] += 3
    return x, y


def stored(tmp_path, x, y):
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    sm.convert(tmp_path / "x.npy", tmp_path / "s.zarr", labels=tmp_path / "y.npy")
    return tmp_path / "s.zarr"


@pytest.mark.parametrize("options", [{}, {"n_buckets": 4, "n_repetitions": 6}])
def test_the_weights_are_those_of_a_training_on_a_store(tmp_path, data, options):
    store, fixed = stored(tmp_path, *data), {"epochs": 4}
    run = sm.train(*data, memory="1GB", out=tmp_path / "run", **fixed, **options)
    plan = sm.plan(store, memory="1GB", **options)
    other = fit(store, tmp_path / "other", plan, **fixed)
    files = [run.path / "model/model.safetensors" for run in (run, other)]
    assert files[0].read_bytes() == files[1].read_bytes()
    documents = [
        run.path.joinpath("model/model.json").read_text().replace(run.model.store, "")
        for run in (run, other)
    ]
    assert documents[0] == documents[1]
    assert (run.model.predict(data[0]) == data[1]).mean() > 0.9


@pytest.mark.parametrize("n_rows", [2, 7, 19, 60])
@pytest.mark.parametrize("scale", [1e-4, 1, 1e4])
def test_rows_that_hold_none_out_choose_by_themselves(n_rows, scale, rng):
    y = np.arange(n_rows) % 3
    x = (np.eye(3)[y] + rng.normal(0, 0.1, (n_rows, 3))) * scale
    run = sm.train(x, y, memory="1GB", held_out_rows=0, threads=1)
    assert np.array_equal(run.model.predict(x, k=1).ravel(), y)
    told = [why for why in run.reasons if why.startswith(("transform", "learning rate"))]
    assert len(told) == 2
    assert all("training accuracy" in why and "held-out" not in why for why in told)


def test_rows_that_do_not_fit_go_through_a_store_that_is_removed(tmp_path, data, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    whole = sm.train(*data, **PLAIN)
    monkeypatch.setattr(MemoryRows, "intake_bytes", 10**12)
    with sm.train(*data, **PLAIN) as run:
        assert run.plan.facts.held_bytes == 0
        assert np.array_equal(run.model.weights, whole.model.weights)
    whole.close()
    assert os.listdir(tmp_path / "temporary") == []


def test_rows_are_in_the_ledger(data):
    plan = sm.train(*data, **PLAIN).plan
    lines = {line.name: line.n_bytes for line in plan.ledger}
    assert lines["rows"] == plan.facts.held_bytes > 0
    host = sum(line.n_bytes for line in plan.ledger if line.where == "host")
    assert host - lines["code"] >= plan.facts.intake_bytes


def test_the_folder_goes_with_the_run(data):
    run = sm.train(*data, **PLAIN)
    path, model = run.path, run.model
    assert path.exists()
    run.close()
    assert not path.exists()
    assert (model.predict(data[0]) == data[1]).mean() > 0.9
    path = Path(sm.train(*data, **PLAIN).path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("moment", "holds"),
    [("on_stage", lambda at: (at.stage, at.moment) == ("search", "end")),
     ("on_progress", lambda at: at.step == 3)],
)  # fmt: skip
def test_an_interrupted_training_says_what_its_folder_keeps(
    moment, holds, data, tmp_path, monkeypatch
):
    data = scipy.sparse.csr_matrix(data[0]), data[1]
    fixed = {"n_buckets": 4, "n_repetitions": 6, "epochs": 2, "threads": 1, "memory": "1GB"}
    with monkeypatch.context() as patch:
        for out, said in ((None, "nothing is kept"), (tmp_path / "run", "resume=True goes on")):
            stop = Stop(patch, **{moment: holds})
            with pytest.raises(Interrupted, match=said):
                sm.train(*data, out=out, callbacks=[stop], **fixed)
    went = sm.train(*data, out=tmp_path / "run", resume=True, **fixed)
    assert np.array_equal(went.model.weights, sm.train(*data, **fixed).model.weights)


def test_dicts_and_strings(data):
    x, y = data
    rows = [{f"word {j}": float(v) for j, v in enumerate(row) if v} for row in x]
    labels = np.array([f"class {c}" for c in y], object)
    model = sm.train(rows, labels, **PLAIN).model
    assert (model.predict(rows) == labels).mean() > 0.9
    assert model.predict(rows[:2], 3).shape == (2, 3)
    with pytest.warns(UserWarning, match="knows no feature of these rows"):
        assert model.predict([{"other": 1.0}])[0] in labels


VALUES = [
    (True, False), (2**53 + 1, 2**53 + 2), (2**63 + 1, 2**63 + 2), (1.0, 2.0), ("1", "2"),
    ("007", "8"), ("true", "3.0"),
]  # fmt: skip


@pytest.mark.parametrize("form", ["pandas", "arrow", "dicts"])
@pytest.mark.parametrize("values", VALUES)
def test_labels_of_a_column_come_back_in_their_type(values, form):
    rows = [{"t": f"word{i % 2}", "y": values[i % 2]} for i in range(60)]
    frame = pandas.DataFrame(rows)
    table = {"pandas": frame, "arrow": pyarrow.Table.from_pandas(frame), "dicts": rows}[form]
    model = sm.train(table, "y", text="t", **PLAIN | {"learning_rate": 0.5}).model
    said = {"true": "True", "3.0": "3"}  # what these are called in tables
    first, second = (said.get(value, value) for value in values)
    found = model.predict(table).tolist()
    assert found == [first, second] * 30
    assert {*map(type, found)} == {type(first)}
    assert {*model.predict(table, only=values[:1]).tolist()} == {first}
    assert {*model.predict(table, never=values[:1]).tolist()} == {second}
    texts, y = [row["t"] for row in rows], [row["y"] for row in rows]
    assert sm.evaluate(model, texts, y).accuracy == sm.evaluate(model, table).accuracy == 1


@pytest.mark.parametrize("door", ["train", "table", "column", "estimator", "estimator of text"])
def test_lists_of_labels(door):
    kinds = np.arange(90) % 3
    x, y = np.eye(3)[kinds], [[int(k) + 5, int(k) + 9] for k in kinds]
    text = pandas.DataFrame({"a": [f"word{k}" for k in kinds], "y": y})
    options = {**PLAIN, "memory": "1GB", "epochs": 8, "label_loss": "logistic"}
    options["learning_rate"] = 0.5
    if door.startswith("estimator"):
        rows = x if door == "estimator" else text["a"].tolist()
        rest = {name: options[name] for name in (*PARTS, "transform", "label_loss")}
        clf = sm.MACHClassifier(epochs=30, learning_rate=0.5, n_buckets=None, options=rest)
        clf.fit(rows, y)
        assert clf.classes_.tolist() == [5, 6, 7, 9, 10, 11]
        assert clf.predict(rows[:3]) == y[:3]
        assert (clf.score(rows, y), clf.score(rows, [[1]] * 90)) == (1, 0)
        assert clf.model_.predict(rows[:3], 2).dtype.kind == "i"
        return
    if door == "train":
        run, new = sm.train(x, y, **options), x[:3]
    else:
        text, labels = (text, "y") if door == "column" else (text[["a"]], y)
        run, new = sm.train(text, labels, text="a", **options), text[:3]
    assert [set(row) for row in run.model.predict(new, 2).tolist()] == [set(row) for row in y[:3]]


def test_weights_and_held_out_rows_of_ones_own(data):
    x, y = data
    weights = (y != 3).astype(float)
    run = sm.train(x[:400], y[:400], sample_weight=weights[:400], validation=(x[400:], y[400:]),
                   **PLAIN)  # fmt: skip
    assert "100 of 100 rows" in run.settings.held_out
    assert (run.model.predict(x[y == 3]) == 3).mean() < 0.5


@pytest.mark.parametrize("form", ["table", "frames", "texts"])
@pytest.mark.parametrize("y", ["column", "array"])
def test_held_out_rows_of_ones_own_are_read_as_those_of_the_training(form, y, rng):
    n = rng.random(900)
    table = pandas.DataFrame({"t": "red shoe", "n": n, "y": np.where(n * 8 % 2 < 1, "true", "c")})
    rows, own = table[:700], table[700:]
    own = own[own["n"] > 0.6]  # bins of these would be other ones
    if form == "texts":
        own = own.assign(n=own["n"].map(str), y=own["y"].tolist())
    options = {"text": "t", "number": "n", "n_buckets": 2, "n_repetitions": 4, **PLAIN}
    options |= {"epochs": 5, "learning_rate": 0.5}
    pair = own[["t", "n"]], own["y"]
    options["validation"] = own if form == "table" and y == "column" else pair
    data = (rows, "y") if y == "column" else (rows[["t", "n"]], rows["y"])
    run = sm.train(*data, **options)
    found = sm.evaluate(run.model, *pair)
    assert found.n_unseen == 0
    best = run.result.best
    assert best.accuracy == pytest.approx(found.accuracy, abs=0.06)
    assert best.accuracy > 0.8


@pytest.fixture(scope="module")
def texts():
    """A table of text with its labels, and a model of it."""
    kinds = np.arange(150) % 3
    table = pandas.DataFrame({"t": [f"w{k} of {j}" for j, k in enumerate(kinds)], "y": kinds + 5})
    run = sm.train(table, "y", text="t", epochs=2, validation=table)  # a table, as the rows are
    assert "of 150 rows" in run.settings.held_out
    return table, run.model


@pytest.mark.parametrize("door", ["model", "estimator", "estimator of numbers", "numbers"])
def test_one_row_is_no_list_of_rows(door, texts, data):
    table, model = texts
    if door.startswith("estimator"):
        x = data[0] if "numbers" in door else table["t"].tolist()
        quick = sm.MACHClassifier(epochs=1, learning_rate=0.1, options={"transform": "raw"} | PARTS)
        model = quick.fit(x, np.arange(len(x)) % 3)
    elif door == "numbers":
        model = sm.train(*data, **PLAIN).model
    for one in ("w1", {"t": "w1"}, {"0": 1.0}, table.iloc[0], np.ones(3), [1.0, 2.0]):
        with pytest.raises(DataError, match=r"list of rows, for one row: \[row\]"):
            model.predict(one)
    if door in ("model", "estimator"):
        assert len(model.predict(table["t"][:4])) == len(model.predict(["w1"] * 4)) == 4


def test_labels_have_places(texts):
    labels = texts[1].labels
    assert {labels[0], labels[1], labels[2], labels[-1]} == {5, 6, 7} == set(labels)
    with pytest.raises(IndexError):
        labels[3]


@pytest.mark.parametrize("k", [0, -1])
def test_less_than_one_label_is_refused(k, texts, tmp_path):
    table, model = texts
    with sm.Predictor(model) as predictor:
        asked = {
            "predict": lambda: model.predict(table["t"], k),
            "topk": lambda: predictor.topk(table, k),
            "query": lambda: predictor.query([0], k=k),
            "stream": lambda: predictor.stream(tmp_path, k),
        }
        for door, ask in asked.items():
            with pytest.raises(UsageError, match=f"k is {k}: 1 or more"):
                raise AssertionError(door, ask())
        assert predictor.topk(table[:1], 10**30)[0].shape == (1, 3)


def test_rows_in_memory_are_evaluated(texts, tmp_path, data):
    table, model = texts
    table.to_csv(tmp_path / "t.csv", index=False)
    wanted = sm.evaluate(model, tmp_path / "t.csv", estimators=True)
    new = pandas.concat([table, table[:3].assign(y=99)])
    for rows in (table, (table[["t"]], table["y"]), (table["t"].tolist(), [[k] for k in table.y])):
        found = sm.evaluate(model, rows, estimators=True)
        assert replace(found, seconds=0) == replace(wanted, seconds=0)
    found = sm.evaluate(model, new)
    assert (found.n_rows, found.n_unseen) == (153, 3)
    numbers = sm.train(*data, **PLAIN).model
    assert sm.evaluate(numbers, data).accuracy == (numbers.predict(data[0]) == data[1]).mean()
    wrong = {"have no labels": data[0], "499 labels for": (data[0], data[1][1:])}
    for said, rows in wrong.items():
        with pytest.raises((DataError, UsageError), match=said):
            sm.evaluate(numbers, rows)


@pytest.mark.parametrize("door", ["matrix", "sparse", "label", "table", "table and labels"])
def test_rows_that_cannot_be_read_are_left_out(door, data):
    x, y = data[0][:60].copy(), data[1][:60].astype(float)
    bad = [4, 17]
    if door == "label":
        y[bad] = np.nan
    else:
        x[bad, 3] = np.inf
    rows = {"matrix": x, "label": x, "sparse": scipy.sparse.csr_array(x)}.get(door)
    weightless = np.arange(30, 41)
    weights = np.where(np.isin(np.arange(60), weightless), 0, np.arange(60) + 1.0)
    options = dict(PLAIN, sample_weight=weights, held_out_rows=20)
    if rows is None:
        rows = pandas.DataFrame({"n": np.where(np.arange(60) == 4, "x", "1"), "y": y.astype(int)})
        rows.loc[17, "n"] = "?"
        options |= {"number": "n"}
        y = "y" if door == "table" else y.astype(int)
        rows = rows if door == "table" else rows[["n"]]
    with pytest.raises(DataError, match=r"row 4 \(counted"):
        sm.train(rows, y, **options)
    with pytest.warns(UserWarning, match="rows that could not be read were left out: 2 "):
        run = sm.train(rows, y, **options, on_bad_row="skip")
    assert run.plan.facts.n_rows == 60 - len(bad) - len(weightless)
    assert not set(run.held_out) & {*bad, *weightless}  # they are told by what was given
    assert run.held_out.max() > run.plan.facts.n_rows
    if door.startswith("table"):
        good = rows.drop(index=bad)
        found = sm.evaluate(run.model, rows, y, on_bad_row="skip")
        right = run.model.predict(good[["n"]]) == (good["y"] if door == "table" else y[good.index])
        assert (found.n_rows, found.accuracy) == (58, pytest.approx(right.mean()))
        with pytest.raises(DataError, match="59 labels for 60 rows"):
            sm.evaluate(run.model, rows[["n"]], list(range(59)), on_bad_row="skip")


@pytest.mark.parametrize(
    ("function", "option", "nearest"),
    [("train", "epoch", "epochs"), ("train", "sample_weights", "sample_weight"),
     ("train", "n_bucket", "n_buckets"), ("train", "categories", "category"),
     ("train", "verbosity", None), ("plan", "count", "counts")],
)  # fmt: skip
def test_a_misspelt_option_is_named_with_the_nearest(function, option, nearest, data, tmp_path):
    rows = data if function == "train" else [stored(tmp_path, *data)]
    with pytest.raises(TypeError) as found:
        getattr(sm, function)(*rows, **{option: 1})
    meant = f": did you mean '{nearest}'?" if nearest else ""
    assert str(found.value) == f"{function}() has no option '{option}'{meant}"


def test_what_cannot_be_is_refused(tmp_path, data):
    for wrong in ("w", [None, "x"]):
        with pytest.raises(DataError, match="weights of rows are no numbers: sample_weight"):
            sm.train(*data, sample_weight=wrong)
    for wrong in (1.01, -1, np.nan):
        with pytest.raises(UsageError, match="is no share from 0 to 1: threshold"):
            sm.train(*data, **PLAIN, seed=np.int32(3)).model.predict(data[0], threshold=wrong)
    with pytest.raises(UsageError, match="no pair of rows and labels, and no path: validation"):
        sm.train(*data, validation=data[0])
    named = pandas.DataFrame(data[0]).add_prefix("v")
    with pytest.raises(MismatchError, match="the training has no feature of these rows"):
        sm.train(*data, validation=(named, data[1]))
    with pytest.raises(UsageError, match="is not a size"):
        sm.train(*data, memory="half")
    with pytest.raises(BudgetError):
        sm.train(*data, memory="100MB")
    with pytest.raises(DataError):
        sm.train(data[0], data[1][:-1])
    for none in ([[]] * len(data[1]), np.zeros((len(data[1]), 3), int)):
        with pytest.raises(DataError, match="no row has a label: rows in memory"):
            sm.train(data[0], none)
    plan = sm.plan(stored(tmp_path, *data))
    with pytest.raises(UsageError):
        sm.Trainer(plan).fit(tmp_path / "s.zarr", resume=True)
