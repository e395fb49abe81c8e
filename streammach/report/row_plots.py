"""Plots of a model on labelled rows: reliability, class frequency, repetitions."""

from __future__ import annotations

from typing import Any

from streammach.prediction.diagnose import Diagnosis
from streammach.report.drawing import (
    BLUE,
    DARK,
    GREY,
    ORANGE,
    SERIES,
    Plot,
    drawn,
    legend_beside,
    percent,
    thousands,
)

MIN_ROWS = 20  # fewer rows in a bin are drawn hollow: their share is mostly chance
NAMES = {"blend": "counts and hashed (blend)"}


def reliability_plot(found: Diagnosis) -> Plot | None:
    """Return stated probability against the share that is right; None without known labels."""
    after, before = found.after, found.before
    if not after.bins:
        return None
    n = sum(b.n_rows for b in after.bins)
    stated = sum(b.n_rows * b.stated for b in after.bins) / n
    right = sum(b.n_rows * b.right for b in after.bins) / n
    word = "above" if stated > right else "below"
    finding = (
        f"Stated probabilities lie {100 * abs(stated - right):.1f} points {word} the share right "
        f"on average; ECE {after.ece:.3f}, before calibration {before.ece:.3f}"
    )
    alt = (
        f"Two curves over {len(after.bins)} bins of stated probability, against the diagonal. "
        f"Mean stated {percent(stated)}%, right {percent(right)}%"
    )

    def draw(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        above.plot([0, 100], [0, 100], color=GREY, linewidth=1.0, label="stated = right")
        for bins, color, marker, dash, label in (
            (before.bins, ORANGE, "s", "--", "before calibration"),
            (after.bins, BLUE, "o", "-", "after calibration"),
        ):
            x, y = [100 * b.stated for b in bins], [100 * b.right for b in bins]
            above.plot(x, y, color=color, linestyle=dash, linewidth=1.2, marker=marker, label=label)
            few = [i for i, b in enumerate(bins) if b.n_rows < MIN_ROWS]
            above.plot([x[i] for i in few], [y[i] for i in few], color=color, linestyle="none",
                       marker=marker, markerfacecolor="white")  # fmt: skip
        above.set_ylabel("right (%)")
        above.set_ylim(-3, 103)
        legend_beside(above)
        below.bar([100 * b.stated for b in after.bins], [b.n_rows for b in after.bins], width=4.5,
                  color=BLUE)  # fmt: skip
        below.set_ylabel("rows")
        thousands(below.yaxis)
        below.set_xlabel("stated probability of the best class (%)")
        below.set_xlim(-2, 102)

    rows = tuple(
        (name, percent(b.stated), percent(b.right), f"{b.n_rows:,}")
        for name, part in (("after", after), ("before", before))
        for b in part.bins
    )
    header = ("calibration", "stated %", "right %", "rows")
    return drawn(
        "reliability", draw, height=3.9, finding=finding, alt=alt, header=header, rows=rows
    )


def deciles_plot(found: Diagnosis) -> Plot | None:
    """Return recall by the frequency of classes; None where no row has a known label."""
    groups = [(i, d) for i, d in enumerate(found.deciles, 1) if d.recall is not None]
    if not groups:
        return None
    (_, frequent), (_, rare) = groups[0], groups[-1]
    word = "tenth" if len(found.deciles) == 10 else "group"
    finding = (
        f"Rows of the most frequent {word} of classes are right in {percent(frequent.recall)}%, "
        f"of the rarest in {percent(rare.recall)}%"
    )
    listed = ", ".join(percent(d.recall) for _, d in groups)
    alt = f"Bars of recall at 1 in percent, from frequent to rare classes: {listed}"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        places = [i for i, _ in groups]
        heights = [100 * (d.recall or 0.0) for _, d in groups]
        bars = axes.bar(places, heights, color=BLUE, width=0.7)
        axes.bar_label(bars, labels=[f"{h:.0f}" for h in heights], fontsize=8.5, padding=2)
        axes.set_xticks(
            range(1, len(found.deciles) + 1),
            [f"{i}\n{d.n_rows:,}" for i, d in enumerate(found.deciles, 1)],
        )
        axes.set_xlim(0.4, len(found.deciles) + 0.6)
        axes.set_ylim(0, min(108.0, 1.18 * max(heights) + 1))
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("recall at 1 (%)")
        axes.set_xlabel(
            f"classes by frequency in training, about {found.deciles[0].n_classes:,} each "
            "(1: most frequent; below: rows)"
        )

    rows = tuple(
        (f"{i}", f"{d.n_classes:,}", f"{d.n_rows:,}", percent(d.recall))
        for i, d in enumerate(found.deciles, 1)
    )
    header = ("group", "classes", "rows", "recall at 1 %")
    return drawn("deciles", draw, height=2.7, finding=finding, alt=alt, header=header, rows=rows)


def repetitions_plot(found: Diagnosis) -> Plot | None:
    """Return the accuracy of the first repetitions by the way to rank; None with a single one."""
    if not found.depths:
        return None
    counts = [depth.n_repetitions for depth in found.depths]
    names = list(found.depths[0].accuracy)
    last, before = found.depths[-1], found.depths[-2]
    gain = 100 * (last.accuracy[found.estimator] - before.accuracy[found.estimator])
    finding = (
        f"{found.estimator.capitalize()} reaches accuracy "
        f"{percent(last.accuracy[found.estimator])}% with {counts[-1]} repetitions, "
        f"{gain:+.1f} points over the first {counts[-2]}"
    )
    alt = f"accuracy against the first {counts[0]} to {counts[-1]} repetitions: " + "; ".join(
        f"{name} {percent(found.depths[0].accuracy[name])}% to {percent(last.accuracy[name])}%"
        for name in names
    )

    def draw(figure: Any) -> None:
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator  # optional

        axes = figure.subplots()
        for name, (color, marker, dash) in zip(names, SERIES, strict=False):
            axes.plot(counts, [100 * d.accuracy[name] for d in found.depths], color=color,
                      marker=marker, linestyle=dash, label=NAMES.get(name, name),
                      markerfacecolor="none" if color == DARK else color)  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_major_formatter(FixedFormatter([str(count) for count in counts]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("first repetitions used")
        axes.set_ylabel("accuracy (%)")
        axes.set_ylim(bottom=0)
        legend_beside(axes)

    rows = tuple(
        (f"{depth.n_repetitions}", *(percent(depth.accuracy[name], 2) for name in names))
        for depth in found.depths
    )
    header = ("first repetitions", *(f"{name} accuracy %" for name in names))
    return drawn(
        "repetitions", draw, height=2.8, finding=finding, alt=alt, header=header, rows=rows
    )
