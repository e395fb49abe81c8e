"""Trainings on rows with lists of labels: they learn, go on to the same bytes, are measured."""

import json
import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.model.shrink import Size, shrink, shrink_to
from streammach.model.size import size_in_file, size_in_memory
from streammach.parts.counts import neighbour_fit
from streammach.prediction import ranking
from streammach.prediction.evaluate import evaluate
from streammach.system.errors import UsageError
from tests.builders import fit, listed_lines, model_files

FIXED = {"epochs": 4, "learning_rate": 0.5, "transform": "binary"}


@pytest.fixture(scope="module")
def stores(shared):
    rng = shared.rng
    train, test = shared.folder / "train.zarr", shared.folder / "test.zarr"
    convert(shared.text("a.vw", listed_lines(rng, 1500)), train, multilabel="on")
    convert(shared.text("b.vw", listed_lines(rng, 300)), test, like=train)
    return train, test


@pytest.mark.parametrize("counts", ["off", "on"])
def test_lists_are_learnt_and_measured(counts, stores, tiny):
    train, test = stores
    with sm.Dataset.open(train) as data:
        shape = {"n_repetitions": 0} if counts == "on" else {"n_buckets": 8, "n_repetitions": 8}
        plan = sm.plan(data, **shape, threads=2, counts=counts)
        run = fit(data, tiny.folder / "run", plan, **FIXED)
    model = sm.Model.load(run.path)
    assert model.listed
    assert model.training.label_share in ("shared", "each")
    assert model.n_rows == 1500
    if counts == "off":
        assert any(reason.startswith("loss a s") for reason in run.settings.reasons)
    assert (model.counts is not None) == (counts == "on")
    with sm.Predictor(model) as predictor:
        found = evaluate(predictor, test)
        block = next(iter(predictor.stream(test, 3)))
        assert block.ids.shape == (300, 3)
    sets = found.sets
    with sm.Dataset.open(test) as data:
        lists = data.rows(0, 300).labels
        most = {k: np.minimum(lists.lengths, k).sum() / (300 * k) for k in (1, 3, 5)}
        assert sets.n_labels == lists.n_labels
    assert found.accuracy == sets.precision[1] > 0.9 * most[1]
    assert sets.precision[3] > 0.85 * most[3]
    assert sets.recall[5] > 0.8 * (lists.lengths > 0).mean()
    assert found.f1.micro > 0.75


@pytest.fixture
def similar(monkeypatch):
    """Similar training rows weigh 1, whatever held-out rows say."""
    fit_them = neighbour_fit._fit
    monkeypatch.setattr(
        neighbour_fit, "_fit", lambda *given: msgspec.structs.replace(fit_them(*given), weight=1.0)
    )


def test_similar_rows_are_all_rows_in_the_end(stores, similar, tiny):
    with sm.Dataset.open(stores[0]) as data:
        plans = [sm.plan(data, threads=n, counts="on", n_repetitions=0) for n in (1, 2)]
        run, two = (
            fit(data, tiny.folder / name, plan, **FIXED)
            for name, plan in zip(("one", "two"), plans, strict=True)
        )
        model, rows = run.model, data.rows(0, data.n_rows)
    assert model_files(run) == model_files(two)
    assert any("similar training rows" in reason for reason in run.reasons)
    near = model.near
    assert len(near.norms) == rows.n_rows  # held-out ones, too
    listed = np.diff(near.starts)[model.features.ids_of(data.features)] > 0
    rare = np.array([listed[own].any() for own in np.split(rows.features, rows.indptr[1:-1])])
    assert ((near.norms > 0) == rare).all()
    assert near.labels.tolist() == rows.lists.classes.tolist()
    with sm.Predictor(model) as predictor:
        own = predictor.rank(rows.part(0, 50), 5)
        without = sm.Predictor(replace(model, counts=replace(model.counts.plain(), near=None)))
        others = without.rank(rows.part(0, 50), 5)
        without.close()
    assert (own[1][:, 0] > others[1][:, 0])[rare[:50] & (rows.lists.lengths[:50] > 0)].all()
    size = model.file_bytes()
    assert shrink_to(model, size).near is not None
    near_bytes = sum(array.nbytes for array in near.arrays("").values())
    assert shrink_to(model, min(size - 1, near_bytes // 4)).near is None


def test_a_smaller_model_knows_its_labels(stores, tiny):
    with sm.Dataset.open(stores[0]) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=4, threads=1, counts="on")
        run = fit(data, tiny.folder / "run", plan, model_size="full", **FIXED)
    shrink(run.model, Size("int8", 2, 20)).save(tiny.folder / "small")
    small = sm.Model.load(tiny.folder / "small")
    assert small.listed
    assert small.label_counts.tolist() == run.model.label_counts.tolist()
    assert small.n_rows == 1500
    assert size_in_file(tiny.folder / "small").listed
    assert size_in_memory(run.model).listed


def test_commands_take_lists(stores, tiny, capsys):
    train, test = map(str, stores)
    run = str(tiny.folder / "run")
    given = ["--memory", "600MB", "--buckets", "8", "--repetitions", "4", "--epochs", "2"]
    given += ["--learning-rate", "0.5", "--transform", "binary"]
    assert main(["train", train, "--out", run, *given]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, test, "--json", "--propensity", "0.6", "2.6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"P@1", "P@5", "N@3", "PSP@5", "PSN@1", "R@5", "micro_f1"} <= set(found)
    assert "accuracy" not in found
    assert main(["evaluate", run, test, "--threshold", "0.3"]) == 0
    said = capsys.readouterr().out
    assert "precision" in said
    assert "threshold   0.3: precision" in said
    assert main(["predict", run, test, "-k", "4", "--threshold", "0.5"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(rows) == 300
    assert all(len(row) == 10 for row in rows)
    shown = [float(cell) for row in rows for cell in row[3::2] if cell]
    assert all(0.5 <= p <= 1 for p in shown)
    assert any(not row[2] for row in rows)
    assert main(["plan", train, "--memory", "600MB"]) == 0


def test_commands_say_precision_of_lists(stores, tiny, capsys):
    train, test = map(str, stores)
    run, small = (str(tiny.folder / name) for name in ("run", "small"))
    given = "--memory 600MB --counts off --epochs 2 --learning-rate 0.5 --transform binary"
    given = [*given.split(), "--repetitions", "4", "--buckets"]
    said = {}
    for name, arguments in {
        "train": ["train", train, "--out", run, *given, "8"],
        "shrink": ["shrink", run, "--out", small, "--weights", "int4", "--on", test],
        "info": ["info", run],
        "report": ["report", run, "--on", test],
    }.items():
        assert main(arguments) == 0
        said[name] = "".join(capsys.readouterr())
    said["page"] = (tiny.folder / "run/report.html").read_text()
    for name, text in said.items():
        assert "accuracy" not in text, name
        assert "top-5" not in text, name
    assert " epoch    loss       P@1      P@5  best" in said["train"]
    assert "held-out P@1 / P@5 after" in said["train"]
    last = r": held-out P@1 [\d.]+, P@5 [\d.]+ on [^;]+; epoch \d of 2 kept"
    assert re.search(last, said["train"])
    assert "\nbefore  P@1 " in said["shrink"]
    assert "\nprecision P@1 " in said["info"]
    assert "P@1" in said["report"]
    assert "P@1" in said["page"]


def test_models_of_one_label_do_not_measure_lists(stores, tiny):
    single = tiny.store("single.zarr", n_rows=300, n_classes=9)
    with sm.Dataset.open(single) as data:
        plan = sm.plan(data, n_buckets=4, n_repetitions=2, threads=1, counts="off")
        run = fit(data, tiny.folder / "run", plan, **FIXED)
    with sm.Predictor(run.model) as predictor, pytest.raises(UsageError, match="lists of labels"):
        evaluate(predictor, stores[1])


@pytest.mark.parametrize("loss", ["each", "logistic"])
def test_the_bias_of_an_exact_model_lets_go_of_frequent_labels(loss, stores, tiny, monkeypatch):
    biases, reasons = [], []
    with sm.Dataset.open(stores[0]) as data:
        plan = sm.plan(data, exact=True, threads=1, counts="off")
        for tilts in ((0.0,), (0.4,), (0.0, 30.0)):
            monkeypatch.setattr(ranking, "TILTS", tilts)
            run = fit(data, tiny.folder / f"run{tilts[-1]}", plan, model_size="full",
                      last_passes=0, label_loss=loss, **FIXED)  # fmt: skip
            assert run.model.training.logistic == (loss == "logistic")
            biases.append(run.model.bias)
            reasons.append(run.result.reasons[-1])
        logs = np.log(np.maximum(data.label_counts, 1))
    np.testing.assert_allclose(biases[0] - biases[1], 0.4 * logs, atol=1e-5)
    np.testing.assert_array_equal(biases[2], biases[0])
    assert reasons[1].startswith("ln n taken from the bias 0.4 times: 0.4 0.")
    assert reasons[2].startswith("ln n taken from the bias 0 times: 0 0.")


@pytest.mark.parametrize(
    ("asked", "loss", "share"),
    [("logistic", "logistic", "each"), ("shared", "independent", "shared"),
     ("each", "independent", "each")],
)  # fmt: skip
def test_the_loss_that_is_asked_for_is_not_searched(asked, loss, share, stores, tiny):
    with sm.Dataset.open(stores[0]) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=4, threads=1, counts="off")
        run = fit(data, tiny.folder / "run", plan, label_loss=asked, **FIXED)
    trained = run.model.training
    assert (trained.loss, trained.label_share) == (loss, share)
    assert not any("softmax" in reason for reason in run.settings.reasons)


def test_a_loss_that_cannot_be_is_refused_before_work(stores, tiny):
    with sm.Dataset.open(stores[0]) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=4, threads=1, loss="joint")
        with pytest.raises(UsageError, match="no sigmoids: label_loss logistic, loss joint"):
            fit(data, tiny.folder / "run", plan, label_loss="logistic", **FIXED)
    with pytest.raises(UsageError, match="'two' is not one of auto, logistic, shared, each"):
        sm.TrainingOptions(label_loss="two")
    with pytest.raises(UsageError, match="'f1' is not one of precision, propensity: optimise"):
        sm.TrainingOptions(optimise="f1")
    convert(tiny.text("one.vw", ["a | x", "b | y"] * 20), tiny.folder / "one.zarr")
    with sm.Dataset.open(tiny.folder / "one.zarr") as data:
        plan = sm.plan(data, n_buckets=2, n_repetitions=2, threads=1)
        with pytest.raises(UsageError, match="each row has one label: label_loss"):
            fit(data, tiny.folder / "run", plan, label_loss="each", **FIXED)
        with pytest.raises(UsageError, match="each row has one label: optimise propensity"):
            fit(data, tiny.folder / "run", plan, optimise="propensity", **FIXED)
    assert not (tiny.folder / "run").exists()


@pytest.mark.parametrize("shape", [
    {"n_repetitions": 0, "counts": "on"}, {"n_buckets": 8, "n_repetitions": 4, "counts": "on"},
    {"exact": True, "counts": "off"},
])  # fmt: skip
def test_all_choices_go_by_propensity_where_it_is_asked_for(shape, stores, tiny):
    with sm.Dataset.open(stores[0]) as data:
        plan = sm.plan(data, threads=1, **shape)
        runs = {aim: fit(data, tiny.folder / aim, plan, optimise=aim, **FIXED)
                for aim in ("precision", "propensity")}  # fmt: skip
        found = {aim: list(run.model.validation.values()) for aim, run in runs.items()}
        assert all(one.psp_5 is None for one in found["precision"])
        assert all(one.selection_score == one.psp_5 > 0.5 for one in found["propensity"])
    tried = {aim: [reason for reason in run.result.reasons if "P@5" in reason]
             for aim, run in runs.items()}  # fmt: skip
    assert all("(PSP@5 " in reason for reason in tried["propensity"])
    chosen = [reason for reason in tried["precision"] if not reason.startswith("model ")]
    assert not any("PSP" in reason for reason in chosen)  # the small form alone goes by both
