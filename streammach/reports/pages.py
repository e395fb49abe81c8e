"""The pages of a run and of a sweep: verdict, plots, plan; what did not fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streammach.backends.registry import device_text
from streammach.errors import clean
from streammach.figures import words
from streammach.machine import size_text, time_text
from streammach.model.model import Model
from streammach.prediction.diagnose import Diagnosis, ListDiagnosis
from streammach.prediction.queries import QueryTime
from streammach.reports import html
from streammach.reports.drawing import Plot, percent
from streammach.reports.row_plots import row_plots
from streammach.reports.run_plots import point_header, point_row, run_plots, size_plot
from streammach.reports.verdict import sweep_verdict, verdict
from streammach.training.run import Run
from streammach.training.sweep import Sweep


@dataclass(frozen=True)
class Page:
    """A page: its HTML and its plots in their order."""

    html: str
    plots: tuple[Plot, ...]


def run_page(
    run: Run, diagnosis: Diagnosis | ListDiagnosis | None = None, query: QueryTime | None = None,
) -> Page:  # fmt: skip
    """Return the page of a run, with the sweep that its folder lies in."""
    model = run.model
    of_run, of_rows = run_plots(run), () if diagnosis is None else row_plots(diagnosis)
    parts = [
        html.verdict(verdict(run, model, diagnosis, query)),
        html.heading("Where it is right"),
        html.paragraph(_rows_note(run, diagnosis), "note"),
        html.figures(of_rows),
        html.heading("How it was trained"),
        html.figures(of_run),
        html.heading("What the model is made of"),
        *_parts(run, model),
        html.heading("What was planned, and why"),
        html.facts(_plan_rows(run, model)),
    ]
    title = f"streammach: {clean(run.path.resolve().name, 100)}"
    return Page(html.page(title, parts), (*of_rows, *of_run))


def sweep_page(sweep: Sweep, folder: Path) -> str:
    """Return the page of a sweep, or raise UsageError if matplotlib is not installed."""
    plot = size_plot(sweep)
    used = ", ".join(f"{k} {v}" for k, v in sweep.options.items() if v is not None)
    parts = [
        html.verdict(sweep_verdict(sweep)),
        html.table(point_header(sweep), [point_row(sweep, point) for point in sweep.points])
        if plot is None
        else html.figure(plot, folded=False),
        html.heading("What was swept"),
        html.facts([
            ("store", clean(sweep.store, 300)), ("test", clean(sweep.test or "-", 300)),
            ("budget", f"{size_text(sweep.memory)} for each training"),
            ("options", clean(used, 500)),
        ]),
    ]  # fmt: skip
    if sweep.refused:
        rows = [(f"{x.buckets} x {x.repetitions}", clean(x.reason, 300)) for x in sweep.refused]
        parts += [html.heading("Does not fit the budget"), html.facts(rows)]
    return html.page(f"streammach sweep: {clean(folder.resolve().name, 100)}", parts)


def _shape(model: Model) -> str:
    shape = model.spec.shape
    return f"exact ({shape.n_buckets:,} classes)" if shape.exact else str(shape)


def _device_rows(run: Run) -> list[tuple[str, str]]:
    plan, result = run.plan, run.result
    if not plan.limits.device:
        return []
    return [
        ("GPU memory", f"{size_text(plan.device_projected_bytes)} projected of "
                       f"{size_text(plan.limits.device)} allowed "
                       f"({plan.limits.device_source}); buffers "
                       f"{size_text(result.device_projected_bytes)} projected, "
                       f"{size_text(result.device_peak_bytes)} measured"),
    ]  # fmt: skip


def _plan_rows(run: Run, model: Model) -> list[tuple[str, str]]:
    plan, training, facts = run.plan, run.settings.training, run.plan.facts
    stopped = f"; stopped: {run.result.stopped}" if run.result.stopped else ""
    return [
        ("store", f"{clean(facts.path, 300)}: {facts.n_rows:,} rows, {facts.n_features:,} features,"
                  f" {facts.n_classes:,} classes, {facts.nnz / facts.n_rows:.3g} values a row"),
        ("model", f"{_shape(model)} {model.weights.dtype}, ranked by {model.estimator}"),
        ("training", f"{training.text}, {len(run.result.history)} of {training.epochs} epochs"
                     f"{stopped}, seed {training.seed}"),
        ("held out", run.settings.held_out),
        ("device", device_text(plan)),
        ("memory", f"{size_text(plan.projected_bytes)} projected, "
                   f"{size_text(run.result.peak_bytes)} measured, "
                   f"{size_text(plan.limits.host)} allowed ({plan.limits.host_source})"),
        *_device_rows(run),
        ("time", time_text(run.result.seconds)),
        *(("why" if i == 0 else "", clean(reason, 500)) for i, reason in enumerate(run.reasons)),
    ]  # fmt: skip


def _parts(run: Run, model: Model) -> list[str]:
    """Return the bytes and weight of each part, and what each way to rank reached."""
    hashed = sum(a.nbytes for a in model.hashed.values())
    names = model.labels.n_bytes + model.features.n_bytes
    shape = "exact" if model.spec.exact else "hashed models"
    both = model.counts is not None
    rows = [(shape, f"{hashed:,}", f"{model.hashed_weight:.3f}" if both else "1")]
    if model.spec.unhashed:
        rows.clear()
    if both:
        rows.append((f"counts of {model.n_pairs:,} pairs", f"{model.counts_bytes:,}", "1"))
    rows.append(("names", f"{names:,}", "-"))
    calibration = sum(a.nbytes for a in model.calibration.arrays.values())
    if calibration:
        rows.append(("calibration", f"{calibration:,}", "-"))
    parts = [html.table(("part", "bytes", "weight in a score"), rows)]
    if run.result.validation:
        ranked = [
            (f"{name}{' (used)' if name == model.estimator else ''}",
             "with" if name == "blend" else "without",
             percent(found.accuracy, 2), percent(found.top_5_accuracy, 2))
            for name, found in run.result.validation.items()
        ]  # fmt: skip
        said = words(model.listed)
        header = ("ranked by", "counts", f"held-out {said.first} %", f"held-out {said.five} %")
        parts.append(html.table(header, ranked))
    return parts


def _rows_note(run: Run, diagnosis: Diagnosis | ListDiagnosis | None) -> str:
    if diagnosis is None:
        what = "Reliability, recall by class frequency and accuracy by repetitions"
        if run.plan.facts.listed:
            what = "Precision, recall by label frequency, reliability and P@1 by repetitions"
        return f"{what} need labelled rows: streammach report {clean(run.path, 200)} --on STORE"
    note = f"The first {diagnosis.n_rows:,} rows of {clean(diagnosis.path, 200)}."
    if isinstance(diagnosis, ListDiagnosis):
        note += _labels_note(diagnosis)
    elif diagnosis.n_unseen:
        note += (
            f" {diagnosis.n_unseen:,} of them carry a label never seen in training: they count as "
            "wrong in both accuracies, and are left out of reliability and of the groups of "
            "classes."
        )
    if diagnosis.depths and diagnosis.depth_rows < diagnosis.n_rows:
        note += f" Repetitions are compared on the first {diagnosis.depth_rows:,} rows."
    return note


def _labels_note(diagnosis: ListDiagnosis) -> str:
    """Return what rows with lists of labels hold, and what their figures mean."""
    unseen = without = ""
    if diagnosis.n_unseen:
        unseen = (
            f" {diagnosis.n_unseen:,} of these labels were never seen in training: they count as "
            "missed, and are in no tenth."
        )
    n = sum(group.n_rows for group in diagnosis.by_labels if not group.least)
    if n:
        without = f" {n:,} rows have no label; they count as rows in all means."
    return (
        f" They have {diagnosis.n_labels / diagnosis.n_rows:.3g} labels each in the mean."
        f"{unseen}{without} P@k is the mean share of the first k that are labels of the row, N@k "
        "the nDCG, R@k the mean share of a row's labels among the first k; PSP@k weighs rare "
        "labels more. Probabilities are those of the 32 best candidates of each row, each label "
        "on its own."
    )
