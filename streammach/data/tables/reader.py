"""Turns rows of a table into rows of features: the same for every way in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.formats import parsed
from streammach.data.formats.parsed import Parsed
from streammach.data.source import PieceRows
from streammach.data.tables.cells import BadCell
from streammach.data.tables.frame import Framer
from streammach.data.tables.kernels import Frame, Scratch, needs_of_row, read_rows
from streammach.data.tables.python_rows import TableRows
from streammach.data.text_rows import room_for
from streammach.errors import clean
from streammach.forks import Turn
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MAX_NAMESPACES
from streammach.rows.vocabulary import Vocabulary
from streammach.simd import PADDING
from streammach.spec.recipe import Recipe
from streammach.spec.types import Multilabel

MOST_KEPT = 1 << 20  # features of a row: room for more is given up behind it
BYTES_FOR_VALUE = 3  # of cells; where features take less, the arrays grow


@dataclass
class TableCounts:
    """What was met in a table: rows, and how many have nothing in each column."""

    rows: int = 0  # rows that were read
    # rows with nothing in a column, by its name
    missing: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)  # columns that some row has, where rows name them
    _lock: Turn = field(default_factory=Turn)

    def add(self, rows: int, missing: dict[str, int]) -> None:
        """Count rows, and those with nothing in a column."""
        with self._lock:
            self.rows += rows
            self.missing.update(missing)


class PieceCells(NamedTuple):
    """The rows of a piece of a table."""

    rows: TableRows
    # int64 (n,) or None: their lines, from 1, those before the piece in its text aside; None where
    # rows are told by their numbers
    lines: NDArray[np.int64] | None = None
    n_lines: int = 0  # of the piece


class TableReader:
    """Reads rows of a table by a recipe; one thread at a time may use it."""

    def __init__(
        self,
        recipe: Recipe,
        vocabulary: Vocabulary,
        *,
        multilabel: Multilabel,
        label_needed: bool,
        counts: TableCounts | None = None,
        absent: frozenset[str] = frozenset(),
        rows_of: Callable[[Any], PieceCells] = PieceCells,
    ) -> None:
        beside = () if label_needed else (recipe.label, recipe.weight)  # nothing hangs on them
        self._absent = absent | {name for name in beside if name is not None}
        self._vocabulary, self._multilabel = vocabulary, multilabel
        self._framer = Framer(recipe, multilabel, label_needed=label_needed)
        self._counts = TableCounts() if counts is None else counts
        self._rows_of = rows_of
        self._lines: NDArray[np.int64] | None = None  # of the rows of the present piece
        self._columns: NDArray[np.int64] | None = None
        self._forget()

    def read(self, piece: Any) -> PieceRows:
        """Return the rows of a piece."""
        rows, self._lines, n_lines = self._rows_of(piece)
        part = self.rows(rows, piece.first_row)
        part.n_lines = n_lines
        return part

    def bad_row(self, piece: Any, place: int, reason: str) -> BadRow:
        """Return a row of the piece that was read last, by its number, as a bad one."""
        return self._bad_row(BadCell(place - piece.first_row, reason), piece.first_row)

    def rows(self, rows: TableRows, first_row: int) -> PieceRows:
        """Return rows, numbered from 0 on."""
        framed = self._framer.frame(rows, self._absent)
        frame = framed.frame._replace(columns=self._with_spaces())
        out = self._read(frame)
        if len(self._keys[1]) > MOST_KEPT:  # the next row may be read by another thread
            self._forget()
        self._counts.add(rows.n_rows, framed.missing)
        good = np.flatnonzero(~frame.bad)
        bad = [self._bad_row(cell, first_row) for cell in framed.bad]
        tags = framed.tags
        tags = None if tags is None or not tags.n_bytes else tags.take(good)
        block = replace(self._block(out, good, first_row), tags=tags)
        unknown = int(out.state[parsed.UNKNOWN])
        left = first_row + framed.left[:, None] + np.arange(2)
        return PieceRows(block, bad, 0, unknown, out.places[: int(out.state[parsed.ROWS])], left)

    def _forget(self) -> None:
        """Begin anew with little room for a row."""
        self._scratch = self._scratch_for(1 << 16, 1 << 12)
        self._keys = np.empty((1 << 12, 2), np.uint64), np.empty(1 << 12, np.int64)

    def _with_spaces(self) -> NDArray[np.int64]:
        """Return the columns with the vocabulary's ids of their namespaces."""
        if self._columns is None:
            ids = self._vocabulary.namespace_ids(self._framer.spaces)
            spaces = np.concatenate([[0], np.where(ids < 0, MAX_NAMESPACES, ids + 1)])
            self._columns = self._framer.columns.copy()
            self._columns[:, 1:3] = spaces[self._columns[:, 1:3]]
        return self._columns

    def _read(self, frame: Frame) -> Parsed:
        """Return the rows of a frame."""
        words, n = self._vocabulary, len(frame.bad)
        values = len(frame.data) // BYTES_FOR_VALUE + n * (frame.numbers.shape[1] + 1)
        labels = int(frame.offsets[-1, -1] - frame.offsets[-1, 0])
        keys, spans = self._keys
        out = room_for(n, values, labels)._replace(keys=keys, spans=spans)
        row = 0
        while True:
            code, row = read_rows(
                frame, row, self._scratch, out, words.labels, words.features, words.add_labels,
                words.add_features,
            )  # fmt: skip
            if code == parsed.DONE:
                return out
            if code == parsed.GROW:
                words.grow()
            else:
                out = self._more_room(frame, row, out)

    def _more_room(self, frame: Frame, row: int, out: Parsed) -> Parsed:
        """Return the arrays with room for a row at least."""
        features, n_bytes, words = (int(x) for x in needs_of_row(frame, row))
        n_bytes += int(self._scratch.fixed[-1, 1]) if len(self._scratch.fixed) else 0
        if n_bytes > len(self._scratch.text) or words > len(self._scratch.words):
            self._scratch = self._scratch_for(
                max(2 * n_bytes, len(self._scratch.text)), max(2 * words, len(self._scratch.words))
            )
        if features > len(self._keys[1]):
            self._keys = np.empty((2 * features, 2), np.uint64), np.empty(2 * features, np.int64)
        out = out._replace(keys=self._keys[0], spans=self._keys[1])
        have = int(out.state[parsed.VALUES])
        if have + features > len(out.values):
            values = max(2 * len(out.values), have + features)
            larger = np.empty(values, np.int32), np.empty(values, np.float32)
            larger[0][:have], larger[1][:have] = out.features[:have], out.values[:have]
            out = out._replace(features=larger[0], values=larger[1])
        return out

    def _scratch_for(self, n_bytes: int, n_words: int) -> Scratch:
        """Return room for a row, with the names in it that are known beforehand."""
        names = self._framer.fixed_names
        fixed, ends = b"".join(names), np.cumsum([0, *map(len, names)])
        text = np.empty(max(n_bytes, len(fixed)) + PADDING, np.uint8)
        text[: len(fixed)] = np.frombuffer(fixed, np.uint8)
        return Scratch(
            text, np.empty((n_words, 2), np.int64), np.stack([ends[:-1], ends[1:]], axis=1)
        )

    def _block(self, out: Parsed, good: NDArray[np.int64], first_row: int) -> RowBlock:
        """Return the rows that were read."""
        n, nnz = int(out.state[parsed.ROWS]), int(out.state[parsed.VALUES])
        labels = None
        listed = self._multilabel == "auto" and out.state[parsed.LISTED]
        if self._multilabel == "on" or listed:
            starts, ids = out.label_starts[: n + 1], out.label_ids[: int(out.state[parsed.LABELS])]
            labels = LabelLists(starts, ids).sorted()
        return RowBlock(
            indptr=out.indptr[: n + 1], features=out.features[:nnz], values=out.values[:nnz],
            classes=out.classes[:n], importance=out.importance[:n], places=good + first_row,
            numbers=good.copy(),
        ).with_labels(labels)  # fmt: skip

    def _bad_row(self, cell: BadCell, first_row: int) -> BadRow:
        text = clean(cell.text, 60)
        if self._lines is None:
            return BadRow(reason=cell.reason, text=text, line=first_row + cell.row)
        return BadRow(reason=cell.reason, text=text, line=int(self._lines[cell.row]), byte=1)
