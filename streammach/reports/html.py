"""The pieces of a page: one file, nothing fetched, nothing run, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from streammach.errors import DiskError
from streammach.files.destinations import Product, not_regular
from streammach.files.reading import read_small
from streammach.reports.drawing import Plot

STYLE = """
body { font: 15px/1.45 system-ui, "DejaVu Sans", Verdana, Arial, sans-serif; color: #222;
  background: #fff; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin-bottom: .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
.verdict { font-size: 1.05rem; border-left: 4px solid #0072B2; padding-left: .8rem; }
figure { margin: 1.8rem 0; break-inside: avoid; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .5rem 0; }
th, td { padding: .15rem .7rem .15rem 0; text-align: right; border-bottom: 1px solid #e2e2e2;
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts th { vertical-align: top; }
summary { cursor: pointer; font-size: .85rem; color: #555; }
.note { font-size: .9rem; color: #444; }
@media print { body { margin: 0; max-width: none; font-size: 11px; }
  details:not([open]) { display: none; } }
"""


MAX_PAGE = 256 << 20
MARK = '<meta name="generator" content="streammach">'


def _foreign(path: Path) -> str | None:
    """Return why a file is not a page of ours; None if it is."""
    why = not_regular(path)
    if why is not None:
        return why
    try:
        ours = MARK.encode() in read_small(path, MAX_PAGE)[:1000]
    except DiskError:
        ours = False
    return None if ours else "it is no page that streammach made"


PAGE = Product("a page", _foreign)


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole document: its title is text, the parts of its body are HTML."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{MARK}\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{text(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Return anything as text of a page: escaped, without characters that cannot be shown."""
    shown = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(value))
    return escape(shown.encode("utf-8", "replace").decode())


def paragraph(content: str, kind: str = "") -> str:
    """Return a paragraph of text, of a class of the style if one is given."""
    return f'<p class="{kind}">{text(content)}</p>' if kind else f"<p>{text(content)}</p>"


def heading(content: str) -> str:
    """Return the heading of a section."""
    return f"<h2>{text(content)}</h2>"


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Return names with their values as a table.

    Parameters
    ----------
    rows : sequence of (str, str)
        Name and value; an empty name goes on with the one above.
    """
    cells = "\n".join(
        f'<tr><th scope="row">{text(name)}</th><td>{text(value)}</td></tr>' for name, value in rows
    )
    return f'<table class="facts">\n{cells}\n</table>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of text."""
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def figure(plot: Plot, *, folded: bool = True) -> str:
    """Return a plot with its finding above and its numbers below.

    Parameters
    ----------
    plot : Plot
        The plot.
    folded : bool
        Whether the numbers are folded at first.
    """
    details = "<details>" if folded else "<details open>"
    return (
        f'<figure id="{plot.name}">\n<figcaption>{text(plot.finding)}</figcaption>\n{plot.svg}\n'
        f"{details}<summary>numbers</summary>\n{table(plot.header, plot.rows)}\n</details>\n"
        "</figure>"
    )
