"""Pilots: models are compared on samples, and the plan rests on what they reached."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.cli.trainings import pilot_here
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, UsageError
from streammach.planning.constraints import Constraints
from streammach.planning.cost import Cost
from streammach.planning.evidence import pilot_key as kind
from streammach.spec.training import TrainingOptions
from streammach.training import pilot as module
from streammach.training.pilot import pilot
from streammach.training.signals import StopSignals
from streammach.training.trainer import Trainer

QUICK = TrainingOptions(epochs=1, learning_rate=0.5, transform="binary")
SMALL = {"memory": "600MB", "threads": 1}


@pytest.fixture
def store(tiny, monkeypatch):
    monkeypatch.setattr(module, "MIN_ROWS", 200)
    return tiny.store("train.zarr", n_rows=1500, n_classes=30)


@pytest.fixture
def no_exact_model(monkeypatch):
    """Classes never have buckets of their own, as if they were many."""
    real = module.plan

    def hashed(data, constraints=None, **options):
        constraints = constraints or Constraints.of(options)
        made = real(data, constraints, **(options if "pilots" in options else {}))
        shaped = constraints.n_buckets
        kept = tuple(o for o in made.options if o.shape.n_buckets < made.facts.n_classes)
        return made if shaped else dataclasses.replace(made, options=kept)

    monkeypatch.setattr(module, "plan", hashed)


def test_a_view_is_the_first_rows(store):
    with Dataset.open(store) as whole:
        view = whole.first(700)
        assert (view.n_rows, view.n_classes, view.n_features) == (700, 30, whole.n_features)
        rows = whole.rows(0, 700)
        assert view.nnz == rows.nnz
        assert np.array_equal(view.label_counts, np.bincount(rows.classes, minlength=30))
        counted = np.bincount(rows.features, minlength=whole.n_features)
        assert np.array_equal(view.feature_counts, counted)
        pairs = len(np.unique(rows.features * 30 + np.repeat(rows.classes, np.diff(rows.indptr))))
        assert view.facts.n_pairs == pytest.approx(pairs, rel=0.05)
        assert view.digest not in (whole.digest, whole.first(701).digest)
        assert view.digest == whole.first(700).digest
        everything = whole.first(10**9)
        assert (everything.n_rows, everything.nnz) == (whole.n_rows, whole.nnz)
        assert everything.facts.n_pairs == whole.facts.n_pairs
        guess = whole.facts.first(700)
        assert (guess.n_rows, guess.n_features) == (700, whole.n_features)
        assert guess.nnz == pytest.approx(view.nnz, rel=0.1)
        assert whole.facts.n_pairs / 5 < guess.n_pairs < whole.facts.n_pairs
        assert whole.facts.first(10**9).n_pairs == whole.facts.n_pairs


def test_models_of_several_kinds_are_compared_and_one_of_them_is_planned(store, no_exact_model):
    told = []
    found = pilot(store, 60, training=QUICK, told=told.append, **SMALL)
    kinds = {kind(one) for one in found.pilots}
    assert len(kinds) > 1
    assert set(found.pilots) <= set(told)
    assert kind(found.expected) in kinds
    samples = sorted({one.rows for one in found.pilots})
    for rows in samples:
        assert {kind(one) for one in found.pilots if one.rows == rows} == kinds
    assert all(0 <= one.accuracy <= one.top_5_accuracy <= 1 for one in found.pilots)
    assert any(reason.startswith("pilot of ") for reason in found.reasons)
    assert sm.Plan(**{f.name: getattr(found, f.name) for f in dataclasses.fields(found)}) == found


def taking(seconds):
    return Cost(
        search=0, epochs=seconds, finish=0, parts={}, smaller=0, elastic=0, elastic_points=0
    )


@pytest.mark.parametrize(("slower", "samples"), [(1, 2), (20, 1)])
def test_larger_samples_follow_while_there_is_time(
    slower, samples, store, no_exact_model, monkeypatch
):
    """Trainings are expected to take a second for 1,000 rows, and take so many times as long."""
    clock = [0.0]
    real = Trainer.fit

    def fit(self, *args, **options):
        clock[0] += self.plan.facts.n_rows / 1000 * slower
        return real(self, *args, **options)

    monkeypatch.setattr(Trainer, "fit", fit)
    monkeypatch.setattr(module, "cost", lambda facts, *rest: taking(facts.n_rows / 1000))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(module, "MIN_ROWS", 400)
    found = pilot(store, 25, training=QUICK, **SMALL)
    assert len({one.rows for one in found.pilots}) == samples
    assert clock[0] <= 25 * slower


def test_rate_and_transform_are_searched_once(store, no_exact_model, monkeypatch):
    seen = []
    real = Trainer.fit
    monkeypatch.setattr(
        Trainer, "fit", lambda self, *a, **k: seen.append(self.options) or real(self, *a, **k)
    )
    pilot(store, 60, training=TrainingOptions(epochs=1), **SMALL)
    assert (seen[0].learning_rate, seen[0].transform) == (None, "auto")
    assert len({(one.learning_rate, one.transform) for one in seen[1:]}) == 1
    assert seen[1].learning_rate is not None


def test_what_cannot_be_piloted_is_said(store, no_exact_model, tiny):
    with pytest.raises(UsageError, match="leave n_buckets, n_repetitions and exact=True out"):
        pilot(store, 60, n_buckets=4, n_repetitions=4, **SMALL)
    with pytest.raises(UsageError, match=r"0\.1 s are too short: samples of 200 rows are .*"):
        pilot(store, 0.1, training=QUICK, **SMALL)


def test_a_single_model_needs_no_pilot(store):
    made = sm.plan(store, **SMALL)
    only = dataclasses.replace(made, options=tuple(o for o in made.options if o.chosen))
    assert module._rivals(only, Constraints()) == [o for o in made.options if o.chosen]


def test_models_beyond_the_limits_of_time_are_not_compared(store, no_exact_model):
    made = module.plan(store, **SMALL)
    rivals = module._rivals(made, Constraints())
    assert len(rivals) > 1
    slowest = max(one.query_seconds for one in rivals)
    kept = module._rivals(made, Constraints(latency=slowest * 0.99, time="1h"))
    assert kept
    assert all(one.query_seconds < slowest for one in kept)
    assert module._rivals(made, Constraints(time=1e-9)) == []


def test_an_interrupted_pilot_leaves_nothing(store, no_exact_model, tiny, monkeypatch):
    def entered(signals):
        signals.requested = True
        return signals

    monkeypatch.setattr(StopSignals, "__enter__", entered)
    place = tiny.folder / "place"
    place.mkdir()
    with pytest.raises(Interrupted, match="interrupted in the pilot"):
        pilot(store, 60, training=QUICK, folder=place, **SMALL)
    assert list(place.iterdir()) == []


def test_a_training_goes_on_with_the_plan_of_its_pilot(
    store, no_exact_model, tiny, capsys, monkeypatch
):
    monkeypatch.setattr(
        "streammach.cli.trainings.run_apart", lambda function, *given, **options: pilot_here(*given)
    )
    out = tiny.folder / "run"
    given = ["train", str(store), "--out", str(out), "--memory", "600MB", "--pilot", "1min",
             "--epochs", "1", "--learning-rate", "0.5", "--transform", "binary"]  # fmt: skip
    assert main(given) == 0
    told = capsys.readouterr().err
    assert told.count("pilot  ") >= 2
    run = sm.Run.open(out)
    assert len(run.plan.pilots) >= 2
    assert not list(tiny.folder.glob("**/.pilot*"))
    short = [*given[:3], str(tiny.folder / "short"), *given[4:6], "--pilot", "1us"]
    assert main(short) == 2
    assert "too short" in capsys.readouterr().err
    assert not (tiny.folder / "short").exists()
    assert main(given) == 2
    assert "it holds a run already" in capsys.readouterr().err
    assert main([*given, "--resume"]) == 0
    assert "pilot  " not in capsys.readouterr().err
    assert main(["plan", str(store), "--memory", "600MB", "--pilot", "1min", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["pilots"][0]["rows"] > 0
