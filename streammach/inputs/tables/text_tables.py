"""Tables in text, plain or gzip: records of CSV and TSV, and objects of JSON lines."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

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
        self._start = self._end = 0, 0  # records and lines before the present block, and its end

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
        self._start = self._end = 0, 0
        for piece in super()._pieces(raw, begin):
            text, (first, lines) = piece.buffer.text, self._start
            first += self._count(text, 0, piece.start)[1] if piece.start else 0
            piece.first_line = lines + _lines(text[: piece.start])
            piece.first_row, piece.n_rows = first - self.header_rows, self._end[0] - first
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
        through, lines = self._end
        most = self._most and self._most + self.header_rows * (not through)
        cut, n = self._count(text, 0, size, most=most, ended=ended)
        if ended and cut < size and not 0 < most == n:
            raise DataError(
                f"a cell in quotes is not closed, in row {through + n - 1:,} (counted from "
                "0) or before",
                path=self.path,
                hint="Correct or remove the quote, or read quotes as letters: --quotes off.",
            )
        if cut == 0 or (through + n < self.header_rows and not ended):
            return 0
        self._start, self._end = self._end, (through + n, lines + _lines(text[:cut]))
        return cut

    def _large(self, text: NDArray[np.uint8]) -> LargePiece | None:
        if self._recipe is None:  # it is looked for
            return None
        return of_text(text, self.recipe, objects=not self.names_known)


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
        self._odd.clear()
        return super().pieces(begin)

    def first_rows(self) -> Iterator[TableRows]:
        yield CellRows({name: Cells.none(0) for name in self._names}, 0)
        yield from super().first_rows()

    def _rows(self, piece: TextPiece) -> CellRows:
        """Return the rows of a piece that have all columns; note its odd cells."""
        text, n = piece.buffer.text, len(self._names)
        starts, stops, found, lines, odd = self._records(
            text, piece.start, piece.stop, piece.n_rows, n
        )
        with self._lock:
            for place in ODD:
                before, first = self._odd.get(place, (0, 1 << 62))
                if odd[place]:
                    line = piece.first_line + int(odd[place + 1])
                    self._odd[place] = before + int(odd[place]), min(first, line)
        more = " (--quotes on reads cells that span lines)" if odd[UNPAIRED] else ""
        who = f"{NAMED_BY[self.header_rows]} {n:,}{more}"
        whole = found == n
        places, ragged = np.flatnonzero(whole), np.flatnonzero(~whole).tolist()
        spans = zip(self._names, starts[:, : len(places)], stops[:, : len(places)], strict=True)
        rows = CellRows({name: Cells.spans(text, *span) for name, *span in spans}, len(places))
        rows.places, rows.lines = places, lines + piece.n_lines_before
        rows.refused = [BadCell(i, f"{int(found[i]):,} cells, {who}") for i in ragged]
        rows.n_lines = _lines(text[piece.start : piece.stop]) + piece.n_lines_before
        return rows

    def _records(
        self, text: NDArray[np.uint8], start: int, stop: int, n_rows: int, n_columns: int
    ) -> tuple[NDArray[np.int64], ...]:
        """Return what `read_records` gives of so many records; it changes doubled quotes there."""
        # A record that has all columns takes a byte for each.
        most = min(n_rows, (stop - start) // max(n_columns, 1)) + 1
        starts, stops = np.empty((2, n_columns, most), np.int64)
        found, lines, odd = (np.zeros(n, np.int64) for n in (n_rows, n_rows, 4))
        read_records(
            text, start, stop, self.delimiter, self.quotes, n_rows, True, starts, stops, found,
            lines, odd,
        )  # fmt: skip
        return starts, stops, found, lines, odd

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Say which columns no row had, and what quotes were met."""
        super().check_end(n_rows, n_bad, n_lines)
        for place, (n, line) in self._odd.items():
            warnings.warn(ODD[place].format(n, line) + f": {clean(self.path, 300)}", stacklevel=2)

    def _header(self, text: bytes, whole: bool) -> list[bytes] | None:
        """Return the cells of the first record of a text, None where there is no whole one."""
        raw = np.frombuffer(text + b"\n" * PADDING, np.uint8).copy()
        size = len(text) + whole
        cut, n = self._count(raw, 0, size, most=1, ended=whole)
        if whole and cut < size and not n:  # its last cell is not closed
            cut, n = size, 1
        if not n:
            return None
        columns = 1 + int(np.count_nonzero(raw[:cut] == self.delimiter))
        starts, stops, found, _, _ = self._records(raw, 0, cut, 1, columns)
        spans = zip(starts[: found[0], 0], stops[: found[0], 0], strict=True)
        return [raw[first:last].tobytes() for first, last in spans]

    def _read_names(self) -> list[str]:
        cells = find_in_head(self.path, self._raw, FIRST_BYTES, self._header)
        if cells is None:
            return list(self.options.layout.columns)
        if self.delimiter == COMMA and len(cells) == 1 and b";" in cells[0]:
            self.delimiter = SEMICOLON
            return self._read_names()
        if len(cells) > MOST_COLUMNS:
            what = f"its first row has {len(cells):,} cells, at most {MOST_COLUMNS:,} are read"
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
