"""Dense rows with lists of labels: the optional parts that they may be trained with."""

import numpy as np
import pytest

import streammach as sm
from streammach.conversion.convert import convert
from streammach.parts.discriminant import part as closed_form
from streammach.parts.fourier import part as fourier
from streammach.prediction import ranking
from tests.builders import NO_PARTS, TinyData, fit

K, D = 20, 12
SHORT = {"epochs": 3, "learning_rate": 0.02, "transform": "raw"}


def store(tiny, name, n_rows, *, loud=0.0, like=None):
    """Rows that are sums of the means of up to three classes; one direction may be loud."""
    drawn = np.random.default_rng(4)
    means, stretch = drawn.normal(size=(K, D)), drawn.normal(size=D)
    lines = []
    for _ in range(n_rows):
        own = np.sort(tiny.rng.choice(K, int(tiny.rng.integers(0, 4)), replace=False))
        x = means[own].sum(axis=0) + 0.3 * tiny.rng.normal(size=D)
        x += loud * tiny.rng.normal() * stretch
        values = " ".join(f"{j}:{v:.4g}" for j, v in enumerate(x))
        lines.append(f"{','.join(map(str, own))} {values}" if len(own) else f" {values}")
    text = tiny.text(f"{name}.xmc", [f"{n_rows} {D} {K}", *lines])
    convert(text, tiny.folder / name, like=like, multilabel="on")
    return tiny.folder / name


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("dense"), np.random.default_rng(3))
    train = store(tiny, "train.zarr", 2000)
    with sm.Dataset.open(train) as data:
        yield data, store(tiny, "test.zarr", 400, like=train)


def planned(data, **options):
    return sm.plan(data, memory="1GB", **{**NO_PARTS, "threads": 1, **options})


def reached(model, test):
    return sm.evaluate(model, test).sets.precision


HASHED = {"n_buckets": 4, "n_repetitions": 5}


def test_held_out_rows_choose_the_joint_loss(stores, tiny):
    data, test = stores
    options = {"epochs": 3, "transform": "raw"}
    run = fit(data, tiny.folder / "run", planned(data, **HASHED), **options)
    tried = {trial.loss for trial in run.settings.trials}
    assert tried == {"logistic", "independent", "joint"}
    assert run.settings.reasons[-1].startswith("loss joint: held-out P@1 / P@5 after")
    spec = run.settings.training
    assert (spec.loss, spec.bucket_share, spec.label_share is None) == ("joint", 0.0, False)
    off = fit(data, tiny.folder / "off", planned(data, **HASHED, loss="independent"), **options)
    assert "joint" not in {trial.loss for trial in off.settings.trials}
    assert reached(run.model, test)[1] > reached(off.model, test)[1] + 0.05


def test_a_joint_loss_that_is_asked_for_is_the_only_one(stores, tiny):
    data, _ = stores
    found = []
    for threads in (1, 2):
        plan = planned(data, **HASHED, loss="joint", threads=threads)
        run = fit(data, tiny.folder / f"run{threads}", plan, **SHORT)
        assert run.settings.trials == ()
        assert run.settings.training.loss == "joint"
        assert run.settings.training.label_share == "shared"
        found.append(run.result.history[-1].loss)
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("shape", [{}, HASHED])
def test_rows_are_whitened_where_held_out_rows_like_it(tiny, shape):
    train = store(tiny, "train.zarr", 2000, loud=20.0)
    test = store(tiny, "test.zarr", 400, loud=20.0, like=train)
    with sm.Dataset.open(train) as data:
        options = {**shape, "loss": "independent"}
        run = fit(data, tiny.folder / "run", planned(data, **options, whitening="auto"), **SHORT)
        off = fit(data, tiny.folder / "off", planned(data, **options), **SHORT)
    assert run.settings.training.whitened
    assert reached(run.model, test)[1] > reached(off.model, test)[1] + 0.05
    assert {"whitening", "basis"} <= {line.name for line in run.plan.ledger}


@pytest.mark.parametrize("logistic", [True, False])
def test_a_closed_form_is_added_where_it_helps(stores, tiny, logistic, monkeypatch):
    data, test = stores
    monkeypatch.setattr(
        "streammach.training.search.Search.better",
        lambda self, spec, other, what, names: (what == "loss" and not logistic, "as said"),
    )
    monkeypatch.setattr(ranking, "TILTS", (0.0,))
    options = {"epochs": 1, "learning_rate": 0.003, "transform": "raw"}
    run = fit(data, tiny.folder / "run", planned(data, closed_form="on"), **options)
    off = fit(data, tiny.folder / "off", planned(data), **options)
    assert run.settings.training.logistic == logistic
    assert any(reason.startswith("closed form added: share") for reason in run.result.reasons)
    assert reached(run.model, test)[1] > reached(off.model, test)[1] + 0.05
    said = next(r for r in run.result.reasons if r.startswith("closed form"))
    measured = run.result.validation["logsum"]
    assert f"{measured.accuracy:.3f} / {measured.top_5_accuracy:.3f}, " in said


def test_a_share_that_saturates_sigmoids_is_measured_as_they_rank(stores, tiny, monkeypatch):
    """Logits above 40 have the same sigmoid: the share is measured as the model will rank."""
    data, _ = stores
    monkeypatch.setattr(closed_form, "SHARES", (100.0,))
    monkeypatch.setattr(ranking, "TILTS", (0.0,))
    options = {"epochs": 1, "learning_rate": 0.003, "transform": "raw"}
    monkeypatch.setattr(
        "streammach.training.search.Search.better", lambda self, *args: (False, "as said")
    )
    run = fit(data, tiny.folder / "run", planned(data, closed_form="on"), **options)
    assert run.settings.training.logistic
    said = next(r for r in run.result.reasons if r.startswith("closed form added: share 100"))
    measured = run.result.validation["logsum"]
    assert f"{measured.accuracy:.3f} / {measured.top_5_accuracy:.3f}" in said


def test_without_an_epoch_a_closed_form_is_a_softmax(stores, tiny):
    data, test = stores
    run = fit(data, tiny.folder / "run", planned(data, closed_form="on"), epochs=0)
    spec = run.settings.training
    assert (spec.loss, spec.label_share, spec.epochs) == ("independent", "shared", 0)
    assert reached(run.model, test)[1] > 0.6


@pytest.mark.parametrize("shape", [{}, HASHED])
def test_random_fourier_features_take_lists(stores, tiny, shape, monkeypatch):
    data, test = stores
    monkeypatch.setattr(fourier, "SIZES", {64: 0.0})
    run = fit(data, tiny.folder / "run", planned(data, fourier="on", **shape), **SHORT)
    assert run.settings.training.bandwidth
    assert run.model.listed
    assert run.model.n_more == 64
    assert reached(run.model, test)[1] > 0.5
