"""Reading files: small ones whole, large ones in pieces, and their digests."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec

from streammach.system.errors import DiskError, StreammachError

Buffer = bytes | bytearray | memoryview
PIECE = 4 << 20  # bytes handed to one read or write call
ZSTD_MAGIC, ZSTD_HEADER = b"\x28\xb5\x2f\xfd", 18  # of a frame: first bytes, the most of its header


def disk_error(error: OSError, path: str | os.PathLike[str]) -> DiskError:
    """Return the error of a file operation as one line with the file and the free space."""
    reason = error.strerror or str(error)
    hint = None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free some space and run the same command again."
    return DiskError(reason, path=path, hint=hint)


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system says of a file in a block into a DiskError."""
    try:
        yield
    except StreammachError:
        raise
    except OSError as error:
        raise disk_error(error, path) from error


def check_free(path: Path, needed: int, what: str) -> None:
    """Refuse work whose result would not fit the disk, or raise DiskError.

    `needed` is in bytes.
    """
    free = shutil.disk_usage(path).free
    if free < needed:
        raise DiskError(
            f"{what} needs {needed / 1e9:z.2f} GB, {free / 1e9:z.2f} GB are free",
            path=path, hint="Free some space or choose another disk.",
        )  # fmt: skip


def regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file, also for `open`: no link is followed, no pipe waited for; or OSError."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "a link, which is not followed"
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return handle


def read_small(path: Path, limit: int) -> bytes:
    """Read a small regular file, or raise DiskError."""
    with disk_errors(path), open(path, "rb", opener=regular) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= limit:
            return file.read()
    raise DiskError(f"{size:,} bytes, at most {limit:,} expected", path=path)


def read_facts(path: Path, limit: int) -> dict[str, Any]:
    """Return the JSON object in a small file; an empty one where none can be read."""
    try:
        found = msgspec.json.decode(read_small(path, limit))
    except (DiskError, msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def sha256(pieces: Iterable[Buffer]) -> str:
    """Return the SHA-256 of the pieces in order, in hexadecimal."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, or raise DiskError."""
    with disk_errors(path), open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            yield piece


def handle_pieces(handle: int) -> Iterator[bytes]:
    """Yield the bytes of an open file in pieces, from its start, or raise OSError."""
    at = 0
    while piece := os.pread(handle, PIECE, at):
        yield piece
        at += len(piece)


def crc32c(pieces: Iterable[bytes]) -> int:
    """Return the crc32c of the pieces in order."""
    total = google_crc32c.Checksum()
    for piece in pieces:
        total.update(piece)
    return int.from_bytes(total.digest(), "big")


def zstd_size(frame: bytes) -> int | None:
    """Return the bytes that a Zstandard frame says it holds; None where it does not say it."""
    # RFC 8878, section 3.1.1.1: a descriptor follows the magic number, then perhaps a byte of the
    # window and the number of a dictionary, then the size.
    if len(frame) < 6 or not frame.startswith(ZSTD_MAGIC):
        return None
    descriptor = frame[4]
    single = descriptor >> 5 & 1
    start = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    size = (single, 2, 4, 8)[descriptor >> 6]
    if not size:
        return None
    return int.from_bytes(frame[start : start + size], "little") + (256 if size == 2 else 0)
