"""Accuracy against the bytes of the model, a plot for each data set.

    python -m benchmarks.peers.plot [--results benchmarks/results] [--out docs]

Other systems are those of peers.json. Of streammach there are the models that --time left
(frontier.json), the whole one and that without counts (peers.json), and what shrink made of a whole
one (sizes.json), where they were measured. Nothing is measured anew, and the same files give the
same bytes.
"""

import argparse
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers.table import data_of, file_name
from benchmarks.picture_files import as_file
from streammach.frontends.reports import drawing as on_paper
from streammach.frontends.reports.drawing import DARK, plain_log, svg_of
from streammach.system.machine import size_text, time_text

OURS = "streammach"
SKY, PINK = "#56B4E9", "#CC79A7"  # of Okabe and Ito, as the colours of reports
FAMILIES = {
    OURS: (on_paper.VERMILION, "o"),
    "torch": (PINK, "D"),
    "omikuji": (on_paper.BLUE, "s"),
    "libpecos": (SKY, "^"),
    "napkinxc": (on_paper.GREEN, "v"),
    "vowpalwabbit": (on_paper.ORANGE, "P"),
    "fasttext-wheel": (on_paper.GREY, "X"),
}
OTHERS = (DARK, "*")
SHORT = {
    "Omikuji Parabel, 3 trees, scaled": "Omikuji, scaled",
    "Omikuji Parabel, 3 trees": "Omikuji Parabel",
    "Omikuji Bonsai, 3 trees": "Omikuji Bonsai",
    "PECOS XLinear, scaled": "PECOS, scaled",
    "PECOS XLinear": "PECOS",
    "PyTorch EmbeddingBag MACH": "PyTorch MACH",
    "VW LOMTree (--log_multi)": "VW LOMTree",
    "VW one against all": "VW OAA",
    "scikit-learn LDA": "sklearn LDA",
    "scikit-learn SGD OVR": "sklearn SGD",
    "streammach": "streammach, whole",
    "streammach --counts off": "streammach, no counts",
}  # what plots have room for
SIZES = {"callees": "Linux callees"}  # names of data in sizes.json, where they are others
LEFT, SHRUNK = "streammach, as --time leaves it", "streammach, whole, made smaller"
NEAR = 0.01  # of an accuracy: about as good
SHOWN = 0.5  # of the best accuracy: what is less is named below the plot
TALL = 4.9  # of a picture, in inches
HEIGHT, LETTER, GAP = 0.033, 0.0162, 0.018  # of a line, a letter, a marker: shares of the plot


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A model in a plot: what it is called, whose it is, where it lies."""

    label: str
    package: str
    x: float
    y: float


def peers_of(rows, key):
    found = [row for row in rows if "failed" not in row and key(row)]
    return [
        Mark(label=SHORT.get(row["system"], row["system"]), package=row["package"], x=key(row),
             y=row["p_at_1"])
        for row in sorted(found, key=lambda row: -row["p_at_1"])
    ]  # fmt: skip


def left(rows, key):
    """Return what --time left, by time."""
    found = [row for row in rows if "failed" not in row]
    return [
        Mark(
            label=time_text(row["asked"]).removesuffix(" 00 s"),
            package=OURS,
            x=row[key],
            y=row["accuracy"],
        )
        for row in sorted(found, key=lambda row: row["asked"])
    ]


def shrunk(rows):
    """Return what shrink made of a model, by size, the whole one last."""
    sizes = {row["bytes"]: row["p_at_1"] for row in rows}
    return [Mark(label="", package=OURS, x=x, y=y) for x, y in sorted(sizes.items())]


def finding(name, marks, said):
    """Return what a plot shows: the first of ours that is about as good as our best, and a rival.

    `said` gives a place on the axis as text.
    """
    best = max((m for m in marks if m.package != OURS), key=lambda mark: mark.y)
    ours = [mark for mark in marks if mark.package == OURS]
    most = max(mark.y for mark in ours)
    one = min((mark for mark in ours if mark.y >= most - NEAR), key=lambda mark: mark.x)
    texts = [f"streammach is right in {100 * one.y:.1f}% {said(one.x)}",
             f"{best.label} in {100 * best.y:.1f}% {said(best.x)}"]  # fmt: skip
    tail = "the best of the others" if one.y > best.y else "the best of all"
    return f"{name}: {texts[0]}; {texts[1]}, {tail}"


def places(points, names, others=()):
    """Return where each label begins or ends, near its point and free of others, and which end.

    Places are shares of the plot's width and height; `others` are markers without a label.
    """
    boxes = [(x - GAP, x + GAP, y) for x, y in [*points, *others]]
    steps = sorted((n * HEIGHT / 2 for n in range(-16, 17)), key=lambda step: (abs(step), -step))
    out = []
    for (x, y), name in zip(points, names, strict=True):
        own, size = (x - GAP, x + GAP, y), LETTER * len(name)
        taken = [box for box in boxes if box != own]
        free = [
            (begins, begins + size, y + step)
            for step in steps
            for begins in (x + GAP, x - GAP - size)
            if begins > 0 and begins + size < 1 and 0 < y + step < 1
        ]
        clear = (box for box in free if not any(touch(box, one) for one in taken))
        box = next(clear, free[0] if free else (x + GAP, x + GAP + size, y))
        boxes.append(box)
        out.append((box[0], box[2], "left") if box[0] > x else (box[1], box[2], "right"))
    return out


def touch(a, b):
    """Return whether two boxes (left, right, middle) of a line's height overlap."""
    return a[0] < b[1] and b[0] < a[1] and abs(a[2] - b[2]) < HEIGHT


def draw(name, marks, axis, path, lines=()):
    """Draw a plot: what has a marker and a label, and lines of ours (name, style, places).

    `axis` is its text, what its numbers are divided by, and what gives a number as text.
    """
    text, unit, said = axis
    title = finding(name, marks, said)
    least = SHOWN * max(mark.y for mark in marks)
    below = [mark.label for mark in marks if mark.y < least]
    marks = [mark for mark in marks if mark.y >= least]
    if below:
        beneath = f"Not shown, right in less than {100 * least:.0f}%: {', '.join(below)}"
        text = f"{text}\n\n{textwrap.fill(beneath, 58)}"
    every = [*marks, *(mark for _, _, line in lines for mark in line)]
    x = np.log10([mark.x for mark in every])
    low, high = x.min() - 0.2, x.max() + 0.3
    top = max(mark.y for mark in every)
    bottom, top = least - 0.02 * top, 1.06 * top

    def on(figure):
        axes = figure.subplots()
        figure.suptitle(textwrap.fill(title, 58), x=0.01, ha="left", fontsize=9, weight="bold")
        axes.set(
            xscale="log", xlim=(10**low, 10**high), ylim=(100 * bottom, 100 * top), xlabel=text
        )
        axes.set_ylabel("accuracy (%)")
        plain_log(axes.xaxis, unit)
        ours, _ = FAMILIES[OURS]
        for called, style, line in lines:
            axes.plot([m.x for m in line], [100 * m.y for m in line], style, color=ours,
                      linewidth=1.2, markersize=5, label=called)  # fmt: skip
        points, bare = (
            [((np.log10(m.x) - low) / (high - low), (m.y - bottom) / (top - bottom)) for m in some]
            for some in (marks, every[len(marks) :])
        )
        labels = places(points, [mark.label for mark in marks], bare)
        for mark, point, (*place, end) in zip(marks, points, labels, strict=True):
            colour, marker = FAMILIES.get(mark.package, OTHERS)
            axes.plot(mark.x, 100 * mark.y, marker, color=colour, markersize=5)
            far = abs(point[1] - place[1]) > HEIGHT
            line = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkB": 3}
            axes.annotate(
                mark.label, point, place, color=ours if mark.package == OURS else DARK, ha=end,
                fontsize=8, xycoords="axes fraction", textcoords="axes fraction", va="center",
                arrowprops=line if far else None,
            )  # fmt: skip
        if lines:
            figure.legend(loc="outside lower left", handlelength=1.8)

    alt = f"{title}. {len(marks)} models by accuracy and {axis[0]}."
    path.write_text(as_file(svg_of(path.stem, on, height=TALL, alt=alt)))
    print(f"{path}: {title}")


def sizes_of(name, peers, frontier, sizes):
    """Return the models of a data set by their bytes, and lines of ours."""
    systems = peers_of(peers[name].values(), lambda row: row.get("model_bytes"))
    times = left(frontier.get(name, {}).values(), "model_bytes")
    smaller = shrunk(sizes.get(SIZES.get(name, name), {}).values())
    lines = [(LEFT, "o", times), (SHRUNK, "d:", smaller)]
    return [*systems, *times], [line for line in lines if line[2]]


def options(text):
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    return parser


def main():
    given = options(__doc__).parse_args()
    peers, frontier, sizes = (
        data_of(json.loads((given.results / f"{file}.json").read_text()))
        for file in ("peers", "frontier", "sizes")
    )
    axis = ("model (MB)", 1e6, lambda n_bytes: f"with {size_text(n_bytes)}")
    for name in peers:
        marks, lines = sizes_of(name, peers, frontier, sizes)
        draw(name, marks, axis, given.out / file_name(name), lines)


if __name__ == "__main__":
    main()
