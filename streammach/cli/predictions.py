"""The commands about predictions: evaluate, predict."""

from __future__ import annotations

import dataclasses
import warnings
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
    source_options,
    threads_option,
)
from streammach.cli.output import Progress, peak_of, say, say_json, short_path
from streammach.errors import UsageError
from streammach.machine import time_text
from streammach.spec.estimators import BLEND, ESTIMATORS


@click.command(epilog=epilog("streammach evaluate runs/odp test.zarr"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--estimator", type=click.Choice([BLEND, *ESTIMATORS]),
              help="How classes are ranked: with counts (blend), or by the hashed models alone.  "
                   "[default: chosen in training]")  # fmt: skip
@format_option
@source_options
@memory_option
@device_option
@threads_option
@progress_option
@json_option
@debug_option
def evaluate(
    *,
    run: Path,
    store: Path,
    estimator: str | None,
    form: str | None,
    labels: tuple[Path, ...],
    x_path: str | None,
    y_path: str | None,
    first_label: bool,
    memory: str | None,
    device: str,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Measure accuracy, top-3 and top-5 accuracy and log loss.

    STORE is a store, or a labelled file of any format that can be converted; - is text on standard
    input. Labels are compared by name.
    """
    from streammach.data.source_options import SourceOptions  # compiled code loads on demand
    from streammach.model.model import Model
    from streammach.prediction.evaluate import CANDIDATES
    from streammach.prediction.evaluate import evaluate as measure
    from streammach.prediction.memory import room_before
    from streammach.prediction.predictor import Predictor

    if len(labels) > 1:
        raise UsageError(f"{len(labels)} files of labels for one of rows: --labels")
    options = SourceOptions(
        form=form, labels=labels[0] if labels else None, x_path=x_path, y_path=y_path,
        first_label=first_label,
    )  # fmt: skip
    room = room_before(
        run, "evaluate", store, CANDIDATES, memory=memory, device=device, threads=threads,
        options=options,
    )  # fmt: skip
    model = Model.load(run)
    with (
        Predictor(
            model, estimator=estimator, memory=memory, device=device, threads=threads
        ) as predictor,
        Progress(progress, "rows") as shown,
    ):
        found = measure(predictor, store, options=options, progress=shown)
    if found.n_unseen:
        warnings.warn(
            f"{found.n_unseen:,} rows carry a label never seen in training: {short_path(store)}. "
            "They count as wrong; see n_unseen",
            stacklevel=1,
        )
    projected = room.projected_bytes
    peak = peak_of(projected)
    if as_json:
        say_json(dataclasses.asdict(found) | {"projected_bytes": projected, "peak_bytes": peak})
        return
    say(
        f"{short_path(run)} on {short_path(store)}: {found.n_rows:,} rows in "
        f"{time_text(found.seconds)}"
    )
    say("            accuracy  top-3  top-5  log loss")
    seen = found.n_rows - found.n_unseen
    scale = found.n_rows / seen if seen else float("nan")
    hits = (found.accuracy, found.top_3_accuracy, found.top_5_accuracy)
    say(
        f"all rows    {hits[0]:8.3f}{hits[1]:7.3f}{hits[2]:7.3f}"
        + "         -  unseen labels count as wrong"
    )
    first, third, fifth = (x * scale for x in hits)
    say(f"seen labels {first:8.3f}{third:7.3f}{fifth:7.3f}{found.log_loss:10.3f}")
    say(f"estimator   {found.estimator}; majority class {found.majority:.4f}")
    if found.unknown_values:
        say(f"left out    {found.unknown_values:,} values of features never seen in training")


@click.command(epilog=epilog("streammach predict runs/odp new.vw -k 5 --out new.tsv"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="Classes a row.")
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
    from streammach.prediction.inputs import Seen
    from streammach.prediction.memory import room_before
    from streammach.prediction.predictor import Predictor

    goal = output.target(out, force=force, inputs=[folder_of(run), source])
    if as_json and goal is None:
        raise UsageError(
            "--json needs --out: standard output holds either predictions or the object"
        )
    options = SourceOptions(form=form, x_path=x_path)
    room = room_before(
        run, "predict", source, k, memory=memory, device=device, threads=threads, options=options
    )
    model, seen = Model.load(run), Seen()
    with (
        Predictor(model, memory=memory, device=device, threads=threads) as predictor,
        Progress(progress if goal is not None else "none", "rows") as shown,
        output.opened(goal) as table,
    ):
        table.write(output.heading(min(k, model.spec.n_classes)))
        for part in predictor.stream(source, k, options=options, seen=seen):
            table.write(output.lines(part, predictor.labels(part.ids)))
            shown("predict", seen.rows, 0)
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
