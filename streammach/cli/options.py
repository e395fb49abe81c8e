"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import click

from streammach.backends.registry import BACKENDS
from streammach.errors import UsageError
from streammach.parts.switches import SWITCHES
from streammach.spec.optimizers import OPTIMIZERS
from streammach.spec.recipe import MOST_NGRAMS
from streammach.spec.types import Decoding, Multilabel, Quotes

if TYPE_CHECKING:
    from streammach.data.source_options import Layout, SourceOptions

TABLE_FIELDS = (
    "label", "text", "category", "number", "date", "names", "weight", "tag", "label_separator",
    "ngrams", "chars",
)  # fmt: skip
LAYOUT_FIELDS = ("quotes", "header", "columns")
F = TypeVar("F", bound=Callable[..., Any])

sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SRC...", type=click.Path(path_type=Path)
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
progress_option = click.option(
    "--progress", type=click.Choice(["auto", "bar", "plain", "json", "none"]), default="auto",
    show_default=True, help="How progress is shown, on standard error.",
)  # fmt: skip
threads_option = click.option(
    "--threads", type=int, help="Threads that compute.  [default: all cores]"
)
device_option = click.option(
    "--device", type=click.Choice(["auto", *sorted(BACKENDS)]), default="auto", show_default=True,
    help="Where to compute.",
)  # fmt: skip
decode_option = click.option(
    "--decode", type=click.Choice(get_args(Decoding)), default="auto", show_default=True,
    help="How the CPU finds the best classes, the same ones in any way: 64 classes a vector (perm; "
    "at most 256 buckets, AVX-512 VBMI), 64 rows a vector (tile), the classes of a row's best "
    "buckets first (buckets), or class by class (one).",
)  # fmt: skip
memory_option = click.option(
    "--memory", metavar="SIZE",
    help="Memory to work in, such as 1GB.  [default: 2GB, or what the model needs]",
)  # fmt: skip
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)
format_option = click.option(
    "--format", "form", metavar="FORMAT",
    help="Format of the files: vw, svmlight, xmc, parquet, arrow, csv, tsv, jsonl, hdf5, npz, npy "
    "or anndata.  [default: guessed from their content]",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Decides all that is random."
)


def _with(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """Add options, which the help text lists in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def matrix_options(command: F) -> F:
    """Add the option that says where rows are in a source."""
    return click.option(
        "--x-path", metavar="NAME", help="Where in a file the rows are.  [default: guessed]"
    )(command)


def source_options(command: F) -> F:
    """Add the options that say where rows and labels are in a source."""
    options = [
        click.option("--labels", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
                     help="Labels of a matrix, .npy or one a line; once for each SRC.  "
                          "[default: y.npy for X.npy]"),
        matrix_options,
        click.option("--y-path", metavar="NAME",
                     help="Where in a file the labels are.  [default: guessed]"),
        click.option("--first-label", is_flag=True,
                     help="Take the first of several labels of a svmlight or XMC row."),
        click.option("--multilabel", type=click.Choice(["auto", "on", "off"]), default="auto",
                     show_default=True,
                     help="Whether rows have lists of labels; auto: if one has several."),
    ]  # fmt: skip
    return _with(command, options)


def one_source(
    *,
    form: str | None,
    labels: tuple[Path, ...],
    x_path: str | None,
    y_path: str | None,
    first_label: bool,
    multilabel: Multilabel,
    layout: Layout,
) -> SourceOptions:
    """Return how the one source of a command is read; UsageError for several files of labels."""
    from streammach.data.source_options import SourceOptions  # loads on demand

    if len(labels) > 1:
        raise UsageError(f"{len(labels)} files of labels for one of rows: --labels")
    return SourceOptions(
        form=form, labels=labels[0] if labels else None, x_path=x_path, y_path=y_path,
        first_label=first_label, multilabel=multilabel, layout=layout,
    )  # fmt: skip


def _as_record(command: F, name: str, record: str, fields: Sequence[str]) -> F:
    """Give a command some of its options as one record of :mod:`streammach.data.source_options`."""

    @wraps(command)
    def called(**given: Any) -> None:
        from streammach.data import source_options  # loads on demand

        said = {field: given.pop(field) for field in fields}
        command(**given, **{name: getattr(source_options, record)(**said)})

    return cast("F", called)


def table_options(command: F) -> F:
    """Add the options that say what the columns of a table are, as one record: `table`."""
    columns: dict[str, Any] = {"multiple": True, "metavar": "COLUMNS"}
    options = [
        click.option("--label", metavar="COLUMN", help="Of a table: the column of labels."),
        click.option("--text", is_flag=False, flag_value="*", **columns,
                     help="Of a table: columns whose words become features; alone: all that look "
                          "like text."),
        click.option("--category", **columns,
                     help="Of a table: columns whose cells are names."),
        click.option("--number", **columns,
                     help="Of a table: columns of numbers, or of lists of them."),
        click.option("--date", **columns, help="Of a table: columns of dates, perhaps with times."),
        click.option("--names", **columns,
                     help="Of a table: columns of lists of names, or of names with values."),
        click.option("--weight", metavar="COLUMN",
                     help="Of a table: the column of the rows' importances."),
        click.option("--tag", metavar="COLUMN", help="Of a table: the column of the rows' tags."),
        click.option("--label-separator", metavar="TEXT",
                     help="Of a table: what stands between the labels of a cell."),
        click.option("--ngrams", type=click.IntRange(0, MOST_NGRAMS), metavar="N",
                     help="Of a text: most words of a run that is a feature.  [default: 2]"),
        click.option("--chars", metavar="N-M",
                     help="Of a text: runs of so many characters within words are features, such "
                          "as 3-5.  [default: none]"),
    ]  # fmt: skip

    return _with(_as_record(command, "table", "TableOptions", TABLE_FIELDS), options)


def _names(context: click.Context, option: click.Parameter, given: str) -> tuple[str, ...]:
    del context, option
    return tuple(given.split(",")) if given else ()


def layout_options(command: F) -> F:
    """Add the options that say how the cells of CSV and TSV lie, as one record: `layout`."""
    options = [
        click.option("--quotes", type=click.Choice(get_args(Quotes)), default="auto",
                     show_default=True,
                     help="Of CSV and TSV: whether cells may stand in quotation marks; auto: where "
                          "these pair up in a line of TSV."),
        click.option("--no-header", "header", flag_value=False, default=True,
                     help="Of CSV and TSV: the first line is a row."),
        click.option("--columns", metavar="NAMES", default="", callback=_names,
                     help="Of CSV and TSV without a header: the names of the columns, with commas "
                          "between.  [default: numbers from 1]"),
    ]  # fmt: skip

    return _with(_as_record(command, "layout", "Layout", LAYOUT_FIELDS), options)


def part_options(command: F) -> F:
    """Add the options that say which optional parts a training may have."""
    options = [
        click.option(
            switch.flag, type=click.Choice(switch.words), default=switch.words[0],
            show_default=True, help=switch.help,
        )
        for switch in SWITCHES.values()
    ]  # fmt: skip
    return _with(command, options)


def shape_options(command: F) -> F:
    """Add the options that decide the model's shape."""
    options = [
        click.option("--memory", metavar="SIZE", help="Budget of bytes, such as 12GB or 500MB."),
        click.option("--buckets", type=int, metavar="B", help="Buckets of each model."),
        click.option("--repetitions", type=int, metavar="R",
                     help="Number of models; 0 without --buckets: counts alone."),
        click.option("--exact", is_flag=True, help="A bucket for every class."),
        click.option("--batch-size", type=int, metavar="N", help="Most rows of a batch."),
        click.option("--optimizer", type=click.Choice(["auto", *OPTIMIZERS]), default="auto",
                     show_default=True,
                     help="auto: row-wise Adagrad for sparse rows, Adam for dense ones."),
        part_options,
        click.option("--time", metavar="TIME",
                     help="Time of the whole command, such as 2h: it ends with the best model by "
                          "then."),
        click.option("--latency", metavar="TIME",
                     help="Most time that a query may be expected to take one thread, such as "
                          "200us."),
        click.option("--pilot", metavar="TIME",
                     help="First train the best few on samples for about this time, such as 5min, "
                          "and choose by what they reach."),
        click.option("--objective", type=click.Choice(["accuracy", "smallest", "fastest"]),
                     default="accuracy", show_default=True,
                     help="What is best: the least expected loss of accuracy, or within a point "
                          "of it the smallest model or the shortest training."),
        device_option,
        click.option("--weights", type=click.Choice(["float32", "bfloat16"]), default="float32",
                     show_default=True,
                     help="Type of the weights while they are trained; bfloat16 on a GPU, sparse "
                          "rows."),
        click.option("--tf32", is_flag=True,
                     help="Multiply dense rows in TensorFloat-32 while they are trained on, on a "
                          "GPU."),
        threads_option,
        seed_option,
    ]  # fmt: skip
    return _with(command, options)


def training_options(command: F) -> F:
    """Add the options that say how models are trained."""
    options = [
        click.option("--epochs", type=int, metavar="E",
                     help="Passes over the rows.  [default: 5; dense 12]"),
        click.option("--learning-rate", type=float, metavar="X",
                     help="Rate at the start.  [default: searched]"),
        click.option("--transform", type=click.Choice(["auto", "raw", "binary", "log1p", "l2"]),
                     default="auto", show_default=True, help="What is done to a row's values."),
        click.option("--validation", metavar="STORE", help="Store of held-out rows."),
        click.option("--hold-out-by", metavar="NAMESPACE", default="auto", show_default=True,
                     help="Hold out rows that share a feature of this namespace; 'random' rows; or "
                          "'auto': whole documents where rows are near-duplicates."),
        click.option("--label-loss", type=click.Choice(["auto", "logistic", "shared", "each"]),
                     default="auto", show_default=True,
                     help="Of rows with several labels: a sigmoid a bucket, or a softmax whose "
                          "target they share or have in full each."),
    ]  # fmt: skip
    return _with(command, options)


def run_options(command: F) -> F:
    """Add the options of a single run: the model's shape, and how it is trained."""
    options = [
        shape_options,
        training_options,
        click.option("--label-smoothing", type=float, metavar="X",
                     help="Share of the target spread over all buckets.  [default: 0.1; dense 0]"),
        click.option("--class-weight", metavar="balanced|FILE",
                     help="What rows count for by their class: balanced, all classes alike; or a "
                          "file of labels, a tab and a weight in each line.  [default: 1 each]"),
        click.option("--fit-rows", type=click.IntRange(0), metavar="N",
                     help="Held-out rows that weights of counts are fitted on.  [default: all "
                          "there is time for]"),
        click.option("--pair-rows", type=click.IntRange(0), metavar="N",
                     help="Rows that weights of pairs are learnt from.  [default: while it pays "
                          "and there is time]"),
        click.option("--judge-rows", type=click.IntRange(1), metavar="N",
                     help="Held-out rows that judge how small the model may be.  [default: 10,000, "
                          "or 1,000 where time is short]"),
        click.option("--model-size", default="auto", show_default=True, metavar="auto|full|SIZE",
                     help="auto: the smallest form of the model that held-out rows say is free; "
                          "full: float32 weights and all that was learnt; or most bytes, such as "
                          "100MB."),
        click.option("--checkpoint-minutes", type=click.FloatRange(min=0), default=10.0,
                     show_default=True, metavar="X", help="Time between checkpoints."),
        click.option("--resume", is_flag=True, help="Go on with an interrupted run."),
        click.option("--force", is_flag=True,
                     help="Replace a run that is there, if nothing else is in its folder."),
    ]  # fmt: skip
    return _with(command, options)


def cluster_options(what: str) -> Callable[[F], F]:
    """Return what adds the options that name a cluster, or processes, which do something."""
    options = [
        click.option("--dask", metavar="ADDRESS",
                     help=f"{what} on the workers of this Dask cluster: its scheduler's address "
                          "or file."),
        click.option("--devices", metavar="LIST",
                     help=f"{what} in so many processes of this machine, such as cpu,cpu; they "
                          "share the threads."),
    ]  # fmt: skip
    return lambda command: _with(command, options)


def bad_row_options(command: F) -> F:
    """Add the options that say what becomes of rows that cannot be read."""
    options = [
        click.option("--on-bad-row", type=click.Choice(["error", "skip"]), default="error",
                     show_default=True, help="What to do with a row that cannot be read."),
        click.option("--max-bad", type=int, metavar="N",
                     help="Most rows that may be skipped.  [default: any number]"),
    ]  # fmt: skip
    return _with(command, options)


rejects_option = click.option(
    "--rejects", metavar="FILE", type=click.Path(path_type=Path),
    help="Where rows that are skipped are listed.  [default: beside a table, FILE.rejects.tsv]",
)  # fmt: skip


def epilog(example: str) -> str:
    """Return the example that stands at the end of a help text, kept as it is written."""
    return f"\b\nExample:\n  {example}"
