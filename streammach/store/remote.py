"""Stores in object storage: read through a cache of bounded size, written with their root last."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import msgspec

from streammach.store.blobs import Blobs, FileFacts, Folder, damage_error, open_cache
from streammach.store.opening import NO_STORE, names_of
from streammach.store.writer import MAX_DOCUMENT, MAX_MANIFEST, Manifest
from streammach.system.errors import DiskError, UsageError, clean
from streammach.system.files.cache import Cache
from streammach.system.files.destinations import FORCE_HINT
from streammach.system.files.objects import FETCH_BYTES, MissingObject, Objects, RemoteError
from streammach.system.files.reading import file_pieces, sha256
from streammach.system.files.urls import Url, locate
from streammach.system.machine import size_text
from streammach.system.progress import ProgressBar, Wanted

CHECK = re.compile(rb'"check": "([0-9a-f]{64})"')  # of a root document
ROOT, MANIFEST, MARK = "zarr.json", "manifest.json", "streammach.json"
WRITABLE = ("s3", "gs")


def blobs_of(
    path: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> Blobs:
    """Return the files of a store at a path or a URL, or raise UsageError or DiskError."""
    place = locate(path)
    if not isinstance(place, Url):
        return Folder(place)
    return Remote(place, open_cache(cache, cache_size))


class Remote(Blobs):
    """A store at a URL. Its shards come through a cache, its documents when it is opened."""

    libraries_bytes = FETCH_BYTES

    def __init__(self, url: Url, cache: Cache) -> None:
        self.place: Path = url
        self._objects = Objects(url)
        self._cache = cache

    def root(self, limit: int) -> bytes:
        try:
            return self._objects.read("zarr.json", limit, _whole)
        except MissingObject:
            hint = "Make one with: streammach convert"
            raise UsageError("there is no such store", path=self.place, hint=hint) from None

    def document(self, name: str, limit: int, digest: str) -> bytes:
        return self._objects.read(name, limit, lambda found: sha256([found]) == digest)

    def check(self, documents: Iterable[str], files: Mapping[str, FileFacts]) -> None:
        """Refuse a cache in which a file of each array has no room: each read would fetch them."""
        del documents
        largest: dict[str, int] = {}
        for name, facts in files.items():
            array = name.rpartition("/c/")[0]
            largest[array] = max(largest.get(array, 0), facts.size)
        needed, most = sum(largest.values()), self._cache.n_bytes
        if needed > most:
            what = f"a cache of {size_text(most)} is too small for files of this store"
            hint = f"Use --cache-size {needed / 1e6 + 0.1:z.1f}MB or more."
            raise UsageError(what, path=self.place, hint=hint)

    def hold_open(self, name: str, facts: FileFacts) -> AbstractContextManager[int]:
        """Hold a shard open, as the cache has it or after it was fetched."""
        return self._cache.hold_open(
            facts.sha256, facts.size, self.place / name, partial(self._fetch, name, facts.size)
        )

    def _fetch(self, name: str, size: int, handle: int) -> None:
        try:
            self._objects.fill(name, size, handle)
        except MissingObject:
            raise damage_error(self.place, f"{name} is missing") from None

    def refetch(self, facts: FileFacts) -> bool:
        """Have a shard be compared with its digest again, and fetched where it has another."""
        self._cache.forget(facts.sha256)
        return True


def _whole(text: bytes) -> bool:
    """Return whether a root document is as it was written, or none of ours."""
    found = CHECK.search(text)
    return found is None or sha256([text.replace(found[1], b"", 1)]) == found[1].decode()


class _Mark(msgspec.Struct, frozen=True):
    """What says that an unfinished store is ours: the names that it has, or had."""

    streammach: str
    names: list[str]


class Upload:
    """A URL under which a store will be, checked before the work and again after it."""

    def __init__(self, url: Url, *, force: bool) -> None:
        if url.scheme not in WRITABLE:
            hint = "Convert into a folder and copy it, or name s3:// or gs://."
            raise UsageError(f"stores cannot be written over {url.scheme}", path=url, hint=hint)
        self.url, self._force = url, force
        self._objects = Objects(url)
        self.check()

    def check(self) -> dict[str, int]:
        """Return what is there already, by name, or raise UsageError if it is to stay."""
        found = self._objects.sizes()
        known = self._names(ROOT in found) if found else set()
        foreign = sorted(found.keys() - known) if known else []
        if found and (not known or foreign):
            why = f"{clean(foreign[0])} in it was not made by streammach" if foreign else NO_STORE
            hint = "Remove it yourself, or name another place."
            raise UsageError(f"{why}, and is not replaced", path=self.url, hint=hint)
        if ROOT in found and not self._force:
            raise UsageError("it exists already", path=self.url, hint=FORCE_HINT)
        return found

    def _names(self, whole: bool) -> set[str]:
        """Return what streammach made there: of a store, or of one that is not finished."""
        try:
            names = {MARK}
            with contextlib.suppress(MissingObject):
                mark = msgspec.json.decode(self._text(MARK, MAX_MANIFEST), type=_Mark)
                names.update(mark.names if mark.streammach == "upload" else [])
            if whole:
                known = names_of(self._text(ROOT, MAX_DOCUMENT), self._text(MANIFEST, MAX_MANIFEST))
                return known and names | known
        except RemoteError as error:
            if isinstance(error, MissingObject):
                return set()
            raise
        except (ValueError, RecursionError, DiskError):
            return set()
        return names if len(names) > 1 else set()

    def _text(self, name: str, limit: int) -> bytes:
        return self._objects.read(name, limit, lambda text: True)

    def send(self, folder: Path, progress: Wanted = None) -> None:
        """Put a finished store there; what an interrupted upload left of it stays."""
        there, wanted = self.check(), _digests(folder)
        mark = msgspec.json.encode(_Mark("upload", sorted({*there, *wanted})))
        self._objects.put(MARK, mark, sha256([mark]))
        self._objects.remove([ROOT] if ROOT in there else [])
        parts = [name for name in wanted if name not in (ROOT, MANIFEST)]
        with ProgressBar(progress, "files", {"upload": 1.0}) as told:
            for i, name in enumerate(parts):
                told("upload", i, len(parts))
                self._send(folder, name, wanted[name], there)
        self._send(folder, MANIFEST, wanted[MANIFEST], there)
        self._check_sizes(folder, [*parts, MANIFEST])
        self._objects.put(ROOT, folder / ROOT, wanted[ROOT])
        self._objects.remove([*(there.keys() - wanted.keys() - {MARK}), MARK])

    def _send(self, folder: Path, name: str, digest: str, there: Mapping[str, int]) -> None:
        same = there.get(name) == (folder / name).stat().st_size
        if not (same and self._objects.digest(name) == digest):
            self._objects.put(name, folder / name, digest)

    def _check_sizes(self, folder: Path, names: list[str]) -> None:
        found = self._objects.sizes()
        for name in names:
            if found.get(name) != (folder / name).stat().st_size:
                hint = "Run the same command again."
                raise RemoteError("it is not what was sent", path=self._objects.at(name), hint=hint)


def _digests(folder: Path) -> dict[str, str]:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    ends = {name: sha256(file_pieces(folder / name)) for name in (MANIFEST, ROOT)}
    return {**{n: f.sha256 for n, f in manifest.files.items()}, **manifest.metadata, **ends}
