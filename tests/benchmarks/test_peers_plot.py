"""The pictures of the benchmarks: what they draw, where labels lie, what their titles say."""

import html
import json
import re
from pathlib import Path

import pytest

from benchmarks.peers import plot
from benchmarks.peers.table import data_of, file_name

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
PEERS, FRONTIER, SIZES = (
    data_of(json.loads((RESULTS / f"{name}.json").read_text()))
    for name in ("peers", "frontier", "sizes")
)


def words_of(path):
    """All text of a picture, and what it says of itself."""
    svg = path.read_text()
    texts = re.findall(r"<text[^>]*>(.*?)</text>", svg, flags=re.DOTALL)
    label = re.search(r'aria-label="([^"]*)"', svg)[1]
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", t) for t in texts)), html.unescape(label)


def said(n_bytes):
    return f"with {plot.size_text(n_bytes)}"


@pytest.mark.parametrize("name", PEERS)
def test_pictures_of_sizes_are_those_of_the_files(name):
    marks, lines = plot.sizes_of(name, PEERS, FRONTIER, SIZES)
    drawn, label = words_of(DOCS / file_name(name))
    assert label.startswith(plot.finding(name, marks, said))
    flat = " ".join(drawn.split())
    assert all(mark.label in flat for mark in marks if " " not in mark.label)
    assert all(called in flat for called, _, _ in lines)
    small = [mark for mark in marks if mark.label in ("10 min", "3 min")]
    assert bool(small) == (name in FRONTIER)
    assert all(mark.x < 1e8 for mark in small)


@pytest.mark.parametrize("name", FRONTIER)
def test_pictures_of_times_are_those_of_the_files(name):
    path = DOCS / file_name(name).replace("benchmarks-", "frontier-")
    drawn, label = words_of(path)
    times = plot.left(FRONTIER[name].values(), "train_seconds")
    assert all(mark.label in " ".join(drawn.split()) for mark in times)
    assert label.startswith(f"{name}: ")
    assert "processor seconds of training" in drawn


def mark(label, package, x, y):
    return plot.Mark(label=label, package=package, x=x, y=y)


def test_a_title_names_the_small_one_of_ours_and_the_best_of_the_others():
    marks = [
        mark("10 min", plot.OURS, 80e6, 0.617), mark("whole", plot.OURS, 1200e6, 0.62),
        mark("1 min", plot.OURS, 20e6, 0.58), mark("Parabel", "omikuji", 600e6, 0.581),
        mark("LOMTree", "vowpalwabbit", 1e9, 0.1),
    ]  # fmt: skip
    assert plot.finding("calls", marks, said) == (
        "calls: streammach is right in 61.7% with 80 MB; Parabel in 58.1% with 600 MB, the best of "
        "the others"
    )
    marks[-2] = mark("Parabel", "omikuji", 600e6, 0.7)
    assert plot.finding("calls", marks, said).endswith("; Parabel in 70.0% with 600 MB, the best "
                                                       "of all")  # fmt: skip


def test_labels_lie_beside_their_points_and_not_upon_each_other():
    points = [(0.1, 0.5), (0.12, 0.5), (0.98, 0.9), (0.5, 0.2)]
    names = ["one", "two", "the last one", "three"]
    found = plot.places(points, names, others=[(0.55, 0.2)])
    boxes = []
    for (x, y, end), name in zip(found, names, strict=True):
        size = plot.LETTER * len(name)
        boxes.append((x, x + size, y) if end == "left" else (x - size, x, y))
    assert found[2][2] == "right"
    assert all(left > 0 and right < 1 for left, right, _ in boxes)
    others = [(x - plot.GAP, x + plot.GAP, y) for x, y in [*points, (0.55, 0.2)]]
    for i, box in enumerate(boxes):
        assert not any(plot.touch(box, other) for other in [*boxes[:i], *boxes[i + 1 :]])
        assert not any(plot.touch(box, one) for j, one in enumerate(others) if j != i)


def test_the_same_figures_give_the_same_bytes(tmp_path):
    pytest.importorskip("matplotlib")
    marks = [mark("1 min", plot.OURS, 2e7, 0.58), mark("<Parabel>", "omikuji", 6e8, 0.5),
             mark("LOMTree", "vowpalwabbit", 1e9, 0.1)]  # fmt: skip
    axis, line = ("model (MB)", 1e6, said), [("left", "o", marks[:1])]
    for file in ("a", "b"):
        (tmp_path / file).mkdir()
        plot.draw("calls", marks, axis, tmp_path / file / "x.svg", line)
    drawn = (tmp_path / "a" / "x.svg").read_text()
    assert drawn == (tmp_path / "b" / "x.svg").read_text()
    assert "Not shown, right in less than 29%: LOMTree" in drawn
    assert "&lt;Parabel&gt;" in drawn
    assert "<Parabel>" not in drawn
