"""How a plot looks: colours, markers, sizes, ticks; and how it becomes SVG with the same bytes."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from streammach.errors import UsageError

# Okabe and Ito's colours, which stay apart for colour-blind eyes; each has a marker and a dash.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
GREY, DARK = "#767676", "#333333"
SERIES = (
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
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "streammach",
}
STEPS = (1.0, 2.0, 5.0)
FINE_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
WIDTH = 6.6  # of a figure, in inches
NAMESPACE = "http://www.w3.org/2000/svg"
MISSING = "plots need matplotlib"
HOW_TO_INSTALL = 'pip install "streammach[report]"'


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot with what it says.

    Attributes
    ----------
    name : str
        A word for its place on the page.
    finding : str
        What it shows, in a sentence; its title.
    alt : str
        What can be seen, for those who cannot.
    svg : str
        The drawing.
    header, rows : tuple
        Its numbers as a table of text.
    """

    name: str
    finding: str
    alt: str
    svg: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def require() -> None:
    """Refuse to draw without matplotlib.

    Raises
    ------
    UsageError
        Saying how to install it.
    """
    try:
        import matplotlib.figure  # noqa: F401  # an optional library
    except ImportError:
        raise UsageError(MISSING, hint=f"Run: {HOW_TO_INSTALL}") from None


def drawn(
    name: str,
    draw: Callable[[Any], None],
    *,
    height: float,
    finding: str,
    alt: str,
    header: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
) -> Plot:
    """Return a plot whose SVG can stand in a page beside others.

    Parameters
    ----------
    name : str
        Goes before every id, so that figures of a page share none.
    draw : callable
        Draws on the matplotlib figure it is given.
    height : float
        In inches.
    finding, alt, header, rows : str or tuple
        What the plot says.
    """
    require()
    import matplotlib as mpl  # an optional library
    from matplotlib.figure import Figure

    with mpl.rc_context({**mpl.rcParamsDefault, **SETTINGS}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    svg = _inline(out.getvalue(), name, alt)
    return Plot(name=name, finding=finding, alt=alt, svg=svg, header=header, rows=rows)


def _inline(svg: str, name: str, alt: str) -> str:
    """Return the SVG element alone: no prolog, no metadata, no names of other sites, own ids."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+xmlns(:\w+)?=\"[^\"]*\"", "", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1)


def as_file(svg: str) -> str:
    """Return a figure of a page as a document of its own: with the namespace that files need."""
    return svg.replace("<svg ", f'<svg xmlns="{NAMESPACE}" ', 1) + "\n"


def plain_log(axis: Any, low: float, high: float, unit: float = 1.0) -> None:
    """Give a logarithmic axis ticks with plain numbers.

    Parameters
    ----------
    axis : matplotlib axis
        The axis.
    low, high : float
        The data's range.
    unit : float
        What a tick's number is divided by.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # an optional library

    ticks = _log_ticks(low / unit, high / unit)
    axis.set_major_locator(FixedLocator([t * unit for t in ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value / unit)))


def _log_ticks(low: float, high: float) -> list[float]:
    """Return three to eight round numbers around a range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every: list[float] = []
    for steps in ((1.0,), STEPS, FINE_STEPS):
        every = [s * 10.0**e for e in range(first, last + 1) for s in steps]
        inside = [t for t in every if low / 1.3 <= t <= high * 1.3]
        if len(inside) >= 4:
            return inside
    return inside or every


def number(value: float) -> str:
    """Return a number without exponent and without zeros at its end."""
    text = f"{value:,.6f}".rstrip("0").rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"
    return text or "0"


def percent(share: float | None, places: int = 1) -> str:
    """Return a share as a percentage, or a dash where it is not known."""
    return "-" if share is None else f"{100 * share:.{places}f}"


def whole_ticks(axis: Any) -> None:
    """Let an axis have ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator  # an optional library

    axis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))


def thousands(axis: Any) -> None:
    """Write an axis's numbers with separators."""
    from matplotlib.ticker import FuncFormatter  # an optional library

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def legend_beside(axes: Any) -> None:
    """Put the legend to the right of the data."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0.0)
