"""The size of the model that a run leaves: what held-out rows say is free, bytes, or all of it."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.model.calibration import Calibration
from streammach.model.findings import Findings
from streammach.model.shrink import frequent
from streammach.options.figures import HeldOutMetrics
from streammach.options.training import TrainingOptions
from streammach.rows.label_lists import LabelLists
from streammach.system.clock import Clock
from streammach.system.errors import UsageError
from streammach.system.machine import parse_size
from streammach.training.model_form import FormComparison, ModelForm, Verdict, choose
from streammach.training.time_budget import MOST_ROWS
from tests.builders import block_of, fit

FIXED = {"epochs": 2, "learning_rate": 0.3, "transform": "binary"}


@pytest.fixture(scope="module")
def data(shared):
    with shared.dataset(n_rows=2000, n_classes=120, namespace=True) as opened:
        yield opened


def planned(data, **options):
    return sm.plan(data, n_buckets=8, n_repetitions=12, **{"threads": 2, **options})


def size_of(run):
    return sum(file.stat().st_size for file in (run.path / "model").iterdir())


class Table:
    """Forms, and which of them are said to lose something."""

    def __init__(self, lossy=(), n_rows=MOST_ROWS, dense=False, known=None):
        self.lossy, self.n_rows, self.asked = dict(lossy), n_rows, []
        self.whole, self.counts = ModelForm(weights="float32", n_repetitions=8), None
        dataset = SimpleNamespace(n_classes=9, listed=False)
        self.training = SimpleNamespace(
            plan=SimpleNamespace(config=SimpleNamespace(dense=dense)), dataset=dataset,
            report_progress=lambda done, total: None, known=known, clock=Clock(),
        )  # fmt: skip

    ways, is_rounded = FormComparison.ways, FormComparison.is_rounded

    def calibrate(self, form):
        return Calibration()

    def features_to_keep(self, least_rows):
        return np.arange(20) >= least_rows

    def verdict(self, form):
        self.asked.append(form)
        lost = [loss for wanted, loss in self.lossy.items() if wanted in str(form)]
        return Verdict(HeldOutMetrics(0.5, 0.6), max(lost, default=0.4))


@pytest.mark.parametrize(
    ("lossy", "expected"),
    [
        ({}, ("int4", 1, 9)), ({"int4": 0.6}, ("int8", 1, 9)), ({"int": 2.1}, ("float32", 1, 9)),
        ({"int8": 1.9, "int4": 1.9}, ("int8", 8, 0)),  # rounding prunes nothing
        ({"repetitions=2": 0.6}, ("int4", 4, 9)), ({"rows=3": 0.6}, ("int4", 1, 2)),
        ({"repetitions=4": 9, "rows=2": 0.6}, ("int4", 8, 0)),
    ],
)  # fmt: skip
def test_the_smallest_form_that_loses_nothing_is_taken(lossy, expected):
    judge = Table(lossy)
    found = choose(judge)
    assert (found.form.weights, found.form.n_repetitions, found.form.least_rows) == expected
    assert len(judge.asked) == len(set(judge.asked)) <= 11


class Known(FormComparison):
    """A judge whose forms rank rows as is said: the best classes and scores, by form."""

    def __init__(self, rows, found, n_classes):
        self.__dict__.update(
            training=SimpleNamespace(
                check_stop=lambda: None, findings=Findings(Path(), "", lasting=False),
                holdout=SimpleNamespace(rows=rows, mask=None),
                dataset=SimpleNamespace(
                    n_classes=n_classes, listed=rows.labels is not None, n_rows=10_000,
                    label_counts=np.arange(1, n_classes + 1),
                ),
            ),
            model=SimpleNamespace(n_repetitions=8), ranker="logsum", counts=None,
            most_rows=MOST_ROWS, found=found,
        )  # fmt: skip

    def ranking(self, form, ranker=None):
        ids, scores = self.found[form.weights]
        return nullcontext(lambda rows, k: (ids[rows.numbers], scores[rows.numbers]))


def ranked(rows, right, rng, n_classes, sure=3.0):
    """The best 5 classes of rows and their scores: the own class is first where it is right."""
    ids = np.argsort(rng.random((rows.n_rows, n_classes)), axis=1)[:, :6]
    for row, (own, first) in enumerate(zip(rows.lists.first, right, strict=True)):
        others = [i for i in ids[row] if i != own][:5]
        ids[row, :5] = [own, *others[:4]] if first else others
    ids = ids[:, :5]
    scores = np.tile(np.log([1.0, 0.1, 0.05, 0.02, 0.01]) * sure / 3, (rows.n_rows, 1))
    return ids, scores.astype(np.float32)


@pytest.mark.parametrize("listed", [False, True])
def test_a_form_is_told_from_the_whole_one_by_the_rows_that_differ(listed, rng):
    n, n_classes = 4000, 20
    rows = replace(block_of(rng, n, 5, n_classes), numbers=np.arange(n), importance=None)
    rows = replace(rows, classes=np.minimum(rng.integers(0, 60, n), n_classes - 1).astype(np.int32))
    if listed:
        rows = rows.with_labels(LabelLists.single(rows.classes))
    right = rng.random(n) < 0.6
    noise, worse, rare = right.copy(), right.copy(), right.copy()
    for value in (True, False):  # as many are better as worse
        noise[rng.choice(np.flatnonzero(right != value), 100, replace=False)] = value
    worse[np.flatnonzero(right)[::300]] = False  # of each 500 rows one, and none is better
    rare[right & (rows.lists.first < 2)] = False  # of two rare classes
    gained = np.flatnonzero(~right & (rows.lists.first == n_classes - 1))[: (right & ~rare).sum()]
    rare[gained] = True
    found = {
        "float32": right, "int8": right, "int4": worse, "float16": rare, "float10": noise,
    }  # fmt: skip
    judge = Known(
        rows, {name: ranked(rows, own, np.random.default_rng(0), n_classes) for name, own in
               found.items()}, n_classes,
    )  # fmt: skip
    lost = {name: judge.verdict(ModelForm(weights=name, n_repetitions=8)).lost for name in found}
    assert (lost["float32"], lost["int8"]) == (0, 0)
    assert lost["int4"] > 2
    assert lost["float16"] > 2  # as many rows are right as before, but rare classes are lost
    assert -2.5 < lost["float10"] < 2.5
    reached = judge.verdict(judge.whole).metrics
    assert reached.accuracy == pytest.approx(right.mean())


def test_what_is_said_less_surely_is_worse(rng):
    n, n_classes = 3000, 12
    rows = replace(block_of(rng, n, 5, n_classes), numbers=np.arange(n), importance=None)
    right = rng.random(n) < 0.8
    ids, scores = ranked(rows, right, rng, n_classes)
    sure = np.where(right, 4.0, 1.0)[:, None]  # which rows are right was known before
    found = {"float32": (ids, (scores * sure).astype(np.float32)), "int8": (ids, scores)}
    assert (
        Known(rows, found, n_classes).verdict(ModelForm(weights="int8", n_repetitions=8)).lost > 2
    )
    found = {"float32": (ids, scores), "int8": (ids, scores * np.float32(1.01))}
    again = Known(rows, found, n_classes).verdict(ModelForm(weights="int8", n_repetitions=8))
    assert again.metrics == Known(rows, found, n_classes).verdict(
        ModelForm(weights="float32", n_repetitions=8)
    ).metrics  # fmt: skip


def test_what_rounding_loses_in_every_row_is_none_if_it_is_tiny(rng):
    n, n_classes = 3000, 12
    rows = replace(block_of(rng, n, 5, n_classes), numbers=np.arange(n), importance=None)
    right = rng.random(n) < 0.8
    ids, scores = ranked(rows, right, rng, n_classes)
    scores = scores * rng.uniform(0.5, 1.5, (n, 1)).astype(np.float32)
    # Which rows are right was known a little before.
    found = {"float32": (ids, scores * np.where(right, 1.005, 1.0)[:, None].astype(np.float32))}
    judge = Known(rows, found | dict.fromkeys(("int8", "int4"), (ids, scores)), n_classes)
    lost = [judge.verdict(ModelForm(weights=w, n_repetitions=8)).lost for w in ("int8", "int4")]
    assert lost[0] == 0
    assert lost[1] > 2
    fewer = judge.verdict(ModelForm(weights="int8", n_repetitions=4))
    assert fewer.lost > 2  # it prunes, too


@pytest.mark.parametrize("dense", [False, True])
def test_few_rows_judge_the_type_of_the_weights_alone(dense):
    form = choose(Table(n_rows=1999, dense=dense)).form
    assert (form.weights, form.n_repetitions) == ("float10" if dense else "int8", 8)
    assert form.least_rows == 0


def test_dense_rows_have_float_weights_and_all_features():
    found = choose(Table(dense=True))
    assert found.form == ModelForm(weights="float10", n_repetitions=1)
    lost = choose(Table({"float1": 3, "repetitions=4": 3}, dense=True))
    assert (lost.form, lost.calibration) == (ModelForm(weights="float32", n_repetitions=8), None)


def test_a_run_leaves_what_held_out_rows_say_is_free(data, tiny):
    small = fit(data, tiny.folder / "small", planned(data), **FIXED)
    whole = fit(data, tiny.folder / "whole", planned(data), model_size="full", **FIXED)
    assert whole.model.stored is None
    assert whole.model.weights.shape == (data.facts.n_features, 96)
    assert small.model.stored == "int8"  # a hundred rows judge
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
