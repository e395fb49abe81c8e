"""A training that is interrupted in any stage goes on behind what was done, to the same bytes."""

import json

import numpy as np
import pytest

import streammach as sm
from streammach.errors import DivergedError, Interrupted, UsageError
from streammach.files.writing import Writer
from streammach.model import findings
from streammach.model.findings import DOCUMENT, Findings
from streammach.parts.counts import alone
from streammach.parts.counts.fitting import Fitting
from streammach.spec.training import TrainingOptions
from streammach.training.compact import Judge
from tests.builders import Stop, listed_lines

FIXED = {"epochs": 2}
WITHOUT_COUNTS = sm.Constraints(parts={"counts": "off"})
PLANS = {
    "hashed": {"n_buckets": 4, "n_repetitions": 4}, "alone": {"n_repetitions": 0},
    "lists": {"n_buckets": 8, "n_repetitions": 3, "counts": "on"},
}  # fmt: skip
STAGES = {
    "hashed": [
        "counting pairs", "weighing counts", "learning pairs", "weighing pairs", "search",
        "epochs", "ranking", "counts beside models", "calibration", "smaller model",
        "held-out rows, learnt",
    ],
    "alone": ["weighing counts", "calibration", "smaller model"],
    "lists": ["learning pairs", "counts beside models", "smaller model"],
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Stores and the models of trainings that nothing interrupted, by kind."""
    from tests.builders import TinyData

    folder = tmp_path_factory.mktemp("interrupted")
    tiny = TinyData(folder, np.random.default_rng(0))
    train = tiny.store("train.zarr", n_rows=3000, n_classes=150, namespace=True)
    listed = tiny.text("listed.vw", listed_lines(tiny.rng, 1500))
    sm.convert(listed, folder / "listed.zarr", multilabel="on")
    with sm.Dataset.open(train) as data, sm.Dataset.open(folder / "listed.zarr") as lists:
        stores = {kind: lists if kind == "lists" else data for kind in PLANS}
        wholes = {kind: model_of(fit(stores[kind], folder / kind, kind)) for kind in PLANS}
        yield stores, wholes


def fit(data, out, kind, **options):
    plan = sm.plan(data, threads=1, **PLANS[kind])
    trainer = sm.Trainer(plan, TrainingOptions(**FIXED), callbacks=options.pop("callbacks", ()))
    return trainer.fit(data, out, **options)


def model_of(run):
    return {file.name: file.read_bytes() for file in sorted((run.path / "model").iterdir())}


@pytest.fixture
def all_kept(monkeypatch):
    """Keep what took no time, too."""
    monkeypatch.setattr("streammach.model.findings.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(alone, "LEAST_SECONDS", 0.0)


def ends(stage):
    return lambda state: (state.stage, state.moment) == (stage, "end")


@pytest.mark.parametrize(("kind", "stage"), [(k, s) for k, known in STAGES.items() for s in known])
def test_it_goes_on_to_the_same_bytes(made, all_kept, tmp_path, monkeypatch, kind, stage):
    stores, wholes = made
    data = stores[kind]
    with monkeypatch.context() as patch:
        stop = Stop(patch, on_stage=ends(stage))
        try:
            fit(data, tmp_path / "run", kind, callbacks=[stop])
        except Interrupted as error:
            assert "resume" in str(error)  # noqa: PT017
        assert stop.signals.requested
    again = fit(data, tmp_path / "run", kind, resume=True)
    assert model_of(again) == wholes[kind]
    assert not (again.path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("hashed", "step"), ("hashed", "counts"), ("alone", "learnt"), ("lists", "counts")],
)
def test_a_state_that_a_kill_cut_off_holds_nothing_up(
    made, all_kept, tmp_path, monkeypatch, kind, name
):
    stores, wholes = made
    commit = findings.commit_folder

    def killed(partial, folder):
        if folder.name.startswith(name):
            patch.setattr(findings, "remove_folder", lambda path: None)  # nobody tidies up
            raise KeyboardInterrupt
        commit(partial, folder)

    with monkeypatch.context() as patch:
        patch.setattr(findings, "commit_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            fit(stores[kind], tmp_path / "run", kind)
    assert list((tmp_path / "run").rglob(f".{name}*"))
    again = fit(stores[kind], tmp_path / "run", kind, resume=True)
    assert model_of(again) == wholes[kind]
    assert not (again.path / "checkpoints").exists()


@pytest.mark.parametrize("part", [None, (1, 2)])
def test_checkpoints_that_a_kill_left_of_a_finished_training_go(
    made, all_kept, tmp_path, monkeypatch, part
):
    data, kept = made[0]["hashed"], tmp_path / "run" / "checkpoints"
    trainer = sm.Trainer(sm.plan(data, threads=1, **PLANS["hashed"]), TrainingOptions(**FIXED))

    def train(**how):
        if part is None:
            return trainer.fit(data, tmp_path / "run", **how)
        return trainer.fit_part(data, tmp_path / "run", part, **how)

    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streammach.training.fit.remove_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            train()
    left = kept if part is None else kept / "kept"
    assert left.exists()
    train(resume=True)
    assert not left.exists()
    assert kept.exists() == (part is not None)


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_marker_that_a_kill_cut_off_holds_nothing_up(made, tmp_path, kind):
    folder, data = tmp_path / "new", made[0]["hashed"]
    training = TrainingOptions(epochs=1, learning_rate=0.3, transform="raw")

    def begin():
        if kind == "run":
            plan = sm.plan(data, threads=1, n_repetitions=0)
            return sm.Trainer(plan, training).fit(data, folder)
        shape = {"buckets": [4], "repetitions": [2], "constraints": WITHOUT_COUNTS}
        return sm.sweep(data.path, folder, memory="600MB", training=training, **shape)

    folder.mkdir()
    (folder / ".lock").touch()
    Writer(folder / "streammach.json").close()  # it stays under its temporary name
    (folder / ".other.json.0123abcd.tmp").touch()
    with pytest.raises(UsageError, match="holds other files"):
        begin()
    (folder / ".other.json.0123abcd.tmp").unlink()
    begin()
    assert not list(folder.rglob("*.tmp"))


def calls_of(monkeypatch, owner, name):
    calls, real = [], getattr(owner, name)

    def counted(self, *given, **options):
        calls.append(given)
        return real(self, *given, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_what_was_found_is_not_found_again(made, all_kept, tmp_path, monkeypatch):
    stores, wholes = made
    data = stores["hashed"]
    with monkeypatch.context() as patch:
        stop = Stop(patch, on_stage=ends("smaller model"))
        with pytest.raises(Interrupted):
            fit(data, tmp_path / "run", "hashed", callbacks=[stop])
    told, fits = [], calls_of(monkeypatch, Fitting, "fitted")
    judged = calls_of(monkeypatch, Judge, "_measured")

    class Watch:
        def on_message(self, text):
            told.append(text)

    run = fit(data, tmp_path / "run", "hashed", resume=True, callbacks=[Watch()])
    assert model_of(run) == wholes["hashed"]
    assert (fits, judged) == ([], [])
    assert not [text for text in told if text.startswith(("counted", "learnt"))]


def test_learning_goes_on_within_a_pass(made, all_kept, tmp_path, monkeypatch):
    data = made[0]["alone"]
    monkeypatch.setattr(alone, "LESSON_ROWS", 200)
    lessons, real, stop = [], alone.PairLearner.learn, None

    def learn(self, block):
        lessons.append(block.n_rows)
        if stop is not None:
            stop.signals.requested = len(lessons) == 3
        real(self, block)

    monkeypatch.setattr(alone.PairLearner, "learn", learn)
    whole = fit(data, tmp_path / "whole", "alone")
    learnt = sum(lessons)
    lessons.clear()
    with monkeypatch.context() as patch:
        stop = Stop(patch)
        with pytest.raises(Interrupted, match="what was found is saved"):
            fit(data, tmp_path / "run", "alone", callbacks=[stop])
    place = tmp_path / "run/checkpoints/kept/learnt" / DOCUMENT
    assert json.loads(place.read_text())["found"]["seen"] == sum(lessons) == 600
    again = fit(data, tmp_path / "run", "alone", resume=True)
    assert model_of(again) == model_of(whole)
    assert sum(lessons) == learnt


def test_what_is_damaged_or_of_another_training_is_found_anew(tmp_path):
    found = Findings(tmp_path, "one", lasting=True)
    arrays = {"x": np.arange(5, dtype=np.float32)}
    found.save("learnt", 3, arrays)
    into = {"x": np.zeros(5, np.float32)}
    assert found.load("learnt", int, into) == 3
    assert into["x"].tolist() == [0, 1, 2, 3, 4]
    assert Findings(tmp_path, "two", lasting=True).load("learnt", int, into) is None
    assert found.within("later").load("learnt", int, into) is None
    assert found.load("learnt", str, into) is None
    assert found.load("learnt", int, {"x": np.zeros(6, np.float32)}) is None
    file = tmp_path / "learnt" / "found.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert found.load("learnt", int, into) is None
    with pytest.raises(DivergedError, match="the x are not finite"):
        found.save("learnt", 4, {"x": np.full(5, np.nan, np.float32)})
    assert found.load("learnt", int, into) is None
    found.drop("learnt", "nothing")
    assert not (tmp_path / "learnt").exists()


def test_a_document_is_read_where_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.model.findings.LEAST_SECONDS", 0.0)
    calls = []

    def find():
        calls.append(1)
        return [1.5]

    for lasting in (True, True, False):
        findings = Findings(tmp_path / "kept", "one", lasting=lasting)
        assert findings.once("fit", list[float], find, of={"rows": 3}) == [1.5]
    assert len(calls) == 2
    next((tmp_path / "kept").glob("fit-*.json")).write_text("{")
    assert Findings(tmp_path / "kept", "one", lasting=True).once("fit", list[float], find, of={
        "rows": 3
    }) == [1.5]  # fmt: skip
    assert len(calls) == 3


def test_a_full_disk_keeps_nothing_and_goes_on(tmp_path, monkeypatch):
    from streammach.errors import DiskError

    def full(*_):
        raise DiskError("No space left on device", path=tmp_path)

    monkeypatch.setattr("streammach.model.findings.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("streammach.model.findings.write_atomic", full)
    with pytest.warns(UserWarning, match="could not be kept: No space left"):
        found = Findings(tmp_path / "kept", "one", lasting=True).once("x", int, lambda: 7)
    assert found == 7
    assert not (tmp_path / "kept").exists()
