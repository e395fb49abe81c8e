"""Sources of rows: what they offer, and which one a file is."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from streammach.data.anndata_zarr import AnnDataSource
from streammach.data.formats.registry import TEXT_FORMATS, guess_format
from streammach.data.hdf5 import Hdf5Source
from streammach.data.matrix_source import MatrixSource
from streammach.data.numpy_files import NpySource, NpzSource
from streammach.data.source import Source
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.data.tables.opening import (
    PIPED_TABLES,
    TABLE_FORMATS,
    open_table,
    table_form,
    table_of_line,
)
from streammach.data.text import (
    BYTE_ORDER_MARK,
    GZIP_ERRORS,
    GZIP_MAGIC,
    RawFile,
    TextSource,
    gzip_error,
    is_piped,
)
from streammach.errors import DataError, UsageError, clean
from streammach.files.reading import disk_error

MATRIX_SOURCES: dict[str, type[MatrixSource]] = {
    known.form: known for known in (Hdf5Source, NpzSource, NpySource, AnnDataSource)
}
SAMPLE_BYTES = 1 << 16


def open_source(path: Path, options: SourceOptions | None = None) -> Source[Any]:
    """Return the source that a file is.

    Parameters
    ----------
    path : Path
        The file; ``-``, a pipe or a device is text that is read once.
    options : SourceOptions, optional
        How to read it; what it leaves open is guessed from the content.

    Raises
    ------
    UsageError
        If there is no such file, or an option does not fit it.
    DataError
        If the file is empty, damaged, or its format cannot be guessed.
    DiskError
        If it cannot be read.
    """
    options = options or GUESSED
    form = options.form
    if options.multilabel not in ("auto", "on", "off"):
        raise UsageError(f"'{clean(options.multilabel)}' is not one of auto, on, off: --multilabel")
    if options.first_label and options.multilabel == "on":
        raise UsageError("rows have one label or several: --first-label, --multilabel on")
    if form is not None and form not in {**TEXT_FORMATS, **TABLE_FORMATS, **MATRIX_SOURCES}:
        known = ", ".join((*TEXT_FORMATS, *TABLE_FORMATS, *MATRIX_SOURCES))
        raise UsageError(f"'{clean(form)}' is not a format; known are {known}")
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
    raw = _opened(path, prompt=options.prompt)
    line, following = _first_lines(raw, path)
    piped = is_piped(path)
    if not piped:
        raw.close()
    form = options.form or guess_format(line, following)
    if form is None:
        form = table_of_line(line)
    if form in TABLE_FORMATS:
        return open_table(path, form, options, raw if piped else None)
    if form is None:
        raise DataError(
            f"the format cannot be guessed from '{clean(line, 60)}'",
            path=path,
            hint="Name it with --format.",
        )
    if options.first_label and not TEXT_FORMATS[form].several_labels:
        raise UsageError(f"a row of {form} text has one label: --first-label", path=path)
    return TextSource(
        path, form, first_label=options.first_label, multilabel=options.multilabel,
        raw=raw if piped else None,
    )  # fmt: skip


def _opened(path: Path, *, prompt: bool) -> RawFile:
    try:
        return RawFile(path, prompt=prompt)
    except OSError as error:
        raise disk_error(error, path) from error


def _unpacked(head: bytes) -> bytes:
    """Return the first bytes of the text whose file starts like this."""
    if not head.startswith(GZIP_MAGIC):
        return head
    stream = zlib.decompressobj(wbits=31)
    text = stream.decompress(head, SAMPLE_BYTES)
    if not stream.eof and len(head) < SAMPLE_BYTES and len(text) < SAMPLE_BYTES:
        raise EOFError
    return text


def _first_lines(raw: RawFile, path: Path) -> tuple[bytes, bytes]:
    """Return the first two lines of the text that are not blank and not comments."""
    try:
        sample = _unpacked(raw.head(SAMPLE_BYTES))
    except GZIP_ERRORS as error:
        raise gzip_error(error, path, 0) from None
    except OSError as error:
        raise disk_error(error, path) from error
    sample = sample.removeprefix(BYTE_ORDER_MARK)
    if len(sample) >= SAMPLE_BYTES:  # it may end within a value
        sample = sample.rsplit(None, 1)[0]
    lines = (line for line in sample.split(b"\n") if line.strip() and line.lstrip()[:1] != b"#")
    line = next(lines, None)
    if line is None:
        raise DataError("it holds no rows", path=path)
    return line, next(lines, b"")
