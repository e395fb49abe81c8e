"""The commands that rank classes: evaluate and predict."""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import ExitStack
from pathlib import Path

import click

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import (
    peak_of,
    say,
    say_json,
    say_lines,
    short_path,
    warn_of_skipped_rows,
    warn_of_unknown,
)
from streammach.clock import Clock
from streammach.errors import UsageError
from streammach.machine import time_text
from streammach.progress import ProgressBar
from streammach.spec.estimators import rankers

PRECISION = "In place of --threshold: that with this precision on held-out rows of the training."
RECALL = "In place of --threshold: that with this recall on these rows."


@command("streammach evaluate runs/odp test.zarr")
@click.argument("run", metavar="RUN", type=options.PATH)
@click.argument("store", type=options.STORE_PATH)
@click.option("--estimator", type=click.Choice(rankers()),
              help="How classes are ranked: with counts (blend), or by the hashed models alone.  "
                   "[default: chosen in training]")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, 1), metavar="P",
              help="Probability from which on F1 takes a label for predicted.  "
                   "[default: 0.5]")  # fmt: skip
@click.option("--precision", type=float, metavar="P", help=PRECISION)
@click.option("--recall", type=float, metavar="R", help=RECALL)
@click.option("--propensity", type=float, nargs=2, default=(0.55, 1.5), show_default=True,
              metavar="A B", help="Constants of the propensities of labels.")  # fmt: skip
@click.option("--estimators", is_flag=True, help="Rank by all estimators, too, side by side.")
@click.option("--by", metavar="NAMESPACE",
              help="Accuracy by the values of a namespace, or of a column of a table.")  # fmt: skip
@click.option("--at", metavar="LIST", default="", callback=options.numbers,
              help="Places at which precision, nDCG, recall and F1 are told: 1,10.")  # fmt: skip
@click.option("--by-class", metavar="FILE", type=options.PATH,
              help="Write precision, recall, top confusion and more by class: CSV.")  # fmt: skip
@click.option("--confusions", type=click.IntRange(min=0), default=0, metavar="N",
              help="Tell the N most frequent confusions.")  # fmt: skip
@options.add_shared_options(
    *options.BAD_ROWS, options.rejects_option,
    click.option("--force", is_flag=True,
                 help="Replace an existing table of classes or list of rows that are skipped."),
    options.format_option, *options.LAYOUT, *options.SOURCE, options.memory_option,
    options.device_option, options.threads_option,
    *options.of_faces("rank"), *options.CACHE, options.progress_option,
)  # fmt: skip
def evaluate(*, run: Path, store: Path, given: Arguments) -> None:
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
    from streammach.files.destinations import Destination  # compiled code loads on demand
    from streammach.model.model import Model
    from streammach.prediction.by_class import TABLE
    from streammach.prediction.evaluate import evaluate as measure
    from streammach.prediction.metric_table import EvaluationRequest
    from streammach.prediction.predictor import Predictor
    from streammach.prediction.room import room_before
    from streammach.reports.about import evaluation_lines

    given = _with_threshold(run, given, 0.5)
    file: Path | None = given.by_class
    table = None
    if file is not None:
        beside = [] if given.rejects is None else [given.rejects]
        table = Destination(file, TABLE, force=given.force, inputs=[run, store, *beside])
    given = given.but(by_class=file is not None)
    request = EvaluationRequest(**given.of(EvaluationRequest))
    room = room_before(
        run, "evaluate", store, request.best, options=given.source(), beside=request.beside,
        **given.of(room_before),
    )  # fmt: skip
    with ProgressBar(given.progress, {"evaluate": "rows"}) as shown, ExitStack() as opened:
        shown("open", 0, 0)
        elsewhere = options.elsewhere(given)
        if elsewhere is None:
            predictor = opened.enter_context(Predictor(Model.load(run), **given.of(Predictor)))
            wanted = given.of(measure) | {"progress": shown}
            found = measure(predictor, store, options=given.source(), **wanted)
        else:
            found = elsewhere.evaluate(run, store, given, shown)
    if table is not None and found.by_class is not None:
        table.write(found.by_class.csv())
    found = dataclasses.replace(found, seconds=Clock.of_process(None).elapsed_seconds)
    warn_of_skipped_rows(found.skipped, store, given.rejects)
    if found.n_unseen:
        warnings.warn(
            f"{found.n_unseen:,} {'rows carry a label' if found.sets is None else 'labels were'} "
            f"never seen in training: {short_path(store)}. They count as wrong; see n_unseen",
            stacklevel=1,
        )
    projected = room.projected_bytes
    peak = peak_of(projected)
    if given.as_json:
        named = None if file is None else str(file)
        say_json(found.json_fields() | {"by_class": named, "projected_bytes": projected,
                                    "peak_bytes": peak})  # fmt: skip
        return
    say(
        f"{short_path(run)} on {short_path(store)}: {found.n_rows:,} rows in "
        f"{time_text(found.seconds)}"
    )
    say_lines(evaluation_lines(found), 12)
    if file is not None and found.by_class is not None:
        say(f"{short_path(file)}: {len(found.by_class):,} classes")


def _with_threshold(run: Path, given: Arguments, usual: float | None = None) -> Arguments:
    """Return the options with the threshold that is named, or that a precision or recall asks for.

    Raises UsageError if two are named, or none is enough.
    """
    from streammach.model.document import read_document  # loads on demand
    from streammach.model.model import folder_of
    from streammach.model.thresholds import find_threshold

    names = ("threshold", "precision", "recall")
    asked = {name: value for name in names if (value := getattr(given, name)) is not None}
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(f'--{name}' for name in asked)}: name one of them")
    if asked and "threshold" not in asked:
        curves = read_document(folder_of(run), run).calibration.curves
        asked = {"threshold": find_threshold(curves, path=run, **asked)}
    return given.but(threshold=asked.get("threshold", usual))


@command("streammach predict runs/odp new.vw -k 5 --out new.tsv")
@click.argument("run", metavar="RUN", type=options.PATH)
@click.argument("source", metavar="INPUT", type=options.STORE_PATH)
@click.option("-k", "--limit", "k", type=click.IntRange(min=1), default=5, show_default=True,
              help="Classes a row, at most.")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, 1), metavar="P",
              help="The k likeliest labels with at least this probability alone, and their "
                   "probabilities as scores.")  # fmt: skip
@click.option("--precision", type=float, metavar="P", help=PRECISION)
@click.option("--recall", type=float, metavar="R", help=RECALL)
@click.option("--probabilities", is_flag=True, help="Calibrated probabilities in place of scores.")
@click.option("--explain", type=click.IntRange(min=0), default=0, metavar="N",
              help="Say why: of each label the N features that raise its score most and the N that "
                   "lower it most, and the lines that add up to the score with them.")  # fmt: skip
@click.option("--only", metavar="FILE", type=options.PATH,
              help="Labels that may be said alone, one in each line.")  # fmt: skip
@click.option("--never", metavar="FILE", type=options.PATH,
              help="Labels that may not be said, one in each line.")  # fmt: skip
@click.option("--out", metavar="FILE", type=options.PATH,
              help="Where to write.  [default: standard output]")  # fmt: skip
@click.option("--out-format", metavar="tsv|csv|jsonl|parquet",
              help="Format of what is written.  "
                   "[default: by the name of --out, else tsv]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing table of predictions.")
@options.add_shared_options(
    *options.BAD_ROWS, options.rejects_option, options.format_option, *options.LAYOUT,
    options.x_path_option, options.memory_option, options.device_option,
    options.threads_option, *options.of_faces("rank"), *options.CACHE,
    options.progress_option,
)  # fmt: skip
def predict(*, run: Path, source: Path, out: Path | None, given: Arguments) -> None:
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
    from streammach.files.destinations import STANDARD_OUTPUT  # loads on demand
    from streammach.prediction.predict import UNITS
    from streammach.prediction.predict import predict as write

    given = _with_threshold(run, given)
    printed = out is None or out in STANDARD_OUTPUT
    if given.as_json and printed:
        what = "--json needs --out: standard output holds either predictions or the object"
        raise UsageError(what)
    with ExitStack() as opened:
        shown = opened.enter_context(ProgressBar("none" if printed else given.progress, UNITS))
        elsewhere = options.elsewhere(given)
        if elsewhere is None:
            wanted = given.of(write) | {"progress": shown}
            done = write(run, source, out, options=given.source(), **wanted)
        else:
            done = elsewhere.predict(run, source, None if printed else out, given, shown)
    warn_of_unknown(done.unknown_values, source)
    warn_of_skipped_rows(done.skipped, source, done.rejects)
    peak = peak_of(done.projected_bytes)
    if given.as_json:
        say_json(dataclasses.asdict(done) | {"peak_bytes": peak})
    elif not printed:
        say(f"{short_path(out)}: {done.n_rows:,} rows, {done.k:,} classes each")
