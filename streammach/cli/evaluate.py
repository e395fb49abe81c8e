"""The command that measures predictions: evaluate."""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.clusters import rankers, refuse
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
    memory_option,
    one_source,
    progress_option,
    rejects_option,
    source_options,
    threads_option,
)
from streammach.cli.output import (
    peak_of,
    say,
    say_json,
    say_named,
    short_path,
    warn_of_skipped,
)
from streammach.cli.places import STORE_PATH, cache_options
from streammach.clock import Clock
from streammach.errors import clean
from streammach.machine import time_text
from streammach.progress import ProgressBar
from streammach.spec.estimators import BLEND, ESTIMATORS
from streammach.spec.types import Decoding, Multilabel

if TYPE_CHECKING:
    from streammach.data.source_options import Layout
    from streammach.prediction.evaluate import Evaluation

# Of rows with one label each.
ONE_LABEL = (
    "accuracy", "top_3_accuracy", "top_5_accuracy", "log_loss", "ece", "ece_before", "macro_recall",
    "recall_by_decile",
)  # fmt: skip


@click.command(epilog=epilog("streammach evaluate runs/odp test.zarr"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("store", type=STORE_PATH)
@click.option("--estimator", type=click.Choice([BLEND, *ESTIMATORS]),
              help="How classes are ranked: with counts (blend), or by the hashed models alone.  "
                   "[default: chosen in training]")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, 1), default=0.5, show_default=True,
              help="Probability from which on F1 takes a label for predicted.")  # fmt: skip
@click.option("--propensity", type=float, nargs=2, default=(0.55, 1.5), show_default=True,
              metavar="A B", help="Constants of the propensities of labels.")  # fmt: skip
@click.option("--estimators", is_flag=True, help="Rank by all estimators, too, side by side.")
@click.option(
    "--first",
    metavar="R,...",
    default="",
    callback=lambda _, __, text: _numbers(text),
    help="The first R repetitions alone, too, such as 2,4,8: a pass for each.",
)
@click.option("--by", metavar="NAMESPACE",
              help="Accuracy by the values of a namespace, or of a column of a table.")  # fmt: skip
@bad_row_options
@rejects_option
@click.option("--force", is_flag=True, help="Replace an existing list of rows that are skipped.")
@format_option
@layout_options
@source_options
@memory_option
@device_option
@decode_option
@threads_option
@cluster_options("Rank the rows of a store")
@cache_options
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
    estimators: bool,
    first: tuple[int, ...],
    by: str | None,
    on_bad_row: str,
    max_bad: int | None,
    rejects: Path | None,
    force: bool,
    form: str | None,
    layout: Layout,
    labels: tuple[Path, ...],
    x_path: str | None,
    y_path: str | None,
    first_label: bool,
    multilabel: Multilabel,
    memory: str | None,
    device: str,
    decode: Decoding,
    threads: int | None,
    dask: str | None,
    devices: str | None,
    progress: str,
    as_json: bool,
) -> None:
    """Measure accuracy, macro recall, log loss and how true probabilities are.

    Macro recall is the mean over classes; ECE, the expected calibration error, is how far the
    probability of the best class lies from the share that is right, in the mean.

    Of rows with lists of labels: precision, nDCG, recall and propensity-scored precision at 1, 3
    and 5, recall by tenths of labels from the rarest on, and F1 at a threshold.

    STORE is a store, or a labelled file of any format that can be converted; - is text on standard
    input. Labels are compared by name. With --dask or --devices the rows of a store are ranked in
    several processes; the figures are the same.
    """
    from streammach.model.model import Model  # compiled code loads on demand
    from streammach.prediction.calibrate import CANDIDATES
    from streammach.prediction.evaluate import evaluate as measure
    from streammach.prediction.memory import room_before
    from streammach.prediction.predictor import Predictor
    from streammach.reports.about import evaluation_lines

    options = one_source(
        form=form, labels=labels, x_path=x_path, y_path=y_path, first_label=first_label,
        multilabel=multilabel, layout=layout,
    )  # fmt: skip
    room = room_before(
        run, "first" if first else "evaluate", store, CANDIDATES, memory=memory, device=device,
        decode=decode, threads=threads, options=options,
    )  # fmt: skip
    asked: dict[str, Any] = {
        "threshold": threshold, "propensity": propensity, "estimators": estimators, "by": by,
    }  # fmt: skip
    with ProgressBar(progress, {"evaluate": "rows"}) as shown, ExitStack() as opened:
        shown("open", 0, 0)
        if dask is None and devices is None:
            predictor = opened.enter_context(Predictor(
                Model.load(run), estimator=estimator, memory=memory, device=device,
                threads=threads, decode=decode,
            ))  # fmt: skip
            found = measure(
                predictor, store, options=options, progress=shown, first=first,
                on_bad_row=on_bad_row, max_bad=max_bad, rejects=rejects, force=force, **asked,
            )  # fmt: skip
        else:
            refuse(("first",), "first repetitions are measured by one process alone")
            client = opened.enter_context(rankers(dask, devices, threads))
            from streammach.cluster.ranges import evaluate as measure_apart  # loads on demand

            found = measure_apart(
                run, store, client, estimator=estimator, memory=memory, decode=decode,
                progress=shown, tell=shown.tell, **asked,
            )  # fmt: skip
    found = dataclasses.replace(found, seconds=Clock.of_process(None).spent)
    warn_of_skipped(found.skipped, store, rejects)
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


def _numbers(text: str) -> tuple[int, ...]:
    """Return numbers between commas, or raise a click error."""
    try:
        return tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise click.BadParameter(f"{clean(text)} is not numbers between commas") from None


def _figures(found: Evaluation) -> dict[str, Any]:
    """Return an evaluation for JSON; of lists of labels by the names of the XMC repository."""
    known = dataclasses.asdict(found)
    sets, f1, threshold = (known.pop(name) for name in ("sets", "f1", "threshold"))
    if found.sets is None:
        return known
    for name in ONE_LABEL:
        del known[name]
    return {
        **known, **found.sets.named(), "n_labels": sets["n_labels"],
        "decile_recall": sets["decile_recall"], "micro_f1": f1["micro"], "macro_f1": f1["macro"],
        "threshold": threshold,
    }  # fmt: skip
