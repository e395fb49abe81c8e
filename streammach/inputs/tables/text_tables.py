"""Tables in text, plain or gzip: records of CSV and TSV, and objects of JSON lines."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import UTF8_HINT
from streammach.inputs.formats.parsed import NEWLINE
from streammach.inputs.source import START, LargePiece, Place
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.tables.cell_kernels import (
    CELLS,
    LETTERS,
    PAIRED,
    SPANNING,
    UNPAIRED,
    read_records,
)
from streammach.inputs.tables.cells import (
    MOST_CELLS,
    NOT_UTF8,
    BadCell,
    CellRows,
    Cells,
    PythonRows,
    TableRows,
)
from streammach.inputs.tables.head import HEAD_ROWS
from streammach.inputs.tables.large import of_text
from streammach.inputs.tables.table_source import MOST_KEYS, Table, distinct
from streammach.inputs.tables.values import is_utf8
from streammach.inputs.text import TextFile, TextPiece
from streammach.options.recipe import MOST_COLUMNS
from streammach.system.errors import DataError, clean
from streammach.system.files.raw_text import MAX_LINE, RawFile, find_in_head, is_piped, text_errors
from streammach.system.simd import PADDING

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
NO_CELLS, NO_ROWS = np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
MOST_VALUES = 1 << 20  # of an object, with its commas: decoded they take 64 MB
MANY_VALUES = f"'{{}}' holds more than {MOST_VALUES:,} values"
NO_JSON = "'{}' is not JSON"
NO_OBJECT = "'{}' is no JSON object"
NOTHING: dict[str, Any] = {}


class TextTable(Table, TextFile):
    """A table in a file of text whose rows are records between newlines."""

    delimiter, quotes, header_rows = NEWLINE, LETTERS, 0

    def __init__(
        self, path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
    ) -> None:
        Table.__init__(self, options)
        TextFile.__init__(self, path, form, raw)
        self._most = 0  # records of a piece; 0: any number
        # Records and lines before the present block, and up to its end.
        self._before = self._through = self._lines = self._lines_through = 0

    def first_rows(self) -> Iterator[TableRows]:
        self._most = HEAD_ROWS
        piped = self._raw if is_piped(self.path) else None
        with text_errors(self.path):
            raw = piped or self.open_text()
        with raw.rewinding() if piped else raw:
            for piece in self._pieces(raw, START):
                yield self._rows(piece)
                if piece.end.at >= MAX_LINE:
                    return

    @abstractmethod
    def _rows(self, piece: TextPiece) -> TableRows:
        """Return the rows of a piece, of the head too, when there is no recipe yet."""

    def pieces(self, begin: Place = START) -> Iterator[TextPiece]:
        """Yield the records in their order, in pieces of about a megabyte.

        Objects have a cell of each column when they are read, few of them perhaps in the text.
        """
        self._most = 0 if self.names_known else max(1, MOST_CELLS // len(self.recipe.names))
        return super().pieces(begin)

    def _pieces(self, raw: RawFile, begin: Place) -> Iterator[TextPiece]:
        self._before = self._through = self._lines = self._lines_through = 0
        for piece in super()._pieces(raw, begin):
            text, skipped = piece.buffer.text, 0
            if piece.start:
                _, skipped = self._count(text, 0, piece.start)
            piece.first_line = self._lines + _lines(text[: piece.start])
            piece.first_row = self._before + skipped - self.header_rows
            piece.n_rows = self._through - self._before - skipped
            yield piece

    def _count(
        self, text: NDArray[np.uint8], start: int, stop: int, *, most: int = 0, ended: bool = True
    ) -> tuple[int, int]:
        """Return where the last whole record ends, and how many there are."""
        cut, n = read_records(
            text, start, stop, self.delimiter, self.quotes, most, ended, NO_CELLS, NO_CELLS,
            NO_ROWS, NO_ROWS, np.zeros(4, np.int64),
        )  # fmt: skip
        return int(cut), int(n)

    def _cut(self, text: NDArray[np.uint8], size: int, *, ended: bool) -> int:
        most = self._most and self._most + self.header_rows * (not self._through)
        cut, n = self._count(text, 0, size, most=most, ended=ended)
        if ended and cut < size and not 0 < most == n:
            raise DataError(
                f"a cell in quotes is not closed, in row {self._through + n - 1:,} (counted from "
                "0) or before",
                path=self.path,
                hint="Correct or remove the quote, or read quotes as letters: --quotes off.",
            )
        if cut == 0 or (self._through + n < self.header_rows and not ended):
            return 0
        self._before, self._through = self._through, self._through + n
        self._lines = self._lines_through
        self._lines_through += _lines(text[:cut])
        return cut

    def _large(self, text: NDArray[np.uint8]) -> LargePiece | None:
        if self._recipe is None:  # it is looked for
            return None
        return of_text(text, self.recipe, objects=not self.names_known)


def _lines(text: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero(text == NEWLINE))


class Records(NamedTuple):
    """Records of a text, as `cell_kernels.read_records` gives them."""

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    found: NDArray[np.int64]
    lines: NDArray[np.int64]
    odd: NDArray[np.int64]

    def rows(self, names: Sequence[str]) -> CellRows:
        """Return the records that have all columns."""
        places = np.flatnonzero(self.found == len(names))
        spans = zip(names, self.starts[:, : len(places)], self.stops[:, : len(places)], strict=True)
        cells = {name: Cells.spans(self.text, starts, stops) for name, starts, stops in spans}
        rows = CellRows(cells, len(places))
        rows.places = places
        return rows


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
        self._odd.clear()
        return super().pieces(begin)

    def columns_there(self) -> list[str]:
        return self._names

    def first_rows(self) -> Iterator[TableRows]:
        yield CellRows({name: Cells.none(0) for name in self._names}, 0)
        yield from super().first_rows()

    def _rows(self, piece: TextPiece) -> CellRows:
        """Return the rows of a piece; note its odd cells."""
        text, n = piece.buffer.text, len(self._names)
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
        rows = read.rows(self._names)
        rows.refused = [BadCell(i, f"{int(read.found[i]):,} cells, {who}") for i in ragged]
        rows.lines = read.lines + piece.n_lines_before
        rows.n_lines = _lines(text[piece.start : piece.stop]) + piece.n_lines_before
        return rows

    def _records(
        self, text: NDArray[np.uint8], start: int, stop: int, n_rows: int, n_columns: int
    ) -> Records:
        """Return so many records; doubled quotes are changed in the text."""
        # A record that has all columns takes a byte for each.
        most = min(n_rows, (stop - start) // max(n_columns, 1)) + 1
        starts, stops = np.empty((2, n_columns, most), np.int64)
        found, lines, odd = (np.zeros(n, np.int64) for n in (n_rows, n_rows, 4))
        read_records(
            text, start, stop, self.delimiter, self.quotes, n_rows, True, starts, stops, found,
            lines, odd,
        )  # fmt: skip
        return Records(text, starts, stops, found, lines, odd)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Say which columns no row had, and what quotes were met."""
        super().check_end(n_rows, n_bad, n_lines)
        for place, (n, line) in self._odd.items():
            warnings.warn(ODD[place].format(n, line) + f": {clean(self.path, 300)}", stacklevel=2)

    def _header(self, text: bytes, whole: bool) -> Records | None:
        """Return the first record of a text, None where there is no whole one."""
        raw = np.frombuffer(text + b"\n" * PADDING, np.uint8).copy()
        size = len(text) + whole
        cut, n = self._count(raw, 0, size, most=1, ended=whole)
        if whole and cut < size and not n:  # its last cell is not closed
            cut, n = size, 1
        columns = min(1 + int(np.count_nonzero(raw[:cut] == self.delimiter)), MOST_COLUMNS + 1)
        return self._records(raw, 0, cut, 1, columns) if n else None

    def _read_names(self) -> list[str]:
        read = find_in_head(self.path, self._raw, FIRST_BYTES, self._header)
        if read is None:
            return list(self.options.layout.columns)
        n_cells = int(read.found[0])
        ends = zip(read.starts[:n_cells, 0], read.stops[:n_cells, 0], strict=True)
        cells = [read.text[start:stop].tobytes() for start, stop in ends]
        if self.delimiter == COMMA and n_cells == 1 and b";" in cells[0]:
            self.delimiter = SEMICOLON
            return self._read_names()
        if n_cells > MOST_COLUMNS:
            what = f"its first row has {n_cells:,} cells, at most {MOST_COLUMNS:,} are read"
            raise DataError(what, path=self.path, line=1)
        try:
            names = [cell.decode() for cell in cells] if self.header_rows else []
        except UnicodeDecodeError:
            what = "its header is not UTF-8"
            raise DataError(what, path=self.path, line=1, hint=UTF8_HINT) from None
        if not self.header_rows:
            names = list(self.options.layout.columns) or [f"{i + 1}" for i in range(len(cells))]
        distinct([name for name in names if name], self.path, 1)
        return names

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        stop = self._count(text, 0, size, most=1)[0] if self.header_rows else 0
        return stop, _lines(text[:stop])


class JsonSource(TextTable):
    """A file with a JSON object a line; a key that an object lacks is missing there."""

    names_known = False

    def first_rows(self) -> Iterator[TableRows]:
        names = set[str]()
        for rows in super().first_rows():
            names.update(rows.names)
            check_keys(names, self.path)
            yield rows

    def _rows(self, piece: TextPiece) -> PythonRows:
        every = piece.buffer.text[piece.start : piece.stop].tobytes().split(b"\n")[:-1]
        lines = np.array([i for i, line in enumerate(every) if line not in (b"", b"\r")], np.int64)
        rows = PythonRows(*objects_of([every[i] for i in lines]))
        rows.lines = lines + 1 + piece.n_lines_before
        rows.n_lines = len(every) + piece.n_lines_before
        return rows


def check_keys(names: Collection[str], path: Path) -> None:
    """Raise DataError where the first objects have so many keys that these are no columns."""
    if len(names) > MOST_KEYS:
        what = f"its first objects have {len(names):,} different keys, {MOST_KEYS:,} are read"
        hint = 'Put names with values into one object: {"words": {"a": 1, "b": 2}}.'
        raise DataError(what, path=path, hint=hint)


def objects_of(lines: list[bytes]) -> tuple[list[dict[str, Any]], list[BadCell]]:
    """Return the objects of lines of JSON, empty ones for bad lines, and the bad ones."""
    rows: list[dict[str, Any]] = []
    refused: list[BadCell] = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for i, line in enumerate(lines):
        row, wrong = NOTHING, ""
        try:
            if line.count(b",") > MOST_VALUES:
                wrong = MANY_VALUES
            else:
                row = decode(line)
        except msgspec.ValidationError:
            wrong = NO_OBJECT
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            wrong = NO_JSON if is_utf8(line) else NOT_UTF8
        refused += [BadCell(i, wrong, line[:80])] if wrong else []
        rows.append(row)
    return rows, refused
