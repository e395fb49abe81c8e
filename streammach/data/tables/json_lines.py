"""JSON lines, plain or gzip: an object a line, whose keys are the columns."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.formats.parsed import NEWLINE
from streammach.data.source import Part
from streammach.data.tables.base import HEAD_BYTES, HEAD_ROWS
from streammach.data.tables.cells import NOT_UTF8, Wrong
from streammach.data.tables.delimited import RowPiece, TextTable
from streammach.data.tables.guess import Head, is_utf8
from streammach.data.tables.python_rows import PythonRows
from streammach.data.tables.reader import Met, TableReader
from streammach.data.tables.sample import looked_for
from streammach.errors import DataError, clean
from streammach.rows.vocabulary import Vocabulary

NO_JSON = "'{}' is not JSON"
NO_OBJECT = "'{}' is no JSON object"
LINE = re.compile(rb"^[^\S\n]*[^\s][^\n]*(\n?)", re.MULTILINE)  # that is not blank
NOTHING: dict[str, Any] = {}


class JsonSource(TextTable):
    """A file with a JSON object a line; a key that an object lacks is missing there."""

    names_known = False

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> ObjectReader:
        """Return something that reads pieces."""
        del strict
        return ObjectReader(self.table_reader(vocabulary, label_needed=label_needed), self.met)

    def head(self) -> Head:
        """Return the first cells of each key, or raise DataError or DiskError."""
        if self._head is None:
            raws = looked_for(self.path, self._raw, HEAD_BYTES, _first_lines)
            if not raws:
                raise DataError("it holds no rows", path=self.path)
            rows, refused = objects_of(raws)
            found = PythonRows(rows)
            if refused and not found.names:
                what = refused[0].reason.format(clean(refused[0].text, 60))
                raise DataError(what, path=self.path, line=1)
            self._head = {name: found.column(name) for name in found.names}
        return self._head


class ObjectReader:
    """Reads pieces of JSON lines; one thread at a time may use it."""

    def __init__(self, rows: TableReader, met: Met) -> None:
        self._rows, self._met = rows, met

    def read(self, piece: RowPiece) -> Part:
        """Return the rows of a piece."""
        raw = piece.buffer.text[piece.start : piece.stop].tobytes()
        every = raw.split(b"\n")[:-1]
        lines = np.array([i for i, line in enumerate(every) if line not in (b"", b"\r")], np.int64)
        rows, refused = objects_of([every[i] for i in lines])
        found = PythonRows(rows, refused)
        part = self._rows.read(found, piece.first_row, lines + 1 + piece.n_lines_before)
        self._met.names.update(found.names)
        part.n_lines = len(every) + piece.n_lines_before
        return part

    def found_bad(self, piece: RowPiece, place: int, reason: str) -> BadRow:
        """Return a row of a piece, by its number in the source, as a bad one."""
        line = _line_of(piece.buffer.text[piece.start : piece.stop], place - piece.first_row)
        return BadRow(reason=reason, line=line + piece.n_lines_before, byte=1)


def _line_of(text: NDArray[np.uint8], row: int) -> int:
    """Return the line of a row in a text, blank ones aside, from 1."""
    lines = np.flatnonzero(np.diff(np.flatnonzero(text == NEWLINE), prepend=-1) > 1)
    return int(lines[row]) + 1


def _first_lines(text: bytes, whole: bool) -> list[bytes] | None:
    found = [line for line in islice(LINE.finditer(text), HEAD_ROWS) if whole or line[1]]
    short = [line[0] for line in found if line.end() - line.start() <= HEAD_BYTES]
    return short or ([line[0] for line in found[:1]] if whole else None) or None


def objects_of(lines: list[bytes]) -> tuple[list[dict[str, Any]], list[Wrong]]:
    """Return the objects of lines of JSON, empty ones for bad lines, and which lines are bad."""
    rows: list[dict[str, Any]] = []
    refused: list[Wrong] = []
    decode = msgspec.json.Decoder().decode
    for i, line in enumerate(lines):
        try:
            row = decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            refused.append(Wrong(i, NO_JSON if is_utf8(line) else NOT_UTF8, line[:80]))
            row = NOTHING
        if not isinstance(row, dict):
            refused.append(Wrong(i, NO_OBJECT, line[:80]))
            row = NOTHING
        rows.append(row)
    return rows, refused
