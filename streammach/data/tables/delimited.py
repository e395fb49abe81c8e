"""CSV and TSV, plain or gzip: records with a header, cells in quotes where they need them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.formats.parsed import NEWLINE
from streammach.data.source import START, Held, Part, Place
from streammach.data.source_options import SourceOptions
from streammach.data.tables.base import HEAD_BYTES, HEAD_ROWS, Table
from streammach.data.tables.cells import Cells, Wrong
from streammach.data.tables.csv_kernels import read_records, whole_records
from streammach.data.tables.guess import Head
from streammach.data.tables.python_rows import CellRows
from streammach.data.tables.reader import TableReader
from streammach.data.tables.sample import first_text
from streammach.data.text import BYTE_ORDER_MARK, RawFile, TextSource
from streammach.data.text_rows import TextPiece
from streammach.errors import DataError, clean
from streammach.rows.vocabulary import Vocabulary

DELIMITERS = {"csv": ",", "tsv": "\t"}
FIRST_BYTES = 1 << 16
RAGGED = "{:,} cells, the header names {:,}"


@dataclass(kw_only=True)
class RowPiece(TextPiece):
    """Whole records of a text, of which the first one has a number."""

    first_row: int


class TextTable(TextSource, Table):
    """A table in a file of text whose rows are records between newlines.

    Parameters
    ----------
    path : Path
        The file, plain or gzip; standard input and pipes can be read once.
    form : str
        Its format.
    options : SourceOptions
        How it is read.
    raw : RawFile, optional
        What was opened of it already.
    """

    delimiter, quotes, header_rows = NEWLINE, False, 0

    def __init__(
        self, path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
    ) -> None:
        super().__init__(path, "vw", raw=raw)
        Table.__init__(self, options)
        self.form = form
        self._before = self._through = 0  # records before the present block, and up to its end
        self._head: Head | None = None
        self._line = 1

    def held(self) -> Held:
        """Return what reading it takes, rows that were read aside."""
        return Held(self.piece_bytes, 0)

    def pieces(self, begin: Place = START) -> Iterator[RowPiece]:
        """Yield the records in their order, in pieces of about a megabyte."""
        self._before = self._through = 0
        for piece in super().pieces(begin):
            skipped = 0
            if piece.start:
                first = len(BYTE_ORDER_MARK) if _marked(piece.buffer.text, piece.base) else 0
                _, skipped = self._whole(piece.buffer.text, first, piece.start)
            given = {f.name: getattr(piece, f.name) for f in fields(TextPiece)}
            yield RowPiece(**given, first_row=self._before + skipped - self.header_rows)

    def _whole(self, text: NDArray[np.uint8], start: int, stop: int) -> tuple[int, int]:
        cut, n = whole_records(text, start, stop, self.delimiter, self.quotes)
        return int(cut), int(n)

    def _cut(self, text: NDArray[np.uint8], size: int, *, ended: bool) -> int:
        first = len(BYTE_ORDER_MARK) if _marked(text, self._through) else 0
        cut, n = self._whole(text, first, size)
        cut = cut if cut > first else 0
        if ended and cut < size:
            raise DataError(
                f"a cell in quotes is not closed, in row {self._through + n - 1:,} (counted from "
                "0) or before",
                path=self.path,
                hint="Correct or remove the quote.",
            )
        if cut:
            self._before, self._through = self._through, self._through + n
        return cut

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Say which columns no row had."""
        del n_rows, n_bad, n_lines
        self.check_columns()


def _marked(text: NDArray[np.uint8], before: int) -> bool:
    return not before and text[:3].tobytes() == BYTE_ORDER_MARK


class DelimitedSource(TextTable):
    """A CSV or TSV file; its first record names the columns."""

    quotes, header_rows = True, 1
    row_is = "a row, which may begin with a quote that is not closed,"

    def __init__(
        self, path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
    ) -> None:
        super().__init__(path, form, options, raw)
        self._comma = self._between(DELIMITERS[form])
        self.delimiter = ord(self._comma)
        self._names = self._read_names()

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> RecordReader:
        """Return something that reads pieces."""
        del strict
        return RecordReader(
            self.table_reader(vocabulary, label_needed=label_needed), self._names, self.delimiter
        )

    def _between(self, usual: str) -> str:
        """Return what stands between cells: a semicolon where the header has no comma."""
        text, _ = first_text(self.path, self._raw, FIRST_BYTES)
        header = text.lstrip("\r\n").partition("\n")[0]
        return ";" if usual == "," and ";" in header and "," not in header else usual

    def columns_there(self) -> list[str]:
        """Return the names of its columns."""
        return self._names

    def head(self) -> Head:
        """Return the first cells of each column, or raise DataError or DiskError."""
        if self._head is None:
            text, whole = first_text(self.path, self._raw, HEAD_BYTES)
            rows = _records(text, self._comma, whole=whole)[1 : HEAD_ROWS + 1]
            good = [row for row in rows if len(row) == len(self._names)]
            self._head = {name: [row[i] for row in good] for i, name in enumerate(self._names)}
        return self._head

    def _read_names(self) -> list[str]:
        """Return the names of the columns.

        Raises
        ------
        DataError
            If they cannot be told apart.
        """
        found: list[list[str]] = []
        for n_bytes in (FIRST_BYTES, HEAD_BYTES):  # a pipe may give the rest later
            text, whole = first_text(self.path, self._raw, n_bytes)
            found = _records(text, self._comma, whole=whole, most=1)
            if whole or len(found) > 1:
                break
        if not found:
            raise DataError("it holds no rows", path=self.path)
        names = found[0]
        if any("\ud800" <= c <= "\udfff" for name in names for c in name):
            raise DataError("its header is not UTF-8", path=self.path, line=1)
        twice = next((name for i, name in enumerate(names) if name and name in names[:i]), None)
        if twice is not None:
            raise DataError(f"two columns are called '{clean(twice, 60)}'", path=self.path, line=1)
        return names

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        """Return where the rows start, behind the header, and the lines before them."""
        start = len(BYTE_ORDER_MARK) if _marked(text, 0) else 0
        stop, n = start, 0
        while n == 0 and stop < size:  # a blank line, or part of a cell in quotes, is no header
            stop += int(np.argmax(text[stop:size] == NEWLINE)) + 1
            _, n = self._whole(text, start, stop)
        return stop, int(np.count_nonzero(text[:stop] == NEWLINE))


def _records(text: str, delimiter: str, *, whole: bool, most: int | None = None) -> list[list[str]]:
    """Return the first records of a text; the last one aside where there is more of it."""
    found: list[list[str]] = []
    limit = HEAD_ROWS + 2 if most is None else most + 1
    before = csv.field_size_limit(1 << 30)
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row:
                found.append(row)
            if len(found) > limit:
                break
    except csv.Error:
        pass
    finally:
        csv.field_size_limit(before)
    return found if whole or len(found) > limit or len(found) == 1 else found[:-1]


class RecordReader:
    """Reads pieces of records; one thread at a time may use it."""

    def __init__(self, rows: TableReader, names: list[str], delimiter: int) -> None:
        self._rows, self._names, self._delimiter = rows, names, delimiter

    def read(self, piece: RowPiece) -> Part:
        """Return the rows of a piece."""
        text, n_columns = piece.buffer.text, len(self._names)
        n_lines = int(np.count_nonzero(text[piece.start : piece.stop] == NEWLINE))
        starts, stops = (np.empty((n_lines, n_columns), np.int64) for _ in range(2))
        found, lines = np.empty(n_lines, np.int64), np.empty(n_lines, np.int64)
        n = read_records(
            text, piece.start, piece.stop, self._delimiter, starts, stops, found, lines
        )
        columns = {
            name: Cells.spans(text, starts[:n, i].copy(), stops[:n, i].copy())
            for i, name in enumerate(self._names)
        }
        ragged = np.flatnonzero(found[:n] != n_columns)
        refused = [Wrong(int(i), RAGGED.format(int(found[i]), n_columns)) for i in ragged]
        rows = CellRows(columns, int(n), refused)
        part = self._rows.read(rows, piece.first_row, lines[:n] + piece.n_lines_before)
        part.n_lines = n_lines + piece.n_lines_before
        return part

    def found_bad(self, piece: RowPiece, place: int, reason: str) -> BadRow:
        """Return a row of a piece, by its number in the source, as a bad one."""
        return BadRow(
            reason=reason, line=place - piece.first_row + 1 + piece.n_lines_before, byte=1
        )
