"""Stores in object storage, whose files come through a local cache of bounded size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import platformdirs

from streammach.data.store.blobs import Blobs, FileFacts, Folder, damaged
from streammach.errors import UsageError
from streammach.files.cache import Cache, CachePlace
from streammach.files.objects import FETCH_BYTES, MissingObject, Objects
from streammach.files.reading import sha256
from streammach.files.urls import Url, located
from streammach.machine import parse_size, size_text

FOLDER, SIZE = "STREAMMACH_CACHE", "STREAMMACH_CACHE_SIZE"  # of the environment
DEFAULT_SIZE = "20GB"
CHECK = re.compile(rb'"check": "([0-9a-f]{64})"')  # of a root document


def cache_place(
    folder: str | os.PathLike[str] | None = None, size: str | int | None = None
) -> CachePlace:
    """Return where files of stores at URLs are kept: as given, as the environment says, or so."""
    usual = os.environ.get(FOLDER) or platformdirs.user_cache_path("streammach") / "stores"
    most = size or os.environ.get(SIZE) or DEFAULT_SIZE
    return CachePlace(Path(folder or usual).absolute(), parse_size(most))


def blobs_of(
    path: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> Blobs:
    """Return the files of a store at a path or a URL, or raise UsageError or DiskError."""
    place = located(path)
    if not isinstance(place, Url):
        return Folder(place)
    return Remote(place, Cache(cache_place(cache, cache_size)))


class Remote:
    """A store at a URL. Its shards come through a cache, its documents when it is opened."""

    libraries_bytes = FETCH_BYTES

    def __init__(self, url: Url, cache: Cache) -> None:
        self.place: Path = url
        self._objects = Objects(url)
        self._cache = cache
        self._bytes = 0

    def root(self, limit: int) -> bytes:
        """Return the root document, or raise UsageError or RemoteError."""
        try:
            text = self._objects.read("zarr.json", limit, _whole)
        except MissingObject:
            raise UsageError(
                "there is no such store", path=self.place,
                hint="Make one with: streammach convert",
            ) from None  # fmt: skip
        self._bytes += len(text)
        return text

    def document(self, name: str, limit: int, digest: str) -> bytes:
        """Return a small file, or raise DiskError."""
        text = self._objects.read(name, limit, lambda found: sha256([found]) == digest)
        self._bytes += len(text)
        return text

    def check(self, documents: Iterable[str], files: Mapping[str, FileFacts]) -> None:
        """Refuse a cache in which a file of each array has no room: each read would fetch them."""
        del documents
        largest: dict[str, int] = {}
        for name, facts in files.items():
            array = name.rpartition("/c/")[0]
            largest[array] = max(largest.get(array, 0), facts.size)
            self._bytes += facts.size
        needed, place = sum(largest.values()), self._cache.place
        if needed > place.n_bytes:
            raise UsageError(
                f"a cache of {size_text(place.n_bytes)} is too small for files of this store",
                path=self.place, hint=f"Use --cache-size {needed / 1e6 + 0.1:.1f}MB or more.",
            )  # fmt: skip

    def opened(self, name: str, facts: FileFacts) -> AbstractContextManager[int]:
        """Hold a shard open, as the cache has it or after it was fetched."""
        return self._cache.opened(
            facts.sha256, facts.size, self.place / name, partial(self._fetch, name, facts.size)
        )

    def _fetch(self, name: str, size: int, handle: int) -> None:
        try:
            self._objects.fill(name, size, handle)
        except MissingObject:
            raise damaged(self.place, f"{name} is missing") from None

    def doubt(self, facts: FileFacts) -> bool:
        """Have a shard be compared with its digest again, and fetched where it has another."""
        self._cache.forget(facts.sha256)
        return True

    def n_bytes(self) -> int:
        """Return the bytes of all files that the manifest and the root name."""
        return self._bytes

    def close(self) -> None:
        """Do nothing: files are open while they are read."""


def _whole(text: bytes) -> bool:
    """Return whether a root document is as it was written, or none of ours."""
    found = CHECK.search(text)
    return found is None or sha256([text.replace(found[1], b"", 1)]) == found[1].decode()
