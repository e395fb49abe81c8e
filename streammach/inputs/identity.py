"""Whether files are those that they were: by bytes and time at a glance, else by a digest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streammach.system.errors import DataError
from streammach.system.files.reading import crc32c, disk_errors, file_pieces

PLACE = Path("rows in memory")  # stands where files have a path


class ChangedError(DataError):
    """A source is no longer the one that was read before."""


@dataclass(frozen=True)
class FileState:
    """A file, its bytes, and when it was changed last, in nanoseconds."""

    name: str
    n_bytes: int
    changed: int


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the content of a source: its name, its format, its bytes, and their crc32c."""

    name: str
    format: str
    bytes: int
    crc32c: str


def state_of(path: Path) -> FileState:
    """Return the present state of a file, or raise DiskError."""
    with disk_errors(path):
        facts = path.stat()
    return FileState(name_of(path.resolve()), facts.st_size, facts.st_mtime_ns)


def name_of(path: str | os.PathLike[str]) -> str:
    """Return a path as text that JSON can hold, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def files_in(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its folders, in a fixed order."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(files))


def check_unchanged(before: Sequence[FileState], files: Iterable[Path]) -> None:
    """Raise DataError if a file was changed while it was read."""
    for was, path in zip(before, files, strict=True):
        now = state_of(path)
        if now != was:
            sizes = f" ({was.n_bytes:,} bytes before, {now.n_bytes:,} now)"
            raise DataError(
                "it was changed while it was read" + (sizes if now.n_bytes != was.n_bytes else ""),
                path=path,
                hint="Nothing was made of it. Read a copy, or wait until it is written.",
            )


def content_crc(files: Sequence[Path]) -> str:
    """Return the crc32c of the files' bytes: 8 hexadecimal digits, or raise DiskError."""
    return f"{crc32c(piece for path in files for piece in file_pieces(path)):08x}"
