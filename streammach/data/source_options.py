"""What a user says about a source beside its path."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from streammach.data.tokenizers import tokenizer, tokenizer_name
from streammach.errors import UsageError, check_word, clean
from streammach.spec.annotated import check_record
from streammach.spec.recipe import MOST_CHARS, MOST_NGRAMS, Recipe
from streammach.spec.types import Multilabel, Quotes

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What a user says of the columns of a table.

    Attributes
    ----------
    label, weight, tag : str or None
        The columns of labels, importances and tags.
    text, category, number, date, names : tuple of str
        Columns by what becomes of them, each a name, or several with commas between; ``*`` for
        text: all columns that look like it. Without any, all columns are looked at.
    label_separator : str or None
        What stands between labels of a cell.
    ngrams : int or None
        Most words of a run that is a feature; None: 2.
    chars : str or None
        Least and most characters of runs within words, such as ``3-5``; None: none.
    language : str or None
        The language by whose rules words of text are brought to their stems; None: they stay.
    tokenizer : callable or None
        What parts a text into words, a function of a module; see :func:`streammach.tokenizer`.
    """

    label: str | None = None
    text: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    date: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    weight: str | None = None
    tag: str | None = None
    label_separator: str | None = None
    ngrams: int | None = None
    chars: str | None = None
    language: str | None = None
    tokenizer: Callable[[str], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        check_record(self)

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

    # `on`: cells may stand in quotation marks, and span lines then; `off`: these are letters;
    # `auto`: as `on`, but letters in a line of TSV where they do not pair up
    quotes: Quotes = "auto"
    header: bool = True  # whether the first record names the columns
    columns: tuple[str, ...] = ()  # their names where it does not; their numbers from 1 otherwise

    def check(self) -> None:
        """Raise UsageError if an option is wrong."""
        check_word(self.quotes, get_args(Quotes), "--quotes")
        if self.columns and self.header:
            raise UsageError("the header names the columns: --columns is for --no-header")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How to read a source."""

    form: str | None = None  # its format; None: guessed
    # a file with the labels of its rows: .npy, or text with one label a line
    labels: Path | None = None
    # x_path, y_path: which member, dataset or group holds the rows and the labels; None: guessed
    x_path: str | None = None
    y_path: str | None = None
    first_label: bool = False  # whether a text row with several labels counts under its first one
    # `on`: a row has a list of labels, perhaps an empty one; `off`: it has one label; `auto`: rows
    # have lists if one of them has several
    multilabel: Multilabel = "auto"
    # what its columns are, if it is a table
    table: TableOptions = field(default_factory=TableOptions)
    layout: Layout = field(default_factory=Layout)  # how its cells lie, if it is CSV or TSV
    recipe: Recipe | None = None  # how a table is read, where that is known already
    # whether rows of a pipe are read as they come, rather than many of them together
    prompt: bool = False
    labelled: bool = True  # whether labels that matrices have are looked for and read

    def each(self, n_sources: int, labels: Sequence[Path]) -> list[SourceOptions]:
        """Return the options of sources, each with its file of labels; or raise UsageError."""
        if labels and len(labels) != n_sources:
            what = f"{len(labels)} files of labels for {n_sources} sources: --labels"
            raise UsageError(what, hint="Name one for each source, in the same order.")
        return [replace(self, labels=file) for file in labels] or [self] * n_sources


GUESSED = SourceOptions()


def paths_of(given: Paths) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(p) for p in ([given] if isinstance(given, str | os.PathLike) else given)]


def several(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


def column_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of columns, one or several with commas between, as a tuple."""
    return tuple(name for one in several(given) for name in one.split(","))
