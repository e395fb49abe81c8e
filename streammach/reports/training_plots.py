"""Plots of a training: accuracy over time, loss by epoch, memory by ledger term, speed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from streammach.figures import ONE_LABEL, EpochFigures, Words
from streammach.machine import size_text, time_text
from streammach.reports.drawing import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    SERIES,
    VERMILION,
    Plot,
    drawn,
    legend_beside,
    number,
    percent,
    plain_log,
    thousands,
    whole_ticks,
)
from streammach.spec.plan import Plan
from streammach.training.record import Speed, Stage

GB = 1e9
NEAR = 0.95  # of the best accuracy
MOST_POINTS = 500  # of a curve over time


def epochs_plot(
    history: Sequence[EpochFigures], kept: int, *, counts: bool = False, said: Words = ONE_LABEL
) -> Plot:
    """Return loss and held-out accuracy by epoch.

    Parameters
    ----------
    history : sequence of EpochFigures
        What was measured at the end of each epoch.
    kept : int
        The epoch whose weights were kept, from 1.
    counts : bool
        Whether the model has counts, which come after the epochs.
    said : Words
        What figures are called.
    """
    epochs, losses = [entry.epoch for entry in history], [entry.loss for entry in history]
    scores = [entry.accuracy for entry in history if entry.accuracy is not None]
    finding = f"Epoch {kept} of {len(epochs)} was kept"
    alt = f"Training loss falls from {losses[0]:.3f} to {losses[-1]:.3f} in {len(epochs)} epochs"
    if len(scores) == len(history):
        alone = " by the hashed models alone" if counts else ""
        finding += (
            f": held-out {said.first} {percent(scores[kept - 1])}%{alone}, "
            f"{percent(scores[0])}% after the first"
        )
        alt += f"; held-out {said.first} goes from {percent(scores[0])}% to {percent(scores[-1])}%"

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2 if scores else 1, squeeze=False)[0]
        panels[0].plot(epochs, losses, color=ORANGE, marker="s", linestyle="--")
        panels[0].set_ylabel("training loss (nats a model)")
        if scores:
            panels[1].plot(epochs, [100 * s for s in scores], color=BLUE, marker="o")
            panels[1].set_ylabel(f"held-out {said.first} (%)")
        for axes in panels:
            axes.axvline(kept, color=DARK, linestyle=":", linewidth=1.2)
            axes.set_xlabel("epoch (dotted: kept)")
            axes.margins(x=0.08, y=0.12)
            whole_ticks(axes.xaxis)

    rows = tuple(
        (
            f"{entry.epoch}{' (kept)' if entry.epoch == kept else ''}",
            f"{entry.loss:.4f}",
            percent(entry.accuracy, 2),
            percent(entry.top_5_accuracy, 2),
            f"{entry.rows_per_second:,.0f}",
            percent(entry.waited_share),
            f"{entry.peak_bytes / GB:.2f}",
        )
        for entry in history
    )
    names = (f"{said.first} %", f"{said.five} %")
    header = ("epoch", "loss", *names, "rows/s", "waiting %", "peak GB")
    return drawn("epochs", draw, height=2.5, finding=finding, alt=alt, header=header, rows=rows)


def stages_plot(stages: Sequence[Stage], said: Words = ONE_LABEL) -> Plot | None:
    """Return held-out accuracy over time, a line for each kind of model; None without two points.

    Parameters
    ----------
    stages : sequence of Stage
        What stages reached, in their order.
    said : Words
        What figures are called.
    """
    if len(stages) < 2:
        return None
    best, last = max(stages, key=lambda stage: stage.accuracy), stages[-1]
    near = next(stage for stage in stages if stage.accuracy >= NEAR * best.accuracy)
    finding = (
        f"After {time_text(near.t)} of {time_text(last.t)}, {near.stage} had a held-out "
        f"{said.first} of {percent(near.accuracy)}%; {last.stage}: {percent(last.accuracy)}%"
    )
    alt = f"{len(stages)} points from {stages[0].t:.0f} to {last.t:.0f} s. {finding}"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        names = list(dict.fromkeys(stage.stage for stage in stages))
        for name, (color, mark, dash) in zip(names, itertools.cycle(SERIES), strict=False):
            mine = [stage for stage in stages if stage.stage == name]
            axes.plot([stage.t for stage in mine], [100 * stage.accuracy for stage in mine],
                      color=color, marker=mark, linestyle=dash, label=name)  # fmt: skip
        axes.set_xlabel("time since the start (s)")
        axes.set_ylabel(f"held-out {said.first} (%)")
        axes.set_xlim(left=0)
        axes.margins(y=0.12)
        legend_beside(axes)

    rows = tuple(
        (number(round(stage.t, 1)), stage.stage, percent(stage.accuracy, 2),
         percent(stage.top_5_accuracy, 2))
        for stage in stages
    )  # fmt: skip
    header = ("time s", "stage", f"{said.first} %", f"{said.five} %")
    return drawn("stages", draw, height=2.6, finding=finding, alt=alt, header=header, rows=rows)


def memory_plot(plan: Plan, peak: int, held: dict[str, int]) -> Plot:
    """Return the bytes of each ledger term, projected and, where it was noted, measured.

    Parameters
    ----------
    plan : Plan
        The plan with its ledger.
    peak : int
        The largest resident memory measured.
    held : dict
        Bytes measured, by the ledger's names.
    """
    lines = sorted((x for x in plan.ledger if x.where == "host"), key=lambda x: x.n_bytes)
    names = [line.name for line in lines] + ["sum"]
    projected = [line.n_bytes for line in lines] + [plan.projected_bytes]
    measured = [held.get(line.name) for line in lines] + [peak]
    finding = (
        f"Training took {size_text(peak)} of {size_text(plan.projected_bytes)} projected "
        f"({peak / plan.projected_bytes:.2f}) and {size_text(plan.limits.host)} allowed"
    )
    largest = lines[-1]
    alt = (
        f"{len(lines)} ledger terms on a logarithmic scale; the largest is {largest.name} with "
        f"{size_text(largest.n_bytes)}; the sum is {size_text(plan.projected_bytes)}, "
        f"{size_text(peak)} were measured"
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        places = range(len(names))
        axes.plot([n / GB for n in projected], places, linestyle="none", marker="o",
                  markerfacecolor="none", markeredgecolor=BLUE, markeredgewidth=1.4,
                  markersize=7, label="projected")  # fmt: skip
        known = [(n, y) for n, y in zip(measured, places, strict=True) if n]
        axes.plot([n / GB for n, _ in known], [y for _, y in known], linestyle="none", marker="x",
                  color=VERMILION, markeredgewidth=1.6, label="measured")  # fmt: skip
        axes.axvline(plan.limits.host / GB, color=DARK, linestyle="--", linewidth=1.2,
                     label="allowed")  # fmt: skip
        axes.set_xscale("log")
        axes.set_yticks(list(places), names)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.set_xlabel("memory (GB)")
        found = [n for n in (*projected, *measured) if n]
        plain_log(axes.xaxis, min(found) / GB, plan.limits.host / GB)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)

    rows = tuple(
        (name, f"{p:,}", "-" if m is None else f"{m:,}")
        for name, p, m in reversed(list(zip(names, projected, measured, strict=True)))
    )
    elsewhere = tuple(
        (f"{x.name} ({x.where})", f"{x.n_bytes:,}", "-") for x in plan.ledger if x.where != "host"
    )
    header = ("term", "projected bytes", "measured bytes")
    height = 1.1 + 0.19 * len(names)
    return drawn(
        "memory", draw, height=height, finding=finding, alt=alt, header=header,
        rows=rows + elsewhere,
    )  # fmt: skip


def speed_plot(beats: Sequence[Speed]) -> Plot | None:
    """Return rows per second and the share of time waiting, over time; None without notes."""
    if not beats:
        return None
    step = -(-len(beats) // MOST_POINTS)
    shown = [beats[i : i + step] for i in range(0, len(beats), step)]
    times = [part[-1].t for part in shown]
    speeds = [sum(beat.rows_per_second for beat in part) / len(part) for part in shown]
    waits = [sum(beat.waited_share for beat in part) / len(part) for part in shown]
    finding = (
        f"Training read {min(speeds):,.0f} to {max(speeds):,.0f} rows/s and waited for data "
        f"at most {percent(max(waits))}% of the time"
    )
    alt = f"{len(shown)} points from {times[0]:.0f} to {times[-1]:.0f} s after the start. {finding}"

    def draw(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        mark = "o" if len(times) <= 60 else ""
        above.plot(times, speeds, color=BLUE, marker=mark)
        above.set_ylim(0, 1.15 * max(*speeds, 1.0))
        above.set_ylabel("rows/s")
        thousands(above.yaxis)
        below.plot(times, [100 * w for w in waits], color=GREEN, marker=mark and "^")
        below.set_ylim(0, max(5.0, 115 * max(waits)))
        below.set_ylabel("waiting (%)")
        below.set_xlabel("time since the start (s)")
        for axes in (above, below):
            for before, after in itertools.pairwise(shown):
                if before[-1].epoch != after[0].epoch:
                    middle = (before[-1].t + after[0].t) / 2
                    axes.axvline(middle, color=GREY, linestyle=":", linewidth=0.8)

    rows = tuple(
        (number(round(t, 1)), f"{part[-1].epoch}", f"{speed:,.0f}", percent(wait))
        for t, part, speed, wait in zip(times, shown, speeds, waits, strict=True)
    )
    header = ("time s", "epoch", "rows/s", "waiting %")
    return drawn("speed", draw, height=3.0, finding=finding, alt=alt, header=header, rows=rows)
