"""Training runs: they learn, they resume to the same bytes, they say what they chose."""

import json
import os
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

import streammach as sm
from streammach.model.checkpoint import Checkpoints
from streammach.options.documents import to_json
from streammach.options.training import TrainingOptions
from streammach.system.errors import (
    DiskError,
    DivergedError,
    Interrupted,
    LockedError,
    MismatchError,
    UsageError,
)
from streammach.system.files.folders import lock_file
from streammach.training.callbacks import EarlyStopping
from streammach.training.run import SETTINGS, read_settings
from tests.builders import NO_PARTS, held_out, model_files, stop_after
from tests.builders import fit as train


def fit(data, out, *, plan=None, **options):
    plan = plan or sm.plan(data, n_buckets=8, n_repetitions=6, threads=2)
    return train(data, out, plan, **options)


FIXED = {"epochs": 3, "learning_rate": 0.5, "transform": "binary"}


@pytest.fixture(scope="module")
def data(shared):
    with shared.dataset(n_rows=900, n_classes=30, namespace=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run that has chosen all for itself."""
    return fit(data, tmp_path_factory.mktemp("chosen") / "run")


def test_a_run_learns_and_leaves_its_files(data, run, tiny):
    names = sorted(p.name for p in run.path.iterdir())
    assert names == [
        "log.jsonl",
        "model",
        "plan.json",
        "result.json",
        "streammach.json",
        "training.json",
    ]
    test = tiny.store("test.zarr", n_rows=300, like=data.path, namespace=True)
    assert sm.evaluate(run.model, test).accuracy > 0.9
    events = [
        json.loads(line)["event"] for line in (run.path / "log.jsonl").read_text().splitlines()
    ]
    assert events[0] == "start"
    assert events[-1] == "end"
    assert events.count("validation") == 5
    assert run.result.peak_bytes > 0
    assert sm.Run.open(run.path).result == run.result


def test_names_may_be_any_bytes(tiny):
    odd = Path(os.fsdecode(os.fsencode(tiny.folder) + b"/a\xff\n"))
    odd.mkdir()
    data = tiny.store("train.zarr", n_rows=300, n_classes=10).rename(odd / "train.zarr")
    other = tiny.store("valid.zarr", n_rows=90, like=data).rename(odd / "valid.zarr")
    plan = sm.plan(data, n_buckets=4, n_repetitions=3)
    run = train(data, odd / "run", plan, **FIXED, validation=str(other))
    again = train(data, odd / "run", plan, **FIXED, validation=str(other), resume=True)
    assert again.result == run.result
    assert json.loads((run.path / "log.jsonl").read_text().splitlines()[0])["plan"] == "plan.json"


def test_held_out_rows_are_known_by_what_they_are(rng, tmp_path, monkeypatch):
    """Those in memory have another path when a run goes on; a store may hold others by then."""
    y = np.arange(300) % 6
    x = np.eye(6)[y] + 0.3 * rng.normal(size=(300, 6))
    pairs = [(x[200:], y[200:]), (x[150:], y[150:])]

    def train(out, held_out=pairs[0], **how):
        return sm.train(
            x[:200], y[:200], validation=held_out, out=tmp_path / out, threads=1, memory="1GB",
            n_buckets=3, n_repetitions=2, **FIXED, **NO_PARTS, **how,
        )  # fmt: skip

    with pytest.raises(Interrupted):
        train("run", callbacks=[stop_after(20, monkeypatch)])
    with pytest.raises(MismatchError):
        train("run", pairs[1], resume=True)
    assert model_files(train("run", resume=True)) == model_files(train("whole"))


def test_what_was_chosen_is_said_with_its_evidence(run):
    reasons = " ".join(run.settings.reasons)
    assert f"transform {run.settings.training.transform}: held-out accuracy / top-5" in reasons
    assert f"learning rate {run.settings.training.learning_rate:.3g}:" in reasons
    assert run.result.reasons[1].startswith(f"estimator {run.result.estimator}: held-out")
    tried = {trial.transform for trial in run.settings.trials}
    assert tried == {"raw", "binary", "log1p", "l2"}
    rates = {
        t.learning_rate
        for t in run.settings.trials
        if t.transform == run.settings.training.transform
    }
    assert len(rates) >= 3


def test_what_is_given_is_not_searched(data, tiny):
    run = fit(data, tiny.folder / "run", **FIXED, label_smoothing=0.3)
    assert run.settings.trials == ()
    training = run.settings.training
    assert (training.learning_rate, training.transform, training.label_smoothing) == (
        0.5,
        "binary",
        0.3,
    )
    other = fit(data, tiny.folder / "run2", epochs=1, transform="l2")
    assert {t.transform for t in other.settings.trials} == {"l2"}


def test_dense_data_go_through_matrix_products(tiny):
    lines = []
    for i in range(400):
        x = tiny.rng.random(6) + 2 * np.eye(6)[i % 6]
        lines.append(f"{i % 6} | " + " ".join(f"{j}:{v:.4f}" for j, v in enumerate(x)))
    sm.convert(tiny.text("d.vw", lines), tiny.folder / "d.zarr")
    with sm.Dataset.open(tiny.folder / "d.zarr") as dense:
        chosen = sm.plan(dense, memory="500MB")
        assert chosen.config.dense
        assert chosen.model.exact
        run = sm.Trainer(chosen).fit(dense, tiny.folder / "run")
    assert run.settings.training.optimizer == "adam"
    assert run.result.validation["logsum"].accuracy > 0.9


def test_the_best_epoch_is_kept(data, tiny, monkeypatch):
    scores = iter([0.1, 0.9, 0.3, 0.2])
    weights = []
    from streammach.options.figures import HeldOutMetrics
    from streammach.training import epochs

    def planted(backend, *_):
        weights.append(backend.arrays()["weights"].copy())
        return HeldOutMetrics(next(scores), 0.0)

    monkeypatch.setattr(epochs, "measure_rows", planted)
    plan = sm.plan(data, n_buckets=8, n_repetitions=6, counts="off")
    options = {"epochs": 4, "learning_rate": 0.5, "transform": "raw", "last_passes": 0}
    run = fit(data, tiny.folder / "run", plan=plan, callbacks=[], **options)
    assert run.result.best_epoch == 1
    assert np.array_equal(run.model.weights, weights[1])
    assert not np.array_equal(run.model.weights, weights[3])


def test_early_stopping_ends_a_run(data, tiny, monkeypatch):
    from streammach.options.figures import HeldOutMetrics
    from streammach.training import epochs

    monkeypatch.setattr(epochs, "measure_rows", lambda *_: HeldOutMetrics(0.5, 0.5))
    options = {"epochs": 9, "learning_rate": 0.5, "transform": "raw"}
    run = fit(data, tiny.folder / "run", callbacks=[EarlyStopping(2)], **options)
    assert len(run.result.history) == 3
    assert run.result.stopped == "no better epoch in 2"


def test_a_stop_asked_for_within_an_epoch_ends_the_run_after_it(data, tiny):
    class Enough:
        def on_progress(self, state):
            if state.step == 3:
                state.stop("enough")

    options = {"epochs": 9, "learning_rate": 0.5, "transform": "raw"}
    run = fit(data, tiny.folder / "run", callbacks=[Enough()], **options)
    assert (len(run.result.history), run.result.stopped) == (1, "enough")


def test_callbacks_see_the_run(data, tiny):
    calls = []

    class Watch:
        def __getattr__(self, name):
            if name.startswith("on_"):
                return lambda *_: calls.append(name)
            raise AttributeError(name)

    fit(data, tiny.folder / "run", callbacks=[Watch()], epochs=2, transform="raw")
    kinds = list(dict.fromkeys(calls))
    assert kinds.pop(0) == "on_stage"
    assert kinds.pop(0) == "on_message"  # of counts
    assert kinds == [
        "on_search", "on_fit_start", "on_progress", "on_epoch_end", "on_fit_end", "on_run_end",
    ]  # fmt: skip
    assert calls.count("on_epoch_end") == 2


def test_divergence_is_an_error_that_keeps_the_last_checkpoint(data, tiny):
    plan = sm.plan(data, n_buckets=8, n_repetitions=6, optimizer="sgd")
    with pytest.raises(DivergedError, match="not finite"):
        fit(data, tiny.folder / "run", plan=plan, epochs=3, learning_rate=1e38, transform="raw",
            checkpoint_minutes=0)  # fmt: skip
    for step in (tiny.folder / "run/checkpoints").glob("step-*"):
        held = Checkpoints(step.parent, json.loads((step / "state.json").read_text())["identity"])
        arrays = {"weights": np.empty((data.n_features, 48), np.float32),
                  "bias": np.empty(48, np.float32), "steps": np.empty(1, np.int64)}  # fmt: skip
        held.read(int(step.name.split("-")[1]), arrays)
        assert np.isfinite(arrays["weights"]).all()


def test_a_full_disk_is_a_warning_twice_and_then_an_error(data, tiny, monkeypatch):
    def full(*_):
        raise DiskError("No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full)
    with (
        pytest.warns(UserWarning, match="could not be written") as caught,
        pytest.raises(DiskError),
    ):
        fit(data, tiny.folder / "run", checkpoint_minutes=0, **FIXED)
    assert len(caught) == 2


def test_a_run_is_not_overwritten(data, tiny):
    fit(data, tiny.folder / "run", **FIXED)
    with pytest.raises(UsageError, match="it holds a run already"):
        fit(data, tiny.folder / "run", **FIXED)
    again = fit(data, tiny.folder / "run", resume=True, **FIXED)
    assert len(again.result.history) == 3
    with pytest.raises(MismatchError, match="another store, plan or options"):
        fit(data, tiny.folder / "run", resume=True, **{**FIXED, "epochs": 4})


def test_a_plan_of_another_store_is_refused(data, tiny):
    other = tiny.dataset("other.zarr", n_rows=100)
    with pytest.raises(MismatchError, match="another store"):
        sm.Trainer(sm.plan(other, n_buckets=4, n_repetitions=4)).fit(data, tiny.folder / "run")
    other.close()


def test_a_second_process_is_refused(data, tiny):
    (tiny.folder / "run").mkdir()
    with lock_file(tiny.folder / "run/.lock", "run"), pytest.raises(LockedError):
        fit(data, tiny.folder / "run", **FIXED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transform": "sqrt"}, "transform"), ({"epochs": -1}, "epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(options, message, data):
    with pytest.raises(UsageError, match=message):
        sm.Trainer(sm.plan(data, n_buckets=4, n_repetitions=4), TrainingOptions(**options))


def test_held_out_rows_share_no_value_of_the_namespace(data):
    plan = sm.plan(data, n_buckets=4, n_repetitions=4)
    held = held_out(data, plan, hold_out_by="g")
    groups = {i for i in range(data.n_features) if data.features.raw(i).startswith(b"g^")}
    whole = data.rows(0, data.n_rows)

    def groups_of(rows):
        return {
            int(f) for i in rows for f in whole.features[whole.indptr[i] : whole.indptr[i + 1]]
            if int(f) in groups
        }  # fmt: skip

    out, kept = groups_of(np.flatnonzero(held.mask)), groups_of(np.flatnonzero(~held.mask))
    assert out
    assert kept
    assert not out & kept
    assert "namespace g" in held.origin
    assert held.rows.n_rows == min(held.mask.sum(), plan.config.batching.held_out_rows)


def test_random_held_out_rows_are_a_twentieth(data):
    held = held_out(data, sm.plan(data, n_buckets=4, n_repetitions=4))
    assert held.mask.sum() == held.rows.n_rows == 45


def test_held_out_rows_may_come_from_another_store(data, tiny):
    tiny.store("valid.zarr", n_rows=200, n_classes=40, namespace=True)  # its own ids, more classes
    plan = sm.plan(data, n_buckets=4, n_repetitions=4)
    held = held_out(data, plan, validation=tiny.folder / "valid.zarr")
    assert held.mask is None
    with sm.Dataset.open(tiny.folder / "valid.zarr") as valid:
        block = valid.rows(0, held.rows.n_rows)
        for i in range(held.rows.n_rows):
            name = valid.labels.label(block.classes[i])
            y = held.rows.classes[i]
            assert y == -1 if int(name.split("-")[1]) >= 30 else data.labels.label(y) == name
    run = fit(data, tiny.folder / "run", validation=tiny.folder / "valid.zarr", **FIXED)
    assert "45 of 200 rows of" in run.settings.held_out


def test_held_out_rows_are_learnt_from_when_all_is_chosen(data, tiny):
    held = held_out(data, sm.plan(data, n_buckets=8, n_repetitions=6))

    def right(run):
        with sm.Predictor(run.model) as predictor:
            ids, scores = predictor.rank(held.rows, 1)
        return scores[ids[:, 0] == held.rows.classes].sum()

    def ran(name, passes, **where):
        options = {**FIXED, "epochs": 1, "last_passes": passes}
        return fit(data, tiny.folder / name, **options, **where)

    with_them, without = ran("with", 2), ran("without", 0)
    assert right(with_them) > right(without)
    assert with_them.result.validation == without.result.validation
    elsewhere = {"validation": tiny.store("v.zarr", n_rows=90, like=data.path, namespace=True)}
    assert model_files(ran("v2", 2, **elsewhere)) == model_files(ran("v0", 0, **elsewhere))


def test_wrong_ways_to_hold_out_are_refused(data):
    plan = sm.plan(data, n_buckets=4, n_repetitions=4)
    with pytest.raises(UsageError, match=r"no feature has the namespace 'q'.*Known are g, w, x"):
        held_out(data, plan, hold_out_by="q")
    with pytest.raises(UsageError, match="exclude one another"):
        held_out(data, plan, validation="v", hold_out_by="g")


@pytest.mark.parametrize("n_rows", [1, 2, 19, 25])
def test_tiny_data_train_too(n_rows, tiny):
    lines = [f"{i % 2} | x{i % 2}" for i in range(n_rows)]
    sm.convert(tiny.text("t.vw", lines), tiny.folder / "t.zarr")
    with sm.Dataset.open(tiny.folder / "t.zarr") as data:
        run = sm.Trainer(sm.plan(data, memory="600MB")).fit(data, tiny.folder / "run")
    assert sm.evaluate(run.model, tiny.folder / "t.zarr").accuracy > 0.9


def test_no_thread_is_left(data, tiny):
    before = threading.active_count()
    fit(data, tiny.folder / "run", **FIXED)
    assert threading.active_count() == before


def test_settings_with_millions_of_held_out_rows_are_read_again(tmp_path):
    golden = Path(__file__).parents[1] / "golden" / "formats-1" / "run"
    rows = tuple(range(10**9, 10**9 + 1_500_000))
    settings = msgspec.structs.replace(read_settings(golden), held_out_rows=rows)
    (tmp_path / SETTINGS).write_bytes(to_json(settings))
    assert read_settings(tmp_path) == settings
