"""Where the files of a store are: in a folder, or anywhere that gives them like one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec
import platformdirs

from streammach.system.errors import StoreError, UsageError, clean
from streammach.system.files.cache import Cache
from streammach.system.files.folders import walk_folder
from streammach.system.files.objects import MissingObject, RemoteError
from streammach.system.files.reading import disk_errors, read_small, regular
from streammach.system.machine import parse_size

CONVERT_AGAIN = "Convert the source again."
FOLDER, SIZE = "STREAMMACH_CACHE", "STREAMMACH_CACHE_SIZE"  # of the environment
DEFAULT_SIZE = "20GB"


class FileFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of a shard: its bytes, their SHA-256, and its last four bytes.

    A crc32c of the whole file would say nothing: the parts end with their own crc32c, and that
    makes the crc32c of the whole the same whatever they hold.
    """

    size: int
    sha256: str
    tail: int


class Blobs(Protocol):
    """The files of a store, by their names in it; read from several threads."""

    place: Path  # the store
    libraries_bytes: int = 0  # memory that reading them takes beside what is read

    def root(self, limit: int) -> bytes:
        """Return the root document, or raise UsageError, StoreError or DiskError without one."""

    def document(self, name: str, limit: int, digest: str) -> bytes:
        """Return a small file, or raise DiskError; the caller compares its digest."""

    def check(self, documents: Iterable[str], files: Mapping[str, FileFacts]) -> None:
        """Refuse files that cannot be read."""

    def hold_open(self, name: str, facts: FileFacts) -> AbstractContextManager[int]:
        """Hold a shard open."""

    def refetch(self, facts: FileFacts) -> bool:
        """Return whether a shard that seems damaged is to be read once more."""
        del facts
        return False

    def close(self) -> None:
        """Close the files."""
        return


class Folder(Blobs):
    """The files of a store in a folder."""

    def __init__(self, path: Path) -> None:
        self.place = path
        self._handles: dict[str, int] = {}

    def root(self, limit: int) -> bytes:
        folder, shown = self.place, clean(self.place, 300)
        if not folder.is_dir():
            hint = "Make one with: streammach convert"
            if not os.path.lexists(folder):
                raise UsageError("there is no such store", path=shown, hint=hint)
            raise StoreError("it is no folder", path=shown, hint=hint)
        if not (folder / "zarr.json").is_file():
            what, hint = "not a store: it has no zarr.json", "Name a folder that convert made."
            raise StoreError(what, path=shown, hint=hint)
        return read_small(folder / "zarr.json", limit)

    def document(self, name: str, limit: int, digest: str) -> bytes:
        del digest
        return read_small(self.place / name, limit)

    def check(self, documents: Iterable[str], files: Mapping[str, FileFacts]) -> None:
        """Raise StoreError if files are missing, foreign, links, or of another size."""
        folder = self.place
        expected, found = {*documents, *files}, set[str]()
        for name, path in walk_folder(folder):
            if path.is_symlink():
                raise damage_error(folder, f"{clean(path.name)} is a link")
            if not path.is_dir():
                found.add(name)
        for name in sorted(expected ^ found):
            raise damage_error(
                folder, f"{clean(name)} is {'missing' if name in expected else 'foreign'}"
            )
        for name, facts in files.items():
            size = (folder / name).stat().st_size
            if size != facts.size:
                raise damage_error(folder, f"{clean(name)} has {size:,} bytes, not {facts.size:,}")

    def hold_open(self, name: str, facts: FileFacts) -> AbstractContextManager[int]:
        """Hold a shard open, which stays open until :meth:`close`."""
        del facts
        path = self.place / name
        if name not in self._handles:
            with disk_errors(path):
                handle = regular(path)
            if self._handles.setdefault(name, handle) != handle:  # another thread was first
                os.close(handle)
        return contextlib.nullcontext(self._handles[name])

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()


def open_cache(
    folder: str | os.PathLike[str] | None = None, size: str | int | None = None
) -> Cache:
    """Return the cache of stores at URLs: as given, as the environment says, or the usual one."""
    usual = os.environ.get(FOLDER) or platformdirs.user_cache_path("streammach") / "stores"
    most = size or os.environ.get(SIZE) or DEFAULT_SIZE
    return Cache(Path(folder or usual).absolute(), parse_size(most))


def is_remote(error: Exception) -> bool:
    """Return whether it is the way to a file that failed, rather than what the file is."""
    return isinstance(error, RemoteError) and not isinstance(error, MissingObject)


def damage_error(folder: Path, what: str) -> StoreError:
    """Return the error of a store in which something is wrong."""
    return StoreError(f"damaged: {what}", path=folder, hint=CONVERT_AGAIN)
