"""The first bytes of a text, of which nothing is lost: what is piped is read again afterwards."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from streammach.data.text import (
    BYTE_ORDER_MARK,
    GZIP_ERRORS,
    GZIP_MAGIC,
    MAX_LINE,
    RawFile,
    check_packed,
    gzip_error,
)
from streammach.errors import DataError
from streammach.files.reading import disk_error

GZIP_BITS = 31
GROWS = 4  # times as much is looked at where what is looked for is not there
T = TypeVar("T")


def find_in_head(
    path: Path, raw: RawFile | None, n_bytes: int, found: Callable[[bytes, bool], T | None]
) -> T | None:
    """Return what is found in the first bytes of a text; it reads more where it must."""
    while True:
        text, whole = _first_bytes(path, raw, n_bytes)
        whole = whole or n_bytes >= MAX_LINE
        if (result := found(text, whole)) is not None or whole:
            return result
        n_bytes *= GROWS


def _first_bytes(path: Path, raw: RawFile | None, n_bytes: int) -> tuple[bytes, bool]:
    """Return the first bytes of a text, and whether these are all of it."""
    try:
        if raw is not None:
            head = raw.head(n_bytes)
        else:
            with open(path, "rb") as file:
                head = file.read(n_bytes)
        check_packed(head, path)
        text, whole = head, len(head) < n_bytes and (raw is None or raw.ended)
        if head.startswith(GZIP_MAGIC):
            text, _, ended = unpacked(head, n_bytes)
            if whole and not ended and len(text) < n_bytes:
                raise EOFError
            whole = whole and ended
    except GZIP_ERRORS as error:
        raise gzip_error(error, path, 0) from None
    except OSError as error:
        raise disk_error(error, path) from error
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("it is UTF-16", path=path, hint="Write it as UTF-8.")
    return text.removeprefix(BYTE_ORDER_MARK), whole


def unpacked(head: bytes, n_bytes: int) -> tuple[bytes, int, bool]:
    """Return up to so many bytes of a gzip text, how many of its own these took, whether it ends.

    Zeros may stand behind a member, or the next one.
    """
    text, rest = b"", head
    while rest.startswith(GZIP_MAGIC) and len(text) < n_bytes:
        stream = zlib.decompressobj(GZIP_BITS)
        text += stream.decompress(rest, n_bytes - len(text))
        if not stream.eof:
            return text, len(head) - len(stream.unconsumed_tail), False
        rest = stream.unused_data.lstrip(b"\0")
    return text, len(head) - len(rest), not rest
