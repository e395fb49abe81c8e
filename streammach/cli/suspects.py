"""The command that finds rows whose labels are probably wrong."""

from __future__ import annotations

from pathlib import Path

import click

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.clock import Clock
from streammach.machine import time_text
from streammach.progress import ProgressBar


@command("streammach suspects train.zarr --out suspects.csv --memory 2GB")
@click.argument("store", type=options.STORE_PATH)
@click.option("--out", required=True, metavar="FILE", type=options.PATH,
              help="The list: .csv, .tsv or .jsonl.")  # fmt: skip
@click.option("--folds", type=click.IntRange(2), default=3, show_default=True, metavar="N",
              help="Parts of the rows, each of which is judged by a model of the "
                   "others.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing list of suspects.")
@options.shared(*options.SHAPE, *options.TRAINING, *options.CACHE, options.progress_option)
def suspects(*, store: Path, out: Path, folds: int, given: Arguments) -> None:
    """List rows whose labels are probably wrong, the most suspicious ones first.

    Rows are divided into folds, and each fold is judged by a model that is trained on the others as
    train does. A row is listed where that model finds another label likelier than the row's own, or
    where more rows with the same features have one other label: duplicates come first. Of rows with
    lists the weakest label is told, and the best one that the row does not have.

    With --hold-out-by NAMESPACE rows that share a feature of it are in one fold. Of --time
    trainings take three quarters. --memory is that of each one. Nothing but FILE is left.
    """
    from streammach.training.out_of_fold import suspects as find  # compiled code loads on demand

    with ProgressBar(given.progress, "") as shown:
        shown("open", 0, 0)
        found = find(
            store, out=out, folds=folds, training=given.training(), force=given.force,
            constraints=given.constraints(), progress=shown,
        )  # fmt: skip
    seconds = Clock.of_process(None).spent
    peak, n_duplicates = peak_of(found.projected_bytes), int((found.rows["duplicates"] > 0).sum())
    if given.as_json:
        say_json({
            "out": str(out), "n_rows": found.n_rows, "n_suspects": len(found.rows),
            "n_duplicates": n_duplicates, "folds": found.folds, "seconds": seconds,
            "projected_bytes": found.projected_bytes, "peak_bytes": peak,
        })  # fmt: skip
        return
    say(
        f"{short_path(out)}: {len(found.rows):,} of {found.n_rows:,} rows, {n_duplicates:,} of "
        f"them by duplicates, {folds} folds, {time_text(seconds)}"
    )
