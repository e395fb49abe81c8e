"""CSV and TSV, plain or gzip: records with a header, cells in quotes where they need them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import UTF8_HINT
from streammach.data.formats.parsed import NEWLINE
from streammach.data.source import START, Large, Place
from streammach.data.source_options import SourceOptions
from streammach.data.tables.base import HEAD_BYTES, HEAD_ROWS, Table
from streammach.data.tables.cells import BadCell, Cells
from streammach.data.tables.csv_kernels import (
    CELLS,
    LETTERS,
    PAIRED,
    SPANNING,
    UNPAIRED,
    read_records,
    whole_records,
)
from streammach.data.tables.large import of_text
from streammach.data.tables.python_rows import CellRows
from streammach.data.tables.reader import PieceCells
from streammach.data.tables.sample import find_in_head
from streammach.data.text import RawFile, TextFile, behind_mark
from streammach.data.text_rows import TextPiece
from streammach.errors import DataError, clean
from streammach.simd import PADDING

DELIMITERS = {"csv": ",", "tsv": "\t"}
FIRST_BYTES = 1 << 16
NAMED_BY = {1: "the header names", 0: "--columns names"}
ODD = {  # what is said of cells whose quotes are odd
    SPANNING: "cells in quotes that span lines: {:,}, the first in line {:,} (--quotes off reads "
    "quotes as letters)",
    UNPAIRED: "cells whose first quote has no pair in its line and is a letter: {:,}, the first in "
    "line {:,} (--quotes on reads cells that span lines)",
}
COMMA, SEMICOLON = ord(","), ord(";")


class TextTable(Table, TextFile):
    """A table in a file of text whose rows are records between newlines."""

    delimiter, quotes, header_rows = NEWLINE, LETTERS, 0

    def __init__(
        self, path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
    ) -> None:
        Table.__init__(self, options)
        TextFile.__init__(self, path, form, raw)
        # Records and lines before the present block, and up to its end.
        self._before = self._through = self._lines = self._lines_through = 0

    def pieces(self, begin: Place = START) -> Iterator[TextPiece]:
        """Yield the records in their order, in pieces of about a megabyte."""
        self._before = self._through = self._lines = self._lines_through = 0
        for piece in super().pieces(begin):
            text, skipped = piece.buffer.text, 0
            if piece.start:
                first = 0 if piece.base else behind_mark(text)
                _, skipped = self._whole(text, first, piece.start)
            piece.first_line = self._lines + _lines(text[: piece.start])
            piece.first_row = self._before + skipped - self.header_rows
            piece.n_rows = self._through - self._before - skipped
            yield piece

    def _whole(
        self, text: NDArray[np.uint8], start: int, stop: int, *, most: int = 0, ended: bool = True
    ) -> tuple[int, int]:
        cut, n = whole_records(text, start, stop, self.delimiter, self.quotes, most, ended)
        return int(cut), int(n)

    def _cut(self, text: NDArray[np.uint8], size: int, *, ended: bool) -> int:
        first = 0 if self._through else behind_mark(text)
        cut, n = self._whole(text, first, size, ended=ended)
        if ended and cut < size:
            raise DataError(
                f"a cell in quotes is not closed, in row {self._through + n - 1:,} (counted from "
                "0) or before",
                path=self.path,
                hint="Correct or remove the quote, or read quotes as letters: --quotes off.",
            )
        if cut == first or (self._through + n < self.header_rows and not ended):
            return 0
        self._before, self._through = self._through, self._through + n
        self._lines = self._lines_through
        self._lines_through += _lines(text[:cut])
        return cut

    def _large(self, text: NDArray[np.uint8]) -> Large:
        """Return what a piece with a long row takes."""
        ends = bytes([self.delimiter, NEWLINE]) if self.names_known else b'"\n'
        return of_text(text, self.recipe, objects=not self.names_known, ends=ends)


def _lines(text: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero(text == NEWLINE))


class DelimitedSource(TextTable):
    """A CSV or TSV file; its first record names the columns, unless something else was said."""

    row_is = "a row, which may begin with a quote that is not closed,"

    def __init__(
        self, path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
    ) -> None:
        super().__init__(path, form, options, raw)
        self.quotes = {"off": LETTERS, "on": CELLS, "auto": PAIRED if form == "tsv" else CELLS}[
            options.layout.quotes
        ]
        self.header_rows = int(options.layout.header)
        self.delimiter = ord(DELIMITERS[form])
        self._odd: dict[int, tuple[int, int]] = {}  # cells by what is odd, and the first's line
        self._names = self._read_names()

    def pieces(self, begin: Place = START) -> Iterator[TextPiece]:
        """Yield the records in their order, in pieces of about a megabyte."""
        self._odd.clear()
        return super().pieces(begin)

    def columns_there(self) -> list[str]:
        """Return the names of its columns."""
        return self._names

    def first_rows(self) -> list[CellRows]:
        """Return the first rows, or raise DataError or DiskError."""
        read = find_in_head(self.path, self._raw, HEAD_BYTES, self._first_records)
        assert read is not None, "there is a header"
        good = np.flatnonzero(read.found == len(self._names))[self.header_rows :]
        return [CellRows(read.columns(self._names, good), len(good))]

    def rows_of(self, piece: TextPiece) -> PieceCells:
        """Return the rows of a piece; note its odd cells."""
        text, n = piece.buffer.text, len(self._names)
        n_lines = _lines(text[piece.start : piece.stop]) + piece.n_lines_before
        read = self._records(text, piece.start, piece.stop, piece.n_rows, n)
        with self._lock:
            for place in ODD:
                before, first = self._odd.get(place, (0, 1 << 62))
                if read.odd[place]:
                    line = piece.first_line + int(read.odd[place + 1])
                    self._odd[place] = before + int(read.odd[place]), min(first, line)
        more = " (--quotes on reads cells that span lines)" if read.odd[UNPAIRED] else ""
        who = f"{NAMED_BY[self.header_rows]} {n:,}{more}"
        ragged = np.flatnonzero(read.found != n).tolist()
        refused = [BadCell(i, f"{int(read.found[i]):,} cells, {who}") for i in ragged]
        rows = CellRows(read.columns(self._names), piece.n_rows, refused)
        return PieceCells(rows, read.lines + piece.n_lines_before, n_lines)

    def _records(
        self, text: NDArray[np.uint8], start: int, stop: int, n_rows: int, n_columns: int
    ) -> Records:
        """Return the cells of so many records; doubled quotes are changed in the text."""
        starts, stops = (np.empty((n_rows, n_columns), np.int64) for _ in range(2))
        found, lines, odd = (np.empty(n, np.int64) for n in (n_rows, n_rows, 4))
        read_records(
            text, start, stop, self.delimiter, self.quotes, starts, stops, found, lines, odd
        )
        return Records(text, starts, stops, found, lines, odd)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Say which columns no row had, and what quotes were met."""
        super().check_end(n_rows, n_bad, n_lines)
        for place, (n, line) in self._odd.items():
            warnings.warn(ODD[place].format(n, line) + f": {clean(self.path, 300)}", stacklevel=2)

    def _first_records(
        self, text: bytes, whole: bool, most: int = HEAD_ROWS + 1, needed: int = 2
    ) -> Records | None:
        """Return the first records of a text, None where it may hold more of the needed ones."""
        raw = np.frombuffer(text + b"\n" * PADDING, np.uint8).copy()
        size = len(text) + whole
        cut, n = self._whole(raw, 0, size, most=most, ended=whole)
        if whole and cut < size and n < most:
            cut, n = size, n + 1
        if n < needed and not whole:
            return None
        columns = 1 + int(np.count_nonzero(raw[:cut] == self.delimiter)) if most == 1 else 0
        return self._records(raw, 0, cut, n, columns or len(self._names))

    def _read_names(self) -> list[str]:
        """Return the names of the columns, or raise DataError."""
        first = partial(self._first_records, most=1, needed=1)
        read = find_in_head(self.path, self._raw, FIRST_BYTES, first)
        if read is None or not len(read.found):
            raise DataError("it holds no rows", path=self.path)
        if self.delimiter == COMMA and int(read.found[0]) == 1 and b";" in read.cell(0, 0):
            self.delimiter = SEMICOLON
            return self._read_names()
        cells = [read.cell(0, i) for i in range(int(read.found[0]))]
        try:
            names = [cell.decode() for cell in cells] if self.header_rows else []
        except UnicodeDecodeError:
            what = "its header is not UTF-8"
            raise DataError(what, path=self.path, line=1, hint=UTF8_HINT) from None
        if not self.header_rows:
            names = list(self.options.layout.columns) or [f"{i + 1}" for i in range(len(cells))]
        twice = next((name for i, name in enumerate(names) if name and name in names[:i]), None)
        if twice is not None:
            raise DataError(f"two columns are called '{clean(twice, 60)}'", path=self.path, line=1)
        return names

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        """Return where the rows start, behind the header, and the lines before them."""
        stop = behind_mark(text)
        if self.header_rows:
            stop, _ = self._whole(text, stop, size, most=1)
        return stop, _lines(text[:stop])


class Records(NamedTuple):
    """Records of a text: their cells, how many each has, its line, and odd cells.

    As :func:`streammach.data.tables.csv_kernels.read_records` gives them.
    """

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    found: NDArray[np.int64]
    lines: NDArray[np.int64]
    odd: NDArray[np.int64]

    def cell(self, row: int, column: int) -> bytes:
        """Return the bytes of a cell."""
        return self.text[self.starts[row, column] : self.stops[row, column]].tobytes()

    def columns(self, names: Sequence[str], rows: Any = slice(None)) -> dict[str, Cells]:
        """Return the cells of some records by column."""
        starts, stops = (np.asfortranarray(ends[rows]) for ends in (self.starts, self.stops))
        return {n: Cells.spans(self.text, starts[:, i], stops[:, i]) for i, n in enumerate(names)}
