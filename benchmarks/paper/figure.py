"""The figures: accuracy against model size, the estimators, and what hashes cannot tell apart."""

import textwrap

import numpy as np

from streammach.reports import drawing
from streammach.reports.drawing import GREY, as_file, svg_of

COLOURS = tuple(
    getattr(drawing, name) for name in ("BLUE", "ORANGE", "GREEN", "VERMILION", "PINK", "SKY")
)
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ((0, (6, 2)), (0, (3, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
ESTIMATOR_NAMES = {"logsum": "log-sum", "mean": "unbiased", "median": "median", "min": "min"}
LINE_NAMES = {
    "line/exact": "exact softmax", "line/vw_oaa": "one-vs-all",
    "line/vw_log_multi": "LOMTree", "line/vw_recall_tree": "Recall Tree",
}  # fmt: skip
RATHER = 32  # buckets of the figure of the estimators, where the grid has them
TALL, LINE = 3.3, 60  # inches of a figure, letters of a line of its title


def draw(results, folder):
    """Draw all figures of a results.json; return their file names by what they show."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for what, painter, title in (
        ("accuracy", accuracy, accuracy_title(results)),
        ("estimators", estimators, estimators_title(results, reference(results))),
        ("distinguish", distinguished, distinguished_title(paper_counts(results))),
    ):
        names[what] = f"{what}.svg"
        svg = svg_of(
            what, painted(painter, results, title), height=TALL, alt=title.replace("\n", " ")
        )
        (folder / names[what]).write_text(as_file(svg))
    return names


def painted(painter, results, title):
    lines = [textwrap.fill(line, LINE) for line in title.splitlines()]

    def on(figure):
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=9, weight="bold")
        painter(results, figure.subplots())

    return on


def grids(results):
    found = [step for name, step in results["steps"].items() if name.startswith("grid/")]
    return sorted(found, key=lambda step: step["buckets"])


def compared(results):
    steps = {name: results["steps"].get(name, {"failed": ""}) for name in LINE_NAMES}
    return [(LINE_NAMES[n], step["p_at_1"]) for n, step in steps.items() if "failed" not in step]


def accuracy(results, axes):
    """Draw accuracy of the unbiased estimator against the bytes of the weights."""
    for step, colour, marker in zip(grids(results), COLOURS, MARKERS, strict=False):
        sizes = [point["bytes"] / 1e6 for point in step["points"]]
        right = [100 * point["mean"]["p_at_1"] for point in step["points"]]
        name = f"B = {step['buckets']}, R to {step['points'][-1]['repetitions']}"
        axes.plot(sizes, right, color=colour, marker=marker, ms=5, label=name)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.1 * max(_highest(results)))
    axes.set_xlabel("MB of weights (marks from the left: R = 1, 2, 4, 8, ..)")
    axes.set_ylabel("accuracy, %")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    horizontals(axes, compared(results))
    axes.legend(loc="best", frameon=True, framealpha=1, edgecolor="none")


def _highest(results):
    for step in grids(results):
        yield from (100 * point["mean"]["p_at_1"] for point in step["points"])
    yield from (100 * p for _, p in compared(results))


def horizontals(axes, named):
    """Draw a dashed line for each (name, accuracy), its name at the right, away from others."""
    gap = 0.05 * axes.get_ylim()[1]
    place = -gap
    for (name, p), dashes in zip(sorted(named, key=lambda pair: pair[1]), DASHES, strict=False):
        axes.axhline(100 * p, color=GREY, lw=1, ls=dashes)
        place = max(100 * p, place + gap)
        axes.annotate(
            f"{name} {100 * p:.1f}", (1.0, place), (4, 0), color=GREY, va="center", fontsize=8,
            xycoords=axes.get_yaxis_transform(), textcoords="offset points",
        )  # fmt: skip


def accuracy_title(results):
    step, point = best_point(results)
    text = (
        f"{results['request']['name']}: {step['buckets']} x {point['repetitions']} "
        f"({point['bytes'] / 1e6:,.0f} MB) gets {100 * point['mean']['p_at_1']:.1f}% right"
    )
    named = compared(results)
    if named:
        name, p = max(named, key=lambda pair: pair[1])
        text += f", {name} {100 * p:.1f}%"
    return text


def best_point(results):
    every = [(step, point) for step in grids(results) for point in step["points"]]
    return max(every, key=lambda pair: pair[1]["mean"]["p_at_1"])


def reference(results):
    """Return the grid of 32 buckets, as the paper has it, or the one in the middle."""
    found = grids(results)
    return next((s for s in found if s["buckets"] == RATHER), found[len(found) // 2])


def estimators(results, axes):
    """Draw accuracy and top-5 accuracy against R, a line per estimator."""
    step = reference(results)
    series = list(zip(ESTIMATOR_NAMES.items(), COLOURS, MARKERS, strict=False))
    for (name, label), colour, marker in series:
        points = [point for point in step["points"] if name in point]
        r = [point["repetitions"] for point in points]
        for place, style in (("p_at_1", "-"), ("p_at_5", ":")):
            axes.plot(
                r, [100 * point[name][place] for point in points], style, color=colour,
                marker=marker, ms=5, label=label if style == "-" else None,
            )  # fmt: skip
    for place, text in (("p_at_1", "accuracy"), ("p_at_5", "top-5 accuracy")):
        last = [
            step["points"][-1].get(name, step["points"][-1]["mean"]) for name in ESTIMATOR_NAMES
        ]
        axes.annotate(
            text, (step["points"][-1]["repetitions"], 100 * np.mean([x[place] for x in last])),
            (8, 0), textcoords="offset points", va="center", annotation_clip=False,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"repetitions R, B = {step['buckets']}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("rows right, %")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1), fontsize=8)


def estimators_title(results, step):
    last = step["points"][-1]
    known = {name: last[name] for name in ESTIMATOR_NAMES if name in last}
    shown = ", ".join(
        f"{ESTIMATOR_NAMES[name]} {100 * x['p_at_1']:.1f} / {100 * x['p_at_5']:.1f}"
        for name, x in sorted(known.items(), key=lambda pair: -pair[1]["p_at_5"])
    )
    return f"accuracy / top-5 at R = {last['repetitions']}, {results['request']['name']}:\n{shown}"


def distinguished(results, axes):
    """Draw counted and expected pairs of classes with the same codes."""
    found = paper_counts(results)
    for step, colour, marker in zip(found, COLOURS, MARKERS, strict=False):
        r = [row["repetitions"] for row in step["rows"]]
        axes.plot(
            r, [row["expected"] for row in step["rows"]], color=colour, lw=1,
            label=f"B = {step['buckets']}",
        )  # fmt: skip
        counted = [(row["repetitions"], row["pairs"]) for row in step["rows"] if row["pairs"]]
        axes.plot(*zip(*counted, strict=True), color=colour, marker=marker, ls="none", ms=6)
        at = step["theorem_repetitions"]
        axes.axvline(at, color=colour, lw=1, ls=DASHES[0])
        axes.annotate(
            f"theorem: R = {at}", (at, 0.98), (-3, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", rotation=90, ha="right", va="top", color=colour, fontsize=8,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("repetitions R")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("pairs of classes with the same codes")
    axes.legend(title="marks: counted\nlines: expected", loc="lower left")


def paper_counts(results):
    classes = results["steps"]["data"]["classes"]
    found = [
        step for name, step in results["steps"].items()
        if name.startswith(f"distinguish/{classes}/")
    ]  # fmt: skip
    return sorted(found, key=lambda step: step["buckets"])


def distinguished_title(found):
    buckets = ", ".join(str(step["buckets"]) for step in found)
    enough = ", ".join(str(last_confused(step) + 1) for step in found)
    asked = ", ".join(str(step["theorem_repetitions"]) for step in found)
    return (
        f"{found[0]['classes']:,} classes, B = {buckets}: all {found[0]['draws']} draws tell them "
        f"apart from R = {enough} on; the theorem asks for {asked} (delta {found[0]['delta']:g})"
    )


def last_confused(step):
    """Return the largest R at which some draw had a pair of classes with the same codes."""
    return max((row["repetitions"] for row in step["rows"] if row["draws_with_pairs"]), default=0)
