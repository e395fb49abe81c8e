"""A training gives the same bytes whatever it goes through: threads, parts, any interruption.

A kind of training is a store, a plan and options; a way is what it goes through. Every kind goes
every way that it can: a later kind or way is one more line.
"""

import json
import re
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.model import findings
from streammach.model.findings import DOCUMENT, Findings
from streammach.parts.counts import count_learner as alone
from streammach.parts.counts.fitting import Fitting
from streammach.parts.fourier import part as fourier
from streammach.system.errors import DivergedError, Interrupted, UsageError
from streammach.system.files import folders
from streammach.system.files.writing import Writer
from streammach.training.model_form import FormComparison
from tests.builders import NO_PARTS, Stop, TinyData, listed_lines, model_files

HASHED = {"n_buckets": 4, "n_repetitions": 4}
PLAIN = {**HASHED, "counts": "off"}
FIXED = {"epochs": 3, "learning_rate": 0.05, "transform": "binary"}
DENSE = {"epochs": 2, "learning_rate": 0.01, "transform": "raw"}
KINDS = {
    "hashed": ("rows", HASHED, {"epochs": 2}),
    "alone": ("rows", {"n_repetitions": 0}, {"epochs": 2}),
    "lists": ("lists", {"n_buckets": 8, "n_repetitions": 3, "counts": "on"}, {"epochs": 2}),
    "adagrad": ("few rows", {**PLAIN, "optimizer": "adagrad"}, FIXED),
    "sgd": ("few rows", {**PLAIN, "optimizer": "sgd"}, FIXED),
    "adam": ("few rows", {**PLAIN, "optimizer": "adam"}, FIXED),
    "first features": ("few rows", {**HASHED, "hashed_features": 40, "counts": "on"}, FIXED),
    "first features, lengths": (
        "lists", {**PLAIN, "hashed_features": 40}, {**FIXED, "transform": "l2"}
    ),
    "sigmoids": ("lists", PLAIN, {**FIXED, "label_loss": "logistic"}),
    "more labels than buckets": (
        "long lists", {**PLAIN, "n_buckets": 2},
        {**FIXED, "label_loss": "logistic", "learning_rate": 1},
    ),
    "joint lists": ("lists", {**PLAIN, "loss": "joint"}, FIXED),
    "joint": ("dense", {**HASHED, **NO_PARTS, "loss": "joint", "threads": 2}, DENSE),
    "closed form": ("dense", {**NO_PARTS, "closed_form": "on"}, DENSE),
    "whitened": ("dense", {**NO_PARTS, "whitening": "on"}, DENSE),
    "cosines": ("dense", {**NO_PARTS, "fourier": "on"}, DENSE),
}  # fmt: skip
STAGES = {
    "hashed": [
        "counting pairs", "weighing counts", "learning pairs", "weighing pairs", "search",
        "epochs", "ranking", "counts beside models", "calibration", "smaller model",
        "held-out rows, learnt",
    ],
    "alone": ["weighing counts", "calibration", "smaller model"],
    "lists": ["learning pairs", "counts beside models", "smaller model"],
    "closed form": ["closed form"],
}  # fmt: skip


class Trainings:
    """Trainings of all kinds, and the bytes of those that nothing disturbed."""

    def __init__(self, folder, opened):
        self.folder, self.tiny = folder, TinyData(folder, np.random.default_rng(0))
        self.opened = opened
        self.data, self.whole = cache(self._data), cache(self._whole)

    def _data(self, name):
        tiny, store = self.tiny, self.folder / f"{name}.zarr"
        if name.endswith("lists"):
            lines = listed_lines(tiny.rng, 1500)
            if name == "long lists":
                lines = [re.sub(r"\bc(\d+)", r"c\1,d\1", line) for line in lines]
            sm.convert(tiny.text(f"{name}.vw", lines), store, multilabel="on")
        elif name == "dense":
            y = np.arange(900) % 30
            x = tiny.rng.normal(size=(30, 12))[y] + 0.5 * tiny.rng.normal(size=(900, 12))
            tiny.dense_store(store.name, x, y)
        else:
            n_rows, n_classes = (1500, 75) if name == "rows" else (900, 30)
            tiny.store(store.name, n_rows=n_rows, n_classes=n_classes, namespace=True)
        return self.opened.enter_context(sm.Dataset.open(store))

    def _whole(self, kind):
        return model_files(self.fit(kind, self.folder / kind))

    def trainer(self, kind, *, threads=1, **how):
        store, plan, options = KINDS[kind]
        made = sm.plan(self.data(store), **{"threads": threads, **plan})
        return sm.Trainer(made, sm.TrainingOptions(**options), **how)

    def fit(self, kind, out, *, resume=False, **how):
        return self.trainer(kind, **how).fit(self.data(KINDS[kind][0]), out, resume=resume)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with ExitStack() as opened:
        yield Trainings(tmp_path_factory.mktemp("trainings"), opened)


@pytest.fixture(autouse=True)
def all_kept(monkeypatch):
    """Keep what took no time, too; few cosines."""
    monkeypatch.setattr("streammach.model.findings.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(alone, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(fourier, "SIZES", {96: 0.0})


def again(made, kind, folder, patch):
    return made.fit(kind, folder)


def three_threads(made, kind, folder, patch):
    return made.fit(kind, folder, threads=3)


def two_parts(made, kind, folder, patch):
    trainer, data = made.trainer(kind), made.data(KINDS[kind][0])
    parts = [trainer.fit_part(data, folder / f"part{k}", (k, 2)).path for k in (1, 2)]
    return sm.merge(folder / "run", parts)


def interrupted(**moment):
    """Stop a training as a signal does, and go on."""

    def way(made, kind, folder, patch):
        with patch.context() as patched:
            stop = Stop(patched, **moment)
            try:
                made.fit(kind, folder, callbacks=[stop])
            except Interrupted as error:
                assert re.search("saved.*resume", str(error))  # noqa: PT017
            assert stop.signals.requested
        run = made.fit(kind, folder, resume=True)
        assert not (run.path / "checkpoints").exists()
        return run

    return way


class Crash(BaseException):
    """Ends a training as a killed process does: nothing is saved any more."""

    def on_progress(self, state):
        if state.epoch == 1 and state.row > state.n_rows / 2:
            raise self


def killed(made, kind, folder, patch):
    with pytest.raises(Crash):
        made.fit(kind, folder, callbacks=[Crash()], checkpoint_minutes=1e-9)
    assert any((folder / "checkpoints").glob("step-*"))
    return made.fit(kind, folder, resume=True)


def cut_off(name):
    """Kill a training while it writes a state that has this name, and go on."""

    def way(made, kind, folder, patch):
        commit = findings.commit_folder

        def dies(partial, final):
            if final.name.startswith(name):
                patched.setattr(folders, "_empty", lambda path: None)  # nobody tidies up
                raise KeyboardInterrupt
            commit(partial, final)

        with patch.context() as patched:
            patched.setattr(findings, "commit_folder", dies)
            with pytest.raises(KeyboardInterrupt):
                made.fit(kind, folder)
        assert list(folder.rglob(f".{name}*"))
        run = made.fit(kind, folder, resume=True)
        assert not (run.path / "checkpoints").exists()
        return run

    return way


def at(stage, moment):
    return lambda state: (state.stage, state.moment) == (stage, moment)


WAYS = {
    "again": again, "threads": three_threads, "parts": two_parts, "killed": killed,
    "stopped": interrupted(on_progress=lambda state: state.epoch == 1 and state.row > 100),
    "first batch": interrupted(on_progress=lambda state: state.step == 1),
    "first epoch": interrupted(on_epoch_end=lambda state: state.epoch == 0),
}  # fmt: skip


def cannot(kind, way):
    """Joint losses and dense rows have no parts; other threads give dense rows other bytes."""
    store, plan, _ = KINDS[kind]
    return (
        (way == "again" and store != "dense")
        or (way in ("threads", "parts") and store == "dense")
        or (way == "parts" and "loss" in plan)
        or (way != "threads" and plan.get("n_repetitions") == 0)
    )


CASES = {f"{way}-{kind}": (kind, go) for kind in KINDS for way, go in WAYS.items()
         if not cannot(kind, way)}  # fmt: skip
CASES |= {f"{moment} of {stage}-{kind}": (kind, interrupted(on_stage=at(stage, moment)))
          for kind, stages in STAGES.items() for stage in stages
          for moment in ("begin", "end")}  # fmt: skip
CASES |= {f"killed at {name}-{kind}": (kind, cut_off(name)) for kind, name in (
    ("hashed", "step"), ("hashed", "counts"), ("alone", "learnt"), ("lists", "counts")
)}  # fmt: skip


# Each kind and each way by day; all others at night.
BY_DAY = {
    "stopped-hashed", "threads-alone", "parts-lists", "parts-adagrad", "threads-sgd", "killed-adam",
    "parts-first features", "killed-first features, lengths", "threads-sigmoids",
    "parts-more labels than buckets", "stopped-joint lists", "killed-joint", "again-closed form",
    "stopped-whitened", "killed-cosines", "first epoch-sgd", "first batch-adagrad",
    "end of weighing pairs-hashed", "end of epochs-hashed", "begin of smaller model-lists",
    "killed at step-hashed", "killed at counts-lists", "killed at learnt-alone",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in BY_DAY else pytest.mark.nightly) for c in CASES]
)
def test_it_gives_the_same_bytes(case, made, tmp_path, monkeypatch):
    kind, way = CASES[case]
    assert model_files(way(made, kind, tmp_path / "run", monkeypatch)) == made.whole(kind)


@pytest.mark.parametrize("part", [None, (1, 2)])
def test_checkpoints_that_a_kill_left_of_a_finished_training_go(made, tmp_path, monkeypatch, part):
    trainer, data = made.trainer("hashed"), made.data("rows")

    def train(**how):
        if part is None:
            return trainer.fit(data, tmp_path / "run", **how)
        return trainer.fit_part(data, tmp_path / "run", part, **how)

    def dies(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        end = "finalize" if part is None else "train"
        patch.setattr(f"streammach.training.{end}.remove_folder", dies)
        with pytest.raises(KeyboardInterrupt):
            train()
    kept = tmp_path / "run" / "checkpoints"
    left = kept if part is None else kept / "kept"
    assert left.exists()
    train(resume=True)
    assert not left.exists()
    assert kept.exists() == (part is not None)


def test_a_marker_that_a_kill_cut_off_holds_nothing_up(made, tmp_path):
    folder, data = tmp_path / "new", made.data("rows")
    training = sm.TrainingOptions(epochs=1, learning_rate=0.3, transform="raw")

    def begin():
        return sm.Trainer(sm.plan(data, threads=1, n_repetitions=0), training).fit(data, folder)

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


def test_what_was_found_is_not_found_again(made, tmp_path, monkeypatch):
    whole = made.whole("hashed")
    with monkeypatch.context() as patch:
        stop = Stop(patch, on_stage=at("smaller model", "end"))
        with pytest.raises(Interrupted):
            made.fit("hashed", tmp_path / "run", callbacks=[stop])
    told, steps, fits = [], [], calls_of(monkeypatch, Fitting, "fit")
    judged = calls_of(monkeypatch, FormComparison, "_measure")
    watch = SimpleNamespace(on_message=told.append, on_progress=steps.append)
    run = made.fit("hashed", tmp_path / "run", resume=True, callbacks=[watch])
    assert model_files(run) == whole
    assert (fits, judged, steps) == ([], [], [])
    assert not [text for text in told if text.startswith(("counted", "learnt"))]


def test_learning_goes_on_within_a_pass(made, tmp_path, monkeypatch):
    monkeypatch.setattr(alone, "LESSON_ROWS", 200)
    lessons, real, stop = [], alone.PairLearner.learn, None

    def learn(self, block):
        lessons.append(block.n_rows)
        if stop is not None:
            stop.signals.requested = len(lessons) == 3
        real(self, block)

    monkeypatch.setattr(alone.PairLearner, "learn", learn)
    whole = made.fit("alone", tmp_path / "whole")
    learnt = sum(lessons)
    lessons.clear()
    with monkeypatch.context() as patch:
        stop = Stop(patch)
        with pytest.raises(Interrupted, match="what was found is saved"):
            made.fit("alone", tmp_path / "run", callbacks=[stop])
    place = tmp_path / "run/checkpoints/kept/learnt" / DOCUMENT
    assert json.loads(place.read_text())["found"]["seen"] == sum(lessons) == 600
    again = made.fit("alone", tmp_path / "run", resume=True)
    assert model_files(again) == model_files(whole)
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
        kept = Findings(tmp_path / "kept", "one", lasting=lasting)
        assert kept.once("fit", list[float], find, of={"rows": 3}) == [1.5]
    assert len(calls) == 2
    next((tmp_path / "kept").glob("fit-*.json")).write_text("{")
    assert Findings(tmp_path / "kept", "one", lasting=True).once("fit", list[float], find, of={
        "rows": 3
    }) == [1.5]  # fmt: skip
    assert len(calls) == 3


def test_a_full_disk_keeps_nothing_and_goes_on(tmp_path, monkeypatch):
    from streammach.system.errors import DiskError

    def full(*_):
        raise DiskError("No space left on device", path=tmp_path)

    monkeypatch.setattr("streammach.model.findings.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("streammach.model.findings.write_atomic", full)
    with pytest.warns(UserWarning, match="could not be kept: No space left"):
        found = Findings(tmp_path / "kept", "one", lasting=True).once("x", int, lambda: 7)
    assert found == 7
    assert not (tmp_path / "kept").exists()
