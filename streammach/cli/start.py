"""The commands that come first: fit, from a file to a trained model; demo; compile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import install_handlers, say, say_json, short_path
from streammach.cli.data import conversion_text
from streammach.cli.trainings import say_run, train_run
from streammach.errors import DiskError, MismatchError, without_secrets
from streammach.machine import size_text, time_text
from streammach.processes import run
from streammach.progress import tell

STORE, HELD_OUT = "train.zarr", "validation.zarr"
PATIENCE_SECONDS = 2.0  # for a conversion to heed a signal; killed, it goes on as well


@command("streammach fit train.vw.gz --memory 12GB --out runs/odp")
@options.sources_argument
@click.option("--out", required=True, metavar="RUN", type=options.PATH,
              help="Folder of the run; its store goes there, too.")  # fmt: skip
@options.add_shared_options(
    options.format_option, *options.TABLE, *options.LAYOUT, *options.SOURCE, *options.BAD_ROWS,
    *options.RUN, options.progress_option,
)  # fmt: skip
def fit(*, sources: tuple[Path, ...], out: Path, given: Arguments) -> None:
    """Convert files and train on them within a memory budget.

    What convert and train do, one after the other: the store is RUN/train.zarr. A --validation that
    is a file becomes a store as well. The same command goes on where a conversion was cut off, and
    with --resume where the training was.
    """
    from streammach.machine import memory_limit, within  # loads on demand
    from streammach.training.replacing import check_run_folder
    from streammach.training.run import workplace

    if given.memory is not None:
        within(memory_limit(), given.memory)
    check_run_folder(out, resume=given.resume, force=given.force)
    workplace(out).open()
    _store(out / STORE, sources, given)
    if given.validation is not None and Path(given.validation).is_file():
        _store(out / HELD_OUT, (Path(given.validation),), given, like=out / STORE)
        given = given.but(validation=str(out / HELD_OUT))
    made = train_run(out / STORE, out, given)
    if say_run(made, given):
        say(f"next: streammach evaluate {short_path(out)} TEST")


def _store(
    store: Path, sources: Sequence[Path], given: Arguments, like: Path | None = None
) -> None:
    """Convert files in a process of its own, unless the store of these files is there already."""
    from streammach.data.source_options import TableOptions  # compiled code loads on demand

    if like is not None:  # that store has the columns of the table
        given = given.but(labels=(), **vars(TableOptions()))
    if store.exists() and _same(store, sources, given, like):
        tell(f"{short_path(store)} is there already")
        return
    place = "streammach.cli.start:convert_here"
    run(place, store, sources, given, like, patience=PATIENCE_SECONDS)


def convert_here(store: Path, sources: Sequence[Path], given: Arguments, like: Path | None) -> None:
    """Convert, in a process of its own: the memory that it took, compilers included, goes."""
    from streammach.data.convert import convert  # compiled code loads on demand

    with install_handlers():
        done = convert(list(sources), store, **given.of(convert) | {"like": like})
        skipped = f", {sum(done.skipped.values()):,} skipped" if done.skipped else ""
        tell(f"{conversion_text(done)}{skipped}")
        tell(f"it took {time_text(done.seconds)}")


def _same(store: Path, sources: Sequence[Path], given: Arguments, like: Path | None) -> bool:
    """Return whether a store is of these files; one that is not is refused, or made anew."""
    from streammach.data.conversion.request import difference_from  # compiled code loads on demand
    from streammach.data.convert import tidy
    from streammach.data.source_options import SourceOptions

    said = given.of(SourceOptions) | {"labels": None, "table": given.table, "layout": given.layout}
    alike = SourceOptions(**said)
    wrong = difference_from(
        store, sources, alike.each(len(sources), given.labels), like=like,
        on_bad_row=given.on_bad_row, seed=given.seed,
    )  # fmt: skip
    if wrong is not None and given.force:
        return False
    if wrong is not None:
        hint = "Use another --out, or remove it."
        raise MismatchError(wrong, path=store, hint=hint)
    tidy(store)
    return True


@command("streammach demo")
@click.option("--folder", metavar="DIR", type=options.PATH,
              default="streammach-demo", show_default=True,
              help="Where data and model are made.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an earlier demo there.")
@options.add_shared_options()
def demo(*, folder: Path, force: bool, given: Arguments) -> None:
    """Do the whole job on a real data set.

    The job is to guess the next identifier of Python code. The data are made from this Python's own
    standard library; nothing is downloaded. Every command is shown before it runs.
    """
    from streammach.demo import run_demo  # loads on demand

    figures = run_demo(folder, quiet=given.as_json, force=force)
    if given.as_json:
        say_json(figures)


@command("streammach compile runs/odp", "compile")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=options.PATH)
@options.add_shared_options()
def compile_(*, runs: tuple[Path, ...], given: Arguments) -> None:
    """Compile what predictions need, and keep it.

    Kernels are compiled at their first call and kept in a folder of the user's. In an image of a
    container, or after an installation, do it once beforehand for each RUN or model: the first
    answer comes at once then. Kernels are kept for this processor and these versions of Python,
    Numba and streammach; set NUMBA_CACHE_DIR for a folder of your own.
    """
    from streammach.jit import CACHE_DIR, kept_kernels  # loads numba
    from streammach.model.model import Model
    from streammach.prediction.diagnose import compile_model

    if CACHE_DIR is None:
        what = "there is no folder in which only this user can write: kernels cannot be kept"
        raise DiskError(what, hint="Name one with the environment variable NUMBA_CACHE_DIR.")
    began = time.monotonic()
    for folder in runs:
        tell(f"compiling for {without_secrets(short_path(folder))}")
        compile_model(Model.load(folder))
    seconds, (n_kernels, n_bytes) = time.monotonic() - began, kept_kernels()
    if given.as_json:
        say_json({"folder": CACHE_DIR, "kernels": n_kernels, "bytes": n_bytes, "seconds": seconds})
        return
    say(
        f"{n_kernels:,} compiled kernels, {size_text(n_bytes)}, in {CACHE_DIR}; took "
        f"{time_text(seconds)}"
    )
