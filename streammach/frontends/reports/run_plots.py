"""Plots of a training: accuracy, loss, memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from streammach.frontends.reports import drawing
from streammach.frontends.reports.drawing import Plot, curve, legend_above, percent
from streammach.options.byte_lines import Line
from streammach.options.figures import ONE_LABEL, EpochFigures, Words, words
from streammach.options.plan import Plan
from streammach.system.machine import size_text, time_text
from streammach.training.run import Result, Run, StagePoint, read_log

GB = 1e9
SEEN = 0.02  # of the sum: the least that a bar is drawn for
NEAR = 0.95  # of the best accuracy
Term = tuple[str, int, int | None]  # of a ledger: name, bytes projected, bytes measured


def run_plots(run: Run, *, counts: bool) -> tuple[Plot, ...]:
    """Return the plots of a run, in their order."""
    log, result, said = read_log(run.path), run.result, words(run.plan.facts.listed)
    plots = [stages_plot(log.stages, said)]
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
    if len(scores) == len(history):
        alone = " by the hashed models alone" if counts else ""
        finding += f": held-out {said.first} {percent(scores[kept - 1])}%{alone}"
        finding += f", {percent(scores[0])}% after the first" if len(scores) > 1 else ""

    def draw(figure: Any) -> None:
        from matplotlib.ticker import MaxNLocator  # an optional library

        panels = figure.subplots(2 if scores else 1, 1, squeeze=False, sharex=True)[:, 0]
        if scores:
            panels[0].plot(epochs, [100 * s for s in scores], color=drawing.BLUE, marker="o")
            panels[0].set_ylabel(f"held-out {said.first} (%)")
        panels[-1].plot(epochs, losses, color=drawing.ORANGE, marker="s", linestyle="--")
        panels[-1].set_ylabel("loss (nats a model)" if scores else "training loss (nats a model)")
        panels[-1].set_xlabel("epoch (dotted: kept)")
        for axes in panels:
            axes.axvline(kept, color=drawing.DARK, linestyle=":", linewidth=1.2)
            axes.margins(x=0.08, y=0.12)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))

    return Plot(
        name="epochs", draw=draw, height=3.4 if scores else 2.2, finding=finding,
        header=("epoch", "loss", f"{said.first} %", f"{said.five} %", "rows/s", "waiting %",
                "peak GB"),
        rows=tuple(
            (f"{entry.epoch}{' (kept)' if entry.epoch == kept else ''}", f"{entry.loss:z.4f}",
             percent(entry.accuracy, 2), percent(entry.top_5_accuracy, 2),
             f"{entry.rows_per_second:z,.0f}", percent(entry.waited_share),
             f"{entry.peak_bytes / GB:z.2f}")
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
        for name, style in zip(names, itertools.cycle(drawing.SERIES), strict=False):
            mine = [stage for stage in stages if stage.stage == name]
            times, reached = [s.t for s in mine], [100 * s.accuracy for s in mine]
            curve(axes, times, reached, style, label=name)
        axes.set(xlabel="time since the start (s)", ylabel=f"held-out {said.first} (%)")
        axes.set_xlim(left=0)
        axes.margins(y=0.12)
        legend_above(axes)

    return Plot(
        name="stages", draw=draw, height=2.8, finding=finding,
        header=("time s", "stage", f"{said.first} %", f"{said.five} %"),
        rows=tuple(
            (drawing.number(round(stage.t, 1)), stage.stage, percent(stage.accuracy, 2),
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
                f"({peak / projected:z.2f}) and {size_text(plan.limits.host)} allowed",
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
              color=drawing.BLUE, label="projected")  # fmt: skip
    known = [(name, n) for name, _, n in terms if n is not None]
    behind = {"facecolor": drawing.WHITE, "edgecolor": "none", "pad": 0.6}
    axes.plot([n / GB for _, n in known], [name for name, _ in known], linestyle="none", marker="D",
              color=drawing.ORANGE, markeredgecolor=drawing.WHITE, markersize=6.5,
              label="measured (where noted)")  # fmt: skip
    axes.axvline(allowed / GB, color=drawing.DARK, linestyle="--", linewidth=1.2, label="allowed")
    for place, (_, projected, measured) in enumerate(terms):
        axes.annotate(size_text(projected), (max(projected, measured or 0) / GB, place), (7, 0),
                      textcoords="offset points", va="center", fontsize=8, color=drawing.DARK,
                      bbox=behind)  # fmt: skip
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.22 * max(allowed, *(n for _, n, _ in terms)) / GB)
    axes.set_xlabel("memory (GB)")
    legend_above(axes)
