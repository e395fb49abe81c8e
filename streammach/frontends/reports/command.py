"""The command report: one page with the plots of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.cli.options import PATH, command
from streammach.frontends.reports.options import ReportOptions
from streammach.options.option_fields import keywords_of
from streammach.system.linux import peak_bytes
from streammach.system.machine import size_text


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
