"""Cells of the columns of a table, and rows of them: of Python values, and of cells of text."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.formats.tokens import MAX_FLOAT32
from streammach.inputs.tables.cell_kernels import read_numbers
from streammach.inputs.tables.values import NO_TEXT, Unnamed, is_missing, number_of, text_of
from streammach.rows.layouts import ends
from streammach.rows.names import MAX_NAME
from streammach.system.simd import PADDING

NO_BYTES = np.zeros(0, np.uint8)
MAX_CELL = 8 << 20  # bytes of a cell of text
MOST_CELLS = 1 << 19  # of Python rows that are read together, some thirty bytes each
NO_NUMBER = "'{}' is not a number"
NOT_FINITE = "'{}' is not a finite float32"
NO_LIST = "'{}' is no list"
NO_PAIRS = "'{}' is no list of names with values"
NOT_UTF8 = "'{}' is not UTF-8"
TOO_LONG = f"'{{}}' has more than {MAX_NAME:,} bytes"
TOO_LARGE = f"'{{}}' has more than {MAX_CELL >> 20} MiB"
Listed = (list, tuple, np.ndarray, set, frozenset)
T = TypeVar("T")


class BadCell(NamedTuple):
    """A cell that cannot be read: its row, why (``{}`` is the cell), what is shown of it."""

    row: int
    reason: str
    text: str | bytes = ""


@dataclass
class Cells:
    """The cells of a column: of each row some items, none where the cell is missing."""

    offsets: NDArray[np.int64]  # int64 (n + 1,): where the items of each row start
    starts: NDArray[np.int64]  # starts, stops: int64 (items,): where each item lies in `data`
    stops: NDArray[np.int64]
    # uint8 (bytes,): the bytes of the items, and perhaps others
    data: NDArray[np.uint8] = field(default_factory=lambda: NO_BYTES)
    # float64 (items,) or None: values of the items; None where all are 1
    weights: NDArray[np.float64] | None = None
    # float64 (n, w) or None: the numbers of each row, where these are what is read; NaN for none
    numbers: NDArray[np.float64] | None = None
    wrong: list[BadCell] = field(default_factory=list)  # cells that cannot be read
    listed: NDArray[np.bool_] | bool = False  # bool (n,), or one for all: which cells are lists

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @property
    def missing(self) -> int:
        """How many rows have nothing there."""
        if self.numbers is not None:
            return int(np.isnan(self.numbers).all(axis=1).sum())
        return int((np.diff(self.offsets) == 0).sum())

    def item(self, i: int) -> bytes:
        """Return the bytes of an item."""
        return self.data[self.starts[i] : self.stops[i]].tobytes()

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each item: int64 (items,)."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.offsets))

    def firsts(self) -> list[bytes | None]:
        """Return the first item of each row, None where there is none."""
        there = np.diff(self.offsets) > 0
        firsts = zip(self.offsets[:-1].tolist(), there.tolist(), strict=True)
        return [self.item(first) if some else None for first, some in firsts]

    @classmethod
    def none(cls, n_rows: int) -> Cells:
        """Return the cells of a column that is not there."""
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros(n_rows + 1, np.int64), nothing, nothing)

    @classmethod
    def spans(
        cls, data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> Cells:
        """Return one item a row; an empty one is missing."""
        there = stops > starts
        offsets = ends(there)
        if not there.all():
            starts, stops = starts[there], stops[there]
        return cls(offsets, starts, stops, data)

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[bytes]], values: list[float] | None = None,
        wrong: Sequence[BadCell] = (),
    ) -> Cells:  # fmt: skip
        """Return the items of each row; empty ones are left out, unless they have `values`."""
        kept = [[t for t in row if t] for row in rows] if values is None else rows
        texts = [t for row in kept for t in row]
        offsets, places = ends([*map(len, kept)]), ends([*map(len, texts)])
        data = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
        weights = None if values is None else np.array(values, np.float64)
        return cls(offsets, places[:-1], places[1:], data, weights, wrong=[*wrong])

    @classmethod
    def of_numbers(cls, values: NDArray[np.float64], wrong: Sequence[BadCell] = ()) -> Cells:
        """Return numbers, float64 (n, w), with those refused that float32 does not hold."""
        large = np.flatnonzero((np.abs(values) >= MAX_FLOAT32).any(axis=1))  # not NaN
        cells = cls.none(len(values))
        shown = [str(row[np.nanargmax(np.abs(row))]) for row in values[large]]
        more = [BadCell(int(row), NOT_FINITE, s) for row, s in zip(large, shown, strict=True)]
        cells.numbers, cells.wrong = values, [*wrong, *more]
        return cells


def parsed_numbers(cells: Cells) -> Cells:
    """Return cells of text as numbers."""
    values = np.empty(len(cells.starts), np.float64)
    exact = np.empty(len(cells.starts), np.bool_)
    data = cells.data
    if len(data) < PADDING or (len(cells.stops) and cells.stops.max() > len(data) - PADDING):
        data = np.concatenate([data, np.zeros(PADDING, np.uint8)])
    read_numbers(data, cells.starts, cells.stops, values, exact)
    rows, wrong = cells.rows, list(cells.wrong)
    for i in np.flatnonzero(~exact).tolist():
        raw = cells.item(i)
        try:
            values[i] = number_of(raw)
        except ValueError:
            wrong.append(BadCell(int(rows[i]), NO_NUMBER, raw[:80]))
            values[i] = math.nan
    out = np.full((cells.n_rows, 1), math.nan)
    out[rows, 0] = values
    return Cells.of_numbers(out, wrong)


class TableRows(ABC):
    """Some rows of a table, whose columns are read as they are asked for.

    Kinds of rows give Python values; what they can read without these, they read in their own way.
    """

    n_rows: int  # how many they are
    names: Sequence[str]  # the columns that are there; of others every cell is missing
    refused: Sequence[BadCell] = ()  # rows of the piece that could not be read as such
    places: NDArray[np.int64] | None = None  # in the piece, int64 (n,); None: from 0 on
    lines: NDArray[np.int64] | None = None  # of text: each row's, from 1; None: rows have numbers
    n_lines: int = 0  # of the piece of text

    @abstractmethod
    def values(self, name: str) -> list[Any]:
        """Return the values of a column."""

    def look(self, name: str) -> list[Any]:
        """Return the values of a column from which its role is guessed."""
        return self.values(name)

    def strings(self, name: str) -> Cells:
        """Return the cells of a column as one string each."""
        return strings_of(self.values(name))

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column as one number each."""
        wrong: list[BadCell] = []
        values = self.values(name)
        if {*map(type, values)} <= {float, type(None)}:  # as nearly always: no Python for each
            return Cells.of_numbers(np.array(values, np.float64)[:, None])
        out = np.full((self.n_rows, 1), math.nan)
        for row, value in _each(values, number_of, NO_NUMBER, wrong):
            out[row] = value
        return Cells.of_numbers(out, wrong)

    def lists(self, name: str) -> Cells:
        """Return the cells of a column as strings, several or one."""
        texts: list[Sequence[bytes]] = []
        wrong: list[BadCell] = []
        values = self.values(name)
        listed = [isinstance(value, Listed) for value in values]
        for row, value in enumerate(values):
            items = value if listed[row] else (value,)
            texts.append([t for item in items for t in _item_of(row, item, wrong)])
        return replace(Cells.of(texts, wrong=wrong), listed=np.array(listed, np.bool_))

    def pairs(self, name: str) -> Cells:
        """Return the cells of a column, dictionaries or lists of pairs, as names with values."""
        names: list[Sequence[bytes]] = [()] * self.n_rows
        weights: list[float] = []
        wrong: list[BadCell] = []
        for row, pairs in _each(self.values(name), _pairs, NO_PAIRS, wrong):
            names[row] = [text for text, _ in pairs]
            weights += [weight for _, weight in pairs]
        return Cells.of(names, weights, wrong)

    def vectors(self, name: str, width: int) -> Cells:
        """Return the cells of a column, lists, as so many numbers each."""
        out = np.full((self.n_rows, width), math.nan)
        wrong: list[BadCell] = []
        values = self.values(name)
        for row, found in _each(values, partial(_vector, width=width), NO_NUMBER, wrong):
            out[row] = found
        return Cells.of_numbers(out, wrong)


class PythonRows(TableRows):
    """Rows of Python values: dictionaries, lines of JSON."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], refused: Sequence[BadCell] = ()) -> None:
        self._rows, self.refused, self.n_rows = rows, refused, len(rows)
        names: dict[str, None] = {}  # in the order in which they are met
        for row in rows:
            if row.keys() - names.keys():
                names.update(dict.fromkeys(row))
        self.names = list(names)

    def values(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]


class CellRows(TableRows):
    """Columns of cells that hold text, such as those of a CSV file; lists are written as JSON."""

    def __init__(self, columns: Mapping[str, Cells], n_rows: int) -> None:
        self._columns, self.n_rows, self.names = columns, n_rows, list(columns)

    def values(self, name: str) -> list[Any]:
        """Return the cells of a column as bytes, or as the JSON of a list or an object."""
        out = self.look(name)
        for row, raw in enumerate(out):
            if raw is not None and raw[:1] in b"[{":
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    out[row] = msgspec.json.decode(raw)
        return out

    def look(self, name: str) -> list[Any]:
        """Return the cells of a column as bytes."""
        return self._columns[name].firsts()

    def strings(self, name: str) -> Cells:
        return self._columns[name]

    def numbers(self, name: str) -> Cells:
        return parsed_numbers(self._columns[name])

    def lists(self, name: str) -> Cells:
        cells = self._columns[name]
        return super().lists(name) if (cells.data[cells.starts] == ord("[")).any() else cells


def strings_of(values: Sequence[Any]) -> Cells:
    """Return values as one string each."""
    wrong: list[BadCell] = []
    texts = [_item_of(row, value, wrong) for row, value in enumerate(values)]
    return Cells.of(texts, wrong=wrong)


def _item_of(row: int, value: Any, wrong: list[BadCell]) -> tuple[bytes, ...]:
    """Return a value as an item, or as none; say what is wrong with it."""
    try:
        text = text_of(value)
    except UnicodeEncodeError:
        wrong.append(BadCell(row, NOT_UTF8, _excerpt(value)))
    except Unnamed as error:
        wrong.append(BadCell(row, str(error), _excerpt(value)))
    except ValueError:  # a whole number of thousands of digits
        wrong.append(BadCell(row, NO_TEXT, _excerpt(value)))
    else:
        return () if text is None else (text,)
    return ()


def _each(
    values: Sequence[Any], read: Callable[[Any], T], reason: str, wrong: list[BadCell]
) -> Iterator[tuple[int, T]]:
    """Yield what is read of each value, with its row; note those that cannot be read."""
    for row, value in enumerate(values):
        try:
            found = read(value)
        except _BadListError as error:
            wrong.append(BadCell(row, str(error), _excerpt(value)))
        except (ValueError, TypeError, OverflowError):
            wrong.append(BadCell(row, reason, _excerpt(value)))
        else:
            yield row, found


class _BadListError(ValueError):
    pass


def _pairs(value: Any) -> list[tuple[bytes, float]]:
    if is_missing(value):
        return []
    found = []
    for pair in value.items() if isinstance(value, Mapping) else value:
        if isinstance(pair, str | bytes):
            raise TypeError
        label, number = pair.values() if isinstance(pair, Mapping) else pair
        text, weight = text_of(label), number_of(number)
        if text is not None and not math.isnan(weight):
            if abs(weight) >= MAX_FLOAT32:
                raise ValueError
            found.append((text, weight))
    return found


def _vector(value: Any, width: int) -> Sequence[float]:
    if is_missing(value):
        return [math.nan] * width
    if not isinstance(value, Listed) or isinstance(value, set | frozenset):
        raise _BadListError(NO_LIST)
    if len(value) != width:
        raise _BadListError(f"{len(value):,} numbers, not {width:,}: '{{}}'")
    return [number_of(v) for v in value]


def _excerpt(value: object) -> str:
    return value[:80] if isinstance(value, str) else repr(value)[:80]
