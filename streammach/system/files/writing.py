"""Files that are either whole or absent: bytes, fsync, rename, fsync of the folder.

Every file that the package leaves behind is written here. An fsync that failed is never repeated,
because a second one can succeed although the data are gone; the file is removed and the error
raised.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path

from streammach.system.files.reading import PIECE, Buffer, disk_errors, regular
from streammach.system.linux import sync

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # names that Writer gives by itself


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable where its file system can, or raise OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        sync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def fsync_file(path: Path) -> None:
    """Make the bytes of a file durable, or raise OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(handle)
    finally:
        os.close(handle)


class Writer(contextlib.AbstractContextManager["Writer"]):
    """A new file in a folder of ours, that appears under its name when it is whole and durable.

    Bytes go to a temporary name in the same folder; :meth:`commit` syncs and renames. Leaving the
    ``with`` block without a commit removes the temporary file. A file that the user names is
    written by :class:`streammach.system.files.destinations.Destination` instead.
    """

    def __init__(self, path: Path, *, temporary: Path | None = None) -> None:
        self.path = path  # the final name
        self.size = 0  # bytes written
        flags = os.O_WRONLY | os.O_CREAT
        if temporary is None:
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            flags |= os.O_EXCL
        self._temporary = temporary
        with disk_errors(path):
            self._handle: int | None = regular(self._temporary, flags)
            os.ftruncate(self._handle, 0)

    def write(self, data: Buffer) -> None:
        """Append bytes; all of them are written or DiskError is raised."""
        rest = memoryview(data).cast("B")
        with disk_errors(self.path):
            while len(rest):
                n = os.write(self._open_handle(), rest[:PIECE])
                self.size, rest = self.size + n, rest[n:]

    def commit(self) -> None:
        """Sync the file and give it its name; the folder is synced too."""
        with disk_errors(self.path):
            sync(self._open_handle())
            self._close()
            os.replace(self._temporary, self.path)
            fsync_folder(self.path.parent)

    def _open_handle(self) -> int:
        assert self._handle is not None, "the file is closed"
        return self._handle

    def close(self) -> None:
        """Close the file and leave it under its temporary name."""
        with contextlib.suppress(OSError):
            self._close()

    def _close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            os.close(handle)

    def __exit__(self, *exc: object) -> None:
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def write_atomic(path: Path, *pieces: Buffer) -> None:
    """Write a file of ours whole: after a crash it holds the old bytes or the new ones."""
    with Writer(path) as out:
        for piece in pieces:
            out.write(piece)
        out.commit()


def remove_file(path: Path) -> None:
    """Remove a file of ours if it is there, or raise DiskError."""
    with disk_errors(path):
        path.unlink(missing_ok=True)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed :class:`Writer` left in a folder of ours, or raise DiskError."""
    for parent, _, names in os.walk(folder):
        for name in filter(TEMPORARY.fullmatch, names):
            remove_file(Path(parent, name))
