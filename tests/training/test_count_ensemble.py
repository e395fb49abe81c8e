"""Counts beside the hashed models: kept where they pay, resumed, the same for any threads."""

from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.conversion.convert import convert
from streammach.options.figures import HeldOutMetrics
from streammach.parts.counts import count_learner as alone
from streammach.parts.counts.fitting import Fitting
from streammach.prediction.evaluate import evaluate
from streammach.system.errors import UsageError
from streammach.training import finalize
from tests.builders import changed, fit, held_out

FIXED = {"epochs": 1, "learning_rate": 0.2, "transform": "binary", "model_size": "full"}


def narrow(data, **options):
    return sm.plan(data, n_buckets=4, n_repetitions=6, **options)


def reached(run, test, estimator=None):
    with sm.Predictor(run.model, estimator=estimator) as predictor:
        return evaluate(predictor, test)


def test_counts_make_a_narrow_model_better(stores, tiny):
    data, test = stores
    told = []
    watch = SimpleNamespace(on_message=told.append)
    run = fit(data, tiny.folder / "run", narrow(data), callbacks=[watch], **FIXED)
    assert run.model.estimator == "blend"
    both, alone = reached(run, test), reached(run, test, "logsum")
    assert both.estimator == "blend"
    assert both.accuracy > alone.accuracy + 0.05
    assert run.result.validation["blend"].accuracy > run.result.validation["logsum"].accuracy
    assert any("counts kept" in reason for reason in run.result.reasons)
    assert any(text.startswith("counted") for text in told)
    off = fit(data, tiny.folder / "off", narrow(data, counts="off"), **FIXED)
    assert off.model.counts is None
    assert np.array_equal(off.model.weights, run.model.weights)
    with pytest.raises(UsageError, match="no counts to blend"):
        sm.Predictor(off.model, estimator="blend")


def test_counts_that_do_not_pay_are_left_out(stores, tiny, monkeypatch):
    data, _ = stores
    monkeypatch.setattr(Fitting, "measure", lambda *_: HeldOutMetrics(0.0, 0.01))
    run = fit(data, tiny.folder / "run", narrow(data), **FIXED)
    assert run.model.counts is None
    assert run.model.estimator in ("logsum", "mean", "median", "min")
    assert any("counts left out: held-out accuracy / top-5 0.000" in r for r in run.result.reasons)


def test_too_few_held_out_rows_leave_the_counts_out(tiny):
    with tiny.dataset("small.zarr", n_rows=200, n_classes=10) as data:
        run = fit(data, tiny.folder / "run", narrow(data), **FIXED)
    assert run.plan.config.size_of("counts") > 0
    assert run.model.counts is None
    assert any("10 held-out rows are too few" in reason for reason in run.result.reasons)


def test_counts_of_classes_that_held_out_rows_alone_have(tiny):
    lines = [f"c{i} |x f{i % 70} g{i % 31}" for i in range(2500)]
    sm.convert(tiny.text("a.vw", lines), tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        run = fit(data, tiny.folder / "run", narrow(data), **FIXED)
    assert any(reason.startswith("counts of") for reason in run.result.reasons)


def test_where_not_all_pairs_fit_some_are_kept(stores, tiny):
    data, test = stores
    whole = narrow(data)
    half = changed(whole, sizes={"counts": whole.config.size_of("counts") // 2})
    runs = [
        fit(data, tiny.folder / f"{p.config.size_of('counts')}", p, **FIXED) for p in (whole, half)
    ]
    assert runs[1].model.n_pairs <= half.config.size_of("counts") < runs[0].model.n_pairs
    assert reached(runs[1], test).accuracy > reached(runs[1], test, "logsum").accuracy + 0.05
    log = (runs[1].path / "log.jsonl").read_text()
    assert "to see which to keep" in log
    assert "those that add most" in log


def test_a_sample_of_rows_with_lists_has_room_for_all_of_its_pairs(tmp_path, rng):
    rows = [
        f"{','.join(f'c{c}' for c in rng.choice(40, 5, replace=False))} "
        f"|x {' '.join(f'w{i}' for i in rng.choice(3000, 12, replace=False))}"
        for _ in range(2500)
    ]
    (tmp_path / "rows.vw").write_text("\n".join(rows) + "\n")
    convert(tmp_path / "rows.vw", tmp_path / "rows.zarr")
    plan = narrow(tmp_path / "rows.zarr")
    plan = changed(plan, sizes={"counts": plan.config.size_of("counts") // 2})
    run = fit(tmp_path / "rows.zarr", tmp_path / "run", plan, **FIXED)
    log = (run.path / "log.jsonl").read_text()
    assert "to see which to keep" in log
    assert "more pairs than it says" not in log


def test_of_more_pairs_than_planned_those_are_kept_that_add_most(stores, tiny, monkeypatch):
    data, _ = stores
    plan = changed(narrow(data), sizes={"counts": 100})
    monkeypatch.setattr(alone, "pair_room", lambda _: 100)
    run = fit(data, tiny.folder / "run", plan, **FIXED)
    assert run.model.counts is not None
    assert 0 < run.model.n_pairs <= 100
    assert "more pairs than it says" in (run.path / "log.jsonl").read_text()


def test_probabilities_are_calibrated_on_rows_that_were_not_counted(stores, tiny, monkeypatch):
    data, _ = stores
    real, seen = finalize.model_form.fit_calibration, []

    def watched(rows, ranking, n_classes):
        seen.append(ranking(rows, 5)[1])
        return real(rows, ranking, n_classes)

    monkeypatch.setattr(finalize.model_form, "fit_calibration", watched)
    plan = narrow(data)
    run = fit(data, tiny.folder / "run", plan, **FIXED, last_passes=0)
    held = held_out(data, plan)
    with sm.Predictor(run.model) as predictor:
        after = predictor.rank(held.rows, 5)[1]
    assert after[:, 0].mean() > seen[-1][:, 0].mean() + 0.1
