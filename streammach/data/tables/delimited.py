"""CSV and TSV, plain or gzip: records with a header, cells in quotes where they need them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import UTF8_HINT, BadRow
from streammach.data.formats.parsed import NEWLINE
from streammach.data.source import START, Held, Large, Part, Place
from streammach.data.source_options import SourceOptions
from streammach.data.tables.base import HEAD_BYTES, HEAD_ROWS, Table
from streammach.data.tables.cells import Cells, Wrong
from streammach.data.tables.csv_kernels import (
    CELLS,
    LETTERS,
    PAIRED,
    SPANNING,
    UNPAIRED,
    read_records,
    whole_records,
)
from streammach.data.tables.guess import Head
from streammach.data.tables.large import of_text
from streammach.data.tables.python_rows import CellRows
from streammach.data.tables.reader import TableReader
from streammach.data.tables.sample import looked_for
from streammach.data.text import BYTE_ORDER_MARK, RawFile, TextSource
from streammach.data.text_rows import TextPiece
from streammach.errors import DataError, clean
from streammach.rows.vocabulary import Vocabulary
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


@dataclass(kw_only=True)
class RowPiece(TextPiece):
    """Whole records of a text: how many, the number of the first row, the lines before them."""

    first_row: int
    n_rows: int
    first_line: int


class TextTable(TextSource, Table):
    """A table in a file of text whose rows are records between newlines."""

    delimiter, quotes, header_rows = NEWLINE, LETTERS, 0

    def __init__(
        self, path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
    ) -> None:
        super().__init__(path, "vw", raw=raw)
        Table.__init__(self, options)
        self.form = form
        # Records and lines before the present block, and up to its end.
        self._before = self._through = self._lines = self._lines_through = 0
        self._head: Head | None = None

    def held(self) -> Held:
        """Return what reading it takes, rows that were read aside."""
        return Held(self.piece_bytes, 0)

    def pieces(self, begin: Place = START) -> Iterator[RowPiece]:
        """Yield the records in their order, in pieces of about a megabyte."""
        self._before = self._through = self._lines = self._lines_through = 0
        for piece in super().pieces(begin):
            text, skipped = piece.buffer.text, 0
            if piece.start:
                first = len(BYTE_ORDER_MARK) if _marked(text, piece.base) else 0
                _, skipped = self._whole(text, first, piece.start)
            lines = self._lines + int(np.count_nonzero(text[: piece.start] == NEWLINE))
            given = {f.name: getattr(piece, f.name) for f in fields(TextPiece)}
            yield RowPiece(
                **given, first_row=self._before + skipped - self.header_rows, first_line=lines,
                n_rows=self._through - self._before - skipped,
            )  # fmt: skip

    def _whole(
        self, text: NDArray[np.uint8], start: int, stop: int, *, most: int = 0, ended: bool = True
    ) -> tuple[int, int]:
        cut, n = whole_records(text, start, stop, self.delimiter, self.quotes, most, ended)
        return int(cut), int(n)

    def _cut(self, text: NDArray[np.uint8], size: int, *, ended: bool) -> int:
        first = len(BYTE_ORDER_MARK) if _marked(text, self._through) else 0
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
        self._lines_through += int(np.count_nonzero(text[:cut] == NEWLINE))
        return cut

    def _large(self, text: NDArray[np.uint8]) -> Large:
        """Return what a piece with a long row takes."""
        ends = bytes([self.delimiter, NEWLINE]) if self.names_known else b'"\n'
        return of_text(text, self.recipe, objects=not self.names_known, ends=ends)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Say which columns no row had."""
        del n_rows, n_bad, n_lines
        self.check_columns()


def _marked(text: NDArray[np.uint8], before: int) -> bool:
    return not before and text[:3].tobytes() == BYTE_ORDER_MARK


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

    def pieces(self, begin: Place = START) -> Iterator[RowPiece]:
        """Yield the records in their order, in pieces of about a megabyte."""
        self._odd.clear()
        return super().pieces(begin)

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> RecordReader:
        """Return something that reads pieces."""
        del strict
        rows = self.table_reader(vocabulary, label_needed=label_needed)
        return RecordReader(rows, self)

    def columns_there(self) -> list[str]:
        """Return the names of its columns."""
        return self._names

    def head(self) -> Head:
        """Return the first cells of each column, or raise DataError or DiskError."""
        if self._head is None:
            read = looked_for(self.path, self._raw, HEAD_BYTES, self._first_records)
            assert read is not None, "there is a header"
            good = np.flatnonzero(read.found == len(self._names))[self.header_rows :]
            self._head = {
                name: [read.cell(row, i) for row in good.tolist()]
                for i, name in enumerate(self._names)
            }
        return self._head

    def records(
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

    def note_odd(self, odd: NDArray[np.int64], lines_before: int) -> None:
        """Count cells whose quotes are odd."""
        with self._lock:
            for place in ODD:
                before, first = self._odd.get(place, (0, 1 << 62))
                n, line = before + int(odd[place]), lines_before + int(odd[place + 1])
                if odd[place]:
                    self._odd[place] = n, min(first, line)

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
        return self.records(raw, 0, cut, n, columns or len(self._names))

    def _read_names(self) -> list[str]:
        """Return the names of the columns, or raise DataError."""
        first = partial(self._first_records, most=1, needed=1)
        read = looked_for(self.path, self._raw, FIRST_BYTES, first)
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
        stop = len(BYTE_ORDER_MARK) if _marked(text, 0) else 0
        if self.header_rows:
            stop, _ = self._whole(text, stop, size, most=1)
        return stop, int(np.count_nonzero(text[:stop] == NEWLINE))


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


class RecordReader:
    """Reads pieces of records; one thread at a time may use it."""

    def __init__(self, rows: TableReader, source: DelimitedSource) -> None:
        self._rows, self._source = rows, source
        self._names = source.columns_there()

    def read(self, piece: RowPiece) -> Part:
        """Return the rows of a piece."""
        text, n = piece.buffer.text, len(self._names)
        n_lines = int(np.count_nonzero(text[piece.start : piece.stop] == NEWLINE))
        read = self._source.records(text, piece.start, piece.stop, piece.n_rows, n)
        self._source.note_odd(read.odd, piece.first_line)
        columns = {
            name: Cells.spans(text, read.starts[:, i].copy(), read.stops[:, i].copy())
            for i, name in enumerate(self._names)
        }
        more = " (--quotes on reads cells that span lines)" if read.odd[UNPAIRED] else ""
        who = f"{NAMED_BY[self._source.header_rows]} {n:,}{more}"
        ragged = np.flatnonzero(read.found != n)
        refused = [Wrong(int(i), f"{int(read.found[i]):,} cells, {who}") for i in ragged]
        rows = CellRows(columns, piece.n_rows, refused)
        part = self._rows.read(rows, piece.first_row, read.lines + piece.n_lines_before)
        part.n_lines = n_lines + piece.n_lines_before
        return part

    def found_bad(self, piece: RowPiece, place: int, reason: str) -> BadRow:
        """Return a row of a piece, by its number in the source, as a bad one."""
        return BadRow(
            reason=reason, line=place - piece.first_row + 1 + piece.n_lines_before, byte=1
        )
