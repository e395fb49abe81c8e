"""The command that writes predictions: predict."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path

import click

from streammach.cli.options import (
    debug_option,
    device_option,
    epilog,
    format_option,
    json_option,
    matrix_options,
    memory_option,
    progress_option,
    threads_option,
)
from streammach.cli.output import peak_of, say, say_json, short_path
from streammach.errors import UsageError
from streammach.progress import Progress


@click.command(epilog=epilog("streammach predict runs/odp new.vw -k 5 --out new.tsv"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="Classes a row.")
@click.option("--threshold", type=click.FloatRange(0, 1), metavar="P",
              help="Of rows with lists of labels: the k likeliest labels with at least this "
                   "probability, and their probabilities as scores.")  # fmt: skip
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help="Where to write.  [default: standard output]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing table of predictions.")
@format_option
@matrix_options
@memory_option
@device_option
@threads_option
@progress_option
@json_option
@debug_option
def predict(
    *,
    run: Path,
    source: Path,
    k: int,
    threshold: float | None,
    out: Path | None,
    force: bool,
    form: str | None,
    x_path: str | None,
    memory: str | None,
    device: str,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Write the best classes of each row.

    INPUT is a store, or a file of any format that can be converted, whose rows need no labels; - is
    text on standard input. The table is tab-separated: a header, then a line for each row with its
    number, its tag, and label and score of each class. Rows come in the order of the source, those
    of a store in that of what it was converted from, and are numbered there from 0.

    The score is the estimator's: a log odds for blend, a mean logarithm of bucket probabilities for
    logsum, else a probability.
    """
    from streammach.data.source_options import SourceOptions  # compiled code loads on demand
    from streammach.model.model import Model, folder_of
    from streammach.prediction import output
    from streammach.prediction.calibrate import CANDIDATES
    from streammach.prediction.inputs import Seen
    from streammach.prediction.memory import room_before
    from streammach.prediction.predictor import Predictor

    goal = output.target(out, force=force, inputs=[folder_of(run), source])
    if as_json and goal is None:
        raise UsageError(
            "--json needs --out: standard output holds either predictions or the object"
        )
    options = SourceOptions(form=form, x_path=x_path)
    best = k if threshold is None else max(k, CANDIDATES)
    room = room_before(
        run, "predict", source, best, memory=memory, device=device, threads=threads,
        options=options,
    )  # fmt: skip
    seen = Seen()
    with (
        Progress(progress if goal is not None else "none", {"predict": "rows"}) as shown,
        ExitStack() as opened,
        output.opened(goal) as table,
    ):
        shown("open", 0, 0)
        model = Model.load(run)
        predictor = opened.enter_context(
            Predictor(model, memory=memory, device=device, threads=threads)
        )
        shown("predict", 0, 0)
        table.write(output.heading(min(k, model.spec.n_classes)))
        for part in predictor.stream(source, k, options=options, seen=seen, threshold=threshold):
            table.write(output.lines(part, predictor.labels(part.ids)))
            shown("predict", seen.rows, seen.total)
    if seen.unknown_values:
        warnings.warn(
            f"{seen.unknown_values:,} values of features never seen in training were left out: "
            f"{short_path(source)}",
            stacklevel=1,
        )
    projected = room.projected_bytes
    peak = peak_of(projected)
    if as_json:
        say_json(
            {
                "out": str(out),
                "n_rows": seen.rows,
                "k": min(k, model.spec.n_classes),
                "estimator": predictor.estimator,
                "unknown_values": seen.unknown_values,
                "projected_bytes": projected,
                "peak_bytes": peak,
            }
        )
    elif goal is not None:
        say(f"{short_path(out)}: {seen.rows:,} rows, {min(k, model.spec.n_classes)} classes each")
