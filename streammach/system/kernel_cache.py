"""Where compiled kernels are kept: a file for each, named by all that it was made of.

What is kept is run as it is. So all of it is made for this user alone, and a file is read only if
nobody but this user and root could have written it: that is asked of the open file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

import platformdirs

FOLDER = "kernels"
UNUSED_DAYS = 90  # after which what no process has read goes
# Until a process compiles what another one should have compiled, and between two looks.
WAIT_SECONDS, AGAIN_SECONDS = 120.0, 0.02
BUSY = errno.EACCES, errno.EAGAIN  # another process has a lock


def cache_folder(base: str) -> Path | None:
    """Return the folder for kernels, which is made; None where compiled code cannot be kept.

    One that this process cannot write, such as in the image of a container, is only read.
    """
    folder = Path(base or platformdirs.user_cache_dir("streammach"), FOLDER)
    try:
        if not folder.is_dir():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder if _ours(folder.lstat()) else None
    except OSError:
        return None


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
    # As private as it has to be from the start, under any umask.
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class KernelFile:
    """The file of a compiled kernel in a folder; None: nothing is kept.

    Of processes that need the same kernel at once one compiles it, and the others wait for it.
    """

    def __init__(self, folder: str | None, name: str) -> None:
        self._folder, self._path = folder, os.path.join(folder or "", name)
        # The byte of a file of locks that stands for this kernel.
        self._byte = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")

    def read(self) -> bytes | None:
        """Return what is kept; None where this process has to compile and write it."""
        # A lock goes with the process that has it. No two wait for each other: what has a lock
        # waits for functions that it calls.
        end, is_mine = time.monotonic() + WAIT_SECONDS, False
        while (data := self._read()) is None and not is_mine and time.monotonic() < end:
            is_mine = self._lock(exclusive=True)  # or there are no locks
            if not is_mine:
                time.sleep(AGAIN_SECONDS)
        if data is not None:
            self.leave()
        return data

    def write(self, data: bytes) -> None:
        """Keep what was compiled, unless the disk is full for example: it is compiled again."""
        with contextlib.suppress(OSError):
            if self._folder is not None:
                _drop_unused(self._folder)
                keep(self._path, data)

    def leave(self) -> None:
        """Let other processes compile it."""
        self._lock(exclusive=False)

    def _read(self) -> bytes | None:
        with contextlib.suppress(OSError):
            if self._folder is not None and _ours(os.lstat(self._folder)):
                return read_own_file(self._path)
        return None

    def _lock(self, *, exclusive: bool) -> bool:
        """Lock or open the byte that stands for this kernel; False if another process has it."""
        if self._folder is not None:
            how = fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_UN
            with contextlib.suppress(OSError):
                locks = _open_locks(self._folder)
                try:
                    fcntl.lockf(locks, how, 1, self._byte)
                except OSError as error:
                    return error.errno not in BUSY
        return True


@functools.cache  # to close a file would open all locks
def _open_locks(folder: str) -> int:
    """Return the open file whose bytes are the locks of kernels."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(os.path.join(folder, "locks"), flags, 0o600)


def _ours(facts: os.stat_result) -> bool:
    return facts.st_uid in (os.getuid(), 0) and not facts.st_mode & 0o022


@functools.cache  # once a process
def _drop_unused(folder: str) -> None:
    """Remove what no process has read for long, such as kernels of older versions."""
    least = time.time() - UNUSED_DAYS * 86400
    for entry in os.scandir(folder):
        facts = entry.stat(follow_symlinks=False)
        if max(facts.st_atime, facts.st_mtime) < least:
            os.unlink(entry)
