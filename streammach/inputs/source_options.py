"""What a user says about a source beside its path."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from streammach.inputs.tokenizers import Tokenizer, tokenizer, tokenizer_name
from streammach.options.annotated import check_record
from streammach.options.option_fields import add_attributes, check_declared, option
from streammach.options.recipe import MOST_CHARS, MOST_NGRAMS, Recipe
from streammach.options.types import MOST, Multilabel, Quotes, StorePath
from streammach.system.errors import UsageError, clean

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def paths_of(given: Paths) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(p) for p in ([given] if isinstance(given, str | os.PathLike) else given)]


def several(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def column_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of columns, one or several with commas between, as a tuple."""
    return tuple(name for one in several(names) for name in one.split(","))


@add_attributes
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What a user says of the columns of a table.

    Columns are named by what becomes of them, each option a name, or several, also with commas
    between. Without any, all columns are looked at.
    """

    label: str | None = option(None, "Of a table: the column of labels.", "COLUMN")
    label_names: str | None = option(
        None, "Of a table: the column of what its labels are called, kept with them.", "COLUMN"
    )
    text: tuple[str, ...] = option(
        (), "Of a table: columns whose words become features; alone: all that look like text.",
        "COLUMNS", alone="*", more="``*`` stands for these.",
    )  # fmt: skip
    category: tuple[str, ...] = option((), "Of a table: columns whose cells are names.", "COLUMNS")
    number: tuple[str, ...] = option(
        (), "Of a table: columns of numbers, or of lists of them.", "COLUMNS"
    )
    date: tuple[str, ...] = option(
        (), "Of a table: columns of dates, perhaps with times.", "COLUMNS"
    )
    names: tuple[str, ...] = option(
        (), "Of a table: columns of lists of names, or of names with values.", "COLUMNS"
    )
    weight: str | None = option(None, "Of a table: the column of the rows' importances.", "COLUMN")
    tag: str | None = option(None, "Of a table: the column of the rows' tags.", "COLUMN")
    label_separator: str | None = option(
        None, "Of a table: what stands between the labels of a cell.", "TEXT"
    )
    ngrams: int | None = option(
        None, "Of a text: most words of a run that is a feature.", "N", usual="2",
        least=0, most=MOST_NGRAMS,
    )  # fmt: skip
    chars: str | None = option(
        None, "Of a text: runs of so many characters within words are features, such as 3-5.",
        "N-M", usual="none",
    )  # fmt: skip
    language: str | None = option(
        None, "Of a text: words are brought to their stems by the rules of this language, such as "
        "finnish.", "NAME", usual="they stay",
    )  # fmt: skip
    tokenizer: Tokenizer | None = option(
        None, "What parts a text into words, a function of a module.", python=True,
        more="See :func:`streammach.tokenizer`.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_record(self)
        for name in ("text", "category", "number", "date", "names"):
            object.__setattr__(self, name, several(getattr(self, name)))

    @property
    def of_texts(self) -> dict[str, Any]:
        """What a recipe says of texts; UsageError if it cannot be."""
        function = self.tokenizer
        return {
            "ngrams": self.words, "chars": self.characters, "language": self.language,
            "tokenizer": None if function is None else tokenizer_name(tokenizer(function)),
        }  # fmt: skip

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of features that were named."""
        return self.text + self.category + self.number + self.date + self.names

    @property
    def words(self) -> int:
        """Most words of a run; UsageError if it cannot be."""
        words = 2 if self.ngrams is None else self.ngrams
        if not 0 <= words <= MOST_NGRAMS:
            raise UsageError(f"runs have from 0 to {MOST_NGRAMS} words: --ngrams")
        return words

    @property
    def characters(self) -> tuple[int, int] | None:
        """Least and most characters of a run, or None; UsageError if they cannot be."""
        if self.chars is None or self.chars == "0":
            return None
        found = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", self.chars)
        least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= least <= most <= MOST_CHARS:
            raise UsageError(
                f"'{clean(self.chars, 30)}' is no range such as 3-5, of 1 to {MOST_CHARS}: --chars"
            )
        return least, most


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a user says of how the cells of CSV and TSV lie in the text."""

    quotes: Quotes = option(
        "auto", "Of CSV and TSV: whether cells may stand in quotation marks; auto: where these "
        "pair up in a line of TSV.", words=get_args(Quotes),
        more="``on``: cells may span lines, too; ``off``: quotation marks are letters.",
    )  # fmt: skip
    header: bool = option(
        True, "Of CSV and TSV: the first line is a row.", name="--no-header",
        more="False says that; otherwise the line names the columns.",
    )  # fmt: skip
    columns: tuple[str, ...] = option(
        (), "Of CSV and TSV without a header: the names of the columns, with commas between.",
        "NAMES", usual="numbers from 1", parse=lambda text: text.split(","),
    )  # fmt: skip

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", column_names(self.columns))

    def check(self) -> None:
        """Raise UsageError if an option is wrong."""
        check_declared(self)
        if self.columns and self.header:
            raise UsageError("the header names the columns: --columns is for --no-header")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How to read a source."""

    form: str | None = option(
        None, "Format of the files: vw, svmlight, xmc, parquet, arrow, csv, tsv, jsonl, documents, "
        "hdf5, npz, npy or anndata.", "FORMAT", usual="guessed from their content",
        keyword="format",
    )  # fmt: skip
    # what its columns are, if it is a table
    table: TableOptions = field(default_factory=TableOptions)
    layout: Layout = field(default_factory=Layout)  # how its cells lie, if it is CSV or TSV
    label_files: tuple[Path, ...] = option(
        (), "Labels of a matrix, .npy or one a line, or of trn_X_Xf.txt; once for each SRC.",
        "FILE", usual="y.npy for X.npy", keyword="labels",
    )  # fmt: skip
    x_path: str | None = option(None, "Where in a file the rows are.", "NAME", usual="guessed")
    y_path: str | None = option(None, "Where in a file the labels are.", "NAME", usual="guessed")
    first_label: bool = option(False, "Take the first of several labels of a svmlight or XMC row.")
    multilabel: Multilabel = option(
        "auto", "Whether rows have lists of labels; auto: if one has several.",
        words=get_args(Multilabel), more="``on``: any row may have none; ``off``: those with "
        "several are bad. For test data ``auto`` is what the store of ``like`` has.",
    )  # fmt: skip
    labels: Path | None = None  # the file of `label_files` with the labels of one source's rows
    recipe: Recipe | None = None  # how a table is read, where that is known already
    # whether rows of a pipe are read as they come, rather than many of them together
    prompt: bool = False
    labelled: bool = True  # whether labels that matrices have are looked for and read

    def each(self, n_sources: int) -> list[SourceOptions]:
        """Return the options of sources, each with its file of labels; or raise UsageError."""
        files = paths_of(self.label_files)
        if files and len(files) != n_sources:
            what = f"{len(files)} files of labels for {n_sources} sources: --labels"
            raise UsageError(what, hint="Name one for each source, in the same order.")
        return [replace(self, label_files=(), labels=file) for file in files] or [self] * n_sources

    def one(self) -> SourceOptions:
        """Return the options of the one source there is, or raise UsageError."""
        if len(self.label_files) > 1:
            what = f"{len(self.label_files)} files of labels for one of rows: --labels"
            raise UsageError(what)
        return self.each(1)[0]


GUESSED = SourceOptions()


@dataclass(frozen=True, kw_only=True)
class BadRowOptions:
    """What to do with rows that cannot be read."""

    on_bad_row: str = option(
        "error", "What to do with a row that cannot be read.", words=("error", "skip")
    )
    max_bad: int | None = option(None, "Most rows that may be skipped.", "N", usual="any number")


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """How sources become a store."""

    source: SourceOptions = field(default_factory=SourceOptions)
    like: StorePath | None = option(
        None, "Use this store's labels and features: for test data.", "TRAIN.zarr",
        more="Other features are dropped, rows with other labels are kept; both are counted.",
    )  # fmt: skip
    extend: StorePath | None = option(
        None, "Make a store of this one's rows and new ones: old ids stay.", "OLD.zarr",
        more="It is read with the recipe of that store.",
    )  # fmt: skip
    min_rows: int = option(
        1, "Leave out features that fewer rows hold.", "N", least=1, fault="{} is too small"
    )
    bad_rows: BadRowOptions = field(default_factory=BadRowOptions)
    memory: str | int | float | None = option(
        None, "Memory to work in, such as 1GB.", "SIZE", usual="2GB, or what is needed"
    )
    threads: int | None = option(
        None, "Threads that compute.", usual="all cores", least=1, fault="{} threads cannot work"
    )
    seed: int = option(
        0, "Decides the order of the rows.", usual="0", least=0, most=MOST,
        fault="the seed is not an integer from 0 to 2^63 - 1",
    )  # fmt: skip
    force: bool = option(False, "Replace an existing store.")

    def __post_init__(self) -> None:
        check_declared(self)
        if self.min_rows > 1 and self.like is not None:
            raise UsageError("features are those of a store: --min-rows, --like")
        if self.like is not None and self.extend is not None:
            raise UsageError("a store is like another one or extends it: --like, --extend")
