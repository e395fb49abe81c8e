"""The commands about predictions: evaluate, predict."""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.options import (
    debug_option,
    device_option,
    epilog,
    format_option,
    json_option,
    matrix_options,
    memory_option,
    one_source,
    progress_option,
    source_options,
    threads_option,
)
from streammach.cli.output import peak_of, say, say_json, say_named, short_path
from streammach.clock import Clock
from streammach.errors import UsageError
from streammach.machine import time_text
from streammach.progress import Progress
from streammach.spec.estimators import BLEND, ESTIMATORS
from streammach.spec.types import Multilabel

if TYPE_CHECKING:
    from streammach.prediction.evaluate import Evaluation


@click.command(epilog=epilog("streammach evaluate runs/odp test.zarr"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--estimator", type=click.Choice([BLEND, *ESTIMATORS]),
              help="How classes are ranked: with counts (blend), or by the hashed models alone.  "
                   "[default: chosen in training]")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, 1), default=0.5, show_default=True,
              help="Probability from which on F1 takes a label for predicted.")  # fmt: skip
@click.option("--propensity", type=float, nargs=2, default=(0.55, 1.5), show_default=True,
              metavar="A B", help="Constants of the propensities of labels.")  # fmt: skip
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
    threshold: float,
    propensity: tuple[float, float],
    form: str | None,
    labels: tuple[Path, ...],
    x_path: str | None,
    y_path: str | None,
    first_label: bool,
    multilabel: Multilabel,
    memory: str | None,
    device: str,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Measure accuracy, top-3 and top-5 accuracy and log loss.

    Of rows with lists of labels: precision, nDCG, recall and propensity-scored precision at 1, 3
    and 5, recall by tenths of labels from the rarest on, and F1 at a threshold.

    STORE is a store, or a labelled file of any format that can be converted; - is text on standard
    input. Labels are compared by name.
    """
    from streammach.model.model import Model  # compiled code loads on demand
    from streammach.prediction.calibrate import CANDIDATES
    from streammach.prediction.evaluate import evaluate as measure
    from streammach.prediction.memory import room_before
    from streammach.prediction.predictor import Predictor
    from streammach.reports.about import evaluation_lines

    options = one_source(
        form=form, labels=labels, x_path=x_path, y_path=y_path, first_label=first_label,
        multilabel=multilabel,
    )  # fmt: skip
    room = room_before(
        run, "evaluate", store, CANDIDATES, memory=memory, device=device, threads=threads,
        options=options,
    )  # fmt: skip
    with Progress(progress, {"evaluate": "rows"}) as shown, ExitStack() as opened:
        shown("open", 0, 0)
        predictor = opened.enter_context(Predictor(
            Model.load(run), estimator=estimator, memory=memory, device=device, threads=threads
        ))  # fmt: skip
        found = measure(
            predictor, store, options=options, progress=shown, threshold=threshold,
            propensity=propensity,
        )  # fmt: skip
    found = dataclasses.replace(found, seconds=Clock.of_process(None).spent)
    if found.n_unseen:
        warnings.warn(
            f"{found.n_unseen:,} {'rows carry a label' if found.sets is None else 'labels were'} "
            f"never seen in training: {short_path(store)}. They count as wrong; see n_unseen",
            stacklevel=1,
        )
    projected = room.projected_bytes
    peak = peak_of(projected)
    if as_json:
        say_json(_figures(found) | {"projected_bytes": projected, "peak_bytes": peak})
        return
    say(
        f"{short_path(run)} on {short_path(store)}: {found.n_rows:,} rows in "
        f"{time_text(found.seconds)}"
    )
    say_named(evaluation_lines(found), 12)


def _figures(found: Evaluation) -> dict[str, Any]:
    """Return an evaluation for JSON; of lists of labels by the names of the XMC repository."""
    known = dataclasses.asdict(found)
    sets, f1, threshold = (known.pop(name) for name in ("sets", "f1", "threshold"))
    if found.sets is None:
        return known
    for name in ("accuracy", "top_3_accuracy", "top_5_accuracy", "log_loss"):
        del known[name]
    return {
        **known, **found.sets.named(), "n_labels": sets["n_labels"],
        "decile_recall": sets["decile_recall"], "micro_f1": f1["micro"], "macro_f1": f1["macro"],
        "threshold": threshold,
    }  # fmt: skip


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
