"""Plots of a model on labelled rows: reliability, class frequency, repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streammach.figures import words
from streammach.prediction.diagnosis import LIKELY, Diagnosis, ListDiagnosis
from streammach.prediction.reliability import Bin, Reliability
from streammach.reports.drawing import (
    BLUE,
    DARK,
    GREY,
    ORANGE,
    SERIES,
    Plot,
    drawn,
    legend_beside,
    percent,
    plain_log,
    thousands,
)

MIN_ROWS = 20  # fewer rows in a bin are drawn hollow: their share is mostly chance
NAMES = {"blend": "counts and hashed (blend)"}


def reliability_plot(found: Diagnosis | ListDiagnosis) -> Plot | None:
    """Return stated probability against the share that is right; None without known labels."""
    listed, curves = isinstance(found, ListDiagnosis), _curves(found)
    first, *others = curves.values()
    if not first.bins:
        return None
    stated, right = first.means
    word = "above" if stated > right else "below"
    finding = (
        f"Stated probabilities lie {100 * abs(stated - right):.1f} points {word} the share right "
        f"on average; ECE {first.ece:.3f}"
        + "".join(f", before calibration {other.ece:.3f}" for other in others)
    )
    if isinstance(found, ListDiagnosis):
        finding = f"{_likely_text(found.likely)}; ECE of all {first.ece:.3f}"
    alt = (
        f"{'Two curves' if others else 'A curve'} over {len(first.bins)} bins of stated "
        f"probability, against the diagonal. Mean stated {percent(stated)}%, right "
        f"{percent(right)}%"
    )
    rows = tuple(
        (name.split()[0], percent(b.stated), percent(b.right), f"{b.n_rows:,}")
        for name, part in curves.items()
        for b in part.bins
    )
    header = ("calibration", "stated %", "right %", "candidates" if listed else "rows")
    return drawn(
        "reliability", lambda figure: _draw_reliability(figure, curves, listed=listed),
        height=3.9, finding=finding, alt=alt, header=header, rows=rows,
    )  # fmt: skip


def _curves(found: Diagnosis | ListDiagnosis) -> dict[str, Reliability]:
    """Return what is drawn, that of the model first."""
    after = "after calibration"
    if isinstance(found, ListDiagnosis):
        return {after: found.reliability}
    return {after: found.after, "before calibration": found.before}


def _likely_text(likely: Bin | None) -> str:
    if likely is None:
        return f"No label has a probability of {percent(LIKELY, 0)}% or more"
    return (
        f"Labels with a probability of {percent(LIKELY, 0)}% or more are right in "
        f"{percent(likely.right)}%; stated are {percent(likely.stated)}% on average"
    )


def _draw_reliability(figure: Any, curves: dict[str, Reliability], *, listed: bool) -> None:
    """Draw curves, the first one in front, and how many rows or candidates its bins have."""
    styles = ((BLUE, "o", "-"), (ORANGE, "s", "--"))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.plot([0, 100], [0, 100], color=GREY, linewidth=1.0, label="stated = right")
    behind_first = reversed(list(zip(curves.items(), styles, strict=False)))
    for (label, part), (color, marker, dash) in behind_first:
        x, y = [100 * b.stated for b in part.bins], [100 * b.right for b in part.bins]
        above.plot(x, y, color=color, linestyle=dash, linewidth=1.2, marker=marker, label=label)
        few = [i for i, b in enumerate(part.bins) if b.n_rows < MIN_ROWS]
        above.plot([x[i] for i in few], [y[i] for i in few], color=color, linestyle="none",
                   marker=marker, markerfacecolor="white")  # fmt: skip
    above.set_ylabel("right (%)")
    above.set_ylim(-3, 103)
    legend_beside(above)
    bins = next(iter(curves.values())).bins
    below.bar([100 * b.stated for b in bins], [b.n_rows for b in bins], width=4.5, color=BLUE)
    below.set_ylabel("candidates" if listed else "rows")
    if listed:  # most of them are unlikely
        below.set_yscale("log")
        fewest, most = min(b.n_rows for b in bins), max(b.n_rows for b in bins)
        below.set_ylim(fewest / 3, 2 * most)
        plain_log(below.yaxis, fewest / 3, most)
    else:
        thousands(below.yaxis)
    whose = "a label" if listed else "the best class"
    below.set_xlabel(f"stated probability of {whose} (%)")
    below.set_xlim(-2, 102)


@dataclass(frozen=True)
class Bars:
    """Bars of shares by groups.

    Attributes
    ----------
    shares : list of (int, float)
        Place, from 1, and height.
    ticks : list of str
        What stands below the places.
    xlabel, ylabel : str
        What is drawn.
    """

    shares: list[tuple[int, float]]
    ticks: list[str]
    xlabel: str
    ylabel: str

    def draw(self, figure: Any) -> None:
        """Draw them."""
        axes = figure.subplots()
        heights = [100 * share for _, share in self.shares]
        bars = axes.bar([place for place, _ in self.shares], heights, color=BLUE, width=0.7)
        axes.bar_label(bars, labels=[f"{h:.0f}" for h in heights], fontsize=8.5, padding=2)
        axes.set_xticks(range(1, len(self.ticks) + 1), self.ticks)
        axes.set_xlim(0.4, len(self.ticks) + 0.6)
        axes.set_ylim(0, min(108.0, 1.18 * max(heights) + 1))
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(self.ylabel)
        axes.set_xlabel(self.xlabel)


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

    ticks = [f"{i}\n{d.n_rows:,}" for i, d in enumerate(found.deciles, 1)]
    xlabel = (
        f"classes by frequency in training, about {found.deciles[0].n_classes:,} each "
        "(1: most frequent; below: rows)"
    )
    bars = Bars([(i, d.recall or 0.0) for i, d in groups], ticks, xlabel, "recall at 1 (%)")
    rows = tuple(
        (f"{i}", f"{d.n_classes:,}", f"{d.n_rows:,}", percent(d.recall))
        for i, d in enumerate(found.deciles, 1)
    )
    header = ("group", "classes", "rows", "recall at 1 %")
    return drawn(
        "deciles", bars.draw, height=2.7, finding=finding, alt=alt, header=header, rows=rows
    )


def repetitions_plot(found: Diagnosis | ListDiagnosis) -> Plot | None:
    """Return the accuracy of the first repetitions by the way to rank; None with a single one."""
    if not found.depths:
        return None
    what = words(isinstance(found, ListDiagnosis)).first
    counts = [depth.n_repetitions for depth in found.depths]
    names = list(found.depths[0].accuracy)
    last, before = found.depths[-1], found.depths[-2]
    gain = 100 * (last.accuracy[found.estimator] - before.accuracy[found.estimator])
    finding = (
        f"{found.estimator.capitalize()} reaches {what} "
        f"{percent(last.accuracy[found.estimator])}% with {counts[-1]} repetitions, "
        f"{gain:+.1f} points over the first {counts[-2]}"
    )
    alt = f"{what} against the first {counts[0]} to {counts[-1]} repetitions: " + "; ".join(
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
        axes.set_ylabel(f"{what} (%)")
        axes.set_ylim(bottom=0)
        legend_beside(axes)

    rows = tuple(
        (f"{depth.n_repetitions}", *(percent(depth.accuracy[name], 2) for name in names))
        for depth in found.depths
    )
    header = ("first repetitions", *(f"{name} {what} %" for name in names))
    return drawn(
        "repetitions", draw, height=2.8, finding=finding, alt=alt, header=header, rows=rows
    )
