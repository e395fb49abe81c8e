"""The commands that rank classes: evaluate and predict."""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from streammach.cli import console
from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.cli.options import OF_TABLES, PATH, STORE_PATH, command
from streammach.inputs.source_options import SourceOptions
from streammach.options.option_fields import option
from streammach.prediction.options import Device, EvaluateOptions, ListedRowOptions, PredictOptions
from streammach.system.clock import Clock
from streammach.system.errors import UsageError
from streammach.system.machine import time_text
from streammach.system.progress import ProgressBar

OF_LABELS = ("labels", "y_path", "first_label", "multilabel")  # rows to predict need none


@dataclass(frozen=True, kw_only=True)
class ThresholdGoal:
    """What a threshold is to reach, where none is named."""

    precision: float | None = option(
        None, "In place of --threshold: that with this precision on held-out rows of the training.",
        "P",
    )  # fmt: skip
    recall: float | None = option(
        None, "In place of --threshold: that with this recall on these rows.", "R"
    )

    def choose(self, run: Path, threshold: float | None) -> float | None:
        """Return the threshold that is named, or that of a precision or recall, or None.

        Raises UsageError if two are named, or none is enough.
        """
        from streammach.model.document import read_document  # loads on demand
        from streammach.model.thresholds import find_threshold

        named = {"threshold": threshold, **vars(self)}
        goals = {name: value for name, value in named.items() if value is not None}
        if len(goals) > 1:
            names = " and ".join(f"--{name}" for name in goals)
            raise UsageError(f"{names}: name one of them")
        if threshold is not None or not goals:
            return threshold
        curves = read_document(run).calibration.curves
        return find_threshold(curves, path=run, **goals)


@command("streammach evaluate runs/odp test.zarr", cached=True, without=OF_TABLES,
         elsewhere="rank")  # fmt: skip
@click.argument("run", metavar="RUN", type=PATH)
@click.argument("store", type=STORE_PATH)
def evaluate(
    *, run: Path, store: Path, options: EvaluateOptions, goal: ThresholdGoal,
    bad_rows: ListedRowOptions, source: SourceOptions, device: Device, elsewhere: Any,
    progress: str, as_json: bool,
) -> None:  # fmt: skip
    """Measure accuracy, macro recall, log loss and how true probabilities are.

    Macro recall is the mean over classes; ECE, the expected calibration error, is how far the
    probability of the best class lies from the share that is right, in the mean; of lists of labels
    that of the ten best.

    Of rows with lists of labels: precision, nDCG, recall and propensity-scored precision at 1, 3
    and 5, recall by tenths of labels from the rarest on, and precision, recall, F1 at a threshold.

    Of each class: the first one is predicted, of rows with lists those from the threshold on.

    STORE is a store, or a labelled file of any format that can be converted; - is text on standard
    input. Labels are compared by name.
    """
    from streammach.cli.about import evaluation_lines
    from streammach.model.model import Model
    from streammach.prediction.by_class import TABLE
    from streammach.prediction.evaluate import evaluate as measure
    from streammach.prediction.metric_table import EvaluationRequest
    from streammach.prediction.predictor import Predictor
    from streammach.prediction.room import room_before
    from streammach.system.files.destinations import Destination  # compiled code loads on demand

    threshold, source = goal.choose(run, options.threshold), source.one()
    file, table = options.class_table, None
    if file is not None:
        beside = [] if bad_rows.rejects is None else [bad_rows.rejects]
        table = Destination(file, TABLE, force=options.force, inputs=[run, store, *beside])
    request = EvaluationRequest(
        threshold=0.5 if threshold is None else threshold, propensity=options.propensity,
        estimators=options.estimators, by=options.by, at=options.at, by_class=file is not None,
        confusions=options.confusions,
    )  # fmt: skip
    room = room_before(
        run, request.task, store, request.cells(), options=source, beside=request.beside,
        **vars(device),
    )  # fmt: skip
    with ProgressBar(progress, {"evaluate": "rows"}) as shown, ExitStack() as opened:
        shown("open", 0, 0)
        if elsewhere is None:
            one = Predictor(Model.load(run), estimator=options.estimator, **vars(device))
            found = measure(
                opened.enter_context(one), store, options=source, force=options.force,
                progress=shown, **vars(request), **vars(bad_rows),
            )  # fmt: skip
        else:
            found = elsewhere.evaluate(run, store, options.estimator, request, device, shown)
    if table is not None and found.by_class is not None:
        table.write(found.by_class.csv())
    found = dataclasses.replace(found, seconds=Clock.of_process(None).elapsed_seconds)
    console.warn_of_skipped_rows(found.skipped, store, bad_rows.rejects)
    if found.n_unseen:
        warnings.warn(
            f"{found.n_unseen:,} {'rows carry a label' if found.sets is None else 'labels were'} "
            f"never seen in training: {short_path(store)}. They count as wrong; see n_unseen",
            stacklevel=1,
        )
    projected = room.projected_bytes
    peak = peak_of(projected)
    if as_json:
        named = None if file is None else str(file)
        say_json(found.json_fields() | {"by_class": named, "projected_bytes": projected,
                                    "peak_bytes": peak})  # fmt: skip
        return
    say(
        f"{short_path(run)} on {short_path(store)}: {found.n_rows:,} rows in "
        f"{time_text(found.seconds)}"
    )
    console.say_lines(evaluation_lines(found), 12)
    if file is not None and found.by_class is not None:
        say(f"{short_path(file)}: {len(found.by_class):,} classes")


@command("streammach predict runs/odp new.vw -k 5 --out new.tsv", cached=True,
         without=(*OF_TABLES, *OF_LABELS), elsewhere="rank")  # fmt: skip
@click.argument("run", metavar="RUN", type=PATH)
@click.argument("source", metavar="INPUT", type=STORE_PATH)
def predict(
    *, run: Path, source: Path, options: PredictOptions, goal: ThresholdGoal,
    bad_rows: ListedRowOptions, how: SourceOptions, device: Device, elsewhere: Any, progress: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Write the best classes of each row.

    INPUT is a store, or a file of any format that can be converted, whose rows need no labels; - is
    text on standard input. Rows come in the order of the source, those of a store in that of what
    it was converted from, and are numbered there from 0.

    The table has number and tag of each row, and label and score of each class: tab-separated or
    CSV with a header, an object on each line, or Parquet. Names that end in .gz are packed. The
    table appears when it is whole.

    The score is the estimator's: a log odds for blend, a mean logarithm of bucket probabilities for
    logsum, else a probability.
    """
    from streammach.prediction.predict import UNITS
    from streammach.prediction.predict import predict as write
    from streammach.system.files.destinations import STANDARD_OUTPUT  # loads on demand

    options = dataclasses.replace(options, threshold=goal.choose(run, options.threshold))
    out = options.out
    printed = out is None or out in STANDARD_OUTPUT
    if as_json and printed:
        what = "--json needs --out: standard output holds either predictions or the object"
        raise UsageError(what)
    with ExitStack() as opened:
        shown = opened.enter_context(ProgressBar("none" if printed else progress, UNITS))
        if elsewhere is not None:
            done = elsewhere.predict(run, source, options, device, shown)
        else:
            done = write(
                run, source, options=how, progress=shown, **vars(options), **vars(bad_rows),
                **vars(device),
            )  # fmt: skip
    console.warn_of_unknown(done.unknown_values, source)
    console.warn_of_skipped_rows(done.skipped, source, done.rejects)
    peak = peak_of(done.projected_bytes)
    if as_json:
        say_json(dataclasses.asdict(done) | {"peak_bytes": peak})
    elif not printed:
        say(f"{short_path(out)}: {done.n_rows:,} rows, {done.k:,} classes each")
