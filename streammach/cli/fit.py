"""The command fit: from a file to a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streammach.cli.data import STAGES
from streammach.cli.handlers import handlers_installed
from streammach.cli.options import (
    bad_row_options,
    debug_option,
    epilog,
    format_option,
    json_option,
    progress_option,
    run_options,
    source_options,
)
from streammach.cli.output import Progress, say, say_json, short_path, tell
from streammach.cli.training import run_document, say_run, trained
from streammach.errors import MismatchError, clean
from streammach.processes import run

STORE, HELD_OUT = "train.zarr", "validation.zarr"
PATIENCE_SECONDS = 2.0  # for a conversion to heed a signal; killed, it goes on as well


@click.command(epilog=epilog("streammach fit train.vw.gz --memory 12GB --out runs/odp"))
@click.argument(
    "sources", nargs=-1, required=True, metavar="SRC...", type=click.Path(path_type=Path)
)
@click.option("--out", required=True, metavar="RUN", type=click.Path(path_type=Path),
              help="Folder of the run; its store goes there, too.")  # fmt: skip
@format_option
@source_options
@bad_row_options
@run_options
@progress_option
@json_option
@debug_option
def fit(sources: tuple[Path, ...], out: Path, progress: str, as_json: bool, **options: Any) -> None:
    """Convert files and train on them within a memory budget.

    What convert and train do, one after the other: the store is RUN/train.zarr. A --validation that
    is a file becomes a store as well. The same command goes on where a conversion was cut off, and
    with --resume where the training was.
    """
    from streammach.machine import memory_limit, within  # loads on demand
    from streammach.training.run import begun, workplace

    memory = options["memory"]
    if memory is not None:
        within(memory_limit(), memory)
    begun(out, resume=options["resume"])
    workplace(out).open()
    store = out / STORE
    _store(list(sources), store, None, options, progress)
    validation = options["validation"]
    if validation is not None and Path(validation).is_file():
        _store([Path(validation)], out / HELD_OUT, store, options, progress)
        options["validation"] = str(out / HELD_OUT)
    made = trained(store, out, options, progress)
    if as_json:
        say_json(run_document(made))
        return
    say_run(made)
    say(f"next: streammach evaluate {short_path(out)} TEST")


def _store(
    sources: list[Path], store: Path, like: Path | None, options: dict[str, Any], progress: str
) -> None:
    """Convert files in a process of its own, unless the store of these files is there already."""
    if store.exists():
        _check_same(sources, store, like, options)
        tell(f"{short_path(store)} is there already")
        return
    run("streammach.cli.fit:convert_here", sources, store, like, options, progress,
        patience=PATIENCE_SECONDS)  # fmt: skip


def convert_here(
    sources: list[Path], store: Path, like: Path | None, options: dict[str, Any], progress: str
) -> None:
    """Convert, in a process of its own: the memory that it took, compilers included, goes."""
    from streammach.data.convert import convert  # compiled code loads on demand

    labels = list(options["labels"]) if like is None else []
    with handlers_installed(), Progress(progress, STAGES) as shown:
        done = convert(
            sources, store, format=options["form"], labels=labels, x_path=options["x_path"],
            y_path=options["y_path"], first_label=options["first_label"], like=like,
            on_bad_row=options["on_bad_row"], max_bad=options["max_bad"], memory=options["memory"],
            threads=options["threads"], seed=options["seed"], progress=shown,
        )  # fmt: skip
        skipped = f", {sum(done.skipped.values()):,} skipped" if done.skipped else ""
        tell(
            f"{short_path(store)}: {done.n_rows:,} rows, {done.n_classes:,} classes, "
            f"{done.n_features:,} features{skipped}"
        )


def _check_same(
    sources: list[Path], store: Path, like: Path | None, options: dict[str, Any]
) -> None:
    """Refuse a store that was made from other content, or in another way."""
    from streammach.data.convert import difference_from, tidy  # compiled code loads on demand
    from streammach.data.source_options import SourceOptions

    labels = list(options["labels"]) if like is None else []
    given = [
        SourceOptions(options["form"], file, options["x_path"], options["y_path"],
                      options["first_label"])
        for file in labels or [None] * len(sources)
    ]  # fmt: skip
    wrong = difference_from(
        store, sources, given, like=like, on_bad_row=options["on_bad_row"], seed=options["seed"]
    )
    if wrong is not None:
        hint = "Use another --out, or remove it."
        raise MismatchError(wrong, path=clean(store, 300), hint=hint)
    tidy(store)
