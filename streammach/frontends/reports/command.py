"""The command report: one page with the plots of a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import click

from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.cli.options import PATH, command
from streammach.options.option_fields import keywords_of, option
from streammach.options.types import StorePath
from streammach.prediction.options import Resources
from streammach.system.linux import peak_bytes
from streammach.system.machine import size_text


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report shows, and where it goes."""

    on: StorePath | None = option(
        None, "Labelled rows for the plots of probabilities, class frequency and repetitions.",
        "STORE",
    )  # fmt: skip
    rows: int = option(20_000, "Use the first so many of those rows.", least=1)
    out: Path | None = option(None, "Where to write.", "FILE", usual="RUN/report.html")
    card: Path | None = option(
        None, "Write a card of the model, too, in Markdown: data, figures, use, limits.",
        "FILE",
    )  # fmt: skip
    force: bool = option(False, "Replace an existing page or card.")
    room: Resources = field(default_factory=Resources)


@command("streammach report runs/odp --on test.zarr", cached=True)
@click.argument("run", metavar="RUN", type=PATH)
def report(*, run: Path, options: ReportOptions, progress: str, as_json: bool) -> None:
    """Draw what a run planned, measured and reached.

    One HTML file with everything in it.
    """
    from streammach.frontends.reports.pages import report as write  # compiled code loads on demand

    made = write(run, **keywords_of(options), progress=progress)
    projected, page = made.projected_bytes, made.page
    peak = peak_bytes() if projected is None else peak_of(projected)
    size = made.path.stat().st_size
    if as_json:
        say_json({
            "out": str(made.path), "bytes": size,
            "plots": {plot.name: plot.finding for plot in page.plots},
            "rows": None if made.rows is None else made.rows.record(),
            "query": None if made.query is None else dataclasses.asdict(made.query),
            "projected_bytes": projected, "peak_bytes": peak,
        })  # fmt: skip
        return
    for plot in page.plots:
        say(f"{plot.name:<12}{plot.finding}")
    say(f"{short_path(made.path)}: {len(page.plots)} plots, {size_text(size)}")
