"""Plots of a training and of a sweep: accuracy, loss, memory; accuracy over size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from streammach.figures import ONE_LABEL, EpochFigures, Words, words
from streammach.machine import size_text, time_text
from streammach.reports.drawing import (
    BLUE,
    DARK,
    GREY,
    ORANGE,
    SERIES,
    WHITE,
    Plot,
    curve,
    legend_above,
    number,
    percent,
    plain_log,
    whole_ticks,
)
from streammach.spec.byte_lines import Line
from streammach.spec.plan import Plan
from streammach.training.events import StagePoint, read_log
from streammach.training.run import Result, Run
from streammach.training.sweep import Point, Sweep, open_sweep

GB, MB = 1e9, 1e6
SEEN = 0.02  # of the sum: the least that a bar is drawn for
NEAR = 0.95  # of the best accuracy
Term = tuple[str, int, int | None]  # of a ledger: name, bytes projected, bytes measured


def run_plots(run: Run, *, counts: bool) -> tuple[Plot, ...]:
    """Return the plots of a run, with that of the sweep its folder lies in, in their order."""
    log, folder, result = read_log(run.path), run.path.resolve(), run.result
    sweep, said = open_sweep(folder.parent), words(run.plan.facts.listed)
    size = None if sweep is None else size_plot(sweep, folder.name)
    plots = [size, stages_plot(log.stages, said)]
    if result.history:
        plots.append(epochs_plot(result.history, result.best_epoch + 1, counts=counts, said=said))
    plots += [memory_plot(run.plan, result, log.held)]
    return tuple(plot for plot in plots if plot is not None)


def epochs_plot(
    history: Sequence[EpochFigures], kept: int, *, counts: bool = False, said: Words = ONE_LABEL
) -> Plot:
    """Return loss and held-out accuracy by epoch."""
    epochs, losses = [entry.epoch for entry in history], [entry.loss for entry in history]
    scores = [entry.accuracy for entry in history if entry.accuracy is not None]
    finding = f"Epoch {kept} of {len(epochs)} was kept"
    alt = f"Training loss falls from {losses[0]:.3f} to {losses[-1]:.3f} in {len(epochs)} epochs"
    if len(scores) == len(history):
        alone = " by the hashed models alone" if counts else ""
        finding += f": held-out {said.first} {percent(scores[kept - 1])}%{alone}"
        finding += f", {percent(scores[0])}% after the first" if len(scores) > 1 else ""
        alt += f"; held-out {said.first} goes from {percent(scores[0])}% to {percent(scores[-1])}%"

    def draw(figure: Any) -> None:
        panels = figure.subplots(2 if scores else 1, 1, squeeze=False, sharex=True)[:, 0]
        if scores:
            panels[0].plot(epochs, [100 * s for s in scores], color=BLUE, marker="o")
            panels[0].set_ylabel(f"held-out {said.first} (%)")
        panels[-1].plot(epochs, losses, color=ORANGE, marker="s", linestyle="--")
        panels[-1].set_ylabel("loss (nats a model)" if scores else "training loss (nats a model)")
        panels[-1].set_xlabel("epoch (dotted: kept)")
        for axes in panels:
            axes.axvline(kept, color=DARK, linestyle=":", linewidth=1.2)
            axes.margins(x=0.08, y=0.12)
            whole_ticks(axes.xaxis)

    return Plot(
        name="epochs", draw=draw, height=3.4 if scores else 2.2, finding=finding, alt=alt,
        header=("epoch", "loss", f"{said.first} %", f"{said.five} %", "rows/s", "waiting %",
                "peak GB"),
        rows=tuple(
            (f"{entry.epoch}{' (kept)' if entry.epoch == kept else ''}", f"{entry.loss:.4f}",
             percent(entry.accuracy, 2), percent(entry.top_5_accuracy, 2),
             f"{entry.rows_per_second:,.0f}", percent(entry.waited_share),
             f"{entry.peak_bytes / GB:.2f}")
            for entry in history
        ),
    )  # fmt: skip


def stages_plot(stages: Sequence[StagePoint], said: Words = ONE_LABEL) -> Plot | None:
    """Return held-out accuracy over time, a line a kind of model; None without two points."""
    if len(stages) < 2:
        return None
    best, last = max(stages, key=lambda stage: stage.accuracy), stages[-1]
    near = next(stage for stage in stages if stage.accuracy >= NEAR * best.accuracy)
    finding = (
        f"After {time_text(near.t)} of {time_text(last.t)}, {near.stage} had a held-out "
        f"{said.first} of {percent(near.accuracy)}%; {last.stage}: {percent(last.accuracy)}%"
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        names = list(dict.fromkeys(stage.stage for stage in stages))
        for name, style in zip(names, itertools.cycle(SERIES), strict=False):
            mine = [stage for stage in stages if stage.stage == name]
            times, reached = [s.t for s in mine], [100 * s.accuracy for s in mine]
            curve(axes, times, reached, style, label=name)
        axes.set(xlabel="time since the start (s)", ylabel=f"held-out {said.first} (%)")
        axes.set_xlim(left=0)
        axes.margins(y=0.12)
        legend_above(axes)

    return Plot(
        name="stages", draw=draw, height=2.8, finding=finding,
        alt=f"{len(stages)} points from {stages[0].t:.0f} to {last.t:.0f} s. {finding}",
        header=("time s", "stage", f"{said.first} %", f"{said.five} %"),
        rows=tuple(
            (number(round(stage.t, 1)), stage.stage, percent(stage.accuracy, 2),
             percent(stage.top_5_accuracy, 2))
            for stage in stages
        ),
    )  # fmt: skip


def memory_plot(plan: Plan, result: Result, held: dict[str, int]) -> Plot:
    """Return projected and noted bytes by ledger term; those that are hardly seen are one bar."""
    peak, projected = result.peak_bytes, result.projected_bytes
    lines = [x for x in plan.ledger if x.where == "host"]
    if (compiler := projected - plan.projected_bytes) > 0:  # the first training of its kind
        lines.append(Line("compiling kernels", "host", compiler))
    lines.sort(key=lambda x: -x.n_bytes)
    terms: list[Term] = [("sum", projected, peak)]
    terms += [(line.name, line.n_bytes, held.get(line.name)) for line in lines]
    seen = [term for term in terms if term[1] >= SEEN * projected]
    small = terms[len(seen) :]
    if len(small) > 1:
        name = f"{len(small)} smaller ones"
        seen.append((name, sum(n for _, n, _ in small), None))
    else:
        seen = terms
    return Plot(
        name="memory", draw=lambda figure: _draw_memory(figure, seen, plan.limits.host),
        height=1.1 + 0.21 * len(seen),
        finding=f"Training took {size_text(peak)} of {size_text(projected)} projected "
                f"({peak / projected:.2f}) and {size_text(plan.limits.host)} allowed",
        alt=f"Bars of projected memory by ledger term; the largest of {len(lines)} is "
            f"{lines[0].name} with {size_text(lines[0].n_bytes)}; the sum is "
            f"{size_text(projected)}, {size_text(peak)} were measured",
        header=("term", "projected bytes", "measured bytes"),
        rows=(
            *((name, f"{p:,}", "-" if m is None else f"{m:,}") for name, p, m in terms),
            *((f"{x.name} ({x.where})", f"{x.n_bytes:,}", "-")
              for x in plan.ledger if x.where != "host"),
        ),
    )  # fmt: skip


def _draw_memory(figure: Any, terms: list[Term], allowed: int) -> None:
    """Draw bars of what was projected, marks of what was measured, a line for what is allowed."""
    axes = figure.subplots()
    axes.barh([name for name, _, _ in terms], [n / GB for _, n, _ in terms], height=0.62,
              color=BLUE, label="projected")  # fmt: skip
    known = [(name, n) for name, _, n in terms if n is not None]
    axes.plot([n / GB for _, n in known], [name for name, _ in known], linestyle="none", marker="D",
              color=ORANGE, markeredgecolor=WHITE, markersize=6.5,
              label="measured (where noted)")  # fmt: skip
    axes.axvline(allowed / GB, color=DARK, linestyle="--", linewidth=1.2, label="allowed")
    for place, (_, projected, measured) in enumerate(terms):
        axes.annotate(size_text(projected), (max(projected, measured or 0) / GB, place), (7, 0),
                      textcoords="offset points", va="center", fontsize=8, color=DARK,
                      bbox={"facecolor": WHITE, "edgecolor": "none", "pad": 0.6})  # fmt: skip
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.22 * max(allowed, *(n for _, n, _ in terms)) / GB)
    axes.set_xlabel("memory (GB)")
    legend_above(axes)


def size_plot(sweep: Sweep, star: str | None = None) -> Plot | None:
    """Return accuracy against model size, a line for each B; None without an accuracy."""
    points = [(p, reached.accuracy) for p in sweep.points if (reached := sweep.compared(p))]
    if not points:
        return None
    what = f"{'test' if sweep.tested else 'held-out'} {words(sweep.listed).first}"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        edge = [(p.model_bytes / MB, 100 * s) for p, s in points if p.frontier]
        axes.plot(*zip(*edge, strict=True), color=GREY, linewidth=5, alpha=0.3, label="frontier",
                  solid_capstyle="round")  # fmt: skip
        for i, buckets in enumerate(sorted({p.buckets for p, _ in points})):
            sizes = [p.model_bytes / MB for p, _ in points if p.buckets == buckets]
            scores = [100 * s for p, s in points if p.buckets == buckets]
            curve(axes, sizes, scores, SERIES[i % len(SERIES)], label=f"B = {buckets:,}",
                  linewidth=1.2)  # fmt: skip
        for point, score in points:
            place, side = ((-7, 4), "right") if point.frontier else ((7, -11), "left")
            axes.annotate(f"R {point.repetitions}", (point.model_bytes / MB, 100 * score), place,
                          textcoords="offset points", ha=side, fontsize=8, color=DARK)  # fmt: skip
            if point.run == star:
                axes.plot(point.model_bytes / MB, 100 * score, marker="*", markersize=13,
                          color=DARK, linestyle="none", label="this run", zorder=5)  # fmt: skip
        axes.set_xscale("log")
        axes.margins(x=0.14, y=0.16)
        plain_log(axes.xaxis)
        axes.set(xlabel="model (MB)", ylabel=f"{what} (%)")
        legend_above(axes)

    low, high = (f(score for _, score in points) for f in (min, max))
    return Plot(
        name="size", draw=draw, height=3.2, finding=_finding(points, what, star),
        alt=f"{len(points)} models from {size_text(points[0][0].model_bytes)} to "
            f"{size_text(points[-1][0].model_bytes)}, {what} from {percent(low)}% to "
            f"{percent(high)}%; {sum(p.frontier for p, _ in points)} of them lie on the frontier",
        header=point_header(sweep), rows=tuple(point_row(sweep, point) for point in sweep.points),
    )  # fmt: skip


def point_header(sweep: Sweep) -> tuple[str, ...]:
    """Return what stands in the columns of a point."""
    said = words(sweep.listed)
    return (
        "B x R", "MB", "peak GB", "time s", f"held-out {said.first} %", f"{said.five} %",
        f"test {said.first} %", f"{said.five} %", "frontier",
    )  # fmt: skip


def point_row(sweep: Sweep, point: Point) -> tuple[str, ...]:
    """Return a point as a row of a table."""
    figures = [
        percent(None if reached is None else getattr(reached, name), 2)
        for reached in (point.held_out, point.test)
        for name in ("accuracy", "top_5_accuracy")
    ]
    return (
        sweep.shape_of(point),
        f"{point.model_bytes / MB:,.1f}", f"{point.peak_bytes / 1e9:.2f}",
        number(round(point.seconds, 1)), *figures, "*" if point.frontier else "",
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
