"""Plots of a model on labelled rows: figures, reliability, frequency, repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from streammach.frontends.reports import drawing
from streammach.frontends.reports.drawing import Plot, curve, legend_above, percent
from streammach.options.figures import words
from streammach.prediction.diagnose import Diagnosis
from streammach.prediction.metrics import FIRST, LIKELY, PLACES, Reliability, RowGroup

MIN_ROWS = 20  # fewer rows in a bin are drawn hollow: their share is mostly chance
NAMES = {"blend": "counts and hashed (blend)"}
SHOWN = {"P": "precision (P)", "N": "nDCG (N)", "PSP": "propensity-scored (PSP)"}
KINDS = ("P", "N", "R", "PSP", "PSN")
BY_LABELS = ("P@1", "N@5", "R@5")
QUARTERS = {"worst quarter below": 0.25, "best quarter above": 0.75}
COUNT = "{x:,.0f}"  # of ticks: whole numbers with separators
BAR = 0.26  # width of a bar, of the distance of two places


def row_plots(found: Diagnosis) -> tuple[Plot, ...]:
    """Return the plots of what a model does on rows, in their order."""
    if found.sets is not None:
        plots = [figures_plot(found), labels_plot(found), tenths_plot(found)]
        plots += [classes_plot(found), reliability_plot(found), repetitions_plot(found)]
    else:
        plots = [reliability_plot(found), deciles_plot(found), classes_plot(found),
                 repetitions_plot(found)]  # fmt: skip
    return tuple(plot for plot in plots if plot is not None)


def reliability_plot(found: Diagnosis) -> Plot | None:
    """Return stated probability against the share that is right; None without known labels."""
    listed, curves = found.sets is not None, {"after calibration": found.reliability}
    if found.before is not None:
        curves["before calibration"] = found.before
    first, *others = curves.values()
    if not first.bins:
        return None
    stated, right = first.means
    word = "above" if stated > right else "below"
    finding = (
        f"Stated probabilities lie {100 * abs(stated - right):z.1f} points {word} the share right "
        f"on average; ECE {first.ece:z.3f}"
        + "".join(f", before calibration {other.ece:z.3f}" for other in others)
    )
    if listed:
        likely, least = found.likely, percent(LIKELY, 0)
        said = f"No label has a probability of {least}% or more"
        if likely is not None:
            said = (
                f"Labels with a probability of {least}% or more are right in "
                f"{percent(likely.right)}%; stated are {percent(likely.stated)}% on average"
            )
        finding = f"{said}; ECE of the {FIRST} best of each row {first.ece:z.3f}"
    return Plot(
        name="reliability", draw=lambda figure: _draw_reliability(figure, curves, listed=listed),
        height=3.9, finding=finding,
        header=("calibration", "stated %", "right %", "labels" if listed else "rows"),
        rows=tuple(
            (name.split()[0], percent(b.stated), percent(b.right), f"{b.n_rows:,}")
            for name, one in curves.items()
            for b in one.bins
        ),
    )  # fmt: skip


def _draw_reliability(figure: Any, curves: dict[str, Reliability], *, listed: bool) -> None:
    """Draw curves, the first one in front, and how many rows or labels its bins have."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.plot([0, 100], [0, 100], color=drawing.GREY, linewidth=1.0, label="stated = right")
    for (label, one), style in reversed(list(zip(curves.items(), drawing.SERIES, strict=False))):
        x, y = [100 * b.stated for b in one.bins], [100 * b.right for b in one.bins]
        curve(above, x, y, style, few=[b.n_rows < MIN_ROWS for b in one.bins], label=label,
              linewidth=1.2)  # fmt: skip
    above.set(ylabel="right (%)", ylim=(-3, 103))
    legend_above(above)
    bins = next(iter(curves.values())).bins
    sizes = [b.n_rows for b in bins]
    below.bar([100 * b.stated for b in bins], sizes, width=4.5, color=drawing.BLUE)
    whose = "a label" if listed else "the best class"
    below.set(ylabel="labels" if listed else "rows", xlim=(-2, 102),
              xlabel=f"stated probability of {whose} (%)")  # fmt: skip
    if listed:  # most of them are unlikely
        below.set_yscale("log")
        below.set_ylim(min(sizes) / 3, 2 * max(sizes))
        drawing.plain_log(below.yaxis)
    else:
        below.yaxis.set_major_formatter(COUNT)


def _bars_plot(
    name: str, finding: str, shares: Sequence[float | None], groups: Sequence[str], what: str,
    header: tuple[str, ...], rows: Iterable[tuple[str, ...]],
) -> Plot:  # fmt: skip
    """Return bars of recall by groups, frequent ones on top; None has no bar.

    The last of the header says what is drawn, `what` the groups.
    """
    measure = header[-1].removesuffix(" %")

    def draw(figure: Any) -> None:
        axes, places = figure.subplots(), range(len(groups))
        lengths = [100 * (share or 0.0) for share in shares]
        bars = axes.barh(places, lengths, color=drawing.BLUE, height=0.7)
        said = ["" if share is None else percent(share) for share in shares]
        axes.bar_label(bars, labels=said, fontsize=8.5, padding=3)
        axes.set_yticks(places, groups)
        axes.set(xlabel=f"{measure} (%)", ylabel=what, ylim=(len(groups) - 0.5, -0.5),
                 xlim=(0, min(112.0, 1.15 * max(lengths) + 1)))  # fmt: skip
        axes.grid(visible=False, axis="y")

    return Plot(
        name=name, draw=draw, height=0.7 + 0.21 * len(groups), finding=finding,
        header=header, rows=tuple(rows),
    )  # fmt: skip


def deciles_plot(found: Diagnosis) -> Plot | None:
    """Return recall by the frequency of classes; None where no row has a known label."""
    groups = found.recall_by_decile
    recalls = [group.recall for group in groups if group.recall is not None]
    if not recalls:
        return None
    word = "tenth" if len(groups) == 10 else "group"
    return _bars_plot(
        "deciles",
        f"Rows of the most frequent {word} of classes are right in {percent(recalls[0])}%, "
        f"of the rarest in {percent(recalls[-1])}%",
        [group.recall for group in groups],
        [f"{i} ({group.n_rows:,} rows)" for i, group in enumerate(groups, 1)],
        f"{word}s of about {groups[0].n_classes:,} classes\n(1: most frequent in training)",
        ("group", "classes", "rows", "recall at 1 %"),
        ((f"{i}", f"{group.n_classes:,}", f"{group.n_rows:,}", percent(group.recall))
         for i, group in enumerate(groups, 1)),
    )  # fmt: skip


def tenths_plot(found: Diagnosis) -> Plot | None:
    """Return recall at 5 by tenths of labels, frequent ones first; None without known labels."""
    tenths = [one for one in reversed(found.tenths) if not math.isnan(one.recall)]
    if not tenths:
        return None
    word = "tenth" if len(tenths) == 10 else "group"
    return _bars_plot(
        "tenths",
        f"Labels of the most frequent {word} have a recall at 5 of {percent(tenths[0].recall)}%, "
        f"of the rarest {percent(tenths[-1].recall)}%",
        [one.recall for one in tenths], [f"{one.least:,}+ ({one.n_rows:,})" for one in tenths],
        f"{word}s of about {tenths[0].n_labels:,} labels: training rows\n"
        "of each (and how often they occur here)",
        ("training rows", "labels", "occurrences", "recall at 5 %"),
        ((f"{one.least:,} to {one.most:,}", f"{one.n_labels:,}", f"{one.n_rows:,}",
          percent(one.recall, 2)) for one in tenths),
    )  # fmt: skip


def repetitions_plot(found: Diagnosis) -> Plot | None:
    """Return the accuracy of the first repetitions by the way to rank; None with a single one."""
    if not found.depths:
        return None
    what = words(found.sets is not None).first
    counts = [depth.n_repetitions for depth in found.depths]
    names = list(found.depths[0].accuracy)
    before, last = (depth.accuracy[found.estimator] for depth in found.depths[-2:])

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for name, style in zip(names, drawing.SERIES, strict=False):
            curve(axes, counts, [100 * d.accuracy[name] for d in found.depths], style,
                  label=NAMES.get(name, name),
                  markerfacecolor="none" if style[0] == drawing.DARK else style[0])  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_xticks([], minor=True)
        axes.set(xlabel="first repetitions used", ylabel=f"{what} (%)")
        axes.set_ylim(bottom=0)
        legend_above(axes)

    return Plot(
        name="repetitions", draw=draw, height=3.0,
        finding=f"With all {counts[-1]} repetitions {found.estimator} reaches {what} "
                f"{percent(last)}%, {100 * (last - before):+z.1f} points over the first "
                f"{counts[-2]}",
        header=("first repetitions", *(f"{name} {what} %" for name in names)),
        rows=tuple(
            (f"{depth.n_repetitions}", *(percent(depth.accuracy[name], 2) for name in names))
            for depth in found.depths
        ),
    )  # fmt: skip


def figures_plot(found: Diagnosis) -> Plot:
    """Return precision, nDCG and propensity-scored precision at 1, 3 and 5."""
    assert found.sets is not None, "its rows have lists of labels"
    figures, possible = found.sets.by_name(), found.possible
    finding = (
        f"Of the first labels {percent(figures['P@1'])}% are right, of the first five "
        f"{percent(figures['P@5'])}%; the best ranking would have {percent(possible['P@1'])}% and "
        f"{percent(possible['P@5'])}%"
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        colors, places = (drawing.BLUE, drawing.ORANGE, drawing.GREEN), range(len(PLACES))
        for i, ((kind, name), color) in enumerate(zip(SHOWN.items(), colors, strict=True)):
            heights = [100 * figures[f"{kind}@{k}"] for k in PLACES]
            bars = axes.bar([x + (i - 1) * BAR for x in places], heights, width=BAR * 0.92,
                            color=color, label=name)  # fmt: skip
            axes.bar_label(bars, labels=[f"{h:z.1f}" for h in heights], fontsize=8.5, padding=2)
        axes.hlines([100 * possible[f"P@{k}"] for k in PLACES], [x - 1.5 * BAR for x in places],
                    [x - 0.5 * BAR for x in places], color=drawing.DARK,
                    label="best possible P")  # fmt: skip
        axes.set_xticks(places, [f"at {k}" for k in PLACES])
        axes.set(ylim=(0, 108), ylabel="reached (%)")
        axes.grid(visible=False, axis="x")
        legend_above(axes)

    return Plot(
        name="figures", draw=draw, height=3.0, finding=finding,
        header=("k", "best P@k %", *(f"{kind}@k %" for kind in KINDS)),
        rows=tuple(
            (f"{k}", percent(possible[f"P@{k}"], 2),
             *(percent(figures[f"{kind}@{k}"], 2) for kind in KINDS))
            for k in PLACES
        ),
    )  # fmt: skip


def labels_plot(found: Diagnosis) -> Plot | None:
    """Return figures by the number of labels of a row; None where no row has one."""
    groups = [group for group in found.by_labels if group.least]
    if not groups:
        return None
    sure = [group for group in groups if group.n_rows >= MIN_ROWS] or groups
    few, many = sure[0], sure[-1]
    finding = (
        f"Of rows with {_labels(few)} {percent(few.figures['P@1'])}% have a right first one, and "
        f"{percent(few.figures['R@5'])}% of the labels are among the first five"
    )
    if many is not few:
        finding += (
            f"; with {_labels(many)} {percent(many.figures['P@1'])}% and "
            f"{percent(many.figures['R@5'])}%"
        )

    curves = {name: [group.figures[name] for group in groups] for name in BY_LABELS}
    names, sizes = [_size(group) for group in groups], [group.n_rows for group in groups]
    return Plot(
        name="labels", height=3.4, finding=finding,
        draw=lambda figure: _draw_groups(figure, curves, names, sizes, "labels of a row", "rows"),
        header=("labels of a row", "rows", *(f"{name} %" for name in groups[0].figures)),
        rows=tuple(
            (_size(group), f"{group.n_rows:,}", *(percent(x, 2) for x in group.figures.values()))
            for group in found.by_labels
        ),
    )  # fmt: skip


def _draw_groups(
    figure: Any, curves: Mapping[str, Sequence[float]], groups: Sequence[str],
    sizes: Sequence[int], what: str, of: str,
) -> None:  # fmt: skip
    """Draw curves over groups, from few to many, and how many rows or classes each has."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    places, few = range(len(groups)), [size < MIN_ROWS for size in sizes]
    for (name, shares), style in zip(curves.items(), drawing.SERIES, strict=False):
        curve(above, places, [100 * share for share in shares], style, few=few, label=name)
    above.set(ylim=(-3, 103), ylabel="reached (%)")
    legend_above(above)
    below.bar(places, sizes, width=0.6, color=drawing.GREY)
    below.set_xticks(places, groups)
    below.grid(visible=False, axis="x")
    below.set(xlabel=what, ylabel=of)
    below.yaxis.set_major_formatter(COUNT)


def classes_plot(found: Diagnosis) -> Plot | None:
    """Return recall by the rows of a class; None where all have about as many, or none has any."""
    each = found.by_class
    ids = np.zeros(0, np.int64) if each is None else each.ids[each.rows[each.ids] > 0]
    if each is None or not len(ids):
        return None
    figures = each.figures(ids)
    place = np.ceil(np.log2(figures["rows"])).astype(np.int64)  # 1, 2, 3 or more, 5 or more
    groups, sizes = np.unique(place, return_counts=True)
    if len(groups) < 2:
        return None
    recalls = [figures["recall"][place == group] for group in groups]
    names = [f"{2 ** (i - 1) + 1:,}+" if i > 1 else f"{i + 1}" for i in groups.tolist()]
    curves = {
        "mean": [float(own.mean()) for own in recalls],
        **{name: [float(np.quantile(own, q)) for own in recalls] for name, q in QUARTERS.items()},
    }
    what, plural = ("class", "classes") if found.sets is None else ("label", "labels")
    mean = curves["mean"]
    return Plot(
        name="classes", height=3.4,
        finding=f"{plural.capitalize()} with {names[-1]} rows here have a mean recall of "
                f"{percent(mean[-1])}%, those with {names[0]} of {percent(mean[0])}%",
        draw=lambda figure: _draw_groups(
            figure, curves, names, sizes.tolist(), f"rows of a {what}", plural),
        header=("rows here", plural, *(f"{name} recall %" for name in curves)),
        rows=tuple(
            (name, f"{size:,}", *(percent(own[i]) for own in curves.values()))
            for i, (name, size) in enumerate(zip(names, sizes.tolist(), strict=True))
        ),
    )  # fmt: skip


def _labels(group: RowGroup) -> str:
    return f"{_size(group)} label{'' if group.most == 1 else 's'}"


def _size(group: RowGroup) -> str:
    if group.most is None:
        return f"{group.least}+"
    return f"{group.least}" if group.most == group.least else f"{group.least}-{group.most}"
