"""The commands about data: convert, verify."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.options import (
    bad_row_options,
    debug_option,
    epilog,
    format_option,
    json_option,
    layout_options,
    progress_option,
    source_options,
    sources_argument,
    table_options,
    threads_option,
)
from streammach.cli.output import peak_of, say, say_json, short_path
from streammach.cli.places import STORE_PATH, cache_options
from streammach.clock import Clock
from streammach.errors import StoreError
from streammach.machine import time_text
from streammach.spec.types import Multilabel

if TYPE_CHECKING:
    from streammach.data.convert import Conversion
    from streammach.data.source_options import Layout, TableOptions


@click.command(epilog=epilog("streammach convert train.vw.gz train.zarr"))
@sources_argument
@click.argument("out", metavar="OUT.zarr", type=STORE_PATH)
@format_option
@table_options
@layout_options
@source_options
@click.option("--like", metavar="TRAIN.zarr", type=STORE_PATH,
              help="Use this store's labels and features: for test data.")  # fmt: skip
@bad_row_options
@click.option("--memory", metavar="SIZE",
              help="Memory to work in, such as 1GB.  "
                   "[default: 2GB, or what is needed]")  # fmt: skip
@threads_option
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Decides the order of the rows."
)
@click.option("--force", is_flag=True, help="Replace an existing store.")
@cache_options
@progress_option
@json_option
@debug_option
def convert(
    *,
    sources: tuple[Path, ...],
    out: Path,
    form: str | None,
    table: TableOptions,
    layout: Layout,
    labels: tuple[Path, ...],
    x_path: str | None,
    y_path: str | None,
    first_label: bool,
    multilabel: Multilabel,
    like: Path | None,
    on_bad_row: str,
    max_bad: int | None,
    memory: str | None,
    threads: int | None,
    seed: int,
    force: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Convert text files, tables or matrices into a compressed, shuffled store.

    SRC is VW multiclass, svmlight or XMC text (first line: numbers of rows, columns and labels),
    plain or gzip; a table: Parquet, Arrow, CSV, TSV or JSON lines, whose columns are named by
    --label, --text, --category, --number, or are guessed; or a matrix: .npz as
    scipy.sparse.save_npz writes it, with labels or y as one more array, a .npy file, HDF5 with a
    dense dataset or a group of data, indices and indptr, or a folder of AnnData in Zarr (--y-path
    obs/COLUMN, --x-path layers/NAME). Several files become one store; - is text on standard input.
    Labels and features keep their names; columns of a matrix without a name get their numbers from
    0.

    Rows that do not fit the memory are put aside beside OUT.zarr; a conversion that was cut off
    after that goes on when the same command is given again.
    """
    from streammach.data.convert import convert as run  # compiled code loads on demand

    done = run(
        list(sources), out, format=form, labels=list(labels), x_path=x_path, y_path=y_path,
        first_label=first_label, multilabel=multilabel, like=like, on_bad_row=on_bad_row,
        max_bad=max_bad, memory=memory, threads=threads, seed=seed, force=force,
        progress=progress, **vars(table), **vars(layout),
    )  # fmt: skip
    done = dataclasses.replace(done, seconds=Clock.of_process(None).spent)
    if done.unseen_label_rows:
        warnings.warn(
            f"{done.unseen_label_rows:,} rows carry a label that {short_path(like)} does not have: "
            f"{short_path(out)}. They are kept and count as wrong",
            stacklevel=1,
        )
    peak = peak_of(done.projected_bytes)
    if as_json:
        say_json(dataclasses.asdict(done) | {"peak_bytes": peak})
        return
    say(
        f"{made_text(done)}, {done.nnz / done.n_rows:.3g} values a row "
        f"({', '.join(sorted(set(done.formats)))})"
    )
    for note in done.notes:
        say(note)
    say(f"it took {time_text(done.seconds)}")
    if done.resumed:
        say("went on from what an interrupted conversion had read")
    if done.weightless_rows:
        say(f"left out {done.weightless_rows:,} rows of importance 0")
    if done.skipped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(done.skipped.items()))
        say(
            f"skipped {sum(done.skipped.values()):,} rows: {reasons}; listed in "
            f"{short_path(done.rejects)}"
        )
    if done.duplicates:
        say(f"added up {done.duplicates:,} values of a feature that its row held already")
    if done.unknown_values:
        say(
            f"dropped {done.unknown_values:,} values of features that "
            f"{short_path(like)} does not have"
        )


def made_text(made: Conversion) -> str:
    """Return what a conversion made as the start of a line."""
    return (
        f"{short_path(made.path)}: {made.n_rows:,} rows, {made.n_classes:,} classes, "
        f"{made.n_features:,} features"
    )


@click.command(epilog=epilog("streammach verify train.zarr"))
@click.argument("store", type=STORE_PATH)
@click.option("--deep", is_flag=True, help="Read every byte, decode every chunk, check every row.")
@cache_options
@progress_option
@json_option
@debug_option
def verify(store: Path, deep: bool, progress: str, as_json: bool) -> None:
    """Check that a store is what was written.

    Without --deep: its metadata, that every file is there with its bytes, and the index of each.
    """
    from streammach.data.store.dataset import Dataset  # loads on demand

    with Dataset.open(store) as dataset:
        problems = dataset.verify(deep=deep, progress=progress)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise StoreError(f"{problems[0]}{more}", hint="Copy or convert the store again.")
        if as_json:
            say_json(
                {
                    "store": str(store),
                    "ok": True,
                    "deep": deep,
                    "n_rows": dataset.n_rows,
                    "digest": dataset.digest,
                }
            )
        else:
            say(
                f"{short_path(store)}: complete, format {dataset.root.format}, "
                f"{dataset.n_rows:,} rows; "
                + (
                    "every chunk is as written"
                    if deep
                    else "every file is there (--deep reads all)"
                )
            )
