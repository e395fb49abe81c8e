"""Plots of a model on rows with lists of labels: figures, labels by frequency, rows by labels."""

from __future__ import annotations

import math
from typing import Any

from streammach.prediction.diagnose_lists import ListDiagnosis, RowGroup
from streammach.prediction.set_metrics import PLACES
from streammach.reports.drawing import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    SERIES,
    Plot,
    drawn,
    legend_above,
    percent,
    thousands,
)
from streammach.reports.row_plots import MIN_ROWS, Bars

SHOWN = {"P": "precision (P)", "N": "nDCG (N)", "PSP": "propensity-scored (PSP)"}
KINDS = ("P", "N", "R", "PSP", "PSN")
BY_LABELS = ("P@1", "N@5", "R@5")
BAR = 0.26  # width of a bar, of the distance of two places


def figures_plot(found: ListDiagnosis) -> Plot:
    """Return precision, nDCG and propensity-scored precision at 1, 3 and 5."""
    figures, possible = found.figures, found.possible
    finding = (
        f"Of the first labels {percent(figures['P@1'])}% are right, of the first five "
        f"{percent(figures['P@5'])}%; the best ranking would have {percent(possible['P@1'])}% and "
        f"{percent(possible['P@5'])}%"
    )
    shown = [f"{kind}@{k} {percent(figures[f'{kind}@{k}'])}%" for kind in SHOWN for k in PLACES]
    alt = f"Bars at 1, 3 and 5, and marks where the best precision lies: {', '.join(shown)}"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        colors, places = (BLUE, ORANGE, GREEN), range(len(PLACES))
        for i, ((kind, name), color) in enumerate(zip(SHOWN.items(), colors, strict=True)):
            heights = [100 * figures[f"{kind}@{k}"] for k in PLACES]
            bars = axes.bar([x + (i - 1) * BAR for x in places], heights, width=BAR * 0.92,
                            color=color, label=name)  # fmt: skip
            axes.bar_label(bars, labels=[f"{h:.1f}" for h in heights], fontsize=8.5, padding=2)
        axes.hlines([100 * possible[f"P@{k}"] for k in PLACES], [x - 1.5 * BAR for x in places],
                    [x - 0.5 * BAR for x in places], color=DARK,
                    label="best possible P")  # fmt: skip
        axes.set_xticks(places, [f"at {k}" for k in PLACES])
        axes.set_ylim(0, 108)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("reached (%)")
        legend_above(axes)

    rows = tuple(
        (f"{k}", percent(possible[f"P@{k}"], 2),
         *(percent(figures[f"{kind}@{k}"], 2) for kind in KINDS))
        for k in PLACES
    )  # fmt: skip
    header = ("k", "best P@k %", *(f"{kind}@k %" for kind in KINDS))
    return drawn("figures", draw, height=3.0, finding=finding, alt=alt, header=header, rows=rows)


def tenths_plot(found: ListDiagnosis) -> Plot | None:
    """Return recall at 5 by tenths of labels, frequent ones first; None without known labels."""
    tenths = [one for one in reversed(found.tenths) if not math.isnan(one.recall)]
    if not tenths:
        return None
    word = "tenth" if len(tenths) == 10 else "group"
    finding = (
        f"Labels of the most frequent {word} have a recall at 5 of {percent(tenths[0].recall)}%, "
        f"of the rarest {percent(tenths[-1].recall)}%"
    )
    listed = ", ".join(percent(one.recall) for one in tenths)
    alt = f"Bars of recall at 5 in percent, from frequent to rare labels: {listed}"
    bars = Bars(
        [one.recall for one in tenths],
        [f"{one.least:,}+ ({one.n_rows:,})" for one in tenths],
        "mean recall at 5 (%)",
        f"{word}s of about {tenths[0].n_labels:,} labels: training rows\n"
        "of each (and how often they occur here)",
    )
    rows = tuple(
        (f"{one.least:,} to {one.most:,}", f"{one.n_labels:,}", f"{one.n_rows:,}",
         percent(one.recall, 2))
        for one in tenths
    )  # fmt: skip
    header = ("training rows", "labels", "occurrences", "recall at 5 %")
    return drawn(
        "tenths", bars.draw, height=bars.height, finding=finding, alt=alt, header=header, rows=rows
    )


def labels_plot(found: ListDiagnosis) -> Plot | None:
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
    alt = f"Curves over {len(groups)} groups of rows. " + "; ".join(
        f"{name} {', '.join(percent(group.figures[name]) for group in groups)}"
        for name in BY_LABELS
    )
    rows = tuple(
        (_size(group), f"{group.n_rows:,}", *(percent(x, 2) for x in group.figures.values()))
        for group in found.by_labels
    )
    header = ("labels of a row", "rows", *(f"{name} %" for name in groups[0].figures))
    return drawn(
        "labels", lambda figure: _draw_groups(figure, groups), height=3.4, finding=finding,
        alt=alt, header=header, rows=rows,
    )  # fmt: skip


def _draw_groups(figure: Any, groups: list[RowGroup]) -> None:
    """Draw what groups of rows reach, and how many rows they have."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    places = range(len(groups))
    for name, (color, marker, dash) in zip(BY_LABELS, SERIES, strict=False):
        y = [100 * group.figures[name] for group in groups]
        above.plot(places, y, color=color, marker=marker, linestyle=dash, label=name)
        few = [i for i, group in enumerate(groups) if group.n_rows < MIN_ROWS]
        above.plot(few, [y[i] for i in few], color=color, linestyle="none", marker=marker,
                   markerfacecolor="white")  # fmt: skip
    above.set_ylim(-3, 103)
    above.set_ylabel("reached (%)")
    legend_above(above)
    below.bar(places, [group.n_rows for group in groups], width=0.6, color=GREY)
    below.set_xticks(places, [_size(group) for group in groups])
    below.grid(visible=False, axis="x")
    below.set_ylabel("rows")
    below.set_xlabel("labels of a row")
    thousands(below.yaxis)


def _labels(group: RowGroup) -> str:
    return f"{_size(group)} label{'' if group.most == 1 else 's'}"


def _size(group: RowGroup) -> str:
    if group.most is None:
        return f"{group.least}+"
    return f"{group.least}" if group.most == group.least else f"{group.least}-{group.most}"
