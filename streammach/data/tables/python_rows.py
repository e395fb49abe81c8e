"""Rows of a table as a reader asks for them, and those of Python values and of cells of text."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.tables.cells import (
    NO_LIST,
    NO_NUMBER,
    NO_PAIRS,
    NOT_UTF8,
    BadCell,
    Cells,
    parsed_numbers,
)
from streammach.data.tables.values import NO_TEXT, Unnamed, is_missing, number_of, text_of

Listed = (list, tuple, np.ndarray, set, frozenset)


class TableRows(ABC):
    """Some rows of a table, whose columns are read as they are asked for.

    Kinds of rows give Python values; what they can read without these, they read in their own way.
    """

    n_rows: int  # how many they are
    names: Sequence[str]  # the columns that are there
    refused: Sequence[BadCell] = ()  # rows that could not be read as such

    @abstractmethod
    def values(self, name: str) -> list[Any]:
        """Return the values of a column."""

    def objects(self, name: str) -> list[Any]:
        """Return the values of a column of names with values."""
        return self.values(name)

    def look(self, name: str) -> list[Any]:
        """Return the values of a column from which its role is guessed."""
        return self.values(name)

    def strings(self, name: str) -> Cells:
        """Return the cells of a column as one string each."""
        return strings_of(self.values(name))

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column as one number each."""
        wrong: list[BadCell] = []
        out = np.full((self.n_rows, 1), math.nan)
        for row, value in enumerate(self.values(name)):
            try:
                out[row, 0] = value if type(value) is float else number_of(value)
            except (ValueError, TypeError, OverflowError):
                wrong.append(BadCell(row, NO_NUMBER, _shown(value)))
        return Cells.of_numbers(out, wrong)

    def lists(self, name: str) -> tuple[Cells, NDArray[np.bool_]]:
        """Return the cells of a column as strings, several or one; whether they were lists."""
        texts: list[Sequence[bytes]] = []
        wrong: list[BadCell] = []
        listed = np.zeros(self.n_rows, np.bool_)
        for row, value in enumerate(self.values(name)):
            listed[row] = isinstance(value, Listed)
            items = value if listed[row] else (value,)
            texts.append([t for item in items for t in _taken(row, item, wrong)])
        return Cells.of(texts, wrong=wrong), listed

    def pairs(self, name: str) -> Cells:
        """Return the cells of a column, dictionaries or lists of pairs, as names with values."""
        names: list[list[bytes]] = []
        found: list[float] = []
        wrong: list[BadCell] = []
        for row, value in enumerate(self.objects(name)):
            pairs, own = [] if is_missing(value) else value, []
            try:
                items = pairs.items() if isinstance(pairs, Mapping) else map(_pair, pairs)
                for label, number in items:
                    text, weight = text_of(label), number_of(number)
                    if text is None or math.isnan(weight):
                        continue
                    if not abs(weight) < 3.4e38:
                        raise ValueError
                    own.append(text)
                    found.append(weight)
            except (ValueError, TypeError, OverflowError):
                wrong.append(BadCell(row, NO_PAIRS, _shown(value)))
                del found[len(found) - len(own) :]
                own = []
            names.append(own)
        return Cells.of(names, found, wrong)

    def vectors(self, name: str, width: int) -> Cells:
        """Return the cells of a column, lists, as so many numbers each."""
        out = np.full((self.n_rows, width), math.nan)
        wrong: list[BadCell] = []
        for row, value in enumerate(self.values(name)):
            if is_missing(value):
                continue
            reason = NO_NUMBER
            try:
                if not isinstance(value, Listed) or isinstance(value, set | frozenset):
                    reason = NO_LIST
                    raise TypeError
                if len(value) != width:
                    reason = f"{len(value):,} numbers, not {width:,}: '{{}}'"
                    raise ValueError
                out[row] = [number_of(v) for v in value]
            except (ValueError, TypeError, OverflowError):
                wrong.append(BadCell(row, reason, _shown(value)))
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
        """Return the values of a column."""
        return [row.get(name) for row in self._rows]


class CellRows(TableRows):
    """Columns of cells that hold text, such as those of a CSV file; lists are written as JSON."""

    def __init__(
        self, columns: Mapping[str, Cells], n_rows: int, refused: Sequence[BadCell] = ()
    ) -> None:
        self._columns, self.refused, self.n_rows = columns, refused, n_rows
        self.names = list(columns)

    def values(self, name: str) -> list[Any]:
        """Return the cells of a column as bytes, or as lists."""
        return self._decoded(name, b"[")

    def objects(self, name: str) -> list[Any]:
        """Return the cells of a column as bytes, or as lists or dictionaries."""
        return self._decoded(name, b"[{")

    def _decoded(self, name: str, marks: bytes) -> list[Any]:
        """Return the cells of a column; those that begin with a mark and are JSON as that."""
        out = self.look(name)
        for row, raw in enumerate(out):
            if raw is not None and raw[:1] in marks:
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    out[row] = msgspec.json.decode(raw)
        return out

    def look(self, name: str) -> list[Any]:
        """Return the cells of a column as bytes."""
        return self._columns[name].firsts()

    def strings(self, name: str) -> Cells:
        """Return the cells of a column as one string each."""
        return self._columns[name]

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column as one number each."""
        return parsed_numbers(self._columns[name])

    def lists(self, name: str) -> tuple[Cells, NDArray[np.bool_]]:
        """Return the cells of a column as strings, several or one; whether they were lists."""
        cells = self._columns[name]
        if any(cells.item(i)[:1] == b"[" for i in range(len(cells.starts))):
            return super().lists(name)
        return cells, np.zeros(self.n_rows, np.bool_)


def strings_of(values: Sequence[Any]) -> Cells:
    """Return values as one string each."""
    wrong: list[BadCell] = []
    texts = [_taken(row, value, wrong) for row, value in enumerate(values)]
    return Cells.of(texts, wrong=wrong)


def _taken(row: int, value: Any, wrong: list[BadCell]) -> tuple[bytes, ...]:
    """Return a value as an item, or as none; say what is wrong with it."""
    try:
        text = text_of(value)
    except UnicodeEncodeError:
        wrong.append(BadCell(row, NOT_UTF8, _shown(value)))
    except Unnamed as error:
        wrong.append(BadCell(row, str(error), _shown(value)))
    except ValueError:  # a whole number of thousands of digits
        wrong.append(BadCell(row, NO_TEXT, _shown(value)))
    else:
        return () if text is None else (text,)
    return ()


def _pair(value: Any) -> tuple[Any, Any]:
    if isinstance(value, str | bytes):
        raise TypeError
    first, second = value.values() if isinstance(value, Mapping) else value
    return first, second


def _shown(value: object) -> str:
    return value[:80] if isinstance(value, str) else repr(value)[:80]
