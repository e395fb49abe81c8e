"""Training on whitened rows: chosen where it pays, the same model of plain rows afterwards."""

import numpy as np
import pytest

import streammach as sm
from streammach.options.training import TrainingOptions
from streammach.parts.whitening import part
from streammach.parts.whitening.part import Spread, whitening_map
from streammach.system.clock import Clock
from streammach.training.search import Search
from tests.builders import fit, held_out, training_of

D, CLASSES = 12, 30
SHORT = {"epochs": 2, "learning_rate": 0.01, "transform": "raw"}


def stretched(tiny, n_rows):
    """Rows around class means that one strong direction, shared by all classes, drowns."""
    rng = np.random.default_rng(5)
    means, loud = rng.normal(size=(CLASSES, D)), rng.normal(size=D)
    y = tiny.rng.integers(0, CLASSES, n_rows)
    x = means[y] + 0.4 * tiny.rng.normal(size=(n_rows, D))
    return x + 20 * tiny.rng.normal(size=(n_rows, 1)) * loud, y


@pytest.fixture(scope="module")
def stores(shared):
    train = shared.dense_store("train.zarr", *stretched(shared, 2000))
    test = shared.dense_store("test.zarr", *stretched(shared, 500), like=train)
    with sm.Dataset.open(train) as data:
        yield data, test


def planned(data, **options):
    return sm.plan(data, memory="1GB", threads=1, closed_form="off", **options)


def reached(run, test):
    return sm.evaluate(run.model, test).accuracy


@pytest.mark.parametrize("shape", [{}, {"n_buckets": 8, "n_repetitions": 5}])
def test_rows_are_whitened_where_held_out_rows_like_it(stores, tiny, shape):
    data, test = stores
    run = fit(data, tiny.folder / "run", planned(data, **shape), **SHORT)
    off = fit(data, tiny.folder / "o", planned(data, whitening="off", **shape), **SHORT)
    assert run.settings.training.whitened
    assert not off.settings.training.whitened
    said = "rows whitened: held-out accuracy / top-5"
    assert any(reason.startswith(said) for reason in run.settings.reasons)
    assert reached(run, test) > reached(off, test) + 0.1
    assert run.model.weights.shape == off.model.weights.shape
    assert {"whitening", "basis"} <= {line.name for line in run.plan.ledger}
    assert not {"whitening", "basis"} & {line.name for line in off.plan.ledger}


def test_rows_stay_plain_where_it_does_not_pay(stores, tiny, monkeypatch):
    data, _ = stores
    monkeypatch.setattr(Search, "_noise", lambda self, trial: 1.0)  # no gain is that large
    run = fit(data, tiny.folder / "run", planned(data), **SHORT)
    assert not run.settings.training.whitened
    assert {trial.whitened for trial in run.settings.trials} == {False, True}
    assert any(reason.startswith("rows plain: ") for reason in run.settings.reasons)


def test_a_rate_is_searched_for_whitened_rows(stores, tiny):
    data, _ = stores
    run = fit(data, tiny.folder / "run", planned(data), epochs=2, transform="raw")
    tried = [(t.whitened, t.learning_rate) for t in run.settings.trials]
    assert len({rate for white, rate in tried if white}) >= 3
    assert len(tried) == len(set(tried))
    assert (True, run.settings.training.learning_rate) in tried


def test_held_out_rows_are_not_looked_at(stores, monkeypatch):
    data, _ = stores
    held = held_out(data, planned(data))
    seen = []
    monkeypatch.setattr(Spread, "add", lambda self, rows: seen.append(rows.n_rows))
    monkeypatch.setattr(Spread, "make_map", lambda self: None)
    monkeypatch.setattr(Spread, "n_rows", property(lambda self: sum(seen)))
    whitening_map(training_of(data, planned(data), held), "raw")
    assert sum(seen) == data.n_rows - held.mask.sum()


def test_a_part_of_many_rows_is_enough(stores, monkeypatch):
    data, _ = stores
    monkeypatch.setattr(part, "ROWS", 10)
    monkeypatch.setattr(Spread, "enough", property(lambda self: True))
    held = held_out(data, planned(data))
    checks = []
    whitening_map(training_of(data, planned(data), held, lambda: checks.append(1)), "raw")
    assert len(checks) == 1


def test_rows_that_cannot_be_whitened_have_no_room_for_it(stores, tiny):
    data, _ = stores
    assert planned(data).config.part("whitening")
    assert not planned(data, optimizer="sgd").config.part("whitening")
    with tiny.dataset(name="sparse.zarr") as sparse:
        assert not sm.plan(sparse, memory="1GB").config.part("whitening")


@pytest.mark.parametrize("word", ["on", "off"])
def test_what_was_decided_in_a_limit_of_time_can_be_named(stores, tiny, monkeypatch, word):
    data, _ = stores
    if word == "off":
        monkeypatch.setattr(Search, "_noise", lambda self, trial: 1.0)  # no gain is that large
    searched = {"learning_rate": None}  # else nothing is
    options, clock = TrainingOptions(**SHORT | searched), Clock(600.0)
    run = sm.Trainer(planned(data), options, clock=clock).fit(data, tiny.folder / "run")
    text = run.result.reasons[-1].removeprefix("the same without a limit of time: ")
    said = dict(zip(*[iter(text.split())] * 2, strict=True))
    assert said["--whitening"] == word
    assert not {"--fourier", "--loss"} & said.keys()  # too few rows; exact models have one loss
    given = TrainingOptions(
        epochs=int(said["--epochs"]), transform=said["--transform"],
        learning_rate=float(said["--learning-rate"]),
    )  # fmt: skip
    again = sm.Trainer(planned(data, whitening=word), given).fit(data, tiny.folder / "again")
    for name, array in run.model.arrays().items():
        np.testing.assert_array_equal(array, again.model.arrays()[name])
