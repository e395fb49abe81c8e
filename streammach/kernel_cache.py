"""Where compiled kernels are kept: a folder for each state of the sources that they depend on.

What is kept is run as it is. So all of it is made for this user alone, and a file is read only if
nobody but this user and root could have written it: that is asked of the open file.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import io
import os
import pickle
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import platformdirs
from numba.core.caching import IndexDataCacheFile

from streammach.kernel_sources import kernel_digest, package_texts, texts_digest

try:
    import fcntl
except ImportError:  # there are no locks of files: each process compiles for itself
    fcntl = None  # type: ignore[assignment]

KEPT_FOLDERS = 4
# Until a process compiles what another one should have compiled, and between two looks.
WAIT_SECONDS, AGAIN_SECONDS = 120.0, 0.02
MARKER = "streammach.json"  # in a folder of kernels: it is ours


def cache_folder(base: str, version: str) -> Path | None:
    """Return the folder for kernels, which is made; None where compiled code cannot be kept.

    A folder that only root or this user can write, but this process cannot, such as one in the
    image of a container, is copied for the life of the process.
    """
    home = Path(base or platformdirs.user_cache_dir("streammach"))
    try:
        folder = _folder_of_sources(home, version)
        if not _ours(folder.lstat()):
            return None
        return folder if os.access(folder, os.W_OK) else _copy_sources(folder)
    except OSError:
        return None


def _folder_of_sources(home: Path, version: str) -> Path:
    """Return the folder of kernels for the package as it is; a mark in it stands for its text."""
    texts = package_texts(Path(__file__).parent)
    mark = f"sources-{texts_digest(texts, version)}"
    for folder in home.glob("kernels-*"):
        if (folder / mark).is_file():
            return folder
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = home / f"kernels-{kernel_digest(texts, version)}"
    if not folder.is_dir():
        folder.mkdir(mode=0o700, exist_ok=True)
        keep(folder / MARKER, b'{"streammach": "kernels"}\n')
        _drop_old(home)
    if _ours(folder.lstat()):
        keep(folder / mark, b"")
    return folder


def read_own_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file that only we or root can write, or raise OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not (stat.S_ISREG(facts.st_mode) and _ours(facts)):
            raise PermissionError(errno.EPERM, "others can write it", os.fspath(path))
        return file.read()


def keep(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file for this user alone, whole or not at all, or raise OSError."""
    with _replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def _replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    # As private as it has to be from the start, under any umask.
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class KernelFiles(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """Numba's files of one function: private, and loaded only if they are.

    Of processes that need the same function at once one compiles it, and the others wait for it.
    """

    def load(self, key: object) -> Any:
        """Return what is kept for a key; None where this process has to compile and save it."""
        data = super().load(key)
        if data is None and self._locked():
            data = super().load(key)  # which came meanwhile
            if data is not None:
                self._lock(fcntl.LOCK_UN)
        return data

    def save(self, key: object, data: object) -> None:
        """Keep what was compiled, unless the disk is full for example: it is compiled again."""
        try:
            with contextlib.suppress(OSError):
                super().save(key, data)
        finally:
            if fcntl:
                self._lock(fcntl.LOCK_UN)

    def _locked(self) -> bool:
        """Wait for the lock of this function; return whether this process has it.

        It goes with the process that has it. No two wait for each other: what has a lock waits for
        functions that it calls.
        """
        end = time.monotonic() + WAIT_SECONDS
        while fcntl and time.monotonic() < end:
            number = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
            if number not in (errno.EACCES, errno.EAGAIN):
                return number == 0
            time.sleep(AGAIN_SECONDS)
        return False

    def _lock(self, how: int) -> int:
        """Lock or open the byte that stands for this function; return the error's number, or 0."""
        byte = int.from_bytes(hashlib.sha256(self._index_path.encode()).digest()[:4], "big")
        try:
            fcntl.lockf(_locks(os.path.dirname(self._cache_path)), how, 1, byte)
        except OSError as error:
            return error.errno or errno.EPERM
        return 0

    def _load_index(self) -> dict[Any, str]:
        try:
            if not _ours(os.lstat(self._cache_path)):
                return {}
            file = io.BytesIO(read_own_file(self._index_path))
            if pickle.load(file) != self._version:
                return {}
            stamp, overloads = pickle.load(file)
        except (OSError, EOFError, pickle.UnpicklingError):
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(
            read_own_file(self._data_path(name))
        )  # Numba compiles where it is an OSError

    def _open_for_write(self, filepath: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        return _replacing(filepath)


@functools.cache  # to close a file would open all locks
def _locks(folder: str) -> int:
    """Return the open file whose bytes are the locks of functions."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(os.path.join(folder, "locks"), flags, 0o600)


def _ours(facts: os.stat_result) -> bool:
    mine = not hasattr(os, "getuid") or facts.st_uid in (os.getuid(), 0)
    return mine and not facts.st_mode & 0o022


def _copy_sources(folder: Path) -> Path:
    copy = Path(tempfile.mkdtemp(prefix="streammach-kernels-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    return copy


def _drop_old(base: Path) -> None:
    """Remove the oldest folders of ours: those with our marker, whatever others are called."""
    ours = (f for f in base.glob("kernels-*") if (f / MARKER).is_file() and not f.is_symlink())
    folders = sorted(ours, key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders[KEPT_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)
