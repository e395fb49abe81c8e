"""How plots look: ticks, legends, letters, colours on bright and dark screens."""

import re

import pytest
from msgspec.structs import replace

from benchmarks.picture_files import as_file
from streammach.frontends.reports.drawing import NIGHT, SERIES, plain_log
from streammach.frontends.reports.run_plots import memory_plot
from streammach.system.machine import size_text


def test_plots_are_turned_on_dark_screens(pages, list_page):
    for page in (*pages[:2], list_page.html):
        assert page.count(NIGHT) == 1
        assert "'DejaVu Sans', Verdana" in page
        drawings = re.findall(r"<svg[^>]*>", page)
        assert drawings
        assert all('role="img"' in drawing for drawing in drawings)


def test_letters_of_plots_are_no_smaller_than_nine_pixels_on_a_phone(pages):
    for drawing in re.findall(r"<svg.*?</svg>", pages[1], flags=re.DOTALL):
        width = float(re.search(r'viewBox="0 0 ([0-9.]+) ', drawing)[1])
        sizes = [
            float(size) for size in re.findall(r"font(?:-size)?: (?:\d+ )?([0-9.]+)px", drawing)
        ]
        assert min(sizes) * 366 / width >= 9  # of 390 pixels, without the page's edges


def test_small_terms_of_memory_are_one_bar(run_and_rows):
    run, _ = run_and_rows
    result = replace(run.result, projected_bytes=run.plan.projected_bytes + 200_000_000)
    plot = memory_plot(run.plan, result, {})
    assert ("compiling kernels", "200,000,000", "-") in plot.rows
    assert f"of {size_text(result.projected_bytes)} projected" in plot.finding
    drawn_names = re.findall(r">([^<>]+)</text>", plot.svg)
    host = [line for line in run.plan.ledger if line.where == "host"]
    small = [x for x in host if x.n_bytes < 0.02 * result.projected_bytes]
    assert len(small) > 1
    assert f"{len(small)} smaller ones" in drawn_names
    assert not {x.name for x in small} & set(drawn_names)
    assert {x.name for x in small} <= {row[0] for row in plot.rows}


@pytest.mark.parametrize(("low", "high"), [(0.0003, 2.0), (89.0, 347.0), (5.0, 6.0), (1.0, 9e4)])
def test_ticks_of_a_logarithmic_axis_are_few_round_numbers(low, high):
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    plain_log(axes.xaxis)
    labels = [x.get_text() for x in axes.get_xticklabels() if low <= x.get_position()[0] <= high]
    assert 1 < len(labels) <= 15
    assert all(len(label.replace(",", "").strip("0").strip(".")) <= 4 for label in labels)


def test_series_differ_in_colour_marker_and_dash():
    for kind in zip(*SERIES, strict=True):
        assert len(set(kind)) == len(SERIES)


def test_a_file_has_the_colours_of_dark_screens(run_and_rows):
    run, _ = run_and_rows
    plot = memory_plot(run.plan, run.result, {})
    document = as_file(plot.svg)
    assert "prefers-color-scheme: dark" not in plot.svg  # a page has it once
    assert document.count("@media screen and (prefers-color-scheme: dark)") == 1
    assert document.endswith("</svg>\n")
    assert as_file(memory_plot(run.plan, run.result, {}).svg) == document
