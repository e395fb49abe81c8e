"""The command report: one page with the plots of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.machine import peak_bytes, size_text


@command("streammach report runs/odp --on test.zarr")
@click.argument("run", metavar="RUN", type=options.PATH)
@click.option("--on", metavar="STORE", type=options.STORE_PATH,
              help="Labelled rows for the plots of probabilities, class frequency and "
                   "repetitions.")  # fmt: skip
@click.option("--rows", type=click.IntRange(min=1), default=20_000, show_default=True,
              help="Use the first so many of those rows.")  # fmt: skip
@click.option("--out", metavar="FILE", type=options.PATH,
              help="Where to write.  [default: RUN/report.html]")  # fmt: skip
@click.option("--card", metavar="FILE", type=options.PATH,
              help="Write a card of the model, too, in Markdown: data, figures, use, "
                   "limits.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing page or card.")
@options.add_shared_options(
    options.memory_option, options.threads_option, *options.CACHE, options.progress_option
)
def report(*, run: Path, out: Path | None, given: Arguments) -> None:
    """Draw what a run planned, measured and reached.

    One HTML file with everything in it.
    """
    from streammach.reports.pages import report as write  # compiled code loads on demand

    made = write(run, out, **given.of(write))
    projected, page = made.projected_bytes, made.page
    peak = peak_bytes() if projected is None else peak_of(projected)
    size = made.path.stat().st_size
    if given.as_json:
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
