"""The commands about data: explore, convert, verify, suspects."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.console import peak_of, say, say_json, say_lines, short_path
from streammach.cli.options import STORE_PATH, command, sources_argument
from streammach.inputs.source_options import BadRowOptions, ConvertOptions, SourceOptions
from streammach.options.option_fields import keywords_of, option
from streammach.options.training import TrainingOptions
from streammach.planning.constraints import Constraints
from streammach.system.clock import Clock
from streammach.system.errors import StoreError
from streammach.system.machine import number_text, percent_text, size_text, time_text
from streammach.system.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.conversion.convert import Conversion
    from streammach.conversion.explore import Exploration, SourceFacts

SINGLE_SHARE = 0.1  # of the features, from which on those of one row are spoken of
LABELS = {"integer": "integers", "utf8": "text", "bytes": "bytes that are not all UTF-8"}
VALUES = {
    "uint8": "integers from 0 to 255: a byte each",
    "float32": "other numbers: float32, four bytes each",
}


@command("streammach explore train.vw.gz")
@sources_argument
def explore(
    *, sources: tuple[Path, ...], options: SourceOptions, progress: str, as_json: bool
) -> None:
    """Look at the start of sources: what they hold, what their conversion will take.

    A few MB of each source are read and nothing is written. What is said of the rest takes it for
    rows like those at the start: where rows are sorted, their start tells little.
    """
    from streammach.conversion.explore import explore as run  # compiled code loads on demand

    found = run(
        sources, format=options.form, labels=options.label_files, x_path=options.x_path,
        y_path=options.y_path, first_label=options.first_label, multilabel=options.multilabel,
        table=options.table, layout=options.layout, progress=progress,
    )  # fmt: skip
    if as_json:
        say_json({**dataclasses.asdict(found), "mean_row_nnz": found.mean_row_nnz})
        return
    for source in found.sources:
        say(_source_line(source))
    say_lines(_lines(found))


def _about(n: int, *, exact: bool) -> str:
    """Return a number, to three digits where it is an estimate."""
    return f"{n:,}" if exact else f"about {float(f'{n:z.3g}'):z,.0f}"


def _source_line(source: SourceFacts) -> str:
    size = size_text(source.n_bytes)
    if source.text_bytes not in (0, source.n_bytes):
        size += f", {size_text(source.text_bytes)} of text"
    note = f"; {source.note}" if source.note else ""
    rows = _about(source.rows, exact=source.exact)
    return f"{short_path(source.path)}: {source.form}, {size}, {rows} rows{note}"


def _lines(found: Exploration) -> list[tuple[str, str]]:
    labels = LABELS[found.label_kind]
    if found.max_row_labels > 1 or found.sample_labels != found.sample_rows:
        mean = number_text(found.sample_labels / found.sample_rows)
        labels += f"; {mean} a row, at most {found.max_row_labels:,}"
    n_read = found.sample_rows + sum(found.skipped.values())
    bad = ", ".join(f"{n:,} {reason}" for reason, n in found.skipped.items())
    whole = "all" if found.exact else "the first"
    return [
        ("sample", f"{whole} {n_read:,} rows: {found.sample_classes:,} classes, "
                   f"{found.sample_features:,} features"),
        ("row", f"{number_text(found.mean_row_nnz)} values, at most {found.max_row_nnz:,}"),
        ("labels", labels),
        ("values", VALUES[found.value_kind]),
        ("bad rows", bad or "none"),
        ("store", f"about {size_text(found.store_bytes)}, "
                  f"{_about(found.rows, exact=found.exact)} rows with "
                  f"{_about(found.nnz, exact=found.exact)} values"),
        ("convert", f"about {time_text(found.seconds)} on one core"),
    ]  # fmt: skip


@command("streammach convert train.vw.gz train.zarr", cached=True)
@sources_argument
@click.argument("out", metavar="OUT.zarr", type=STORE_PATH)
def convert(
    *, sources: tuple[Path, ...], out: Path, options: ConvertOptions, progress: str, as_json: bool
) -> None:
    """Convert text files, tables or matrices into a compressed, shuffled store.

    SRC is VW multiclass, svmlight or XMC text (first line: numbers of rows, columns and labels),
    plain or gzip; a table: Parquet, Arrow, CSV, TSV or JSON lines, whose columns are named by
    --label, --text, --category, --number, or are guessed; or a matrix: .npz as
    scipy.sparse.save_npz writes it, with labels or y as one more array, a .npy file, HDF5 with a
    dense dataset or a group of data, indices and indptr, or a folder of AnnData in Zarr (--y-path
    obs/COLUMN, --x-path layers/NAME). Several files become one store; - is text on standard input.
    Labels and features keep their names; columns of a matrix without a name get their numbers from
    0.

    Rows that do not fit the memory are put aside beside OUT.zarr; a conversion that was cut off
    after that goes on when the same command is given again.
    """
    from streammach.conversion.convert import convert as run  # compiled code loads on demand
    from streammach.conversion.small_conversion import rehearsal

    with rehearsal(options.memory, options.threads):
        done = run(list(sources), out, **keywords_of(options), progress=progress)
    done = dataclasses.replace(done, seconds=Clock.of_process(None).elapsed_seconds)
    if done.unseen_label_rows:
        warnings.warn(
            f"{done.unseen_label_rows:,} rows carry a label that {short_path(options.like)} does "
            f"not have: {short_path(out)}. They are kept and count as wrong",
            stacklevel=1,
        )
    peak = peak_of(done.projected_bytes)
    if as_json:
        say_json(dataclasses.asdict(done) | {"peak_bytes": peak})
        return
    say(
        f"{conversion_text(done)}, {number_text(done.nnz / done.n_rows)} values a row "
        f"({', '.join(sorted(set(done.formats)))})"
    )
    for note in done.notes:
        say(note)
    if options.extend is not None:
        say(
            f"{done.new_rows:,} rows, {done.new_classes:,} classes and {done.new_features:,} "
            f"features are not in {short_path(options.extend)}"
        )
    say(f"it took {time_text(done.seconds)}")
    if done.resumed:
        say("went on from what an interrupted conversion had read")
    if done.weightless_rows:
        say(f"left out {done.weightless_rows:,} rows of importance 0")
    if done.skipped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(done.skipped.items()))
        say(
            f"skipped {sum(done.skipped.values()):,} rows: {reasons}; listed in "
            f"{short_path(done.rejects)}"
        )
    if done.duplicates:
        say(f"added up {done.duplicates:,} values of a feature that its row held already")
    if done.rare_features:
        say(
            f"left out {done.rare_features:,} features of fewer than {options.min_rows:,} rows, "
            f"with {done.rare_values:,} values"
        )
    elif done.single_row_features > SINGLE_SHARE * done.n_features and options.like is None:
        share = percent_text(done.single_row_features / done.nnz)
        say(
            f"{done.single_row_features:,} features are of one row, {share} of the values: "
            "--min-rows 2 leaves them out"
        )
    if done.unknown_values:
        say(
            f"dropped {done.unknown_values:,} values of features that "
            f"{short_path(options.like)} does not have"
        )


def conversion_text(made: Conversion) -> str:
    """Return what a conversion made as the start of a line."""
    return (
        f"{short_path(made.path)}: {made.n_rows:,} rows, {made.n_classes:,} classes, "
        f"{made.n_features:,} features"
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """What is checked of a store."""

    deep: bool = option(False, "Read every byte, decode every chunk, check every row.")


@command("streammach verify train.zarr", cached=True)
@click.argument("store", type=STORE_PATH)
def verify(*, store: Path, options: VerifyOptions, progress: str, as_json: bool) -> None:
    """Check that a store is what was written.

    Without --deep: its metadata, that every file is there with its bytes, and the index of each.
    """
    from streammach.store.dataset import Dataset  # loads on demand

    with Dataset.open(store) as dataset:
        problems = dataset.verify(deep=options.deep, progress=progress)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise StoreError(f"{problems[0]}{more}", hint="Copy or convert the store again.")
        if as_json:
            say_json({
                "store": str(store), "ok": True, "deep": options.deep, "n_rows": dataset.n_rows,
                "digest": dataset.digest,
            })  # fmt: skip
            return
        what = (
            "every chunk is as written"
            if options.deep
            else "every file is there (--deep reads all)"
        )
        say(
            f"{short_path(store)}: complete, format {dataset.root.format}, "
            f"{dataset.n_rows:,} rows; {what}"
        )


@dataclass(frozen=True, kw_only=True)
class SuspectsOptions:
    """How suspects are found, and where they are listed."""

    out: Path = option(..., "The list: .csv, .tsv or .jsonl.", "FILE")
    folds: int = option(
        3, "Parts of the rows: each is judged by a model of the others.", "N", least=2
    )
    everything: bool = option(
        False, "List all suspicious rows, not as many as are expected to be wrong.", name="--all"
    )
    force: bool = option(False, "Replace an existing list of suspects.")
    source: SourceOptions = field(default_factory=SourceOptions)
    bad_rows: BadRowOptions = field(default_factory=BadRowOptions)
    constraints: Constraints = field(default_factory=Constraints)
    training: TrainingOptions = field(default_factory=TrainingOptions)


@command(
    "streammach suspects train.zarr --out suspects.csv --memory 2GB", cached=True,
    without=("label_smoothing", "fit_rows", "pair_rows", "judge_rows", "model_size"),
)  # fmt: skip
@click.argument("store", type=STORE_PATH)
def suspects(*, store: Path, options: SuspectsOptions, progress: str, as_json: bool) -> None:
    """List rows whose labels are probably wrong, the most suspicious ones first.

    STORE is a store, or a labelled file of any format that can be converted.

    Rows are divided into folds, and each fold is judged by a model that is trained on the others as
    train does. A row is listed where that model finds another label likelier than the row's own, or
    where more rows with the same features have one other label: duplicates come first. Of rows with
    lists each label is told that falls far behind as many classes as the row has labels, and each
    class that the row does not have, but with a probability above 0.9. As many rows with one label
    are listed as are expected to have a wrong one.

    With --hold-out-by NAMESPACE rows that share a feature of it are in one fold. Of --time
    trainings take three quarters. --memory is that of each one. Nothing but FILE is left.
    """
    from streammach.training.out_of_fold import suspects as find  # compiled code loads on demand

    out, folds = options.out, options.folds
    of_file = [keywords_of(part, changed=True) for part in (options.source, options.bad_rows)]
    with ProgressBar(progress, "") as shown:
        shown("open", 0, 0)
        found = find(
            store, out=out, folds=folds, training=options.training, force=options.force,
            constraints=options.constraints, everything=options.everything, progress=shown,
            **of_file[0], **of_file[1],
        )  # fmt: skip
    seconds = Clock.of_process(None).elapsed_seconds
    peak, n_duplicates = peak_of(found.projected_bytes), int((found.rows["duplicates"] > 0).sum())
    if as_json:
        say_json({
            "out": str(out), "n_rows": found.n_rows, "n_suspects": found.n_suspects,
            "n_expected": found.n_expected, "n_possible": found.n_possible,
            "n_duplicates": n_duplicates, "folds": found.folds, "seconds": seconds,
            "projected_bytes": found.projected_bytes, "peak_bytes": peak,
        })  # fmt: skip
        return
    more = found.n_possible - len(found.rows)
    say(
        f"{short_path(out)}: {found.n_suspects:,} of {found.n_rows:,} rows, {n_duplicates:,} of "
        f"them by duplicates, {folds} folds, {time_text(seconds)}"
    )
    if more:
        say(f"{found.n_expected:,} are expected to be wrong; --all lists {more:,} more")
