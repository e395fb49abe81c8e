"""What repetitions learn: each its buckets, or all the class; which is tried, chosen and kept."""

from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach.options.figures import HeldOutMetrics
from streammach.options.training import TrainingOptions
from streammach.parts.joint.part import PART
from streammach.planning.candidates import drop_excluded_parts
from streammach.system.errors import MismatchError, UsageError
from streammach.training.search import Search
from streammach.training.trials import Trial, TrialRunner
from tests.builders import changed, fit, training_of

CLASSES, FEATURES = 60, 16


@pytest.fixture(scope="module")
def data(shared):
    means = shared.rng.normal(size=(CLASSES, FEATURES))
    labels = np.arange(1500) % CLASSES
    x = means[labels] + 0.4 * shared.rng.normal(size=(1500, FEATURES))
    with sm.Dataset.open(shared.dense_store("d.zarr", x, labels)) as opened:
        yield opened


def planned(data, **options):
    shape = {"n_buckets": 8, "n_repetitions": 4, "threads": 1, "whitening": "off"}
    return sm.plan(data, **{**shape, **options})


@pytest.fixture
def plan(data):
    return planned(data)


def test_held_out_rows_choose_the_joint_loss_where_it_pays(data, plan, tiny):
    options = TrainingOptions(epochs=4, transform="raw")
    run = sm.Trainer(plan, options).fit(data, tiny.folder / "run")
    assert {trial.loss for trial in run.settings.trials} == {"independent", "joint"}
    assert run.settings.training.loss == "joint"
    assert run.settings.reasons[-1].startswith("loss joint: held-out accuracy / top-5 after")
    alone = planned(data, loss="independent")
    independent = sm.Trainer(alone, options).fit(data, tiny.folder / "independent")
    assert {trial.loss for trial in independent.settings.trials} == {"independent"}
    best, other = (r.result.validation["logsum"].accuracy for r in (run, independent))
    assert best > other + 0.05
    assert run.model.training.loss == "joint"


def test_a_given_rate_is_kept_for_both_losses(data, plan, tiny):
    run = fit(data, tiny.folder / "run", plan, epochs=2, transform="raw", learning_rate=0.03)
    assert [(t.loss, t.learning_rate) for t in run.settings.trials] == [
        ("independent", 0.03), ("joint", 0.03)
    ]  # fmt: skip


def test_a_given_loss_is_the_only_one(data, tiny):
    fixed = {"epochs": 1, "transform": "raw", "learning_rate": 0.03}
    run = fit(data, tiny.folder / "run", planned(data, loss="joint"), **fixed)
    assert run.settings.trials == ()
    assert run.settings.training.loss == "joint"
    with pytest.raises(MismatchError, match="another store, plan or options"):
        fit(data, tiny.folder / "run", planned(data, loss="independent"), resume=True, **fixed)


def test_noise_does_not_choose_the_slower_loss(data, plan, monkeypatch):
    reached = {"independent": 0.500, "joint": 0.501}

    def tried(self, spec, rows, epochs):
        found = HeldOutMetrics(reached[spec.loss], reached[spec.loss])
        return Trial(spec=replace(spec, epochs=epochs), rows=rows, metrics=found)

    monkeypatch.setattr(TrialRunner, "run", tried)
    held = type("Held", (), {"rows": data.rows(0, 100)})
    training = training_of(data, plan, held)
    training.options = TrainingOptions(transform="raw")
    search = Search(training, None)
    assert search.choose()[0].loss == "independent"
    reached["joint"] = 0.6
    assert search.choose()[0].loss == "joint"


def test_sparse_rows_are_trained_jointly_only_when_asked(tiny):
    with tiny.dataset(n_rows=900, n_classes=30) as data:
        options = {"n_buckets": 8, "n_repetitions": 6, "threads": 2, "counts": "off"}
        assert sm.plan(data, **options).config.part("joint") is None
        plan = sm.plan(data, **options, loss="joint")
        run = fit(data, tiny.folder / "run", plan, transform="binary", learning_rate=0.5)
    assert run.settings.training.loss == "joint"
    assert run.result.validation["logsum"].accuracy > 0.9


def test_what_cannot_be_trained_jointly_is_refused(data, plan):
    assert sm.plan(data, exact=True, threads=1).config.part("joint") is None
    with pytest.raises(UsageError, match="no repetitions to join: loss joint"):
        sm.plan(data, exact=True, threads=1, loss="joint")
    waves = changed(plan, waves=2).config
    assert drop_excluded_parts(waves).part("joint") is None
    assert "2 waves" in PART.reason_against(waves)
    with pytest.raises(UsageError, match="'both' is not one of auto, joint, independent: loss"):
        sm.plan(data, n_buckets=8, n_repetitions=4, loss="both")
