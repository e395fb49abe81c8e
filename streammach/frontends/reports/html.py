"""The pieces of a page: one file, nothing fetched, nothing run, everything escaped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from streammach.frontends.reports.drawing import NIGHT, Plot
from streammach.training.run import MARK

STYLE = """
:root { color-scheme: light dark; --text: #222; --soft: #505050; --ground: #fff; --line: #e2e2e2;
  --mark: #0072b2; --up: #4a9be0; --down: #e08a2e; }
@media screen and (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --soft: #a9b0ba;
  --ground: #16191d; --line: #353b43; --mark: #56b4e9;
  --up: #2f86cf; --down: #c06a10; } }
body { font: 15px/1.45 system-ui, "DejaVu Sans", Verdana, Arial, sans-serif; color: var(--text);
  background: var(--ground); max-width: 66rem; margin: 1.5rem auto; padding: 0 .75rem; }
h1 { font-size: 1.3rem; margin-bottom: .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
p { max-width: 46rem; overflow-wrap: break-word; }
.verdict { border-left: 4px solid var(--mark); padding-left: .8rem; }
.verdict p { margin: .4rem 0; }
.verdict p:first-child { font-size: 1.1rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1.6rem 2.4rem; align-items: start; }
figure { margin: 1.6rem 0; min-width: 0; break-inside: avoid; }
.figures figure { margin: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; max-width: 34rem; }
svg { display: block; width: 100%; max-width: 34rem; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .5rem 0; }
th, td { padding: .15rem .7rem .15rem 0; text-align: right; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
.facts { max-width: 52rem; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts th { vertical-align: top; }
.sortable tbody { display: flex; flex-direction: column; }
.sortable tr { display: grid;
  grid-template-columns: 8rem repeat(5, 5.6rem) 6.4rem 8rem 4.5rem 9.3rem; }
.sortable td, .sortable th { white-space: normal; overflow-wrap: anywhere; }
.sortable label, .sortable span { font-size: .85rem; margin-right: .8rem; white-space: nowrap; }
.why { margin: .3rem 0 .8rem; }
.why b { margin-right: .5rem; }
.why span { display: inline-block; margin: 0 .35rem .3rem 0; padding: 0 .4rem; font-size: .85rem;
  border: 1px solid var(--up); border-radius: .3rem; overflow-wrap: anywhere;
  background: color-mix(in srgb, var(--up) var(--share), transparent); }
.why .down { border: 1px dotted var(--down);
  background: color-mix(in srgb, var(--down) var(--share), transparent); }
summary { cursor: pointer; font-size: .85rem; color: var(--soft); }
.note { font-size: .9rem; color: var(--soft); }
@media print { body { margin: 0; max-width: none; font-size: 11px; }
  details:not([open]) { display: none; } }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole document: its title is text, the parts of its body are HTML."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{MARK}\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}{NIGHT}</style>\n</head>\n"
        f"<body>\n<h1>{text(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Return anything as text of a page: escaped, without characters that cannot be shown."""
    shown = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(value))
    return escape(shown.encode("utf-8", "replace").decode())


def paragraph(content: str, kind: str = "") -> str:
    """Return a paragraph of text, of a class of the style if one is given."""
    return f'<p class="{kind}">{text(content)}</p>' if kind else f"<p>{text(content)}</p>"


def verdict(sentences: Sequence[str]) -> str:
    """Return what a page comes to, a paragraph each, the first one larger."""
    return f'<div class="verdict">{"".join(paragraph(one) for one in sentences)}</div>'


def heading(content: str) -> str:
    """Return the heading of a section."""
    return f"<h2>{text(content)}</h2>"


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Return names with their values as a table."""
    cells = "\n".join(
        f'<tr><th scope="row">{text(name)}</th><td>{text(value)}</td></tr>' for name, value in rows
    )
    return f'<table class="facts">\n{cells}\n</table>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> str:
    """Return a table of text; its rows may have styles."""
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in header)
    body = "\n".join(
        (f'<tr style="{style}">' if style else "<tr>")
        + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>"
        for row, style in itertools.zip_longest(rows, styles)
    )  # fmt: skip
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def reasons(label: str, parts: Sequence[tuple[str, float]], rest: str) -> str:
    """Return what raises and lowers the score of a label, the more the darker, and the rest."""
    most, side = max((abs(x) for _, x in parts), default=0) or 1, ("up", "down")
    spans = " ".join(
        f'<span class="{side[x < 0]}" style="--share:{8 + 52 * abs(x) / most:z.0f}%">'
        f"{text(name)} {x:+z.3g}</span>"
        for name, x in parts
    )
    return f'<div class="why"><b>{text(label)}</b> {spans} <i class="note">{text(rest)}</i></div>'


def sortable(
    name: str, header: Sequence[str], rows: Sequence[Sequence[str]], by: Mapping[str, Sequence[int]]
) -> str:
    """Return a table that a choice brings into an order, without a script.

    `by` has the places of all rows in each order; the first one is chosen.
    """
    choices, styles = [], [""] * len(rows)
    for i, (what, places) in enumerate(by.items()):
        own, checked = f"{name}-{i}", "" if i else ' checked="checked"'
        choices.append(
            f"<style>#{name}:has(#{own}:checked) tbody tr {{ order: var(--{i}); }}</style>\n"
            f'<label><input type="radio" name="{name}" id="{own}"{checked} />{text(what)}</label>'
        )
        styles = [f"{style}--{i}:{n};" for style, n in zip(styles, places, strict=True)]
    return (
        f'<div class="sortable" id="{name}">\n<span>by</span> {" ".join(choices)}\n'
        f'<div class="wide">\n{table(header, rows, styles)}\n</div>\n</div>'
    )


def figures(plots: Sequence[Plot]) -> str:
    """Return plots beside each other where there is room, or nothing without any."""
    if not plots:
        return ""
    return '<div class="figures">\n' + "\n".join(map(figure, plots)) + "\n</div>"


def figure(plot: Plot) -> str:
    """Return a plot with its finding above and its numbers below."""
    return (
        f'<figure id="{plot.name}">\n<figcaption>{text(plot.finding)}</figcaption>\n{plot.svg}\n'
        '<details><summary>numbers</summary>\n<div class="wide">\n'
        f"{table(plot.header, plot.rows)}\n</div>\n</details>\n"
        "</figure>"
    )
