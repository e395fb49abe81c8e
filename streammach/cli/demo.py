"""The command demo."""

from __future__ import annotations

from pathlib import Path

import click

from streammach.cli.options import debug_option, epilog, json_option
from streammach.cli.output import say_json


@click.command(epilog=epilog("streammach demo"))
@click.option("--folder", metavar="DIR", type=click.Path(path_type=Path),
              default="streammach-demo", show_default=True,
              help="Where data and model are made.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an earlier demo there.")
@json_option
@debug_option
def demo(folder: Path, force: bool, as_json: bool) -> None:
    """Do the whole job on a real data set.

    The job is to guess the next identifier of Python code. The data are made from this Python's own
    standard library; nothing is downloaded. Every command is shown before it runs.
    """
    from streammach.demo import run_demo  # loads on demand

    figures = run_demo(folder, quiet=as_json, force=force)
    if as_json:
        say_json(figures)
