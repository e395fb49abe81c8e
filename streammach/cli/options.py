"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from streammach.backends.registry import BACKENDS
from streammach.errors import clean
from streammach.files.urls import locate
from streammach.parts.switches import SWITCHES
from streammach.progress import MODES
from streammach.spec.optimizers import OPTIMIZERS
from streammach.spec.recipe import MOST_NGRAMS
from streammach.spec.training import AIMS, LABEL_LOSSES, TRANSFORMS
from streammach.spec.types import Multilabel, Quotes, Weights

F = TypeVar("F", bound=Callable[..., Any])
Options = tuple[Callable[[Any], Any], ...]
PATH = click.Path(path_type=Path)
option, choice = click.option, click.Choice


def one_of(flag: str, words: Sequence[str], help: str) -> Callable[[F], F]:
    """Return an option that is one of some words, the first one if nothing is said."""
    return option(flag, type=choice(words), default=words[0], show_default=True, help=help)


class StorePath(click.Path):
    """A path, or the URL of a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what was named; see :func:`streammach.files.urls.locate`."""
        del param, ctx
        return locate(value)


STORE_PATH = StorePath(path_type=Path)


def add_shared_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what adds options to a command, in their order; --json and --debug come last."""

    def add_options(command: F) -> F:
        for option in reversed((*options, json_option, debug_option)):
            command = option(command)
        return command

    return add_options


def epilog(example: str) -> str:
    """Return the example that stands at the end of a help text, kept as it is written."""
    return f"\b\nExample:\n  {example}"


def numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """Return whole numbers that stand with commas between, or raise a click error."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise click.BadParameter(f"{clean(text)} is not a list such as 4,8,16", context, option)
    return tuple(map(int, words))


def _names(context: click.Context, option: click.Parameter, given: str) -> tuple[str, ...]:
    del context, option
    return tuple(given.split(",")) if given else ()


sources_argument = click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=PATH)
json_option = option("--json", "as_json", is_flag=True, help="Print one JSON object.")
progress_option = one_of("--progress", MODES, "How progress is shown, on standard error.")
threads_option = option("--threads", type=int, help="Threads that compute.  [default: all cores]")
device_option = one_of("--device", ("auto", *sorted(BACKENDS)), "Where to compute.")
memory_option = option(
    "--memory", metavar="SIZE",
    help="Memory to work in, such as 1GB.  [default: 2GB, or what the model needs]",
)  # fmt: skip
debug_option = option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)
format_option = option(
    "--format", "form", metavar="FORMAT",
    help="Format of the files: vw, svmlight, xmc, parquet, arrow, csv, tsv, jsonl, documents, "
    "hdf5, npz, npy or anndata.  [default: guessed from their content]",
)  # fmt: skip
seed_option = option(
    "--seed", type=int, default=0, show_default=True, help="Decides all that is random."
)
x_path_option = option(
    "--x-path", metavar="NAME", help="Where in a file the rows are.  [default: guessed]"
)
SOURCE: Options = (
    option("--labels", multiple=True, metavar="FILE", type=PATH,
           help="Labels of a matrix, .npy or one a line, or of trn_X_Xf.txt; once for each SRC.  "
                "[default: y.npy for X.npy]"),
    x_path_option,
    option("--y-path", metavar="NAME", help="Where in a file the labels are.  [default: guessed]"),
    option("--first-label", is_flag=True,
           help="Take the first of several labels of a svmlight or XMC row."),
    one_of("--multilabel", get_args(Multilabel),
           "Whether rows have lists of labels; auto: if one has several."),
)  # fmt: skip
_COLUMNS: dict[str, Any] = {"multiple": True, "metavar": "COLUMNS"}
TABLE: Options = (
    option("--label", metavar="COLUMN", help="Of a table: the column of labels."),
    option("--text", is_flag=False, flag_value="*", **_COLUMNS,
           help="Of a table: columns whose words become features; alone: all that look like text."),
    option("--category", **_COLUMNS, help="Of a table: columns whose cells are names."),
    option("--number", **_COLUMNS, help="Of a table: columns of numbers, or of lists of them."),
    option("--date", **_COLUMNS, help="Of a table: columns of dates, perhaps with times."),
    option("--names", **_COLUMNS,
           help="Of a table: columns of lists of names, or of names with values."),
    option("--weight", metavar="COLUMN", help="Of a table: the column of the rows' importances."),
    option("--tag", metavar="COLUMN", help="Of a table: the column of the rows' tags."),
    option("--label-separator", metavar="TEXT",
           help="Of a table: what stands between the labels of a cell."),
    option("--ngrams", type=click.IntRange(0, MOST_NGRAMS), metavar="N",
           help="Of a text: most words of a run that is a feature.  [default: 2]"),
    option("--chars", metavar="N-M",
           help="Of a text: runs of so many characters within words are features, such as 3-5.  "
                "[default: none]"),
    option("--language", metavar="NAME",
           help="Of a text: words are brought to their stems by the rules of this language, such "
                "as finnish.  [default: they stay]"),
)  # fmt: skip
LAYOUT: Options = (
    one_of("--quotes", get_args(Quotes),
           "Of CSV and TSV: whether cells may stand in quotation marks; auto: where these "
           "pair up in a line of TSV."),
    option("--no-header", "header", flag_value=False, default=True,
           help="Of CSV and TSV: the first line is a row."),
    option("--columns", metavar="NAMES", default="", callback=_names,
           help="Of CSV and TSV without a header: the names of the columns, with commas between.  "
                "[default: numbers from 1]"),
)  # fmt: skip
PARTS: Options = tuple(one_of(one.flag, one.words, one.help) for one in SWITCHES.values())
SHAPE: Options = (
    option("--memory", metavar="SIZE", help="Budget of bytes, such as 12GB or 500MB."),
    option("--buckets", type=int, metavar="B", help="Buckets of each model."),
    option("--repetitions", type=int, metavar="R",
           help="Number of models; 0 without --buckets: counts alone."),
    option("--exact", is_flag=True, help="A bucket for every class."),
    option("--features", type=int, metavar="N",
           help="Of sparse rows: hashed models know the N most frequent features; counts all.  "
                "[default: all, or as many as pay]"),
    option("--batch-size", type=int, metavar="N", help="Most rows of a batch."),
    one_of("--optimizer", ("auto", *OPTIMIZERS),
           "auto: row-wise Adagrad for sparse rows, Adam for dense ones."),
    *PARTS,
    option("--time", metavar="TIME",
           help="Time of the whole command, such as 2h: it ends with the best model by then."),
    option("--latency", metavar="TIME",
           help="Most time that a query may be expected to take one thread, such as 200us."),
    device_option,
    one_of("--weights", get_args(Weights),
           "Type of the weights while they are trained; bfloat16 on a GPU, sparse rows."),
    option("--tf32/--no-tf32", default=None,
           help="Multiply dense rows in TensorFloat-32 while they are trained on, on a GPU.  "
           "[default: where it has that]"),
    threads_option,
    seed_option,
)  # fmt: skip
TRAINING: Options = (
    option("--epochs", type=int, metavar="E", help="Passes over the rows.  [default: 5; dense 12]"),
    option("--learning-rate", type=float, metavar="X",
           help="Rate at the start.  [default: searched]"),
    one_of("--transform", ("auto", *TRANSFORMS), "What is done to a row's values."),
    option("--validation", metavar="STORE", help="Store of held-out rows."),
    option("--hold-out-by", metavar="NAMESPACE", default="auto", show_default=True,
           help="Hold out rows that share a feature of this namespace; 'random' rows; or 'auto': "
                "whole documents where a column looks like their names."),
    one_of("--label-loss", LABEL_LOSSES,
           "Of rows with several labels: a sigmoid a bucket, or a softmax whose target they "
           "share or have in full each."),
    one_of("--optimise", AIMS,
           "Of rows with several labels: what choices go by, P@k, or PSP@5, where rare labels "
           "count more."),
)  # fmt: skip
RUN: Options = (
    *SHAPE,
    *TRAINING,
    option("--label-smoothing", type=float, metavar="X",
           help="Share of the target spread over all buckets.  [default: 0.1; dense 0]"),
    option("--class-weight", metavar="balanced|FILE",
           help="What rows count for by their class: balanced, all classes alike; or a file of "
                "labels, a tab and a weight in each line.  [default: 1 each]"),
    option("--fit-rows", type=click.IntRange(0), metavar="N",
           help="Held-out rows that weights of counts are fitted on.  [default: all there is time "
                "for]"),
    option("--pair-rows", type=click.IntRange(0), metavar="N",
           help="Rows that weights of pairs are learnt from.  [default: while it pays and there is "
                "time]"),
    option("--judge-rows", type=click.IntRange(1), metavar="N",
           help="Held-out rows that judge how small the model may be.  [default: 10,000, or 1,000 "
                "where time is short]"),
    option("--model-size", default="auto", show_default=True, metavar="auto|full|SIZE",
           help="auto: the smallest form of the model that held-out rows say is free; full: "
                "float32 weights and all that was learnt; or most bytes, such as 100MB."),
    option("--checkpoint-minutes", type=click.FloatRange(min=0), default=10.0, show_default=True,
           metavar="X", help="Time between checkpoints."),
    option("--resume", is_flag=True, help="Go on with an interrupted run."),
    option("--force", is_flag=True,
           help="Replace a run that is there, if nothing else is in its folder."),
)  # fmt: skip


def of_faces(work: str) -> Options:
    """Return the options of optional faces that do this work elsewhere, such as on a cluster.

    The work is to train or to rank; see :func:`elsewhere`.
    """
    return tuple(chain.from_iterable(face.options(work) for face in _faces()))


def elsewhere(given: Any) -> Any:
    """Return the face that options ask to do a command elsewhere, or None.

    It is a module with `options`, `wanted`, `train`, `evaluate` and `predict`, such as
    `streammach.cluster.command`, and an entry point of an installation.
    """
    return next((face for face in _faces() if face.wanted(given)), None)


@cache
def _faces() -> list[Any]:
    return [one.load() for one in entry_points(group="streammach.elsewhere")]


BAD_ROWS: Options = (
    one_of("--on-bad-row", ("error", "skip"), "What to do with a row that cannot be read."),
    option("--max-bad", type=int, metavar="N",
           help="Most rows that may be skipped.  [default: any number]"),
)  # fmt: skip
rejects_option = option(
    "--rejects", metavar="FILE", type=PATH,
    help="Where rows that are skipped are listed.  [default: beside a table, FILE.rejects.tsv]",
)  # fmt: skip
CACHE: Options = (
    option("--cache", metavar="FOLDER", type=PATH,
           help="Where files of stores at URLs are kept.  [default: of the user]"),
    option("--cache-size", metavar="SIZE", help="Most bytes that are kept there.  [default: 20GB]"),
)  # fmt: skip
