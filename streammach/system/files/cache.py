"""A folder of files that were fetched, each under the SHA-256 of its bytes, of bounded size.

Several processes may share it; one of them at a time fetches a file. What was read least recently
goes first, and what is being read goes on being read. Nothing else is ever removed from the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from streammach.system.errors import DiskError, StoreError, UsageError
from streammach.system.files.folders import make_folder
from streammach.system.files.reading import disk_error, disk_errors, handle_pieces, regular, sha256
from streammach.system.files.workplaces import LOCK, Workplace
from streammach.system.forks import ForkSafeLock

ENTRY = re.compile(r"[0-9a-f]{64}")
UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.tmp")
FETCHES = 4  # of a file whose bytes are wrong each time
PATIENCE = 600.0  # seconds for others, who fetch
GLANCE = 0.05  # seconds until a marker that another process writes is looked for again
TOUCH = 1_000_000_000  # nanoseconds within which a file counts as read just now

Fetch = Callable[[int], None]  # writes a file's bytes into an open one


class Cache:
    """Files by their digests; safe to use from several threads and processes."""

    def __init__(self, folder: Path, n_bytes: int) -> None:
        self.folder = folder  # a new one, or one that was made for this
        self.n_bytes = n_bytes  # the most bytes of its files
        self._files = folder / "files"
        self._sound: dict[str, tuple[int, int, int]] = {}
        self._turn = ForkSafeLock()
        self._open_folder()
        make_folder(self._files)

    def _open_folder(self) -> None:
        workplace = Workplace(self.folder, "cache")
        for _ in range(3):
            with contextlib.suppress(UsageError):
                workplace.open()
                return
            time.sleep(GLANCE)  # another process may be writing its marker
        workplace.open()

    @contextlib.contextmanager
    def hold_open(self, digest: str, size: int, place: Path, fetch: Fetch) -> Iterator[int]:
        """Hold a file open, whose bytes were compared with their digest."""
        handle = self._open(digest, size)
        if handle is None:
            if size > self.n_bytes:
                what = f"the cache has {self.n_bytes:,} bytes, a file of the store {size:,}"
                hint = "Give it more room: --cache-size."
                raise UsageError(what, path=self.folder, hint=hint)
            with self._turn, self._lock():
                handle = self._open(digest, size)  # others may have fetched it meanwhile
                if handle is None:
                    handle = self._fetch_file(digest, size, place, fetch)
        try:
            yield handle
        finally:
            os.close(handle)

    def forget(self, digest: str) -> None:
        """Have a file's digest be compared again before it is read."""
        self._sound.pop(digest, None)

    def _open(self, digest: str, size: int) -> int | None:
        """Return a file that is there and sound, open; None if it must be fetched."""
        path = self._files / digest
        try:
            handle = regular(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(error, path) from error
        with disk_errors(path):
            facts = os.fstat(handle)
            seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if self._sound.get(digest) != seen:
                if facts.st_size != size or sha256(handle_pieces(handle)) != digest:
                    os.close(handle)
                    path.unlink(missing_ok=True)
                    return None
                self._sound[digest] = seen
            now = time.time_ns()
            if now - facts.st_atime_ns > TOUCH:
                os.utime(handle, ns=(now, facts.st_mtime_ns))
        return handle

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other processes from fetching files and from removing any."""
        try:
            with filelock.FileLock(self.folder / LOCK, timeout=PATIENCE):
                yield
        except filelock.Timeout:
            what = "another process keeps the cache locked"
            raise DiskError(what, path=self.folder) from None

    def _fetch_file(self, digest: str, size: int, place: Path, fetch: Fetch) -> int:
        """Return a file that is fetched now, open."""
        path = self._files / f".{digest}.tmp"
        with disk_errors(self.folder):
            self._make_room(size)
            handle = regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with disk_errors(self.folder):
                os.ftruncate(handle, size)
                for _ in range(FETCHES):
                    fetch(handle)
                    if sha256(handle_pieces(handle)) == digest:
                        break
                else:
                    what = "damaged: its digest is not that of the manifest"
                    raise StoreError(what, path=place, hint="Copy or convert the store again.")
                os.replace(path, self._files / digest)
                facts = os.fstat(handle)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(handle)
            raise
        self._sound[digest] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        return handle

    def _make_room(self, size: int) -> None:
        """Remove what was read least recently, and what killed processes left unfinished."""
        found, total = list[tuple[int, int, Path]](), 0
        for entry in os.scandir(self._files):
            if not entry.is_file(follow_symlinks=False):
                continue
            if UNFINISHED.fullmatch(entry.name):
                os.unlink(entry.path)
            elif ENTRY.fullmatch(entry.name):
                facts = entry.stat(follow_symlinks=False)
                total += facts.st_size
                found.append((facts.st_atime_ns, facts.st_size, Path(entry.path)))
        for _, n, path in sorted(found):
            if total + size <= self.n_bytes:
                break
            path.unlink(missing_ok=True)
            total -= n
