"""Finds the recipe of a table: the roles that the user gave, guesses for the rest, bins."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streammach.inputs.source_options import TableOptions
from streammach.inputs.tables.cells import Listed
from streammach.inputs.tables.values import (
    canonical,
    day_of,
    is_missing,
    is_utf8,
    number_of,
    text_of,
)
from streammach.options.recipe import (
    DATE_PARTS,
    MAX_COLUMN_NAME,
    MOST_WIDTH,
    WORDY,
    Column,
    DatePart,
    Recipe,
    Role,
)
from streammach.system.errors import DataError, UsageError, clean

LABELS = (
    "label", "labels", "class", "category", "categories", "subject", "subjects", "target", "y",
    "target_ind",
)  # fmt: skip
SEPARATORS = (b";", b"|")
OFTEN = 0.1  # of the cells that hold one, from which on they look like lists of labels
# names of rows, and the values of labels in raw text of the XMC repository
LEFT_OUT = ("id", "index", "idx", "row", "key", "uuid", "guid", "uid", "target_rel")
N_BINS = 16
# of the cells of a column, up to which a missing one is told from 0: behind that tables are sparse
MOST_GAPS = 0.5
FIRST_LISTS = 40  # of numbers that are looked at: every format's first bytes hold so many
LENGTH = 3.0  # of a list of numbers, the square root of its squares' sum, beside words that count 1
TEXT_WORDS = 2.0  # words of a cell, from which on on average it is text
# Where so large a share of names is there once, they say nothing as names: their parts may. From so
# many cells on, since a few differ by chance.
OFTEN_NEW, FEW_CELLS = 0.5, 50
USUAL_NUMBER = re.compile(rb"[+-]?(0|[1-9][0-9]*|[0-9]*\.[0-9]+|[0-9]+\.)([eE][+-]?[0-9]+)?")
EVERY = "*"  # instead of a name: all columns that look like it

Head = Mapping[str, Sequence[Any]]  # the first cells of each column


def recipe_of(
    head: Head, options: TableOptions, path: str | Path | None = None, *, labelled: bool = True,
    index: Collection[str] = (),
) -> Recipe:  # fmt: skip
    """Return the recipe of a table, or raise UsageError."""
    names = list(head)
    given = _named_roles(options, names, path)
    label, weight, tag = options.label, options.weight, options.tag
    label_names = options.label_names
    beside = {"label": label, "weight": weight, "tag": tag, "label-names": label_names}
    for option, name in beside.items():
        if name is not None and name not in names:
            raise no_column(name, option, names, path)
    taken = {*given, *(name for name in (weight, tag, label_names) if name)}
    if label is None and labelled:
        label = _label(names, taken)
    looks = {
        n: None if n in index else _look(n, head[n]) for n in names if n not in taken and n != label
    }
    guessed = _guess_roles(head, looks, every_text=options.text == (EVERY,), named=bool(given))
    given |= guessed
    if label is None and labelled and options.features:
        left = [n for n in names if n not in (*given, *taken) and n.casefold() not in LEFT_OUT]
        label = left[0] if len(left) == 1 else None
    if label is not None and options.label_separator is None:
        _check_single(label, head[label], path)
    kept = {n: role for n, role in given.items() if n not in (label, weight, tag, label_names)}
    sparse = any(role in WORDY for role in kept.values())
    columns = [
        _column(n, kept[n], head[n], binned=sparse, guessed=n in guessed)
        for n in names if n in kept
    ]  # fmt: skip
    if not (columns or any(map(len, head.values()))):
        raise DataError("no row could be read", path=path)
    if not columns:
        raise UsageError("no column is left to learn from", path=path, hint=_listing(names))
    used = {*kept, label, weight, tag, label_names}
    try:
        return Recipe.of(
            columns=tuple(columns), label=label, separator=options.label_separator, weight=weight,
            tag=tag, label_names=label_names, **options.of_texts,
            ignored=tuple(n for n in names if n not in used and _is_name(n)),
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(clean(error, 200), path=path, hint=_listing(names)) from None


def no_label(names: Sequence[str], path: str | Path | None) -> UsageError:
    """Return what is said where no column can be taken for the labels."""
    hint = f"Name it with --label. {_listing(names)}"
    return UsageError("which column holds the labels cannot be guessed", path=path, hint=hint)


def no_column(name: str, option: str, names: Sequence[str], path: str | Path | None) -> UsageError:
    """Return what is said of a column that is not there."""
    what = f"there is no column '{clean(name, 60)}': --{option}"
    return UsageError(what, path=path, hint=_listing(names))


def _listing(names: Sequence[str]) -> str:
    return f"Its columns are {some_of(names, 12)}."


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Return the first names of columns, for people."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    said = (clean(name, 40) for name in names[:most])
    return ", ".join(n if n and n.strip() == n else f"'{n}'" for n in said) + more or "none"


def _is_name(name: str) -> bool:
    return 0 < len(name.encode("utf-8", "replace")) <= MAX_COLUMN_NAME


def _named_roles(
    options: TableOptions, names: list[str], path: str | Path | None
) -> dict[str, Role]:
    """Return the roles that the user gave to columns."""
    found: dict[str, Role] = {}
    roles: tuple[Role, ...] = ("text", "category", "number", "date", "names")
    said = [(role, word) for role in roles for word in getattr(options, role) if word != EVERY]
    for role, word in said:
        for name in [word] if word in names else word.split(","):
            if not _is_name(name):  # of a key of JSON for example
                what = f"the name of a column has 1 to {MAX_COLUMN_NAME:,} bytes: --{role}"
                raise UsageError(what, path=path, hint=_listing(names))
            if name not in names:
                raise no_column(name, role, names, path)
            if found.setdefault(name, role) != role:
                what = f"the column '{clean(name, 60)}' has two roles: --{role}, --{found[name]}"
                raise UsageError(what, path=path)
    return found


def _guess_roles(
    head: Head, looks: Mapping[str, Role | None], *, every_text: bool, named: bool
) -> dict[str, Role]:
    """Return the roles that columns look like, if none is named or all texts are asked for.

    What has one value in all rows says nothing, unless nothing else is there.
    """
    found = {n: look for n, look in looks.items() if look is not None}
    if every_text:
        role: Role = "text"
        texts = {n: role for n in found if found[n] == role}
        found = texts or {n: role for n in found if found[n] == "category" and not named}
    elif named:
        return {}
    same = {n for n in found if _has_one_value(head[n])}
    if not any(found[n] in WORDY for n in found.keys() - same):  # a number of 0 is no feature then
        same -= {n for n in same if found[n] == "number" and not _number(head[n][0], "number")}
    return {n: found[n] for n in found if n not in same} or ({} if named else found)


def _has_one_value(cells: Sequence[Any]) -> bool:
    return len(cells) > 1 and all(_value(c) == _value(cells[0]) for c in cells)


def _value(cell: Any) -> Any:
    """Return what tells a cell from those of another value."""
    text = _text(cell)
    if text is not None:
        return canonical(text)
    return repr([*cell]) if isinstance(cell, Listed) else cell


def _label(names: list[str], taken: set[str]) -> str | None:
    """Return the column that is called like labels, None without one."""
    small = {name.casefold(): name for name in reversed(names) if name not in taken}
    return next((small[word] for word in LABELS if word in small), None)


def _check_single(name: str, cells: Sequence[Any], path: str | Path | None) -> None:
    """Warn where cells of labels look like lists whose parts come again."""
    texts = [text for cell in cells if (text := _text(cell)) is not None]
    for sign in SEPARATORS:
        several = [text for text in texts if sign in text]
        parts = {part.strip() for text in texts for part in text.split(sign)}
        if len(several) > OFTEN * len(texts) and len(parts) < len(set(texts)):
            what = (
                f"cells of '{clean(name, 40)}' such as '{clean(several[0], 40)}' are one label each"
            )
            where = "" if path is None else f": {clean(path, 300)}"
            warnings.warn(
                f"{what}; lists? --label-separator '{sign.decode()}'{where}", stacklevel=2
            )


def _look(name: str, cells: Sequence[Any]) -> Role | None:
    """Return what a column looks like, None for one that is better left out."""
    there = [c for c in cells if not _is_missing(c)]
    if not there or not _is_name(name) or name.casefold() in LEFT_OUT:
        return None
    lists = [c for c in there if isinstance(c, (*Listed, Mapping))]
    if 2 * len(lists) > len(there):
        return _look_of_lists(lists)
    texts = [t for c in there if (t := _text(c)) is not None]
    texts = [t for t in texts if is_utf8(t)] or texts  # bad cells are met again when all are read
    if not texts:
        return None
    numbers = [t for t in texts if t.lower() != b"nan"]  # which is a missing one beside others
    if numbers and all(USUAL_NUMBER.fullmatch(t) for t in numbers):
        return "number"
    if all(day_of(t) for t in texts):
        return "date"
    words = sum(len(t.split()) for t in texts) / len(texts)
    new = len(texts) >= FEW_CELLS and len(set(texts)) > OFTEN_NEW * len(texts)
    return "text" if words >= TEXT_WORDS or new else "category"


def _text(cell: Any) -> bytes | None:
    try:
        return text_of(cell)
    except (TypeError, ValueError):
        return None


def _look_of_lists(there: Sequence[Any]) -> Role | None:
    items = [item for c in there for item in (c.items() if isinstance(c, Mapping) else c)]
    if not items or isinstance(there[0], str):
        return None
    if all(isinstance(item, list | tuple | Mapping) and len(item) == 2 for item in items):
        return "pairs"
    if all(isinstance(item, float | np.floating) for item in items):
        return "vector" if len({len(c) for c in there}) == 1 else None
    if all(isinstance(item, str | int | bytes | np.integer) for item in items):
        return "names"
    return None


def _column(
    name: str, role: Role, cells: Sequence[Any], *, binned: bool, guessed: bool
) -> Column:  # fmt: skip
    """Return a column with what its role needs."""
    there = [c for c in cells if not _is_missing(c)]
    if role == "names" and there:
        mapped, listed = (all(isinstance(c, kind) for c in there) for kind in (Mapping, Listed))
        pairs = mapped or (listed and _look_of_lists(there) == "pairs")
        return Column(name=name, role="pairs" if pairs else "names")
    if role == "vector" or (role == "number" and there and isinstance(there[0], Listed)):
        width = min(max(len(there[0]), 1), MOST_WIDTH)
        center, scale = _standard(there, width) if binned else (0.0, 0.0)
        return Column(name=name, role="vector", width=width, center=center, scale=scale)
    if role == "date":
        parts = _parts(there, guessed=guessed)
        return Column(name=name, role=role, edges=_edges(there, role), parts=parts)
    if role == "number" and binned:
        return Column(name=name, role=role, edges=_edges(there, role))
    if role == "number":
        gaps = sum(math.isnan(_number(cell, role)) for cell in cells)
        return Column(name=name, role=role, gaps=0 < gaps <= MOST_GAPS * len(cells))
    return Column(name=name, role=role)


def _parts(cells: Sequence[Any], *, guessed: bool) -> tuple[DatePart, ...]:
    """Return the parts of dates that are features: no hours of dates without times.

    Of a column that was not named neither those that are the same in all rows.
    """
    texts = [canonical(_text(cell) or b"") for cell in cells]
    days = [day.names for text in texts if (day := day_of(text)) is not None]
    timed = any(b" " in text for text in texts)
    some = [part for part in DATE_PARTS if part != "hour" or timed or not days]
    if guessed and len(days) > 1:
        numbers = {part: len({day[i] for day in days}) for i, part in enumerate(DATE_PARTS)}
        some = [part for part in some if numbers[part] > 1]
    return tuple(some)


def _standard(lists: Sequence[Any], width: int) -> tuple[float, float]:
    """Return the mean of all numbers, and what brings lists to the length `LENGTH` on average."""
    numbers = [
        [_number(cell, "number") for cell in one]
        for one in lists[:FIRST_LISTS]
        if isinstance(one, Listed) and len(one) == width
    ]
    finite = np.array(numbers)[np.isfinite(numbers)] if numbers else np.zeros(0)
    deviation = float(finite.std()) if len(finite) else 0.0
    return (float(finite.mean()), LENGTH / (deviation * width**0.5)) if deviation else (0.0, 0.0)


def _edges(cells: Sequence[Any], role: Role) -> tuple[float, ...]:
    """Return where bins begin in which about as many of the cells lie, the first one aside."""
    found = (_number(cell, role) for cell in cells)
    numbers = sorted(number for number in found if math.isfinite(number))
    if not numbers:
        return ()
    starts = {numbers[len(numbers) * i // N_BINS] for i in range(1, N_BINS)}
    return tuple(sorted(starts - {numbers[0]})) or (numbers[0],)


def _number(cell: Any, role: Role) -> float:
    try:
        if role == "number":
            return number_of(cell)
        day = day_of(text_of(cell) or b"")
    except (TypeError, ValueError, OverflowError):
        day = None
    return math.nan if day is None else float(day.days)


def _is_missing(cell: Any) -> bool:
    return not cell if isinstance(cell, str | bytes) else is_missing(cell)
