"""How rows of a table become features: a part of stores and models."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec

MOST_COLUMNS = 1 << 16  # of features, and others of the table
MOST_EDGES = 1 << 12
MOST_WIDTH = 1 << 20
MOST_NGRAMS, MOST_CHARS = 5, 16
MAX_COLUMN_NAME = 1000  # bytes
MAX_RECIPE = 1 << 20  # bytes of its document, which is in that of a store and of a model
MISSING = "missing"  # the namespace of features of rows that lack a number, by its column
CHARS = ":chars"  # behind a column's name: the namespace of its character n-grams

Role = Literal["text", "category", "number", "date", "names", "pairs", "vector"]
ROLES: tuple[Role, ...] = ("text", "category", "number", "date", "names", "pairs", "vector")
DatePart = Literal["year", "month", "weekday", "hour"]
DATE_PARTS: tuple[DatePart, ...] = ("year", "month", "weekday", "hour")
WORDY: tuple[Role, ...] = ("text", "category", "date", "names", "pairs")  # of sparse features


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column of a table whose cells become features."""

    name: str  # its name in the table
    # `text`: words, runs of words and of characters; `category`: the cell is a name; `number`: its
    # value, or the bin that it lies in; `date`: names of its `parts`, and the bin that its days
    # since 1970 lie in; `names`, `pairs`, `vector`: lists of names, of names with
    # values, and of values
    role: Role
    parts: tuple[DatePart, ...] = DATE_PARTS  # of a date, those that are features
    # where bins of numbers begin, the first one aside; without any they stay values
    edges: Annotated[tuple[float, ...], msgspec.Meta(max_length=MOST_EDGES)] = ()
    gaps: bool = False  # whether a row without its number, which is a value, has a feature for it
    width: Annotated[int, msgspec.Meta(ge=0, le=MOST_WIDTH)] = 0  # values of a vector; 0 otherwise
    # what is taken off the values of a vector beside words and names, and what they are multiplied
    # with then; a scale of 0: they stay as they are
    center: float = 0.0
    scale: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    def __post_init__(self) -> None:
        check_column_name(self.name)
        rising = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
        if not (rising and all(map(math.isfinite, self.edges))):
            raise ValueError("the edges of bins do not rise")
        if self.edges and self.role not in ("number", "date"):
            raise ValueError("bins are of numbers and dates")
        if self.parts != DATE_PARTS and self.role != "date":
            raise ValueError("parts are of dates")
        if self.gaps and (self.role != "number" or self.edges):
            raise ValueError("gaps are those of numbers that stay values")
        if (self.width > 0) != (self.role == "vector"):
            raise ValueError("a width is that of a vector")
        if not (math.isfinite(self.center) and math.isfinite(self.scale)):
            raise ValueError("a scale is not finite")
        if self.scale and not self.width:
            raise ValueError("a scale is that of a vector")

    @property
    def namespace(self) -> str:
        """The namespace of its features; empty for the one feature of a number that is a value."""
        if self.role == "number" and not self.edges:
            return ""
        return self.name.replace("^", "_")

    @property
    def n_number_features(self) -> int:
        """Features whose names are known beforehand: those of numbers."""
        if self.role == "number" or self.edges:
            return len(self.edges) + 1
        return self.width


WORDS = ("ngrams", "chars", "language", "tokenizer")  # what decides how a text becomes features


class Recipe(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How rows of a table become labels and features."""

    # the columns of features, in the order in which they are read
    columns: Annotated[tuple[Column, ...], msgspec.Meta(min_length=1)]
    label: str | None = None  # the column of labels; None where rows have none
    # what stands between labels of a cell; None: a cell is one label, or a list of them
    separator: Annotated[str, msgspec.Meta(min_length=1, max_length=16)] | None = None
    label_names: str | None = None  # the column of what labels are called, as many as labels
    weight: str | None = None  # weight, tag: the columns of importances and of tags
    tag: str | None = None
    # most words of a run that is a feature; 0: words are no features
    ngrams: Annotated[int, msgspec.Meta(ge=0, le=MOST_NGRAMS)] = 2
    # least and most characters of runs within words that are features; None: none are
    chars: tuple[int, int] | None = None
    # the language, as Snowball calls it, by whose rules words of text are brought to their stems
    language: Annotated[str, msgspec.Meta(max_length=40)] | None = None
    # the function of the user, as `module:function`, that parts texts into words; None: the usual
    tokenizer: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    # other columns of the table that was trained on
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.beside, *self.ignored):
            check_column_name(name)
        names = [*(column.name for column in self.columns), *self.beside, *self.ignored]
        for what, n in (("features", len(self.columns)), ("no use", len(self.ignored))):
            if n > MOST_COLUMNS:
                raise ValueError(f"{n:,} columns of {what}, at most {MOST_COLUMNS:,} are possible")
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ValueError(f"the column '{twice[:60]}' is named twice")
        spaces = [space for column in self.columns if (space := column.namespace)]
        spaces += [MISSING] * any(column.gaps for column in self.columns)
        if self.chars is not None:
            spaces += [c.namespace + CHARS for c in self.columns if c.role == "text"]
        if len(set(spaces)) < len(spaces):
            twice = next(space for i, space in enumerate(spaces) if space in spaces[:i])
            raise ValueError(f"two columns would share the namespace '{twice[:60]}'")
        if self.chars is not None and not 1 <= self.chars[0] <= self.chars[1] <= MOST_CHARS:
            raise ValueError(f"runs of characters are from 1 to {MOST_CHARS} characters long")
        if self.ngrams == 0 and self.chars is None and self.texts:
            raise ValueError("neither words nor characters of a text are features")
        if len(msgspec.json.encode(self)) > MAX_RECIPE:
            raise ValueError("the names of the columns are more than a recipe holds (1 MiB)")

    @classmethod
    def of(cls, **facts: Any) -> Recipe:
        """Return a recipe that whoever reads its document takes, or raise ValueError."""
        return msgspec.convert(msgspec.to_builtins(cls(**facts)), cls)

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns of labels, their names, importances and tags, those that there are."""
        every = (self.label, self.label_names, self.weight, self.tag)
        return tuple(name for name in every if name is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of text."""
        return tuple(column.name for column in self.columns if column.role == "text")

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*(column.name for column in self.columns), *self.beside)

    def differs(self, other: Recipe) -> str | None:
        """Return a column whose cells are other features by another recipe; None without one."""
        known = {column.name: column for column in other.columns}
        words = any(getattr(self, name) != getattr(other, name) for name in WORDS)
        shared = [column for column in self.columns if column.name in known]
        odd = [c.name for c in shared if known[c.name] != c or (words and c.role == "text")]
        return odd[0] if odd else None

    def in_words(self) -> str:
        """Return the roles of the columns in a line for people."""
        found: list[tuple[str, tuple[str, ...]]] = [("label", (self.label,) if self.label else ())]
        found += [(role, tuple(c.name for c in self.columns if c.role == role)) for role in ROLES]
        found += [("not used", self.ignored)]
        return "; ".join(f"{role} {_list_names(names)}" for role, names in found if names)


def check_column_name(name: str) -> None:
    """Raise ValueError for what cannot be the name of a column that is used."""
    if not name or len(name.encode()) > MAX_COLUMN_NAME:
        raise ValueError(
            "a column has no name"
            if not name
            else f"the name '{name[:20]}...' of a column has more than {MAX_COLUMN_NAME:,} bytes"
        )


def _list_names(names: tuple[str, ...]) -> str:
    some = ", ".join(name[:40] for name in names[:6])
    return some + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")
