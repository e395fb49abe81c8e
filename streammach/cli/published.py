"""Commands that convert one public data set: what the scripts in ``tools`` run."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import click

from streammach.cli.data import convert as convert_command
from streammach.cli.data import made_text
from streammach.cli.options import debug_option, epilog, json_option, progress_option
from streammach.cli.output import say, say_json
from streammach.data.convert import Conversion, convert
from streammach.data.published import Published, convert_published, source_in

# Keywords of convert that these commands decide; its other ones are options as in its own command.
DECIDED = {
    "sources", "out", "format", "labels", "x_path", "y_path", "first_label", "multilabel", "like",
    "progress", "quotes", "header", "columns",
}  # fmt: skip


def passed_options() -> list[click.Parameter]:
    """Return the options of ``streammach convert`` that are passed on as they are."""
    keywords = set(inspect.signature(convert).parameters) - DECIDED
    return [option for option in convert_command.params if option.name in keywords]


def command_of(published: Published, script: str) -> click.Command:
    """Return the command that converts a public data set; its help calls it by `script`."""

    @click.command(
        params=passed_options(), epilog=epilog(f"python {script} FOLDER"),
        help=f"Convert {published.name}, downloaded to FOLDER ({published.train_file} and "
             f"{published.test_file}, or both unpacked), into two stores, and check their counts.",
    )  # fmt: skip
    @click.argument("folder", type=click.Path(path_type=Path))
    @click.option("--out", metavar="FOLDER", type=click.Path(path_type=Path),
                  help="Where the stores go.  [default: beside the files]")  # fmt: skip
    @click.option("--train", metavar="FILE", type=click.Path(path_type=Path),
                  help="The training rows, where they have another name.")  # fmt: skip
    @click.option("--test", metavar="FILE", type=click.Path(path_type=Path),
                  help="The test rows, where they have another name.")  # fmt: skip
    @click.option("--sample", is_flag=True, help="Accept fewer rows, classes and features.")
    @progress_option
    @json_option
    @debug_option
    def command(
        *, folder: Path, out: Path | None, train: Path | None, test: Path | None, sample: bool,
        progress: str, as_json: bool, **options: Any,
    ) -> None:  # fmt: skip
        sources = (
            train or source_in(published, folder, published.train_file),
            test or source_in(published, folder, published.test_file),
        )
        done = convert_published(
            published, sources, out or folder, sample=sample, options=options, progress=progress
        )
        if as_json:
            say_json({"train": dataclasses.asdict(done[0]), "test": dataclasses.asdict(done[1])})
            return
        for made in done:
            say(_line(made))
        say(f"counts are {'at most ' if sample else ''}those of {published.name} as published")

    return command


def _line(made: Conversion) -> str:
    notes = {
        "rows skipped": sum(made.skipped.values()),
        "rows with a label that training lacks": made.unseen_label_rows,
        "values of features that training lacks dropped": made.unknown_values,
    }
    more = "".join(f", {n:,} {what}" for what, n in notes.items() if n)
    return f"{made_text(made)}{more}"
