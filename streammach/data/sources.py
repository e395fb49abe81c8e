"""Sources of rows: what they offer, and which one a file is."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from streammach.data.anndata_zarr import AnnDataSource
from streammach.data.hdf5 import HDF5_MAGIC, Hdf5Source
from streammach.data.numpy_files import NPY_MAGIC, NpySource, NpzSource
from streammach.data.source import Source
from streammach.data.source_options import SourceOptions
from streammach.data.text import (
    BYTE_ORDER_MARK,
    GZIP_ERRORS,
    GZIP_MAGIC,
    RawFile,
    TextSource,
    gzip_error,
    is_piped,
    xmc_header,
)
from streammach.errors import DataError, UsageError, clean
from streammach.files.reading import disk_error

TEXT_FORMATS = ("vw", "svmlight", "xmc")
FORMATS = (*TEXT_FORMATS, "hdf5", "npz", "npy", "anndata")
MAGIC = {b"PK\x03\x04": "npz", NPY_MAGIC: "npy", HDF5_MAGIC: "hdf5"}
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
    options = options or SourceOptions()
    form = options.form
    if form is not None and form not in FORMATS:
        raise UsageError(f"'{clean(form)}' is not a format; known are {', '.join(FORMATS)}")
    if is_piped(path):
        return _text_source(path, form, options)
    if path.is_dir() and form in (None, "anndata"):
        return AnnDataSource(path, options)
    if not path.is_file():
        what = f"it is a folder: --format {form}" if path.is_dir() else "there is no such file"
        raise UsageError(what, path=clean(path, 300))
    if form == "anndata":
        raise UsageError("it is no folder: --format anndata", path=clean(path, 300))
    form = form or _by_magic(path)
    if form != "hdf5" and options.x_path is not None:
        raise UsageError("it has no paths inside: --x-path", path=clean(path, 300))
    if form == "hdf5":
        return Hdf5Source(path, options)
    if form == "npz":
        return NpzSource(path, options)
    if form == "npy":
        return NpySource(path, options)
    return _text_source(path, form, options)


def _by_magic(path: Path) -> str | None:
    """Return the format that the first bytes of a file stand for, or None."""
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise disk_error(error, path) from error
    return next((form for magic, form in MAGIC.items() if head.startswith(magic)), None)


def _text_source(path: Path, form: str | None, options: SourceOptions) -> TextSource:
    for name in ("labels", "y_path"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"rows of text hold their labels: --{name.replace('_', '-')}", path=clean(path, 300)
            )
    raw = _opened(path)
    line, following = _first_lines(raw, path)
    piped = is_piped(path)
    if not piped:
        raw.close()
    form = form or guess_format(line, following)
    if form is None:
        raise DataError(
            f"the format cannot be guessed from '{clean(line, 60)}'",
            path=clean(path, 300),
            hint="Name it with --format.",
        )
    if options.first_label and form == "vw":
        raise UsageError("a row of VW text has one label: --first-label", path=clean(path, 300))
    return TextSource(path, form, first_label=options.first_label, raw=raw if piped else None)


def guess_format(line: bytes, following: bytes = b"") -> str | None:
    """Return the format that the first two lines look like, or None."""
    if b"|" in line:
        return "vw"
    if xmc_header(line) and b":" in following and b"|" not in following:
        return "xmc"
    fields = line.split(b"#")[0].split()
    if len(fields) > 1 and all(b":" in field for field in fields[1:]) and b":" not in fields[0]:
        return "svmlight"
    return None


def _opened(path: Path) -> RawFile:
    try:
        return RawFile(path)
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
    lines = (line for line in sample.split(b"\n") if line.strip() and line.lstrip()[:1] != b"#")
    line = next(lines, None)
    if line is None:
        raise DataError("it holds no rows", path=clean(path, 300))
    return line, next(lines, b"")
