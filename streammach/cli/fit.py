"""The command fit: from a file to a trained model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import click

from streammach.cli.arguments import RunArguments, recorded
from streammach.cli.data import made_text
from streammach.cli.options import (
    bad_row_options,
    debug_option,
    epilog,
    format_option,
    json_option,
    layout_options,
    progress_option,
    run_options,
    source_options,
    sources_argument,
    table_options,
)
from streammach.cli.output import handlers_installed, say, say_json, short_path
from streammach.cli.training import run_document, say_run, trained
from streammach.errors import MismatchError, clean
from streammach.machine import time_text
from streammach.processes import run
from streammach.progress import tell

STORE, HELD_OUT = "train.zarr", "validation.zarr"
PATIENCE_SECONDS = 2.0  # for a conversion to heed a signal; killed, it goes on as well


@click.command(epilog=epilog("streammach fit train.vw.gz --memory 12GB --out runs/odp"))
@sources_argument
@click.option("--out", required=True, metavar="RUN", type=click.Path(path_type=Path),
              help="Folder of the run; its store goes there, too.")  # fmt: skip
@format_option
@table_options
@layout_options
@source_options
@bad_row_options
@run_options
@progress_option
@json_option
@debug_option
@recorded
def fit(
    *, sources: tuple[Path, ...], out: Path, arguments: RunArguments, progress: str, as_json: bool
) -> None:
    """Convert files and train on them within a memory budget.

    What convert and train do, one after the other: the store is RUN/train.zarr. A --validation that
    is a file becomes a store as well. The same command goes on where a conversion was cut off, and
    with --resume where the training was.
    """
    from streammach.machine import memory_limit, within  # loads on demand
    from streammach.training.ours import entered
    from streammach.training.run import workplace

    if arguments.memory is not None:
        within(memory_limit(), arguments.memory)
    entered(out, resume=arguments.resume, force=arguments.force)
    workplace(out).open()
    wanted = StoreRequest(out / STORE, list(sources), list(arguments.labels))
    _store(wanted, arguments, progress)
    if arguments.validation is not None and Path(arguments.validation).is_file():
        held_out = StoreRequest(out / HELD_OUT, [Path(arguments.validation)], like=wanted.store)
        _store(held_out, arguments, progress)
        arguments = arguments.but(validation=str(held_out.store))
    made = trained(wanted.store, out, arguments, progress)
    if as_json:
        say_json(run_document(made))
        return
    say_run(made)
    say(f"next: streammach evaluate {short_path(out)} TEST")


@dataclass(frozen=True)
class StoreRequest:
    """A store that is wanted: where, of which files, and the store whose ids it takes."""

    store: Path
    sources: list[Path]
    labels: list[Path] = field(default_factory=list)
    like: Path | None = None


def _store(wanted: StoreRequest, arguments: RunArguments, progress: str) -> None:
    """Convert files in a process of its own, unless the store of these files is there already."""
    if wanted.store.exists() and _same(wanted, arguments):
        tell(f"{short_path(wanted.store)} is there already")
        return
    run("streammach.cli.fit:convert_here", wanted, arguments, progress, patience=PATIENCE_SECONDS)


def convert_here(wanted: StoreRequest, arguments: RunArguments, progress: str) -> None:
    """Convert, in a process of its own: the memory that it took, compilers included, goes."""
    from streammach.data.convert import convert  # compiled code loads on demand

    with handlers_installed():
        done = convert(
            wanted.sources, wanted.store, labels=wanted.labels, like=wanted.like,
            format=arguments.form, x_path=arguments.x_path, y_path=arguments.y_path,
            first_label=arguments.first_label, multilabel=arguments.multilabel,
            on_bad_row=arguments.on_bad_row, max_bad=arguments.max_bad,
            memory=arguments.memory, threads=arguments.threads, force=arguments.force,
            seed=arguments.seed, progress=progress,
            **({} if wanted.like is not None else vars(arguments.table)), **vars(arguments.layout),
        )  # fmt: skip
        skipped = f", {sum(done.skipped.values()):,} skipped" if done.skipped else ""
        tell(f"{made_text(done)}{skipped}")
        tell(f"it took {time_text(done.seconds)}")


def _same(wanted: StoreRequest, arguments: RunArguments) -> bool:
    """Return whether a store is of these files; one that is not is refused, or made anew."""
    from streammach.data.conversion.request import difference_from  # compiled code loads on demand
    from streammach.data.convert import tidy
    from streammach.data.source_options import SourceOptions, TableOptions

    alike = SourceOptions(
        form=arguments.form,
        x_path=arguments.x_path,
        y_path=arguments.y_path,
        first_label=arguments.first_label,
        multilabel=arguments.multilabel,
        table=TableOptions() if wanted.like is not None else arguments.table,
        layout=arguments.layout,
    )
    wrong = difference_from(
        wanted.store, wanted.sources, alike.each(len(wanted.sources), wanted.labels),
        like=wanted.like, on_bad_row=arguments.on_bad_row, seed=arguments.seed,
    )  # fmt: skip
    if wrong is not None and arguments.force:
        return False
    if wrong is not None:
        hint = "Use another --out, or remove it."
        raise MismatchError(wrong, path=clean(wanted.store, 300), hint=hint)
    tidy(wanted.store)
    return True
