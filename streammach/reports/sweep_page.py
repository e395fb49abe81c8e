"""The page of a sweep: its frontier, its points, and what did not fit."""

from __future__ import annotations

from pathlib import Path

from streammach.errors import clean
from streammach.machine import size_text
from streammach.reports import html
from streammach.reports.drawing import percent
from streammach.reports.size_plot import point_header, point_row, size_plot
from streammach.training.sweep import Sweep


def sweep_page(sweep: Sweep, folder: Path) -> str:
    """Return the page of a sweep, or raise UsageError if matplotlib is not installed."""
    plot = size_plot(sweep)
    used = ", ".join(f"{k} {v}" for k, v in sweep.options.items() if v is not None)
    parts = [
        html.verdict(_verdict(sweep)),
        html.table(point_header(sweep), [point_row(sweep, point) for point in sweep.points])
        if plot is None
        else html.figure(plot, folded=False),
        html.heading("What was swept"),
        html.facts(
            [
                ("store", clean(sweep.store, 300)),
                ("test", clean(sweep.test or "-", 300)),
                ("budget", f"{size_text(sweep.memory)} for each training"),
                ("options", clean(used, 500)),
            ]
        ),
    ]
    if sweep.refused:
        rows = [(f"{x.buckets} x {x.repetitions}", clean(x.reason, 300)) for x in sweep.refused]
        parts += [html.heading("Does not fit the budget"), html.facts(rows)]
    return html.page(f"streammach sweep: {clean(folder.resolve().name, 100)}", parts)


def _verdict(sweep: Sweep) -> list[str]:
    """Return what the grid came to, in sentences."""
    found = [(point, reached.accuracy) for point in sweep.points
             if (reached := sweep.compared(point))]  # fmt: skip
    if not found:
        return [f"Models that were trained without held-out rows: {len(sweep.points)}."]
    rows = "the test rows" if sweep.tested else "the held-out rows"
    (best, most), (small, least) = max(found, key=lambda x: x[1]), found[0]
    edge = ", ".join(sweep.shape_of(point) for point, _ in found if point.frontier)
    return [
        f"The most accurate of {len(found)} models, {sweep.shape_of(best)} (buckets x repetitions) "
        f"with {size_text(best.model_bytes)}, answers {percent(most)}% of {rows} rightly; the "
        f"smallest, {sweep.shape_of(small)} with {size_text(small.model_bytes)}, "
        f"{percent(least)}%, among {sweep.n_classes:,} classes.",
        f"On the frontier, where no smaller one is better: {edge}.",
    ]
