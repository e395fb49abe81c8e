"""How a plot looks: colours, markers, sizes, ticks; and how it becomes SVG with the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from streammach.system.errors import UsageError

# Okabe and Ito's colours, which stay apart for colour-blind eyes; each has a marker and a dash.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
GREY, DARK = "#767676", "#333333"
GRID, WHITE = "#e2e2e2", "#ffffff"
Style = tuple[str, str, Any]  # colour, marker, dash
SERIES: tuple[Style, ...] = (
    (BLUE, "o", "-"),
    (ORANGE, "s", "--"),
    (GREEN, "^", "-."),
    (VERMILION, "D", ":"),
    (DARK, "v", (0, (5, 1, 1, 1))),
    (GREY, "P", (0, (1, 2))),
)
SETTINGS = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "streammach",
}
STEPS = (1.0, 2.0, 5.0)
WIDTH = 4.5  # of a figure, in inches: letters of 9 points are no smaller on a phone
LETTER, MARK = 0.066, 0.42  # width of a legend's letter and of what stands before it, in inches
ROOM = 4.3  # for a legend, in inches
FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"
# On a dark screen bright and dark change places, and each colour stays what it is.
NIGHT = (
    "@media screen and (prefers-color-scheme: dark) "
    "{ svg[role=img] { filter: invert(.91) hue-rotate(180deg); } }"
)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot with what it says."""

    name: str  # a word for its place on the page
    finding: str  # what it shows, in a sentence; its title
    draw: Callable[[Any], None]  # draws on a figure of matplotlib
    height: float  # of the figure, in inches
    header: tuple[str, ...]  # header, rows: its numbers as a table of text
    rows: tuple[tuple[str, ...], ...]

    @cached_property
    def svg(self) -> str:
        """The drawing, which can stand in a page beside others."""
        return svg_of(self.name, self.draw, height=self.height, alt=f"Plot: {self.finding}")


def require() -> None:
    """Refuse to draw without matplotlib, or raise UsageError."""
    try:
        import matplotlib.figure  # noqa: F401  # an optional library
    except ImportError:
        hint = 'Run: pip install "streammach[report]"'
        raise UsageError("plots need matplotlib", hint=hint) from None


def svg_of(name: str, draw: Callable[[Any], None], *, height: float, alt: str) -> str:
    """Return what is drawn as an element of a page."""
    require()
    import matplotlib as mpl  # an optional library
    from matplotlib.figure import Figure

    with mpl.rc_context({**mpl.rcParamsDefault, **SETTINGS}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return _inline(out.getvalue(), name, alt)


def _inline(svg: str, name: str, alt: str) -> str:
    """Return the SVG element alone: no prolog, no metadata, no names of other sites, own ids."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+xmlns(:\w+)?=\"[^\"]*\"", "", svg)
    svg = svg.replace("xlink:href=", "href=").replace("'DejaVu Sans'", FONTS)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1)


def plain_log(axis: Any, unit: float = 1.0) -> None:
    """Give a logarithmic axis ticks with plain numbers of a unit, a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # an optional library

    axis.set_major_locator(LogLocator(subs=STEPS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value / unit)))


def number(value: float) -> str:
    """Return a number without exponent and without zeros at its end."""
    text = f"{value:z,.6f}".rstrip("0").rstrip(".") if abs(value) < 1000 else f"{value:z,.0f}"
    return text or "0"


def percent(share: float | None, places: int = 1) -> str:
    """Return a share as a percentage, or a dash where it is not known."""
    return "-" if share is None else f"{100 * share:z.{places}f}"


def curve(
    axes: Any, x: Sequence[float], y: Sequence[float], style: Style, *, few: Sequence[bool] = (),
    **more: Any,
) -> None:  # fmt: skip
    """Draw a line; its points of few rows are hollow, since they are mostly chance."""
    color, marker, dash = style
    axes.plot(x, y, color=color, marker=marker, linestyle=dash, **more)
    hollow = [i for i, is_few in enumerate(few) if is_few]
    if hollow:
        axes.plot([x[i] for i in hollow], [y[i] for i in hollow], color=color, linestyle="none",
                  marker=marker, markerfacecolor="white")  # fmt: skip


def legend_above(axes: Any) -> None:
    """Put the legend of axes on top of their figure, in as many columns as there is room for."""
    handles, names = axes.get_legend_handles_labels()
    columns = max(1, int(ROOM / (MARK + LETTER * max(map(len, names)))))
    axes.figure.legend(
        handles, names, loc="outside upper left", ncols=columns, borderaxespad=0.2,
        columnspacing=1.2, handlelength=1.8,
    )  # fmt: skip
