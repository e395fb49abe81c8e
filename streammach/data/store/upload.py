"""Puts a finished store into object storage: its root last, so that no half of one looks whole."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from streammach.data.store.opening import MAX_DOCUMENT, MAX_MANIFEST, NO_STORE
from streammach.data.store.writer import Manifest
from streammach.errors import DiskError, UsageError, clean
from streammach.files.destinations import FORCE_HINT
from streammach.files.folders import temporary_folder
from streammach.files.objects import MissingObject, Objects, RemoteError
from streammach.files.reading import file_pieces, sha256
from streammach.files.urls import Url, located
from streammach.progress import Wanted, shown

ROOT, MANIFEST, MARK = "zarr.json", "manifest.json", "streammach.json"
WRITABLE = ("s3", "gs")

P = ParamSpec("P")
R = TypeVar("R")


class _Mark(msgspec.Struct, frozen=True):
    """What says that an unfinished store is ours: the names that it has, or had."""

    streammach: str
    names: list[str]


class Upload:
    """A URL under which a store will be, checked before the work and again after it."""

    def __init__(self, url: Url, *, force: bool) -> None:
        if url.scheme not in WRITABLE:
            raise UsageError(
                f"stores cannot be written over {url.scheme}", path=url,
                hint="Convert into a folder and copy it, or name s3:// or gs://.",
            )  # fmt: skip
        self.url, self._force = url, force
        self._objects = Objects(url)
        self.check()

    def check(self) -> dict[str, int]:
        """Return what is there already, by name, or raise UsageError if it is to stay."""
        found = self._objects.sizes()
        if not found:
            return found
        known = self._names(ROOT in found)
        foreign = sorted(found.keys() - known) if known else []
        if not known or foreign:
            why = f"{clean(foreign[0])} in it was not made by streammach" if foreign else NO_STORE
            raise self._refused(
                f"{why}, and is not replaced", "Remove it yourself, or name another place."
            )
        if ROOT in found and not self._force:
            raise self._refused("it exists already", FORCE_HINT)
        return found

    def _names(self, whole: bool) -> set[str]:
        """Return what streammach made there: of a store, or of one that is not finished."""
        try:
            names = {MARK, *self._marked()}
            if whole:
                root = msgspec.json.decode(self._text(ROOT, MAX_DOCUMENT), type=dict[str, Any])
                if "streammach" not in root["attributes"]:
                    return set()
                manifest = msgspec.json.decode(self._text(MANIFEST, MAX_MANIFEST), type=Manifest)
                return names | {ROOT, MANIFEST, *manifest.files, *manifest.metadata}
        except RemoteError as error:
            if isinstance(error, MissingObject):
                return set()
            raise
        except (ValueError, KeyError, TypeError, RecursionError, DiskError):
            return set()
        return names if len(names) > 1 else set()

    def _marked(self) -> list[str]:
        try:
            mark = msgspec.json.decode(self._text(MARK, MAX_MANIFEST), type=_Mark)
        except MissingObject:
            return []
        return mark.names if mark.streammach == "upload" else []

    def _text(self, name: str, limit: int) -> bytes:
        return self._objects.read(name, limit, lambda text: True)

    def send(self, folder: Path, progress: Wanted = None) -> None:
        """Put a finished store there; what an interrupted upload left of it stays."""
        there, wanted = self.check(), _digests(folder)
        mark = msgspec.json.encode(_Mark("upload", sorted({*there, *wanted})))
        self._objects.put(MARK, mark, sha256([mark]))
        self._objects.remove([ROOT] if ROOT in there else [])
        parts = [name for name in wanted if name not in (ROOT, MANIFEST)]
        with shown(progress, "files", {"upload": 1.0}) as told:
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
                raise RemoteError(
                    "it is not what was sent", path=self._objects.at(name),
                    hint="Run the same command again.",
                )  # fmt: skip

    def _refused(self, what: str, hint: str) -> UsageError:
        return UsageError(what, path=self.url, hint=hint)


def _digests(folder: Path) -> dict[str, str]:
    """Return the digests of a store's files by their names."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    ends = {name: sha256(file_pieces(folder / name)) for name in (MANIFEST, ROOT)}
    return {**{n: f.sha256 for n, f in manifest.files.items()}, **manifest.metadata, **ends}


def at_urls(make: Callable[P, R]) -> Callable[P, R]:
    """Let a function that makes a store at `out`, and says so, put it at a URL, too."""

    @wraps(make)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        given = inspect.signature(make).bind(*args, **kwargs)
        how, began = given.arguments, time.monotonic()
        url = how["out"] = located(how["out"])
        if not isinstance(url, Url):
            return make(*given.args, **given.kwargs)
        if how.get("on_bad_row") == "skip":
            raise UsageError(
                "rows that are skipped are listed beside a store, in a folder", path=url,
                hint="Convert into a folder, and copy it.",
            )  # fmt: skip
        upload = Upload(url, force=how.get("force", False))
        with temporary_folder() as folder:
            folder.mkdir()
            how["out"] = folder / "store"
            made: Any = make(*given.args, **given.kwargs)
            upload.send(folder / "store", how.get("progress"))
        found: R = replace(made, path=str(url), seconds=time.monotonic() - began)
        return found

    return called
