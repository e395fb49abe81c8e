"""JSON lines, plain or gzip: an object a line, whose keys are the columns."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from streammach.data.tables.base import HEAD_BYTES, HEAD_ROWS
from streammach.data.tables.cells import NOT_UTF8, BadCell
from streammach.data.tables.delimited import TextTable
from streammach.data.tables.guess import is_utf8
from streammach.data.tables.python_rows import PythonRows
from streammach.data.tables.reader import PieceCells
from streammach.data.tables.sample import find_in_head
from streammach.data.text_rows import TextPiece
from streammach.errors import DataError, clean

NO_JSON = "'{}' is not JSON"
NO_OBJECT = "'{}' is no JSON object"
LINE = re.compile(rb"^[^\S\n]*[^\s][^\n]*(\n?)", re.MULTILINE)  # that is not blank
NOTHING: dict[str, Any] = {}


class JsonSource(TextTable):
    """A file with a JSON object a line; a key that an object lacks is missing there."""

    names_known = False

    def first_rows(self) -> list[PythonRows]:
        """Return the first objects, or raise DataError or DiskError."""
        lines = find_in_head(self.path, self._raw, HEAD_BYTES, _first_lines)
        if not lines:
            return []
        rows = PythonRows(*objects_of(lines))
        if rows.refused and not rows.names:
            what = rows.refused[0].reason.format(clean(rows.refused[0].text, 60))
            raise DataError(what, path=self.path, line=1)
        return [rows]

    def rows_of(self, piece: TextPiece) -> PieceCells:
        """Return the objects of a piece; note their keys."""
        every = piece.buffer.text[piece.start : piece.stop].tobytes().split(b"\n")[:-1]
        lines = np.array([i for i, line in enumerate(every) if line not in (b"", b"\r")], np.int64)
        rows = PythonRows(*objects_of([every[i] for i in lines]))
        self.counts.names.update(rows.names)
        before = piece.n_lines_before
        return PieceCells(rows, lines + 1 + before, len(every) + before)


def _first_lines(text: bytes, whole: bool) -> list[bytes] | None:
    found = [line for line in islice(LINE.finditer(text), HEAD_ROWS) if whole or line[1]]
    short = [line[0] for line in found if line.end() - line.start() <= HEAD_BYTES]
    return short or ([line[0] for line in found[:1]] if whole else None) or None


def objects_of(lines: list[bytes]) -> tuple[list[dict[str, Any]], list[BadCell]]:
    """Return the objects of lines of JSON, empty ones for bad lines, and the bad ones."""
    rows: list[dict[str, Any]] = []
    refused: list[BadCell] = []
    decode = msgspec.json.Decoder().decode
    for i, line in enumerate(lines):
        try:
            row = decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            refused.append(BadCell(i, NO_JSON if is_utf8(line) else NOT_UTF8, line[:80]))
            row = NOTHING
        if not isinstance(row, dict):
            refused.append(BadCell(i, NO_OBJECT, line[:80]))
            row = NOTHING
        rows.append(row)
    return rows, refused
