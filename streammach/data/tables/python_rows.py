"""Rows of Python objects: dictionaries, lists of strings, lines of JSON."""

from __future__ import annotations

import math
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
    Cells,
    Wrong,
    parsed_numbers,
)
from streammach.data.tables.values import NO_TEXT, Unnamed, is_missing, number_of, text_of

Listed = (list, tuple, np.ndarray, set, frozenset)


class PythonRows:
    """Rows of Python values."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], refused: Sequence[Wrong] = ()) -> None:
        self._rows, self.refused = rows, refused
        self.n_rows = len(rows)

    @property
    def names(self) -> list[str]:
        """The columns that some row has, in the order in which they are met."""
        found: dict[str, None] = {}
        for row in self._rows:
            if row.keys() - found.keys():
                found.update(dict.fromkeys(row))
        return list(found)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return [row.get(name) for row in self._rows]

    def strings(self, name: str) -> Cells:
        """Return the cells of a column as one string each."""
        return strings_of(self.column(name))

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column as one number each."""
        wrong: list[Wrong] = []
        out = np.full((self.n_rows, 1), math.nan)
        for row, value in enumerate(self.column(name)):
            try:
                out[row, 0] = value if type(value) is float else number_of(value)
            except (ValueError, TypeError, OverflowError):
                wrong.append(Wrong(row, NO_NUMBER, _shown(value)))
        return Cells.of_numbers(out, wrong)

    def lists(self, name: str) -> tuple[Cells, NDArray[np.bool_]]:
        """Return the cells of a column as strings, several or one; whether they were lists."""
        return lists_of(self.column(name))

    def pairs(self, name: str) -> Cells:
        """Return the cells of a column as names with values."""
        return pairs_of(self.column(name))

    def vectors(self, name: str, width: int) -> Cells:
        """Return the cells of a column as so many numbers each."""
        return vectors_of(self.column(name), width)


class CellRows:
    """Columns of cells that hold text, such as those of a CSV file; lists are written as JSON."""

    def __init__(
        self, columns: Mapping[str, Cells], n_rows: int, refused: Sequence[Wrong] = ()
    ) -> None:
        self._columns, self.refused = columns, refused
        self.n_rows = n_rows

    @property
    def names(self) -> list[str]:
        """The columns that are there."""
        return list(self._columns)

    def strings(self, name: str) -> Cells:
        """Return the cells of a column as one string each."""
        return self._columns[name]

    def numbers(self, name: str) -> Cells:
        """Return the cells of a column as one number each."""
        return parsed_numbers(self._columns[name])

    def lists(self, name: str) -> tuple[Cells, NDArray[np.bool_]]:
        """Return the cells of a column as strings, several or one; whether they were lists."""
        cells = self._columns[name]
        if not any(cells.item(i)[:1] == b"[" for i in range(len(cells.starts))):
            return cells, np.zeros(self.n_rows, np.bool_)
        return lists_of(self._decoded(name, (b"[",)))

    def pairs(self, name: str) -> Cells:
        """Return the cells of a column as names with values."""
        return pairs_of(self._decoded(name, (b"[", b"{")))

    def vectors(self, name: str, width: int) -> Cells:
        """Return the cells of a column as so many numbers each."""
        return vectors_of(self._decoded(name, (b"[",)), width)

    def _decoded(self, name: str, marks: tuple[bytes, ...]) -> list[Any]:
        """Return the cells of a column; those that begin with a mark and are JSON as that."""
        cells = self._columns[name]
        out: list[Any] = [None] * self.n_rows
        for row in np.flatnonzero(np.diff(cells.offsets)).tolist():
            raw = cells.item(int(cells.offsets[row]))
            try:
                out[row] = msgspec.json.decode(raw) if raw[:1] in marks else raw
            except (msgspec.DecodeError, RecursionError):
                out[row] = raw
        return out


def strings_of(values: Sequence[Any]) -> Cells:
    """Return values as one string each."""
    texts: list[tuple[bytes, ...]] = []
    wrong: list[Wrong] = []
    for row, value in enumerate(values):
        texts.append(_taken(row, value, wrong))
    cells = Cells.of(texts)
    cells.wrong = wrong
    return cells


def lists_of(values: Sequence[Any]) -> tuple[Cells, NDArray[np.bool_]]:
    """Return values as strings, several or one, and whether they were lists: bool (n,)."""
    texts: list[Sequence[bytes]] = []
    wrong: list[Wrong] = []
    listed = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if isinstance(value, Listed):
            listed[row] = True
            texts.append([t for v in value for t in _taken(row, v, wrong)])
        else:
            texts.append(_taken(row, value, wrong))
    cells = Cells.of(texts)
    cells.wrong = wrong
    return cells, listed


def pairs_of(values: Sequence[Any]) -> Cells:
    """Return dictionaries, or lists of pairs, as names with values."""
    names: list[list[bytes]] = []
    found: list[float] = []
    wrong: list[Wrong] = []
    for row, value in enumerate(values):
        pairs, own = [] if is_missing(value) else value, []
        try:
            for name, number in pairs.items() if isinstance(pairs, Mapping) else map(_pair, pairs):
                text, weight = text_of(name), number_of(number)
                if text is None or math.isnan(weight):
                    continue
                if not abs(weight) < 3.4e38:
                    raise ValueError
                own.append(text)
                found.append(weight)
        except (ValueError, TypeError, OverflowError):
            wrong.append(Wrong(row, NO_PAIRS, _shown(value)))
            del found[len(found) - len(own) :]
            own = []
        names.append(own)
    cells = Cells.of(names, found)
    cells.wrong = wrong
    return cells


def vectors_of(values: Sequence[Any], width: int) -> Cells:
    """Return lists as rows of numbers, so many each."""
    out = np.full((len(values), width), math.nan)
    wrong: list[Wrong] = []
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        if not isinstance(value, Listed) or isinstance(value, set | frozenset):
            wrong.append(Wrong(row, NO_LIST, _shown(value)))
            continue
        if len(value) != width:
            reason = f"{len(value):,} numbers, not {width:,}: '{{}}'"
            wrong.append(Wrong(row, reason, _shown(value)))
            continue
        try:
            out[row] = [number_of(v) for v in value]
        except (ValueError, TypeError, OverflowError):
            wrong.append(Wrong(row, NO_NUMBER, _shown(value)))
    return Cells.of_numbers(out, wrong)


def _taken(row: int, value: Any, wrong: list[Wrong]) -> tuple[bytes, ...]:
    """Return a value as an item, or as none; say what is wrong with it."""
    try:
        text = text_of(value)
    except UnicodeEncodeError:
        wrong.append(Wrong(row, NOT_UTF8, _shown(value)))
    except Unnamed as error:
        wrong.append(Wrong(row, str(error), _shown(value)))
    except ValueError:  # a whole number of thousands of digits
        wrong.append(Wrong(row, NO_TEXT, _shown(value)))
    else:
        return () if text is None else (text,)
    return ()


def _pair(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        first, second = value.values()
    elif isinstance(value, str | bytes):
        raise TypeError
    else:
        first, second = value
    return first, second


def _shown(value: object) -> str:
    return value[:80] if isinstance(value, str) else repr(value)[:80]
