"""The head: the first rows of all tables in their order, from which their recipe is learnt.

It does not depend on how rows are shared among files, nor on their format: rows are counted, and
what their cells take as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.tables.cells import BadCell, Listed, TableRows
from streammach.system.errors import DataError, clean

HEAD_ROWS, HEAD_BYTES = 1000, 8 << 20  # that are looked at, at most
SHORT, SHORT_BYTES = 32, 8  # a cell of so many bytes, such as any number, counts so many


class Head:
    """The first cells of each column; rows of more than `HEAD_BYTES` are passed over."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.full = False  # whether no further row is looked at
        self._n_bytes = 0
        self._cells: dict[str, list[Any]] = {}
        # used where there is no other: the first row that was passed over, names without rows
        self._long: dict[str, list[Any]] = {}
        self._names: dict[str, list[Any]] = {}
        self._refused: BadCell | None = None

    def take(self, rows: TableRows) -> bool:
        """Add rows behind those that are there; return whether no further one is looked at."""
        if self._refused is None and rows.refused:
            self._refused = rows.refused[0]
        if not rows.n_rows:
            self._names |= {name: [] for name in rows.names}
            return False
        found = {name: rows.look(name) for name in rows.names}
        sizes = np.zeros(rows.n_rows, np.int64)
        for cells in found.values():
            sizes += np.fromiter(map(_size, cells), np.int64, rows.n_rows)
        short: NDArray[np.int64] = np.flatnonzero(sizes <= HEAD_BYTES)
        ends = self._n_bytes + np.cumsum(sizes[short])
        fit = int(np.searchsorted(ends, HEAD_BYTES, "right"))
        taken = short[: min(fit, HEAD_ROWS - self.n_rows)].tolist()
        for name, cells in found.items():
            self._cells.setdefault(name, [None] * self.n_rows).extend(cells[i] for i in taken)
        self.n_rows += len(taken)
        self._n_bytes += int(sizes[taken].sum())
        for cells in self._cells.values():
            cells.extend([None] * (self.n_rows - len(cells)))
        if len(short) < rows.n_rows and not self._long:
            first = int(np.argmax(sizes > HEAD_BYTES))
            self._long = {name: cells[first : first + 1] for name, cells in found.items()}
        self.full = len(taken) < len(short) or self.n_rows == HEAD_ROWS
        return self.full

    def cells(self, path: Path) -> Mapping[str, list[Any]]:
        """Return the first cells of each column, or raise DataError where there is none."""
        if found := (self._cells if self.n_rows else self._long) or self._names:
            return found
        what = "it holds no rows"
        if self._refused is not None:
            what = self._refused.reason.format(clean(self._refused.text, 60))
        raise DataError(what, path=path)


def _size(cell: Any) -> int:
    """Return the bytes that a cell counts, about as many as it takes as text."""
    if cell is None:
        return 0
    if isinstance(cell, str):
        n = len(cell) if cell.isascii() else len(cell.encode("utf-8", "surrogatepass"))
        return n if n > SHORT else SHORT_BYTES * bool(n)
    if isinstance(cell, bytes):
        return len(cell) if len(cell) > SHORT else SHORT_BYTES * bool(cell)
    if isinstance(cell, Mapping):
        return sum(_size(name) + _size(value) for name, value in cell.items())
    if not isinstance(cell, Listed):
        return SHORT_BYTES
    plain = isinstance(next(iter(cell), 0), int | float | np.number)  # as nearly always
    return SHORT_BYTES * len(cell) if plain else sum(map(_size, cell))
