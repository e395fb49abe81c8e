"""The commands that come first: fit, from a file to a trained model; demo; compile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from streammach.cli.console import install_handlers, say, say_json, short_path
from streammach.cli.data import conversion_text
from streammach.cli.options import PATH, command, sources_argument
from streammach.cli.trainings import RunOptions, say_run, train_run
from streammach.inputs.source_options import ConvertOptions, TableOptions
from streammach.options.option_fields import keywords_of, option
from streammach.system.errors import DiskError, MismatchError, without_secrets
from streammach.system.machine import size_text, time_text
from streammach.system.processes import run as run_process
from streammach.system.progress import tell

STORE, HELD_OUT = "train.zarr", "validation.zarr"
PATIENCE_SECONDS = 2.0  # for a conversion to heed a signal; killed, it goes on as well


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What convert and train take."""

    out: Path = option(..., "Folder of the run; its store goes there, too.", "RUN")
    conversion: ConvertOptions = field(default_factory=ConvertOptions)
    run: RunOptions = field(default_factory=RunOptions)


@command("streammach fit train.vw.gz --memory 12GB --out runs/odp",
         without=("like", "extend", "min_rows"))  # fmt: skip
@sources_argument
def fit(*, sources: tuple[Path, ...], options: FitOptions, progress: str, as_json: bool) -> None:
    """Convert files and train on them within a memory budget.

    What convert and train do, one after the other: the store is RUN/train.zarr. A --validation that
    is a file becomes a store as well. The same command goes on where a conversion was cut off, and
    with --resume where the training was.
    """
    from streammach.store.label_facts import names_column  # loads on demand
    from streammach.system.machine import memory_limit, within
    from streammach.training.replacing import check_run_folder
    from streammach.training.run import workplace

    out, conversion, run = options.out, options.conversion, options.run
    if names_column(run.labels.label_names):  # which the conversion reads
        run = replace(run, labels=replace(run.labels, label_names=None))
    else:
        table = replace(conversion.source.table, label_names=None)
        conversion = replace(conversion, source=replace(conversion.source, table=table))
    if conversion.memory is not None:
        within(memory_limit(), conversion.memory)
    check_run_folder(out, resume=run.resume, force=run.force)
    workplace(out).open()
    _store(out / STORE, sources, conversion, progress)
    validation = run.training.validation
    if validation is not None and Path(validation).is_file():
        # that store has the columns of the table
        source = replace(conversion.source, label_files=(), table=TableOptions())
        alike = replace(conversion, source=source, like=out / STORE)
        _store(out / HELD_OUT, (Path(validation),), alike, progress)
        run = replace(run, training=replace(run.training, validation=str(out / HELD_OUT)))
    made = train_run(out / STORE, out, run, progress)
    if say_run(made, as_json=as_json):
        say(f"next: streammach evaluate {short_path(out)} TEST")


def _store(store: Path, sources: Sequence[Path], options: ConvertOptions, progress: str) -> None:
    """Convert files in a process of its own, unless the store of these files is there already."""
    if store.exists() and _same(store, sources, options):
        tell(f"{short_path(store)} is there already")
        return
    place = "streammach.cli.start:convert_here"
    run_process(place, store, sources, options, progress, patience=PATIENCE_SECONDS)


def convert_here(
    store: Path, sources: Sequence[Path], options: ConvertOptions, progress: str
) -> None:
    """Convert, in a process of its own: the memory that it took, compilers included, goes."""
    from streammach.conversion.convert import convert  # compiled code loads on demand

    with install_handlers():
        done = convert(list(sources), store, **keywords_of(options), progress=progress)
        skipped = f", {sum(done.skipped.values()):,} skipped" if done.skipped else ""
        tell(f"{conversion_text(done)}{skipped}")
        tell(f"it took {time_text(done.seconds)}")


def _same(store: Path, sources: Sequence[Path], options: ConvertOptions) -> bool:
    """Return whether a store is of these files; one that is not is refused, or made anew."""
    from streammach.conversion.convert import tidy
    from streammach.conversion.request import difference_from  # compiled code loads on demand

    difference = difference_from(
        store, sources, options.source.each(len(sources)), like=options.like,
        on_bad_row=options.bad_rows.on_bad_row, seed=options.seed,
    )  # fmt: skip
    if difference is not None and options.force:
        return False
    if difference is not None:
        hint = "Use another --out, or remove it."
        raise MismatchError(difference, path=store, hint=hint)
    tidy(store)
    return True


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Where a demo works."""

    folder: Path = option(Path("streammach-demo"), "Where data and model are made.", "DIR")
    force: bool = option(False, "Replace an earlier demo there.")


@command("streammach demo")
def demo(*, options: DemoOptions, as_json: bool) -> None:
    """Do the whole job on a real data set.

    The job is to guess the next identifier of Python code. The data are made from this Python's own
    standard library; nothing is downloaded. Every command is shown before it runs.
    """
    from streammach.demo import run_demo  # loads on demand

    figures = run_demo(options.folder, quiet=as_json, force=options.force)
    if as_json:
        say_json(figures)


@command("streammach compile runs/odp", "compile")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
def compile_(*, runs: tuple[Path, ...], as_json: bool) -> None:
    """Compile what predictions need, and keep it.

    Kernels are compiled at their first call and kept in a folder of the user's. In an image of a
    container, or after an installation, do it once beforehand for each RUN or model: the first
    answer comes at once then. Kernels are kept for this processor and these versions of Python,
    Numba and streammach; set NUMBA_CACHE_DIR for a folder of your own.
    """
    from streammach.model.model import Model
    from streammach.prediction.diagnose import compile_model
    from streammach.system.jit import CACHE_DIR, kept_kernels  # loads numba

    if CACHE_DIR is None:
        what = "there is no folder in which only this user can write: kernels cannot be kept"
        raise DiskError(what, hint="Name one with the environment variable NUMBA_CACHE_DIR.")
    began = time.monotonic()
    for folder in runs:
        tell(f"compiling for {without_secrets(short_path(folder))}")
        compile_model(Model.load(folder))
    seconds, (n_kernels, n_bytes) = time.monotonic() - began, kept_kernels()
    if as_json:
        say_json({"folder": CACHE_DIR, "kernels": n_kernels, "bytes": n_bytes, "seconds": seconds})
        return
    say(
        f"{n_kernels:,} compiled kernels, {size_text(n_bytes)}, in {CACHE_DIR}; took "
        f"{time_text(seconds)}"
    )
