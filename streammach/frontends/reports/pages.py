"""The page of a run, drawn and written: verdict, plots, plan, what to know."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streammach.cli.about import run_lines
from streammach.frontends.reports import html
from streammach.frontends.reports.card import card as card_of
from streammach.frontends.reports.drawing import Plot, percent, require
from streammach.frontends.reports.options import ReportOptions
from streammach.frontends.reports.row_plots import row_plots
from streammach.frontends.reports.run_plots import run_plots
from streammach.model.document import disk_bytes
from streammach.model.model import Model
from streammach.model.size import size_in_memory
from streammach.options.annotated import check_options
from streammach.options.figures import TopK
from streammach.options.option_fields import add_parameters
from streammach.prediction.by_class import TITLES
from streammach.prediction.diagnose import REQUEST, ROWS, Diagnosis, QueryTime, diagnose, query_time
from streammach.prediction.metrics import FIRST
from streammach.prediction.room import room_before
from streammach.system.errors import clean
from streammach.system.files.destinations import Destination
from streammach.system.files.urls import locate
from streammach.system.machine import size_text, time_text
from streammach.system.progress import ProgressBar, Wanted
from streammach.training.run import CARD, PAGE, Run

SHOWN_CLASSES = 50  # of the worst, and of the most frequent
SORTED = ("f1", "recall", "precision", "probability")  # what a table of classes is sorted by
STAGES = {"rank": 2.0, "repetitions": 2.0, "queries": 0.2, "draw": 1.0}  # their times, relative


@dataclass(frozen=True)
class Page:
    """A page: its HTML and its plots in their order."""

    html: str
    plots: tuple[Plot, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A page that was written."""

    path: Path  # the file
    page: Page  # what it holds
    rows: Diagnosis | None = None  # what was measured for it on rows of a store
    query: QueryTime | None = None  # how long the model takes for one of these rows
    projected_bytes: int | None = None  # memory that this was to take


@add_parameters(ReportOptions)
def report(
    run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *,
    on: str | os.PathLike[str] | None = None, rows: int = ROWS, memory: str | int | None = None,
    threads: int | None = None, card: str | os.PathLike[str] | None = None, force: bool = False,
    progress: Wanted = None,
) -> Report:  # fmt: skip
    """Draw what a run planned, measured and reached: one HTML file with everything in it.

    Parameters
    ----------
    run : path-like
        The folder of the run.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`.

    Raises
    ------
    UsageError
        If matplotlib is not installed, or a path is wrong.
    BudgetError
        If it does not fit the memory.
    MismatchError, ModelError, StoreError, DiskError
        If files cannot be read or written.
    """
    check_options(report.__annotations__, locals())
    require()
    opened, folder = Run.open(run), Path(run)
    target = folder / "report.html" if out is None else Path(out)
    inputs = [folder / "model", *([] if on is None else [locate(on)])]
    destination = Destination(target, PAGE, force=force, inputs=inputs)
    of_card = None
    if card is not None:
        of_card = Destination(Path(card), CARD, force=force, inputs=[*inputs, target])
    found, query, projected = None, None, None
    with ProgressBar(progress, {"rank": "rows"}, STAGES if on is not None else {}) as told:
        if on is not None:
            room = room_before(
                run, "report", on, REQUEST.cells(), memory=memory, threads=threads,
                beside=REQUEST.beside,
            )  # fmt: skip
            projected = room.projected_bytes
        model = opened.model
        if on is not None:
            told("rank", 0, 0)
            found = diagnose(model, on, rows=rows, memory=memory, threads=threads, progress=told)
            told("queries", 0, 0)
            query = query_time(model, on)
        told("draw", 0, 0)
        page = run_page(opened, model, found, query)
        destination.write([page.html.encode()])
        if of_card is not None:
            said = verdict(opened, model, found, query)
            of_card.write([card_of(opened, model, said, found).encode()])
    return Report(path=target, page=page, rows=found, query=query, projected_bytes=projected)


def run_page(
    run: Run, model: Model, diagnosis: Diagnosis | None = None, query: QueryTime | None = None
) -> Page:
    """Return the page of a run and its model."""
    of_run = run_plots(run, counts=model.counts is not None)
    of_rows = () if diagnosis is None else row_plots(diagnosis)
    parts = [
        html.verdict(verdict(run, model, diagnosis, query)),
        html.heading("Where it is right"),
        html.paragraph(_rows_note(run, diagnosis), "note"),
        html.figures(of_rows),
        *([] if diagnosis is None else [*_classes(diagnosis), *_reasons(diagnosis)]),
        html.heading("How it was trained"),
        html.figures(of_run),
        html.heading("What the model is made of"),
        _parts(model),
        html.heading("What was planned, and why"),
        html.facts(run_lines(run, model)),
    ]
    title = f"streammach: {clean(run.path.resolve().name, 100)}"
    return Page(html.page(title, parts), (*of_rows, *of_run))


def verdict(
    run: Run, model: Model, diagnosis: Diagnosis | None = None, query: QueryTime | None = None
) -> tuple[str, ...]:
    """Return what a run came to, in sentences; the first one says the most."""
    first, *more = _right(run, model, diagnosis)
    disk, memory = size_text(disk_bytes(run.path)), size_text(size_in_memory(model).n_bytes)
    size = f"{disk} on disk and {memory} in memory"
    if disk == memory:
        size = f"{disk}, on disk and in memory"
    if query is not None:
        n = query.n_queries
        rows = "one row" if n == 1 else f"the median of {n:,} rows"
        size += f"; a query takes {time_text(query.seconds)} on one thread ({rows})"
    return (
        first,
        *([" ".join(more)] if more else []),
        f"The model takes {size}.",
        f"Training took {time_text(run.result.seconds)} and {size_text(run.result.peak_bytes)} of "
        f"the {size_text(run.plan.limits.host)} of memory that it was allowed.",
    )


def _right(run: Run, model: Model, diagnosis: Diagnosis | None) -> Iterator[str]:
    """Yield how often answers are right, on labelled rows and on held-out ones."""
    among, best = f", among {model.spec.n_classes:,}", run.result.best
    if not model.listed:
        among += " classes"
    held_out = f"the rows held out from training ({clean(run.settings.held_out, 100)})"
    if diagnosis is not None:
        rows = f"{diagnosis.n_rows:,} rows of {clean(diagnosis.path, 100)}"
        yield from _figures(diagnosis, f"{rows}{among}", listed=model.listed)
        what = "label" if model.listed else "class"
        yield (
            f"Always answering the {what} that is most frequent in training would be right for "
            f"{percent(diagnosis.majority)}%."
        )
        if best is not None:
            yield f"Of {held_out} {percent(best.accuracy)}% got a right first answer."
    elif best is not None:
        yield from _figures(best, f"{held_out}{among}", listed=model.listed)
    else:
        yield (
            f"A model of {model.spec.n_classes:,} classes, trained without held-out rows: how "
            "often it is right is told by labelled rows (--on STORE)."
        )


def _figures(found: TopK, rows: str, *, listed: bool) -> Iterator[str]:
    first, five = f"{percent(found.accuracy)}%", f"{percent(found.top_5_accuracy)}%"
    if listed:
        yield f"The first answer is a label of the row for {first} (P@1) of {rows}."
        yield f"Of the first five answers {five} (P@5) are."
    else:
        yield f"The first answer is right for {first} of {rows}."
        yield f"The right class is among the first five answers for {five}."


def _parts(model: Model) -> str:
    """Return the bytes and the weight of each part."""
    both, rows = model.counts is not None, []
    if not model.spec.unhashed:
        hashed = sum(a.nbytes for a in model.hashed_arrays.values())
        weight = f"{model.hashed_weight:z.3f}" if both else "1"
        rows.append(("exact" if model.spec.exact else "hashed models", f"{hashed:,}", weight))
    if both:
        rows.append((f"counts of {model.n_pairs:,} pairs", f"{model.counts_bytes:,}", "1"))
    if model.linear is not None:
        rows.append(("linear classifiers", f"{model.linear.n_bytes:,}", "1"))
    rows.append(("names", f"{model.labels.n_bytes + model.features.n_bytes:,}", "-"))
    calibration = sum(a.nbytes for a in model.calibration.arrays.values())
    if calibration:
        rows.append(("calibration", f"{calibration:,}", "-"))
    return html.table(("part", "bytes", "weight in a score"), rows)


def _classes(found: Diagnosis) -> list[str]:
    """Return the worst and the most frequent classes, and what they are taken for."""
    each = found.by_class
    if each is None or found.n_unseen == found.n_rows:
        return []
    own = each.figures(each.ids)
    worst, often = (np.lexsort((-own["rows"], key)) for key in (own["f1"], -own["rows"]))
    n, what = np.count_nonzero(own["rows"]), "class" if found.sets is None else "label"
    worst = worst[own["rows"][worst] > 0]
    ids = each.ids[np.union1d(worst[:SHOWN_CLASSES], often[: min(SHOWN_CLASSES, n)])]
    own, table = each.figures(ids), each.table(ids)
    header = [f"{name} %" if isinstance(column[0], float) else name
              for name, column in table.items()]  # fmt: skip
    rows = [tuple(map(_class_cell, table, line)) for line in zip(*table.values(), strict=True)]
    keys = {name: own[name] for name in SORTED} | {"rows": -own["rows"]}
    by = {name: np.argsort(np.lexsort((-own["rows"], key))).tolist() for name, key in keys.items()}
    pairs = [(*(clean(text, 60) for text in one.label_texts), f"{one.n_rows:,}", percent(one.share))
             for one in found.confusions]  # fmt: skip
    note = (
        f"Of {n:,} that occur, the {SHOWN_CLASSES} worst by F1 and the {SHOWN_CLASSES} most "
        "frequent. Confusion: what is predicted most often in its place, and its share of the "
        "rows. Examples: numbers of rows that miss it. A table of all: streammach evaluate "
        "--by-class FILE."
    )
    return [
        html.heading(f"How good for each {what}"), html.paragraph(note, "note"),
        html.sortable("each", header, rows, by),
        *([html.heading("What is taken for what"),
           html.table(("true", "predicted", "rows", "share %"), pairs)] if pairs else []),
    ]  # fmt: skip


def _reasons(found: Diagnosis) -> Iterator[str]:
    """Yield why a few rows get their answers."""
    if not found.examples:
        return
    yield html.heading("Why it says so")
    note = (
        "Of some of the first rows: the features that raise a score most, and those that lower it "
        "(dotted). All that is listed adds up to the score. All rows: streammach predict --explain."
    )
    yield html.paragraph(note, "note")
    for one in found.examples:
        labels = [clean(why.label, 60) for why in one.why]
        wrong = f"is said, {labels[-1]} is right" if len(labels) > 1 else "is said, wrongly"
        right = "is right" if one.right else wrong
        yield html.paragraph(f"Row {one.number:,}: {labels[0]} {right}.")
        for label, why in zip(labels, one.why, strict=True):
            parts = [(clean(x.feature, 60), x.contribution) for x in why.contributions]
            lines = [f"{name} {x:+z.3g}" for name, x in why.lines.items() if x]
            yield html.reasons(label, parts, f"{', '.join(lines)}; in all {why.score:+z.3g}")


def _class_cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else percent(value)
    if isinstance(value, list):
        return ", ".join(f"{row:,}" for row in value)
    if name in ("label", "confusion", *TITLES):
        return "-" if value is None else clean(value, 60)
    return f"{value:,}"


def _rows_note(run: Run, diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        what = "Reliability, recall by class frequency and accuracy by repetitions"
        if run.plan.facts.listed:
            what = "Precision, recall by label frequency, reliability and P@1 by repetitions"
        return f"{what} need labelled rows: streammach report {clean(run.path, 200)} --on STORE"
    note = f"The first {diagnosis.n_rows:,} rows of {clean(diagnosis.path, 200)}."
    if diagnosis.sets is not None:
        note += _labels_note(diagnosis, diagnosis.sets.n_labels)
    elif diagnosis.n_unseen:
        note += (
            f" {diagnosis.n_unseen:,} of them carry a label never seen in training: they count as "
            "wrong in both accuracies, and are left out of reliability and of the groups of "
            "classes."
        )
    if diagnosis.depths and diagnosis.depth_rows < diagnosis.n_rows:
        note += f" Repetitions are compared on the first {diagnosis.depth_rows:,} rows."
    return note


def _labels_note(diagnosis: Diagnosis, n_labels: int) -> str:
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
        f" They have {n_labels / diagnosis.n_rows:z.3g} labels each in the mean."
        f"{unseen}{without} P@k is the mean share of the first k that are labels of the row, N@k "
        "the nDCG, R@k the mean share of a row's labels among the first k; PSP@k weighs rare "
        f"labels more. Probabilities are those of the {FIRST} best labels of each row, each on "
        "its own."
    )
