"""Models without hashed ones: counts alone, made first, and all there is where time is short."""

import gc
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.counts.table import CountTable
from streammach.options.training import TrainingOptions
from streammach.parts.counts import saved
from streammach.parts.counts.count_learner import CountLearner
from streammach.prediction.diagnose import diagnose
from streammach.prediction.evaluate import evaluate
from streammach.system.clock import Clock
from streammach.system.errors import Interrupted, MismatchError, ModelError, UsageError
from streammach.training import finalize as finalizing
from streammach.training import train as training
from streammach.training.trainer import Trainer
from tests.builders import Stop, fit, model_files
from tests.training.test_count_ensemble import narrow

FIXED = {"epochs": 2, "learning_rate": 0.2, "transform": "binary"}


def in_time(data, out, plan, seconds, **options):
    return Trainer(plan, TrainingOptions(**options), clock=Clock(seconds)).fit(data, out)


def stopped(patch):
    """What asks for the end before the search."""
    return Stop(patch, on_fit_start=lambda state: True)


def tables_alive():
    """Return how many tables there are; what else is alive may be a proxy of what is gone."""
    return sum(type(one) is CountTable for one in gc.get_objects())


@pytest.fixture
def nothing_collected():
    """Has what hangs in cycles let go by nobody but who asks for it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


LET_GO = [({"n_repetitions": 0}, "save"), ({"n_buckets": 4, "n_repetitions": 3}, "decide_settings")]


@pytest.mark.parametrize(("shape", "where"), LET_GO)
@pytest.mark.usefixtures("nothing_collected")
def test_what_was_counted_is_let_go(shape, where, stores, tiny, monkeypatch):
    """Before a model is made smaller, and before hashed models are trained."""
    module, alive = finalizing.model_form if where == "save" else training, []
    do = getattr(module, where)

    def seen(*given):
        alive.append(tables_alive())
        return do(*given)

    monkeypatch.setattr(module, where, seen)
    counting = CountLearner.run

    def counted(learner):
        found = counting(learner)
        alive.append(tables_alive())
        cycle = [found]
        cycle.append(cycle)
        return found

    monkeypatch.setattr(CountLearner, "run", counted)
    before = tables_alive()
    fit(stores[0], tiny.folder / "run", sm.plan(stores[0], **shape), **{**FIXED, "epochs": 1})
    assert alive == [before + 1, before]


def test_counts_alone_are_a_model(stores, tiny):
    data, test = stores
    run = fit(data, tiny.folder / "run", sm.plan(data, n_repetitions=0))
    model = sm.Model.load(run.path)
    assert (model.spec.n_repetitions, model.weights.shape[1]) == (0, 0)
    assert model.estimator == "blend"
    assert run.result.history == ()
    assert run.result.best.accuracy > 0.3
    with sm.Predictor(model) as predictor:
        found = evaluate(predictor, test)
        assert found.accuracy == pytest.approx(run.result.best.accuracy, abs=0.15)
        assert np.isfinite(found.log_loss)
    assert diagnose(model, test).depths == ()
    with pytest.raises(UsageError, match="no hashed models: estimator logsum"):
        sm.Predictor(model, estimator="logsum")


def test_few_held_out_rows_leave_the_usual_weights(tiny):
    with tiny.dataset("small.zarr", n_rows=300, n_classes=10) as data:
        run = fit(data, tiny.folder / "run", sm.plan(data, n_repetitions=0))
        assert sm.evaluate(run.model, data.path).accuracy > 0.5
    assert "counts weighed as usual: 15 held-out rows are too few" in run.result.reasons


def test_without_time_counts_are_all_there_is(stores, tiny):
    data, _ = stores
    run = in_time(data, tiny.folder / "run", narrow(data), 0.0, **FIXED)
    assert run.model.spec.unhashed
    assert run.plan.n_repetitions == 6
    last = run.result.reasons[-1]
    assert last.startswith("the same without a limit of time: --repetitions 0 --fit-rows 150 ")
    assert last.endswith(" --model-size full --judge-rows 250")
    options = {"fit_rows": 150, "judge_rows": 250, "model_size": "full"}
    options["pair_rows"] = int(last.split()[last.split().index("--pair-rows") + 1])
    again = fit(data, tiny.folder / "again", sm.plan(data, n_repetitions=0), **options)
    assert model_files(run) == model_files(again)


def test_with_time_hashed_models_follow(stores, tiny):
    data, _ = stores
    run = in_time(data, tiny.folder / "run", narrow(data), 600.0, **FIXED)
    assert run.model.spec.n_repetitions == 6
    assert len(run.result.history) == 2
    assert run.result.reasons[-1] == (
        "the same without a limit of time: --buckets 4 --repetitions 6 --epochs 2 --transform "
        "binary --learning-rate 0.2 --fit-rows 150 --pair-rows "
        + run.result.reasons[-1].split()[-1]
    )
    whole = fit(data, tiny.folder / "whole", narrow(data), **FIXED)
    assert model_files(run) == model_files(whole)
    assert not any("without a limit" in reason for reason in whole.result.reasons)


@pytest.mark.parametrize("kept", [0, 1])
def test_epochs_end_when_the_time_is_over(kept, stores, tiny, monkeypatch):
    """The clock jumps to its end in an epoch: the best one before counts, or counts alone do."""
    data, _ = stores
    spent = [0.0]
    monkeypatch.setattr(Clock, "elapsed_seconds", property(lambda self: spent[0]))

    class Jump:
        def on_progress(self, state):
            if state.epoch == kept and state.row > 500:
                spent[0] = 1e6

    options = TrainingOptions(**FIXED)
    trainer = Trainer(narrow(data), options, clock=Clock(1000.0), callbacks=[Jump()])
    run = trainer.fit(data, tiny.folder / "run")
    assert len(run.result.history) == kept
    assert run.model.spec.unhashed == (kept == 0)
    assert sm.evaluate(run.model, data.path).accuracy > 0.3


def test_an_interrupted_run_leaves_a_model_and_goes_on_from_the_counts(stores, counted, tiny):
    data, _ = stores
    folder = tiny.folder / "run"
    early = sm.Model.load(folder)
    assert early.spec.unhashed
    assert sm.evaluate(early, data.path).accuracy > 0.5
    told = []
    watch = SimpleNamespace(on_message=told.append)
    run = fit(data, folder, narrow(data), resume=True, callbacks=[watch], **FIXED)
    assert not run.model.spec.unhashed
    assert [text for text in told if text.startswith("counted")] == []
    assert not (folder / "checkpoints").exists()


@pytest.fixture(scope="module")
def interrupted(paths_of_stores, tmp_path_factory):
    """The folder of a run that was interrupted before its search."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with (
        sm.Dataset.open(paths_of_stores[0]) as data, pytest.MonkeyPatch.context() as patch,
        pytest.raises(Interrupted),
    ):  # fmt: skip
        fit(data, folder, narrow(data), callbacks=[stopped(patch)], **FIXED)
    return folder


@pytest.fixture
def counted(interrupted, tiny):
    """What a copy of it has counted."""
    return shutil.copytree(interrupted, tiny.folder / "run") / "checkpoints" / "counts"


@pytest.mark.parametrize("what", ["cut", "flipped", "document", "class", "group"])
def test_damaged_counts_are_refused(what, stores, counted, tiny):
    data, _ = stores
    tensors, document = counted / saved.TENSORS, counted / saved.DOCUMENT
    found = saved.load(counted, identity_of(document), data.n_features, data.n_classes)
    if what == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif what == "flipped":
        content = bytearray(tensors.read_bytes())
        content[-50] ^= 1
        tensors.write_bytes(bytes(content))
    elif what == "document":
        document.write_text("{}")
    else:
        if what == "class":
            found.table.classes[0] = data.n_classes
        else:
            found.start.group[0] = found.start.n_groups
        identity = identity_of(document)
        for path in (tensors, document):
            path.unlink()
        counted.rmdir()
        saved.save(found, counted, identity)
    with pytest.raises(ModelError, match="damaged"):
        fit(data, tiny.folder / "run", narrow(data), resume=True, **FIXED)


def identity_of(document):
    return json.loads(document.read_text())["identity"]


def test_counts_of_another_training_are_refused(stores, counted):
    data, _ = stores
    own = identity_of(counted / saved.DOCUMENT)
    with pytest.raises(MismatchError, match="belongs to another store, plan or training"):
        saved.load(counted, "x", data.n_features, data.n_classes)
    with pytest.raises(ModelError, match="not those of counts"):
        saved.load(counted, own, data.n_features + 1, data.n_classes)


def test_counts_are_the_same_after_they_were_saved(stores, counted, tiny):
    data, _ = stores
    identity = identity_of(counted / saved.DOCUMENT)
    found = saved.load(counted, identity, data.n_features, data.n_classes)
    saved.save(replace(found, learnt=found.grouped), tiny.folder / "two/counts", identity)
    again = saved.load(tiny.folder / "two/counts", identity, data.n_features, data.n_classes)
    assert again.learnt is again.grouped
    for name in ("starts", "classes", "counts", "class_rows", "class_values"):
        assert np.array_equal(getattr(found.table, name), getattr(again.table, name))
    assert found.grouped == again.grouped
    assert len(found.start.theta) == found.table.n_pairs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_repetitions": 0, "counts": "off"}, "no model without hashed ones: counts rank alone"),
        ({"n_repetitions": 0, "n_buckets": 8}, "no hashed models have no buckets"),
        ({"n_repetitions": 0, "exact": True}, "exact=True excludes"),
        ({"n_repetitions": -1, "n_buckets": 8}, "too small: n_repetitions"),
    ],
)
def test_what_cannot_be_is_said(options, message, stores):
    data, _ = stores
    with pytest.raises(UsageError, match=message):
        sm.plan(data, **options)


def test_dense_rows_need_hashed_models(tiny):
    lines = [f"{i % 6} | " + " ".join(f"{j}:{i + j}" for j in range(6)) for i in range(60)]
    sm.convert(tiny.text("d.vw", lines), tiny.folder / "d.zarr")
    with pytest.raises(UsageError, match="rows are dense"):
        sm.plan(tiny.folder / "d.zarr", n_repetitions=0)
