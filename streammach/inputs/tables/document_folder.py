"""A folder of documents: a text in each file, and its subjects in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from streammach.inputs.source import LargePiece
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.tables.batches import PIECE_BYTES, BatchTable
from streammach.inputs.tables.cells import MAX_CELL, NOT_UTF8, BadCell, PythonRows, TableRows
from streammach.inputs.tables.head import HEAD_ROWS
from streammach.inputs.tables.large import of_text
from streammach.inputs.tables.values import is_utf8
from streammach.system.errors import DataError, clean
from streammach.system.files.raw_text import read_text
from streammach.system.files.reading import disk_errors

DOCUMENTS, TEXT = "documents", ".txt"
SUBJECTS = (".tsv", ".key")  # endings beside a text: URIs and titles, or labels; one in each line
COLUMNS = ("text", "subjects", "document")
MAX_SUBJECTS = 1 << 20  # bytes of the subjects of a document: split they take fifty times as much


def is_document_folder(path: Path) -> bool:
    """Return whether a folder holds documents, or nothing, and is nothing else."""
    with disk_errors(path), os.scandir(path) as found:
        names = [entry.name for entry in islice(found, HEAD_ROWS)]
    known = {"zarr.json", ".zgroup", ".zarray"}
    texts = [name for name in names if name.endswith(TEXT)]
    return known.isdisjoint(names) and (bool(texts) or not names)


class DocumentFolder(BatchTable):
    """Documents by the names of their files: text, subjects, and the name as the tag of the row."""

    _names = COLUMNS

    def __init__(self, path: Path, form: str, options: SourceOptions) -> None:
        table, multilabel = options.table, options.multilabel
        if not table.features and table.label is None:
            table = replace(table, text=COLUMNS[:1], label=COLUMNS[1], tag=table.tag or COLUMNS[2])
        if multilabel == "auto" and not options.first_label:
            multilabel = "on"
        super().__init__(replace(options, table=table, multilabel=multilabel))
        self.path, self.form = path, form
        with disk_errors(path):
            there = {entry.name for entry in os.scandir(path)}
        self._documents = sorted(name.removesuffix(TEXT) for name in there if name.endswith(TEXT))
        self._subjects = {
            name: path / (name + ending) for ending in SUBJECTS for name in self._documents
            if name + ending in there
        }  # fmt: skip

    def files(self) -> list[Path]:
        return [*(self._text(name) for name in self._documents), *self._subjects.values()]

    def batches(
        self, columns: Collection[str] | None, *, head: bool = False
    ) -> Iterator[tuple[TableRows, int]]:
        """Yield the documents in the order of their names, about a megabyte at a time."""
        rows, refused = list[dict[str, Any]](), list[BadCell]()
        n_bytes = n_read = 0
        for place, name in enumerate(self._documents, 1):
            row, wrong = self._document(name)
            refused += [BadCell(len(rows), *wrong)] if wrong else []
            rows.append(row)
            n_bytes += sum(map(len, (row.get(COLUMNS[0], ""), *row.get(COLUMNS[1], ()))))
            if n_bytes >= PIECE_BYTES or len(rows) == HEAD_ROWS or place == len(self._documents):
                n_read += n_bytes
                yield PythonRows(rows, refused), n_read
                rows, refused, n_bytes = [], [], 0

    def large_piece(self, rows: PythonRows, size: int) -> LargePiece | None:
        """Return what a piece with a long document takes."""
        texts = "\n".join(text or "" for text in rows.values(COLUMNS[0]))
        if len(texts) <= 2 * PIECE_BYTES:
            return None
        return of_text(np.frombuffer(texts.encode(), np.uint8), self.recipe)

    def _document(self, name: str) -> tuple[dict[str, Any], tuple[str, str] | None]:
        """Return a document as a row; an empty one, the reason and the file if it is a bad row."""
        texts = list[str]()
        for path, limit in ((self._text(name), MAX_CELL), (self._subjects.get(name), MAX_SUBJECTS)):
            raw, wrong = b"" if path is None else None, f"'{{}}' has more than {limit >> 20} MiB"
            try:
                raw = read_text(path, limit) if path is not None else raw
            except DataError as error:
                wrong = "'{}': " + error.message.partition(", after")[0]
            if raw is None or not is_utf8(raw):
                return {}, (wrong if raw is None else NOT_UTF8, clean(path and path.name))
            texts.append(raw.decode())
        subjects = [line.partition("\t")[0].strip() for line in texts[1].splitlines()]
        values = texts[0], [subject for subject in subjects if subject], name
        return dict(zip(COLUMNS, values, strict=True)), None

    def _text(self, name: str) -> Path:
        return self.path / (name + TEXT)
