"""accuracy against the bytes of the model, a plot for each data set.

python -m benchmarks.peers.plot benchmarks/results/peers.json docs
"""

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.peers.table import data_of, file_name

# Okabe and Ito's colours: told apart without red-green vision too.
FAMILIES = {
    "streammach": ("#D55E00", "o"),
    "torch": ("#CC79A7", "D"),
    "omikuji": ("#0072B2", "s"),
    "libpecos": ("#56B4E9", "^"),
    "napkinxc": ("#009E73", "v"),
    "vowpalwabbit": ("#E69F00", "P"),
    "fasttext-wheel": ("#777777", "X"),
}
OTHERS = ("#000000", "*")
HEIGHT, WIDTH, GAP = 0.032, 0.0104, 0.015  # of a line, a letter and a marker, as shares of the plot


def places(points, names):
    """Return where each label begins, near its point and free of others.

    Parameters
    ----------
    points : list of (float, float)
        Places of the markers, as shares of the plot's width and height.
    names : list of str
        The labels.
    """
    boxes = [(x - GAP, x + GAP, y) for x, y in points]
    steps = sorted((n * HEIGHT / 2 for n in range(-16, 17)), key=lambda step: (abs(step), -step))
    out = []
    for (x, y), name in zip(points, names, strict=True):
        found = None
        others = [box for box in boxes if box != (x - GAP, x + GAP, y)]
        for begins, step in ((b, s) for s in steps for b in (x + GAP, x - GAP - WIDTH * len(name))):
            box = (begins, begins + WIDTH * len(name), y + step)
            if (
                box[0] > 0
                and box[1] < 1
                and 0 < box[2] < 1
                and not any(touch(box, o) for o in others)
            ):
                found = box
                break
        found = found or (x + GAP, x + GAP + WIDTH * len(name), y)
        boxes.append(found)
        out.append((found[0], found[2]))
    return out


def touch(a, b):
    """Return whether two boxes (left, right, middle) of a line's height overlap."""
    return a[0] < b[1] and b[0] < a[1] and abs(a[2] - b[2]) < HEIGHT


def draw(name, rows, path):
    """Draw the plot of a data set."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 7.5})
    rows = sorted(rows, key=lambda row: -row["p_at_1"])
    x = np.log10([row["model_bytes"] / 1e6 for row in rows])
    low, high, top = x.min() - 0.45, x.max() + 0.9, 1.1 * rows[0]["p_at_1"]
    figure, axes = pyplot.subplots(figsize=(8, 6), layout="constrained")
    axes.set(
        xscale="log", xlim=(10**low, 10**high), ylim=(0, top),
        xlabel="model, MB", ylabel="accuracy", title=name,
    )  # fmt: skip
    points = [
        ((a - low) / (high - low), row["p_at_1"] / top) for a, row in zip(x, rows, strict=True)
    ]
    labels = places(points, [row["system"] for row in rows])
    inside = {"xycoords": "axes fraction", "textcoords": "axes fraction", "va": "center"}
    for row, point, label in zip(rows, points, labels, strict=True):
        colour, marker = FAMILIES.get(row["package"], OTHERS)
        axes.plot(*point, marker, color=colour, markersize=5, transform=axes.transAxes)
        far = abs(point[1] - label[1]) > HEIGHT
        line = {"arrowprops": {"arrowstyle": "-", "color": colour, "linewidth": 0.5}} if far else {}
        axes.annotate(row["system"], point, label, color=colour, **inside, **line)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={} if str(path).endswith("png") else {"Date": None}, dpi=110)
    pyplot.close(figure)


def main():
    """Draw all plots."""
    results, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for name, systems in data_of(results).items():
        rows = [row for row in systems.values() if "failed" not in row]
        draw(name, rows, folder / file_name(name))


if __name__ == "__main__":
    main()
