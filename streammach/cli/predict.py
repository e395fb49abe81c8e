"""The command that writes predictions: predict."""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.clusters import rankers
from streammach.cli.options import (
    bad_row_options,
    cluster_options,
    debug_option,
    decode_option,
    device_option,
    epilog,
    format_option,
    json_option,
    layout_options,
    matrix_options,
    memory_option,
    progress_option,
    rejects_option,
    threads_option,
)
from streammach.cli.output import peak_of, say, say_json, short_path, warn_of_skipped
from streammach.cli.places import STORE_PATH, cache_options
from streammach.errors import UsageError
from streammach.progress import ProgressBar
from streammach.spec.types import Decoding

if TYPE_CHECKING:
    from streammach.data.source_options import Layout


@click.command(epilog=epilog("streammach predict runs/odp new.vw -k 5 --out new.tsv"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT", type=STORE_PATH)
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="Classes a row.")
@click.option("--threshold", type=click.FloatRange(0, 1), metavar="P",
              help="Of rows with lists of labels: the k likeliest labels with at least this "
                   "probability, and their probabilities as scores.")  # fmt: skip
@click.option("--probabilities", is_flag=True, help="Calibrated probabilities in place of scores.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help="Where to write.  [default: standard output]")  # fmt: skip
@click.option("--out-format", metavar="tsv|csv|jsonl|parquet",
              help="Format of what is written.  "
                   "[default: by the name of --out, else tsv]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing table of predictions.")
@bad_row_options
@rejects_option
@format_option
@layout_options
@matrix_options
@memory_option
@device_option
@decode_option
@threads_option
@cluster_options("Rank the rows of a store")
@cache_options
@progress_option
@json_option
@debug_option
def predict(
    *,
    run: Path,
    source: Path,
    k: int,
    threshold: float | None,
    probabilities: bool,
    out: Path | None,
    out_format: str | None,
    force: bool,
    on_bad_row: str,
    max_bad: int | None,
    rejects: Path | None,
    form: str | None,
    layout: Layout,
    x_path: str | None,
    memory: str | None,
    device: str,
    decode: Decoding,
    threads: int | None,
    dask: str | None,
    devices: str | None,
    progress: str,
    as_json: bool,
) -> None:
    """Write the best classes of each row.

    INPUT is a store, or a file of any format that can be converted, whose rows need no labels; - is
    text on standard input. Rows come in the order of the source, those of a store in that of what
    it was converted from, and are numbered there from 0.

    The table has number and tag of each row, and label and score of each class: tab-separated or
    CSV with a header, an object on each line, or Parquet. Names that end in .gz are packed. The
    table appears when it is whole.

    With --dask or --devices the rows of a store are ranked in several processes, and written to a
    file; the table is the same.

    The score is the estimator's: a log odds for blend, a mean logarithm of bucket probabilities for
    logsum, else a probability.
    """
    from streammach.data.source_options import SourceOptions  # compiled code loads on demand
    from streammach.files.destinations import STANDARD_OUTPUT
    from streammach.prediction.predict import UNITS
    from streammach.prediction.predict import predict as write

    printed = out is None or out in STANDARD_OUTPUT
    if as_json and printed:
        raise UsageError(
            "--json needs --out: standard output holds either predictions or the object"
        )
    asked: dict[str, Any] = {
        "k": k, "threshold": threshold, "probabilities": probabilities, "out_format": out_format,
        "force": force, "memory": memory, "decode": decode,
    }  # fmt: skip
    with ExitStack() as opened:
        shown = opened.enter_context(ProgressBar("none" if printed else progress, UNITS))
        if dask is None and devices is None:
            done = write(
                run, source, out, on_bad_row=on_bad_row, max_bad=max_bad, rejects=rejects,
                options=SourceOptions(form=form, x_path=x_path, layout=layout), device=device,
                threads=threads,
                progress=shown, **asked,
            )  # fmt: skip
        else:
            if out is None or printed:
                raise UsageError("a cluster writes to a file: --out")
            client = opened.enter_context(rankers(dask, devices, threads))
            from streammach.cluster.ranges import predict as write_apart  # loads on demand

            done = write_apart(
                run, source, client, out=out, progress=shown, tell=shown.tell, **asked
            )
    if done.unknown_values:
        warnings.warn(
            f"{done.unknown_values:,} values of features never seen in training were left out: "
            f"{short_path(source)}",
            stacklevel=1,
        )
    warn_of_skipped(done.skipped, source, done.rejects)
    peak = peak_of(done.projected_bytes)
    if as_json:
        say_json(dataclasses.asdict(done) | {"peak_bytes": peak})
    elif not printed:
        say(f"{short_path(out)}: {done.n_rows:,} rows, {done.k:,} classes each")
