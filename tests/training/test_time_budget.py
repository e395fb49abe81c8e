"""What is left of a limited time, and of a budget while kernels compile."""

import re
import time
from types import SimpleNamespace

import pytest

import streammach as sm
from streammach.options.training import TrainingOptions
from streammach.parts.counts.part import BESIDE
from streammach.planning.speed import known_speed
from streammach.system.clock import Clock
from streammach.system.errors import BudgetError
from streammach.system.jit import TRAINING_COMPILER_BYTES as MORE
from streammach.system.stages import Stages
from streammach.training.time_budget import (
    CALIBRATION,
    EPOCHS,
    FEW_ROWS,
    FEWEST_ROWS,
    MOST_ROWS,
    RANKING,
    SEARCH,
    TimeBudget,
    timetable,
)
from streammach.training.trainer import Trainer
from tests.builders import fit

SHAPE = {"n_buckets": 4, "n_repetitions": 3}
PLANNED = {"memory": "1GB", "n_buckets": 8, "n_repetitions": 6, "threads": 1}


@pytest.fixture
def paced(tiny, monkeypatch):
    """A pace for a time, where making the model small takes so long with many and few judges."""
    with sm.Dataset.open(tiny.store()) as data:
        plan = sm.plan(data, **PLANNED)

        def made(seconds, many, few, slowness=1.0, spent=0.0):
            took = {MOST_ROWS: many, FEW_ROWS: few}
            monkeypatch.setattr(
                "streammach.training.time_budget.making_smaller",
                lambda facts, config, n, speed: took.get(n, few),
            )
            stages = SimpleNamespace(slowness=slowness)
            clock = Clock(seconds, time.monotonic() - spent)
            return TimeBudget(plan, sm.TrainingOptions(), clock, stages)

        yield made


@pytest.mark.parametrize(
    ("seconds", "many", "few", "size", "judges"),
    [
        (None, 99, 99, "auto", MOST_ROWS),
        (60, 8, 2, "auto", MOST_ROWS),
        (60, 20, 8, "auto", FEW_ROWS),
        (60, 40, 29, "auto", FEW_ROWS),  # 726 MB of weights: whole once, in silence
        (60, 40, 31, "full", FEWEST_ROWS),
    ],
)
def test_the_time_for_a_small_model_is_part_of_the_time(paced, seconds, many, few, size, judges):
    pace = paced(seconds, many, few)
    assert (pace.model_size, pace.judges) == (size, judges)
    if seconds is not None:
        kept = {MOST_ROWS: many, FEW_ROWS: few}[judges] if size == "auto" else 0
        assert 60 - pace.epochs.seconds >= kept


def test_counts_leave_the_time_for_hashed_models_and_for_the_fits_beside_them(paced):
    pace = paced(60, 8, 2)
    plan = pace._plan
    table = timetable(plan.facts, plan.config, sm.TrainingOptions(), speed=known_speed())
    needed = sum(table[name] for name in (SEARCH, EPOCHS, RANKING, BESIDE, CALIBRATION))
    assert 60 - pace.first.seconds >= needed + 8


def test_counts_have_all_the_time_where_hashed_models_would_not_begin(paced):
    pace = paced(60, 8, 2)
    whole = pace._whole.seconds
    for hashed, share in ((10, 1 - 10 / whole), (0.9 * whole, 0.5), (whole, 1)):
        pace._hashed = hashed
        assert pace.first.seconds == pytest.approx(share * whole)


def test_what_follows_is_reckoned_as_slow_as_what_was(paced):
    usual, busy = paced(60, 8, 2), paced(60, 8, 2, slowness=3.0)
    left_for_the_end = [60 - pace.epochs.seconds for pace in (usual, busy)]
    assert left_for_the_end[1] == pytest.approx(3 * left_for_the_end[0])
    assert busy.search.seconds < usual.search.seconds


@pytest.mark.parametrize(("spent", "slowness", "judges"), [
    (30, 1.0, MOST_ROWS), (55, 1.0, FEW_ROWS), (45, 1.0, MOST_ROWS), (45, 4.0, FEW_ROWS),
    (70, 1.0, FEWEST_ROWS),
])  # fmt: skip
def test_fewer_rows_judge_where_time_has_become_short(paced, spent, slowness, judges):
    pace = paced(60, 8, 2, slowness, spent)
    assert pace.judges == MOST_ROWS
    pace.finish(hashed=False)
    assert (pace.model_size, pace.judges) == ("auto", judges)


def test_stages_say_how_slow_they_were():
    now = [0.0]
    clock = Clock(now=lambda: now[0])
    stages = Stages(lambda state: None, {"a": 10.0, "b": 10.0, "c": 10.0}, clock=clock)
    assert stages.slowness == 1
    stages.begin("a")
    now[0] += 40
    stages.begin("b")
    assert 1.5 < stages.slowness <= 4
    now[0] += 1
    slow = stages.slowness
    stages.begin("c")
    assert 1 <= stages.slowness < slow
    stages.close()


@pytest.mark.parametrize("share", [None, 0.0])
def test_a_run_leaves_a_small_model_or_says_why_not(tiny, monkeypatch, share):
    if share is not None:
        monkeypatch.setattr("streammach.training.time_budget.QUICK_SHARE", share)
        monkeypatch.setattr("streammach.training.time_budget.SMALLER_SHARE", share)
    with sm.Dataset.open(tiny.store(n_rows=1500)) as data:
        plan = sm.plan(data, **PLANNED, counts="off")
        options = sm.TrainingOptions(epochs=1, learning_rate=0.3, transform="binary")
        run = sm.Trainer(plan, options, clock=Clock(60.0)).fit(data, tiny.folder / "run")
    said = [reason for reason in run.reasons if reason.startswith("model ")]
    assert len(said) == 1
    assert (run.model.stored is None) == (share is not None)
    assert ("without the time to make it small" in said[0]) == (share is not None)


def test_a_training_compiles_first_where_the_compiler_has_no_room_beside_it(
    tiny, monkeypatch, tmp_path
):
    asked, kept = [], tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr("streammach.system.jit.CACHE_DIR", str(kept))
    store = tiny.store("train.zarr", n_rows=300, n_classes=12)
    least = sm.plan(store, **SHAPE, memory="2GB").projected_bytes
    tight, options = sm.plan(store, **SHAPE, memory=least), TrainingOptions(epochs=1)
    monkeypatch.setattr("streammach.training.run_checks.compile_first", lambda *_, most: False)
    with pytest.raises(BudgetError, match="no compiled kernels can be kept") as refused:
        Trainer(tight, options).fit(store, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    advice = re.search(r"use --memory (\S+) or", refused.value.hint)[1]
    roomy = sm.plan(store, **SHAPE, memory=advice)
    assert (roomy.model, roomy.config) == (tight.model, tight.config)
    first = Trainer(roomy, options).fit(store, tmp_path / "run").result
    assert first.projected_bytes == least + MORE
    second = Trainer(tight, options).fit(store, tmp_path / "again").result  # all is kept
    assert second.projected_bytes == least

    def compiled(function, kind, plan, options, *, most):
        asked.append((function, options.transform, most))
        return True

    monkeypatch.setattr("streammach.training.run_checks.compile_first", compiled)
    other = fit(store, tmp_path / "other", tight, epochs=1, transform="l2")  # a kind of its own
    assert other.result.projected_bytes == least
    assert asked == [("streammach.training.small_training:train_few", "l2", least)]
