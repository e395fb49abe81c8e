"""The size of the model that a run leaves: what held-out rows say is free, bytes, or all of it."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.clock import Clock
from streammach.errors import UsageError
from streammach.figures import Reached
from streammach.machine import parse_size
from streammach.model.findings import Findings
from streammach.model.shrink import frequent
from streammach.prediction.reached import measure
from streammach.rows.label_lists import LabelLists
from streammach.spec.training import TrainingOptions
from streammach.training import compact
from streammach.training.compact import Form, Judge, choose
from streammach.training.pace import MOST_ROWS
from tests.builders import block_of, fit

FIXED = {"epochs": 2, "learning_rate": 0.3, "transform": "binary"}


@pytest.fixture
def data(tiny):
    with tiny.dataset(n_rows=2000, n_classes=120, namespace=True) as opened:
        yield opened


def planned(data, **options):
    return sm.plan(data, n_buckets=8, n_repetitions=12, **{"threads": 2, **options})


def size_of(run):
    return sum(file.stat().st_size for file in (run.path / "model").iterdir())


class Table:
    """Forms and what they are said to reach: fewer selection scores than the whole model has."""

    def __init__(self, losses, n_rows=10_000, *, dense=False, few=False):
        self.losses, self.known_rows, self.asked = losses, n_rows, []
        self.top_5_error = 0.0049
        self.most_rows = MOST_ROWS - few
        self.whole, self.counts = Form(weights="float32", n_repetitions=8), None
        config = SimpleNamespace(dense=dense)
        held, self.calibrating = SimpleNamespace(rows=None), None
        dataset = SimpleNamespace(n_classes=9, listed=False)
        self.session = SimpleNamespace(
            plan=SimpleNamespace(config=config), held=held, dataset=dataset,
            at=lambda done, total: None, findings=Findings(Path(), "", lasting=False), known=None,
            clock=Clock(),
        )  # fmt: skip

    calibrated, ways = Judge.calibrated, Judge.ways

    def kept(self, least_rows):
        return np.arange(20) >= least_rows

    def ranking(self, form, ranker):
        return nullcontext()

    def reached(self, form):
        self.asked.append(form)
        lost = [np.array(loss) for wanted, loss in self.losses.items() if wanted in str(form)]
        first, top_5 = sum(lost, np.zeros(2))
        return (Reached(0.5 - first, 0.6 - top_5),)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({}, ("int4", 1, 9)),
        (
            {"int4": (0.0024, 0)},
            ("int4", 1, 9),
        ),  # a standard error is 0.005: all may lose half of one
        ({"int4": (0.0024, 0), "repetitions=2": (0.0002, 0)}, ("int4", 4, 9)),
        ({"int4": (0.0026, 0)}, ("int8", 1, 9)),
        ({"int": (0.0026, 0)}, ("float32", 1, 9)),
        ({"int8": (0.0026, 0)}, ("int4", 1, 9)),  # all types are tried
        ({"int4": (0.0014, 0), "repetitions=2": (0.0014, 0)}, ("int4", 4, 9)),
        (
            {"int8": (-0.004, 0), "int4": (0.002, 0)},
            ("int8", 1, 9),
        ),  # below the best, not the whole
        ({"rows=3": (0.01, 0)}, ("int4", 1, 2)),
        ({"int": (-0.002, 0.0024)}, ("int4", 1, 9)),  # of top-5: 0.0049
        ({"int": (-0.002, 0.0026)}, ("float32", 1, 9)),
        # What is left out may lose 0.001 against the types, however large an error is.
        ({"repetitions=4": (-0.002, 0.0009)}, ("int4", 1, 9)),
        ({"repetitions=4": (-0.002, 0.0011)}, ("int4", 8, 9)),
        ({"int4": (0.0012, 0), "repetitions=2": (0.0009, 0)}, ("int4", 1, 9)),
        ({"int4": (0.0012, 0), "repetitions=2": (0.0011, 0)}, ("int4", 4, 9)),
    ],
)
def test_what_loses_little_is_taken(losses, expected, monkeypatch):
    judge = Table(losses)
    monkeypatch.setattr(compact, "fit_calibration", lambda *_: "fitted")
    found = choose(judge)
    assert (found.form.weights, found.form.n_repetitions, found.form.least_rows) == expected
    assert len(judge.asked) == len(set(judge.asked)) <= 11


class Lists(Table):
    """The same of rows with lists, whose PSP@5 forms lose as it says."""

    def __init__(self, losses, rare):
        super().__init__(losses)
        self.rare = rare

    def reached(self, form):
        lost = sum(loss for wanted, loss in self.rare.items() if wanted in str(form))
        return *super().reached(form), Reached(0.5, 0.6, 0.3 - lost)


@pytest.mark.parametrize(
    ("losses", "rare", "expected"),
    [
        ({}, {}, ("int4", 1, 9)),
        ({}, {"int": 0.0022}, ("int4", 1, 9)),  # a standard error is 0.0046
        ({}, {"rows=": 0.0009}, ("int4", 1, 9)),
        ({}, {"rows=3": 0.0011}, ("int4", 1, 2)),
        ({}, {"int8": -0.002, "int4": 0.0004}, ("int8", 1, 9)),  # below the best
        ({"rows=3": (0.01, 0)}, {"rows=3": -0.01}, ("int4", 1, 2)),
    ],
)
def test_rare_labels_are_not_given_up(losses, rare, expected, monkeypatch):
    monkeypatch.setattr(compact, "fit_calibration", lambda *_: "fitted")
    found = choose(Lists(losses, rare))
    assert (found.form.weights, found.form.n_repetitions, found.form.least_rows) == expected
    assert "PSP@5" in found.evidence


@pytest.mark.parametrize("listed", [False, True])
def test_the_error_of_the_top_5_is_that_of_its_rows(listed, rng, monkeypatch):
    n, n_classes = 400, 30
    sets = [rng.choice(n_classes, 1 + 3 * listed, replace=False) for _ in range(n)]
    lists = LabelLists.of(sets)
    rows = block_of(rng, n, 5, n_classes)
    rows = rows.with_labels(lists) if listed else replace(rows, classes=lists.first)
    ids = rng.permuted(np.tile(np.arange(n_classes), (n, 1)), axis=1)[:, :5]
    hits = np.array([np.isin(row, own).sum() for row, own in zip(ids, sets, strict=True)])
    each = hits / 5 if listed else hits > 0

    class Known(Judge):
        known_rows = n
        _judging = (rows,)

        def ranking(self, form, ranker=None):
            return nullcontext(lambda rows, k: (ids, None))

        def reached(self, form):
            return (measure(rows, lambda rows, k: (ids, None)),)

    session = SimpleNamespace(findings=Findings(Path(), "", lasting=False))
    model = SimpleNamespace(n_repetitions=4)
    judge = Known(session=session, spec=None, model=model, ranker="logsum", counts=None)
    assert judge.top_5_error == pytest.approx(each.std() / n**0.5)


def test_few_rows_judge_the_type_of_the_weights_alone(monkeypatch):
    monkeypatch.setattr(compact, "fit_calibration", lambda *_: "fitted")
    form = choose(Table({}, few=True)).form
    assert (form.weights, form.n_repetitions, form.least_rows) == ("int4", 8, 0)


def test_dense_rows_have_float_weights_and_all_features(monkeypatch):
    monkeypatch.setattr(compact, "fit_calibration", lambda *_: "fitted")
    found = choose(Table({}, dense=True))
    assert found.form == Form(weights="float10", n_repetitions=1)
    lost = choose(Table({"float1": (0.1, 0), "repetitions=4": (0.1, 0)}, dense=True))
    assert (lost.form, lost.calibration) == (Form(weights="float32", n_repetitions=8), None)


def test_a_run_leaves_what_held_out_rows_say_is_free(data, tiny):
    small = fit(data, tiny.folder / "small", planned(data), **FIXED)
    whole = fit(data, tiny.folder / "whole", planned(data), model_size="full", **FIXED)
    assert whole.model.stored is None
    assert whole.model.weights.shape == (data.facts.n_features, 96)
    assert small.model.stored in ("int8", "int4")
    assert size_of(small) < size_of(whole) / 4
    reason = small.result.reasons[-1]
    assert reason.startswith("model ")
    assert f"{small.model.stored} weights" in reason
    assert reason.endswith("whole")
    assert not any(reason.startswith("model ") for reason in whole.result.reasons)
    assert small.model.validation == whole.model.validation
    test = tiny.store("test.zarr", n_rows=600, n_classes=120, namespace=True, like=data.path)
    found = []
    for run in (small, whole):
        found.append(sm.evaluate(run.model, test))
    assert found[0].accuracy > found[1].accuracy - 0.03
    assert small.model.calibration != whole.model.calibration  # fitted to the form


def test_a_model_without_rare_features_knows_the_rows_of_its_own_store(data, tiny):
    run = fit(data, tiny.folder / "run", planned(data), model_size="full", **FIXED)
    small = frequent(run.model, data.feature_counts, int(np.median(data.feature_counts)))
    assert small.spec.n_features < data.facts.n_features
    found = []
    for store in (small.store, "another"):
        with sm.Predictor(replace(small, store=store)) as predictor:
            result = sm.evaluate(predictor, data.path)
            found.append((result.accuracy, result.log_loss, result.unknown_values))
    assert found[0] == found[1]
    assert found[0][2] > 0


def test_bytes_may_be_asked_for(data, tiny):
    for asked in ("60kB", "25kB"):
        run = fit(data, tiny.folder / asked, planned(data), model_size=asked, **FIXED)
        assert size_of(run) <= parse_size(asked)
        assert f"for --model-size {asked}" in run.result.reasons[-1]
    least = fit(data, tiny.folder / "least", planned(data), model_size="1kB", **FIXED)
    assert size_of(least) > 1000
    assert least.model.spec.n_repetitions == 1
    assert "the smallest that can be made of it" in least.result.reasons[-1]
    large = fit(data, tiny.folder / "large", planned(data), model_size="1GB", **FIXED)
    assert large.model.stored is None


def test_other_sizes_are_refused():
    for wrong in ("half", "", "-3MB"):
        with pytest.raises(UsageError, match="is not auto, full or a size"):
            TrainingOptions(model_size=wrong)
