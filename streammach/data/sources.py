"""Sources of rows: what they offer, and which one a file is."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

from streammach.data.anndata_zarr import AnnDataSource
from streammach.data.formats.registry import TEXT_FORMATS, guess_format
from streammach.data.hdf5 import Hdf5Source
from streammach.data.matrix_source import MatrixSource
from streammach.data.numpy_files import NpySource, NpzSource
from streammach.data.source import Source
from streammach.data.source_options import GUESSED, Layout, SourceOptions
from streammach.data.tables.delimited import DELIMITERS
from streammach.data.tables.opening import (
    PIPED_TABLES,
    TABLE_FORMATS,
    open_table,
    table_form,
    table_of_line,
)
from streammach.data.tables.sample import looked_for
from streammach.data.text import RawFile, TextSource, is_piped
from streammach.errors import DataError, UsageError, clean
from streammach.files.reading import disk_error

MATRIX_SOURCES: dict[str, type[MatrixSource]] = {
    known.form: known for known in (Hdf5Source, NpzSource, NpySource, AnnDataSource)
}
SAMPLE_BYTES = 1 << 16
LINE = re.compile(rb"^[^\S\n]*[^\s#][^\n]*", re.MULTILINE)  # that is not blank and no comment


def open_source(path: Path, options: SourceOptions | None = None) -> Source[Any]:
    """Return the source that a file is, or raise UsageError, DataError or DiskError."""
    options = options or GUESSED
    form = options.form
    if options.multilabel not in ("auto", "on", "off"):
        raise UsageError(f"'{clean(options.multilabel)}' is not one of auto, on, off: --multilabel")
    if options.first_label and options.multilabel == "on":
        raise UsageError("rows have one label or several: --first-label, --multilabel on")
    if form is not None and form not in {**TEXT_FORMATS, **TABLE_FORMATS, **MATRIX_SOURCES}:
        known = ", ".join((*TEXT_FORMATS, *TABLE_FORMATS, *MATRIX_SOURCES))
        raise UsageError(f"'{clean(form)}' is not a format; known are {known}")
    options.layout.check()
    found = _source(path, options)
    if options.layout != Layout() and found.form not in DELIMITERS:
        raise UsageError(
            "only CSV and TSV have a header and quotes: --no-header, --columns, --quotes", path=path
        )
    return found


def _source(path: Path, options: SourceOptions) -> Source[Any]:
    form = options.form
    if is_piped(path):
        return _text_source(path, options)
    found = None
    if form not in TABLE_FORMATS:
        found = _matrix_source(path, form)
    if found is None and (table := table_form(path, form)) is not None:
        return open_table(path, table, options)
    if options.x_path is not None and not (found and found.has_paths):
        raise UsageError("it has no paths inside: --x-path", path=path)
    return _text_source(path, options) if found is None else found(path, options)


def _matrix_source(path: Path, form: str | None) -> type[MatrixSource] | None:
    """Return what reads a file or folder as a matrix, None for text."""
    found = None if form is None else MATRIX_SOURCES.get(form)
    wrong = ""
    if path.is_dir():
        if form is None:
            return next(known for known in MATRIX_SOURCES.values() if known.is_folder)
        wrong = "" if found and found.is_folder else f"it is a folder: --format {form}"
    elif not path.is_file():
        wrong = "there is no such file"
    elif found is not None and found.is_folder:
        wrong = f"it is no folder: --format {form}"
    if wrong:
        raise UsageError(wrong, path=path)
    return _by_magic(path) if form is None else found


def _by_magic(path: Path) -> type[MatrixSource] | None:
    """Return what reads a file with such first bytes, or None."""
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise disk_error(error, path) from error
    known = (known for known in MATRIX_SOURCES.values() if known.magic)
    return next((source for source in known if head.startswith(source.magic)), None)


def _text_source(path: Path, options: SourceOptions) -> Source[Any]:
    if options.form is not None and options.form not in {**TEXT_FORMATS, **PIPED_TABLES}:
        raise UsageError(f"it is read once, as text: --format {options.form}", path=path)
    for name in ("labels", "y_path"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"rows of text hold their labels: --{name.replace('_', '-')}", path=path
            )
    raw = _opened(path, prompt=options.prompt) if is_piped(path) else None
    line, form = _first_line(path, raw)
    form = options.form or form or table_of_line(line)
    if form in TABLE_FORMATS:
        return open_table(path, form, options, raw)
    if form is None:
        raise DataError(
            f"the format cannot be guessed from '{clean(line, 60)}'",
            path=path,
            hint="Name it with --format.",
        )
    if options.first_label and not TEXT_FORMATS[form].several_labels:
        raise UsageError(f"a row of {form} text has one label: --first-label", path=path)
    return TextSource(
        path, form, first_label=options.first_label, multilabel=options.multilabel, raw=raw,
    )  # fmt: skip


def _opened(path: Path, *, prompt: bool) -> RawFile:
    try:
        return RawFile(path, prompt=prompt)
    except OSError as error:
        raise disk_error(error, path) from error


def _first_line(path: Path, raw: RawFile | None) -> tuple[bytes, str | None]:
    """Return the first line that is not blank and no comment, and the format of text it tells."""

    def told(text: bytes, whole: bool) -> tuple[bytes, str | None] | None:
        if not whole:  # it may end within a value
            text = text[: max(map(text.rfind, (b" ", b"\t", b"\n"))) + 1]
        lines = [found[0] for found in islice(LINE.finditer(text), 2)]
        form = guess_format(*lines) if lines else None
        return (lines[0], form) if form or len(lines) > 1 or (lines and whole) else None

    found = looked_for(path, raw, SAMPLE_BYTES, told)
    if found is None:
        raise DataError("it holds no rows", path=path)
    return found
