"""The plot of accuracy against model size: a sweep's points and its frontier."""

from __future__ import annotations

from typing import Any

from streammach.figures import words
from streammach.machine import size_text
from streammach.reports.drawing import (
    DARK,
    GREY,
    SERIES,
    Plot,
    drawn,
    legend_above,
    percent,
    plain_log,
)
from streammach.training.sweep import Point, Sweep

MB = 1e6


def size_plot(sweep: Sweep, star: str | None = None) -> Plot | None:
    """Return accuracy against model size, a line for each B; None without an accuracy."""
    points = [(p, reached.accuracy) for p in sweep.points if (reached := sweep.compared(p))]
    if not points:
        return None
    what = f"{'test' if sweep.tested else 'held-out'} {words(bool(sweep.listed)).first}"
    finding = _finding(points, what, star)
    alt = (
        f"{len(points)} models from {size_text(points[0][0].model_bytes)} to "
        f"{size_text(points[-1][0].model_bytes)}, {what} from "
        f"{percent(min(s for _, s in points))}% to {percent(max(s for _, s in points))}%; "
        f"{sum(p.frontier for p, _ in points)} of them lie on the frontier"
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        edge = [(p.model_bytes / MB, 100 * s) for p, s in points if p.frontier]
        axes.plot(*zip(*edge, strict=True), color=GREY, linewidth=5, alpha=0.3, label="frontier",
                  solid_capstyle="round")  # fmt: skip
        for i, buckets in enumerate(sorted({p.buckets for p, _ in points})):
            color, marker, dash = SERIES[i % len(SERIES)]
            line = [(p.model_bytes / MB, 100 * s) for p, s in points if p.buckets == buckets]
            axes.plot(*zip(*line, strict=True), color=color, marker=marker, linestyle=dash,
                      linewidth=1.2, label=f"B = {buckets:,}")  # fmt: skip
        for point, score in points:
            place, side = ((-7, 4), "right") if point.frontier else ((7, -11), "left")
            axes.annotate(f"R {point.repetitions}", (point.model_bytes / MB, 100 * score), place,
                          textcoords="offset points", ha=side, fontsize=8, color=DARK)  # fmt: skip
            if point.run == star:
                axes.plot(point.model_bytes / MB, 100 * score, marker="*", markersize=13,
                          color=DARK, linestyle="none", label="this run", zorder=5)  # fmt: skip
        axes.set_xscale("log")
        axes.margins(x=0.14, y=0.16)
        plain_log(axes.xaxis, points[0][0].model_bytes / MB, points[-1][0].model_bytes / MB)
        axes.set_xlabel("model (MB)")
        axes.set_ylabel(f"{what} (%)")
        legend_above(axes)

    rows = tuple(point_row(sweep, point) for point in sweep.points)
    header = point_header(sweep)
    return drawn("size", draw, height=3.2, finding=finding, alt=alt, header=header, rows=rows)


def point_header(sweep: Sweep) -> tuple[str, ...]:
    """Return what stands in the columns of a point."""
    said = words(bool(sweep.listed))
    return (
        "B x R", "model MB", "peak GB", "time s", f"held-out {said.first} %", f"{said.five} %",
        f"test {said.first} %", f"{said.five} %", "frontier",
    )  # fmt: skip


def point_row(sweep: Sweep, point: Point) -> tuple[str, ...]:
    """Return a point as a row of a table."""
    figures = [
        percent(None if reached is None else value, 2)
        for reached in (point.held_out, point.test)
        for value in (
            (None, None) if reached is None else (reached.accuracy, reached.top_5_accuracy)
        )
    ]
    return (
        sweep.shape_of(point),
        f"{point.model_bytes / MB:,.1f}", f"{point.peak_bytes / 1e9:.2f}", f"{point.seconds:,.1f}",
        *figures, "*" if point.frontier else "",
    )  # fmt: skip


def _finding(points: list[tuple[Point, float]], what: str, star: str | None) -> str:
    """Return what the points say: of the run that is marked, or of the grid."""
    best, top = max(points, key=lambda x: x[1])
    marked = next((x for x in points if x[0].run == star), None)
    if marked is None:
        small, score = points[0]
        return (
            f"{_shape(best)} reaches {what} {percent(top)}% with "
            f"{size_text(best.model_bytes)}; {_shape(small)} with {size_text(small.model_bytes)} "
            f"has {percent(score)}%"
        )
    point, score = marked
    if point.frontier:
        return (
            f"This run ({what} {percent(score)}%, "
            f"{size_text(point.model_bytes)}) lies on the frontier of {len(points)} models"
        )
    better = next(x for x in points if x[0].model_bytes <= point.model_bytes and x[1] >= score)
    return (
        f"{_shape(better[0])} is no larger than this run and has {what} "
        f"{percent(better[1])}% against {percent(score)}%"
    )


def _shape(point: Point) -> str:
    return f"{point.buckets} x {point.repetitions}"
