"""A folder of documents: a text in each file, and its subjects in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from streammach.data.source import START, Large, Place
from streammach.data.source_options import SourceOptions
from streammach.data.tables.arrow_files import BatchPiece
from streammach.data.tables.cells import MAX_CELL, NOT_UTF8, BadCell, PythonRows
from streammach.data.tables.large import of_text
from streammach.data.tables.table_source import HEAD_BYTES, HEAD_ROWS, Table
from streammach.data.tables.values import is_utf8
from streammach.errors import clean
from streammach.files.reading import disk_errors, read_small

DOCUMENTS, TEXT = "documents", ".txt"
SUBJECTS = (".tsv", ".key")  # endings beside a text: URIs and titles, or labels; one in each line
COLUMNS = ("text", "subjects", "document")
PIECE_BYTES = 1 << 20
LONG = "the text of '{}' has more than 8 MiB"


def is_document_folder(path: Path) -> bool:
    """Return whether a folder holds documents and is nothing else."""
    with disk_errors(path), os.scandir(path) as found:
        names = [entry.name for entry in islice(found, HEAD_ROWS)]
    known = {"zarr.json", ".zgroup", ".zarray"}
    return known.isdisjoint(names) and any(name.endswith(TEXT) for name in names)


class DocumentFolder(Table):
    """Documents by the names of their files: text, subjects, and the name as the tag of the row."""

    def __init__(self, path: Path, options: SourceOptions) -> None:
        table, multilabel = options.table, options.multilabel
        if not table.features and table.label is None:
            table = replace(table, text=COLUMNS[:1], label=COLUMNS[1], tag=table.tag or COLUMNS[2])
        if multilabel == "auto" and not options.first_label:
            multilabel = "on"
        super().__init__(replace(options, table=table, multilabel=multilabel))
        self.path, self.form = path, DOCUMENTS
        with disk_errors(path):
            there = {entry.name for entry in os.scandir(path)}
        self._names = sorted(name.removesuffix(TEXT) for name in there if name.endswith(TEXT))
        self._subjects = {
            name: path / (name + ending) for ending in SUBJECTS for name in self._names
            if name + ending in there
        }  # fmt: skip

    def files(self) -> list[Path]:
        return [*(self._text(name) for name in self._names), *self._subjects.values()]

    def columns_there(self) -> Sequence[str]:
        return COLUMNS

    def first_rows(self) -> Iterator[PythonRows]:
        for piece in islice(self.pieces(), HEAD_BYTES // PIECE_BYTES):
            assert isinstance(piece.rows, PythonRows)
            yield piece.rows

    def pieces(self, begin: Place = START) -> Iterator[BatchPiece]:
        """Yield the documents in the order of their names, in pieces of about a megabyte."""
        first = stop = begin.at
        waiting = n_read = 0
        while stop < len(self._names):
            with disk_errors(self.path):
                waiting += min(self._text(self._names[stop]).stat().st_size, MAX_CELL)
            stop += 1
            if waiting >= PIECE_BYTES or stop - first == HEAD_ROWS or stop == len(self._names):
                n_read += waiting
                rows, waiting, before = self._rows(first, stop), 0, first
                first = stop
                yield BatchPiece(rows, before, n_read, self._large(rows))

    def _large(self, rows: PythonRows) -> Large | None:
        """Return what a piece with a long document takes."""
        texts = [text for text in rows.values(COLUMNS[0]) if text is not None]
        if self._recipe is None or sum(map(len, texts)) <= 2 * PIECE_BYTES:
            return None
        data = np.frombuffer("\n".join(texts).encode(), np.uint8)
        return of_text(data, self._recipe, objects=False, ends=b"\n")

    def _rows(self, first: int, stop: int) -> PythonRows:
        rows, refused = list[dict[str, Any]](), list[BadCell]()
        for i, name in enumerate(self._names[first:stop]):
            path, text, subjects = self._text(name), b"", list[str]()
            with disk_errors(path):
                long = path.stat().st_size > MAX_CELL
            text = b"" if long else read_small(path, MAX_CELL)
            if long or not is_utf8(text):
                refused.append(BadCell(i, LONG if long else NOT_UTF8, clean(path.name, 80)))
                text = b""
            if name in self._subjects:
                lines = read_small(self._subjects[name], MAX_CELL).decode("utf-8", "replace")
                subjects = [line.partition("\t")[0].strip() for line in lines.splitlines()]
            values = text.decode(), [subject for subject in subjects if subject], name
            rows.append(dict(zip(COLUMNS, values, strict=True)))
        return PythonRows(rows, refused)

    def _text(self, name: str) -> Path:
        return self.path / (name + TEXT)
