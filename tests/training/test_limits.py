"""A limit of time: trials end within it, the best one is a model, and a useless one is told."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.backends.cpu.backend import CpuBackend
from streammach.parts.training_record import Training
from streammach.planning.cost import trial
from streammach.store.holdout import hold_out
from streammach.system.clock import Clock, TimeOver
from streammach.training import trials
from streammach.training.time_budget import FEWEST_ROWS, TimeBudget
from streammach.training.trainer import Trainer

PLANNED = {"memory": "1GB", "n_buckets": 8, "n_repetitions": 6, "threads": 1, "counts": "off"}


class MadeClock:
    """A time that passes in steps of a training and in rankings of rows alone."""

    def __init__(self, monkeypatch, step, rank=0.0):
        self.now, self.steps = 0.0, 0
        own_step, own_rank = CpuBackend.step, CpuBackend.topk

        def stepped(backend, batch, rate):
            self.now, self.steps = self.now + step, self.steps + 1
            return own_step(backend, batch, rate)

        def ranked(backend, rows, k, estimator):
            self.now += rank * rows.n_rows
            return own_rank(backend, rows, k, estimator)

        monkeypatch.setattr(CpuBackend, "step", stepped)
        monkeypatch.setattr(CpuBackend, "topk", ranked)

    def of(self, seconds):
        return Clock(seconds, 0.0, lambda: self.now)


@pytest.fixture(scope="module")
def rows(shared):
    return shared.store(n_rows=2500)


@pytest.fixture
def trained(rows, tiny, monkeypatch):
    """A training within so many seconds where each step takes `step` and each ranking `rank`."""

    def made(seconds, step, rank=0.0, store=None, **options):
        clock = MadeClock(monkeypatch, step, rank)
        with sm.Dataset.open(store or rows) as data:
            plan = sm.plan(data, **PLANNED)
            trainer = Trainer(plan, sm.TrainingOptions(**options), clock=clock.of(seconds))
            return trainer.fit(data, tiny.folder / "run"), clock, plan

    return made


@pytest.mark.parametrize("seconds", [20, 60, 200])
@pytest.mark.parametrize(("step", "rank"), [(0.05, 0.0), (0.4, 0.0), (1.0, 0.002)])
def test_a_training_ends_in_its_time_whatever_steps_take(trained, seconds, step, rank):
    run, clock, _ = trained(seconds, step, rank)
    assert clock.now <= 1.1 * seconds
    assert clock.steps > 5
    assert run.model.n_labels == 30


def test_trials_are_as_long_as_there_is_time_for(trained):
    run, _clock, plan = trained(60, 0.4)
    usual, _ = trial(plan.facts.n_rows, 5, 6.3)
    assert 0 < max(one.rows for one in run.settings.trials) < usual
    assert len(run.settings.trials) > 1


def test_a_trial_is_cut_off_within_it(trained, monkeypatch):
    monkeypatch.setattr(trials, "LEAST_STEPS", 1000)  # trials are longer than there is time for
    run, clock, _ = trained(40, 0.4)
    assert clock.now <= 1.1 * 40
    assert len(run.settings.trials) == 1


def test_the_best_trial_is_the_model_where_epochs_reach_less(trained, monkeypatch):
    kept, saved = [], trials.TrialRunner.keep
    monkeypatch.setattr(TimeBudget, "epoch_is_sure", lambda self: False)
    monkeypatch.setattr(TimeBudget, "epochs_that_fit", lambda self, wanted: (1, 8))

    def keep(self, trial, arrays):
        saved(self, trial, arrays)
        kept.append((trial, arrays["weights"].copy()))

    monkeypatch.setattr(trials.TrialRunner, "keep", keep)
    said = []
    monkeypatch.setattr(Training, "report", lambda self, text: said.append(text))
    run, _, _ = trained(60, 0.4, learning_rate=0.5, model_size="full", last_passes=0)
    best, weights = max(kept, key=lambda one: one[0].score)
    assert np.array_equal(run.model.weights, weights)
    assert run.model.training == best.spec
    assert any("the best trial is the model" in text for text in said)
    assert best.metrics.accuracy > 0.2
    assert not [path for path in run.path.iterdir() if path.name == "checkpoints"]


def test_no_trial_is_kept_where_epochs_reach_more(trained, monkeypatch):
    monkeypatch.setattr(TimeBudget, "epoch_is_sure", lambda self: False)
    run, _, _ = trained(600, 0.1, learning_rate=0.5)
    assert len(run.result.history) > 1
    assert run.model.training == run.settings.training


def test_a_part_of_an_epoch_is_a_training_of_its_own(trained):
    run, _, plan = trained(60, 1.5, learning_rate=0.5, transform="raw")
    assert 0 < run.settings.epoch_rows < plan.facts.n_rows
    assert len(run.result.history) == 1  # its rate fell to 0, and held-out rows measured it
    assert any("stopped within an epoch" in reason for reason in run.reasons)


def test_the_pace_reckons_with_what_was_measured(tiny):
    with sm.Dataset.open(tiny.store()) as data:
        plan = sm.plan(data, **PLANNED)
    clock = Clock(60, 0.0, lambda: 0.0)
    pace = TimeBudget(plan, sm.TrainingOptions(), clock, SimpleNamespace(slowness=1.0))
    before = pace.epochs_that_fit(5)
    pace.correct(1000.0, 5.0, plan.config.batching.held_out_rows)
    epochs_, rows = pace.epochs_that_fit(5)
    assert (before[1], epochs_) == (0, 1)
    assert 0 < rows < plan.facts.n_rows / 15
    assert pace.judges == FEWEST_ROWS
    assert not pace.epoch_is_sure()
    pace.correct(1.0, 0.001, plan.config.batching.held_out_rows)
    assert pace.epoch_is_sure()


@pytest.mark.parametrize("left_open", [None, "epochs", "learning_rate", "transform"])
def test_with_transform_rate_and_epochs_nothing_is_searched(rng, left_open):
    x = rng.normal(size=(400, 12)).astype(np.float32)
    given = {"epochs": 2, "learning_rate": 0.01, "transform": "raw", left_open: None}
    given.pop(None, None)
    given = {name: value for name, value in given.items() if value is not None}
    found = sm.train(x, x.argmax(1), **given, memory="1GB", time="10min").settings
    assert (found.trials == ()) == (left_open is None)


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_looking_for_equal_rows_ends_with_its_time(tiny, rng, seconds):
    words = [" ".join(f"w{i}" for i in rng.choice(400, 9, replace=False)) for _ in range(400)]
    lines = [f"c{i % 20} | {text}" for i, text in enumerate(words * 3)]
    sm.convert(tiny.text("equal.vw", lines), tiny.folder / "equal.zarr")
    with sm.Dataset.open(tiny.folder / "equal.zarr") as data:
        room = sm.plan(data, **PLANNED).config.batching
        clock = Clock(seconds, 0.0, lambda: 1.0)
        held = hold_out(data, room, sm.TrainingOptions(), clock=clock)
    assert held.rows.n_rows > 0
    assert ("no time was left to look for equal ones" in held.origin) == (seconds is not None)
    assert ("equal to some of them" in held.origin) == (seconds is None)


def test_a_clock_gives_shares_and_says_when_it_is_over():
    now = [10.0]
    clock = Clock(40.0, 0.0, lambda: now[0])
    share = clock.share(0.1)
    assert (clock.remaining_seconds, share.remaining_seconds) == (30.0, pytest.approx(3.0))
    share.check()
    now[0] = 13.5
    with pytest.raises(TimeOver):
        share.check()
    assert Clock().share(0.1).remaining_seconds == float("inf")


def noise(folder, rng, n=1200):
    """Text whose features say nothing of the labels; most rows have the first one."""
    labels = np.where(rng.random(n) < 0.4, 0, rng.integers(1, 20, n))
    words = [" ".join(f"w{i}" for i in rng.integers(0, 300, 4)) for _ in range(n)]
    path = folder / "noise.vw"
    path.write_text("".join(f"{y} | {text}\n" for y, text in zip(labels, words, strict=True)))
    sm.convert(path, folder / "noise.zarr")
    return folder / "noise.zarr"


def test_a_model_that_is_worth_nothing_is_told(tiny, rng, trained):
    with pytest.warns(UserWarning, match="is not above 0.*most frequent label"):
        run, _, _ = trained(60, 0.4, store=noise(tiny.folder, rng))
    assert len(run.result.warnings) == 1
    assert "more --time may help" in run.result.warnings[0]
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert [one["text"] for one in lines if one["event"] == "warning"] == [*run.result.warnings]


@pytest.mark.parametrize("step", [0.2, 8.0])
def test_a_training_that_is_late_is_told(trained, step):
    late = [reason for reason in trained(20, step)[0].reasons if "20 s were allowed: " in reason]
    assert len(late) == (step > 1)


@pytest.mark.filterwarnings("error")
def test_a_good_model_in_its_time_is_not_warned_of(trained):
    assert trained(600, 0.1, learning_rate=0.5, transform="raw")[0].result.warnings == ()
