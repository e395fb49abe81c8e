"""Plots of a model on labelled rows: reliability, class frequency, repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streammach.figures import words
from streammach.prediction.diagnose import Diagnosis
from streammach.prediction.diagnose_lists import LIKELY, ListDiagnosis
from streammach.prediction.sums import Bin, Reliability
from streammach.reports.drawing import (
    BLUE,
    DARK,
    GREY,
    ORANGE,
    SERIES,
    Plot,
    drawn,
    legend_above,
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
    legend_above(above)
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
    """Bars of shares by groups, from the top down."""

    shares: list[float | None]  # their lengths; None without a bar
    names: list[str]  # what stands before them
    xlabel: str  # xlabel, ylabel: what is drawn
    ylabel: str

    @property
    def height(self) -> float:
        """Inches that they need."""
        return 0.7 + 0.21 * len(self.names)

    def draw(self, figure: Any) -> None:
        """Draw them."""
        axes, places = figure.subplots(), range(len(self.names))
        lengths = [100 * (share or 0.0) for share in self.shares]
        bars = axes.barh(places, lengths, color=BLUE, height=0.7)
        said = ["" if share is None else f"{100 * share:.1f}" for share in self.shares]
        axes.bar_label(bars, labels=said, fontsize=8.5, padding=3)
        axes.set_yticks(places, self.names)
        axes.set_ylim(len(self.names) - 0.5, -0.5)
        axes.set_xlim(0, min(112.0, 1.15 * max(lengths) + 1))
        axes.grid(visible=False, axis="y")
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
    bars = Bars(
        [d.recall for d in found.deciles],
        [f"{i} ({d.n_rows:,} rows)" for i, d in enumerate(found.deciles, 1)],
        "recall at 1 (%)",
        f"{word}s of about {found.deciles[0].n_classes:,} classes\n(1: most frequent in training)",
    )
    rows = tuple(
        (f"{i}", f"{d.n_classes:,}", f"{d.n_rows:,}", percent(d.recall))
        for i, d in enumerate(found.deciles, 1)
    )
    header = ("group", "classes", "rows", "recall at 1 %")
    return drawn(
        "deciles", bars.draw, height=bars.height, finding=finding, alt=alt, header=header,
        rows=rows,
    )  # fmt: skip


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
        f"With all {counts[-1]} repetitions {found.estimator} reaches {what} "
        f"{percent(last.accuracy[found.estimator])}%, {gain:+.1f} points over the first "
        f"{counts[-2]}"
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
        legend_above(axes)

    rows = tuple(
        (f"{depth.n_repetitions}", *(percent(depth.accuracy[name], 2) for name in names))
        for depth in found.depths
    )
    header = ("first repetitions", *(f"{name} {what} %" for name in names))
    return drawn(
        "repetitions", draw, height=3.0, finding=finding, alt=alt, header=header, rows=rows
    )
