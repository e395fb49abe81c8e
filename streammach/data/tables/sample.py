"""The first bytes of a text, of which nothing is lost: what is piped is read again afterwards."""

from __future__ import annotations

import zlib
from pathlib import Path

from streammach.data.text import GZIP_ERRORS, GZIP_MAGIC, RawFile, gzip_error
from streammach.errors import DataError
from streammach.files.reading import disk_error

GZIP_BITS = 31


def first_text(path: Path, raw: RawFile | None, n_bytes: int) -> tuple[str, bool]:
    """Return the first characters of a text, and whether these are all of it.

    Parameters
    ----------
    path : Path
        The file.
    raw : RawFile or None
        What was opened of it already; a pipe is read no further than its head.
    n_bytes : int
        How many bytes, of the file and of the text.

    Raises
    ------
    DataError
        If it is damaged, or not UTF-8 text.
    DiskError
        If it cannot be read.
    """
    try:
        if raw is not None:
            head = raw.head(n_bytes)
        else:
            with open(path, "rb") as file:
                head = file.read(n_bytes)
        whole = len(head) < n_bytes and (raw is None or raw.ended)
        if head.startswith(GZIP_MAGIC):
            text, ended = _unpacked(head, n_bytes)
            whole = whole and ended
        else:
            text = head
    except GZIP_ERRORS as error:
        raise gzip_error(error, path, 0) from None
    except OSError as error:
        raise disk_error(error, path) from error
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("it is UTF-16", path=path, hint="Write it as UTF-8.")
    return text.decode("utf-8", "surrogateescape").removeprefix("\ufeff"), whole


def _unpacked(head: bytes, n_bytes: int) -> tuple[bytes, bool]:
    """Return up to so many bytes of a gzip text, and whether they are all that is there."""
    text = b""
    while head.startswith(GZIP_MAGIC) and len(text) < n_bytes:
        stream = zlib.decompressobj(GZIP_BITS)
        text += stream.decompress(head, n_bytes - len(text))
        if not stream.eof:
            return text, False
        head = stream.unused_data.lstrip(b"\0")
    return text, not head
