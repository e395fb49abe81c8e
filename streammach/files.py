"""Files that are either whole or absent: atomic writes, folders committed at once, locks, digests.

Every file that the package leaves behind is written here. The order is always: data, fsync,
rename, fsync of the folder. An fsync that failed is never repeated, because a second one can
succeed although the data are gone; the file is removed and the error raised.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import filelock
import google_crc32c

from streammach.errors import DiskError, LockedError, UsageError, clean

Buffer = bytes | bytearray | memoryview
PIECE = 4 << 20  # bytes handed to one read or write call
TEMPORARY = re.compile(r"\..+\.\d+\.tmp")  # names that Writer gives by itself


def disk_error(error: OSError, path: object) -> DiskError:
    """Return the error of a file operation as one line with the file and the free space."""
    reason = error.strerror or str(error)
    hint = None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free some space and run the same command again."
    return DiskError(reason, path=clean(path, 300), hint=hint)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable.

    Raises
    ------
    OSError
        If the folder cannot be synced, except where its file system has no such operation.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


class Writer:
    """A new file that appears under its name only when it is whole and durable.

    Bytes go to a temporary name in the same folder; :meth:`commit` syncs and renames. Leaving the
    ``with`` block without a commit removes the temporary file.

    Parameters
    ----------
    path : Path
        The final name; an existing file is replaced at the commit.
    temporary : Path, optional
        The name until then, in the same folder; one of this process otherwise.
    keep : int
        How many bytes of an existing temporary file are kept, those of a writer that was cut off.

    Attributes
    ----------
    path : Path
        The final name.
    size : int
        Bytes written.
    """

    def __init__(self, path: Path, *, temporary: Path | None = None, keep: int = 0) -> None:
        self.path = path
        self.size = keep
        self._temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            self._handle: int | None = os.open(
                self._temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666
            )
            os.ftruncate(self._handle, keep)
            os.lseek(self._handle, keep, os.SEEK_SET)
        except OSError as error:
            raise disk_error(error, path) from error

    def write(self, data: Buffer) -> None:
        """Append bytes; all of them are written or DiskError is raised."""
        try:
            for piece in in_pieces(data):
                rest = piece
                while len(rest):
                    rest = rest[os.write(self._open_handle(), rest) :]
                self.size += len(piece)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def sync(self) -> None:
        """Make what was written durable, under the temporary name."""
        try:
            os.fsync(self._open_handle())
        except OSError as error:
            raise disk_error(error, self.path) from error

    def commit(self) -> None:
        """Sync the file and give it its name; the folder is synced too."""
        self.sync()
        try:
            self._close()
            os.replace(self._temporary, self.path)
            fsync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from error

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

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def write_atomic(path: Path, *pieces: Buffer) -> None:
    """Write a file whole: after a crash it holds the old bytes or the new ones.

    Parameters
    ----------
    path : Path
        The file.
    *pieces : bytes
        Its content, in order.

    Raises
    ------
    DiskError
        If any step fails; the old file, if there was one, is untouched.
    """
    with Writer(path) as out:
        for piece in pieces:
            out.write(piece)
        out.commit()


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a file its name when a block has written it under the temporary one it is given.

    For libraries that open files by name; :class:`Writer` is for bytes.

    Parameters
    ----------
    path : Path
        The final name; an existing file is replaced.

    Yields
    ------
    Path
        A name in the same folder. The file is removed where the block fails.

    Raises
    ------
    DiskError
        If it cannot be written, synced or renamed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        handle = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        if isinstance(error, DiskError):
            raise
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, or raise DiskError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error


def copy_file(path: Path, target: Path) -> bool:
    """Copy a file, whole and durable; without one, remove an old `target`.

    Only one process at a time may copy to `target`: the temporary file has a fixed name, so that
    the next one takes over what a killed one left.

    Returns
    -------
    bool
        Whether there was a file.
    """
    if not path.exists():
        remove_file(target)
        return False
    with Writer(target, temporary=target.with_name(f".{target.name}.tmp")) as out:
        for piece in file_pieces(path):
            out.write(piece)
        out.commit()
    return True


def remove_file(path: Path) -> None:
    """Remove a file if it is there, or raise DiskError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error


def remove_temporaries(folder: Path) -> None:
    """Remove what :class:`Writer` has left in a folder, and in those below, where it was killed.

    Raises
    ------
    DiskError
        If a file cannot be removed.
    """
    for parent, _, names in os.walk(folder):
        for name in filter(TEMPORARY.fullmatch, names):
            remove_file(Path(parent, name))


def remove_folder(path: Path) -> None:
    """Remove a folder; it is renamed first, so that a half-removed one never looks whole.

    What a process that was killed had not removed of an earlier folder of that name goes, too.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, _trash(path))
            fsync_folder(path.parent)
        _remove_trash(path)
    except OSError as error:
        raise disk_error(error, path) from error


def _trash(path: Path) -> Path:
    return path.with_name(f".trash-{os.getpid()}-{path.name}")


def _remove_trash(path: Path) -> None:
    """Remove the folders that had this name."""
    trash = re.compile(rf"\.trash-\d+-{re.escape(path.name)}")
    with contextlib.suppress(FileNotFoundError):
        for name in filter(trash.fullmatch, os.listdir(path.parent)):
            shutil.rmtree(path.parent / name)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step where the system can (Linux renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    at_cwd, swap = -100, 2
    return bool(libc.renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), swap) == 0)


def _replace_folder(partial: Path, final: Path) -> None:
    """Rename a folder out of the way and another one to its name; back again if that fails."""
    os.rename(final, _trash(final))
    try:
        os.rename(partial, final)
    except OSError:
        with contextlib.suppress(OSError):
            os.rename(_trash(final), final)
        raise


def commit_folder(partial: Path, final: Path) -> None:
    """Give a finished folder its name; an existing one is replaced in one step.

    Parameters
    ----------
    partial : Path
        The new folder, beside `final`; its files are durable already.
    final : Path
        The name to take.

    Raises
    ------
    DiskError
        If the rename fails; an existing `final` is then unchanged.
    """
    try:
        for folder, _, _ in os.walk(partial):
            fsync_folder(Path(folder))
        if final.exists():
            if _exchange(partial, final):
                fsync_folder(final.parent)
                remove_folder(partial)
                return
            _replace_folder(partial, final)
        else:
            os.rename(partial, final)
        fsync_folder(final.parent)
        _remove_trash(final)
    except OSError as error:
        raise disk_error(error, final) from error


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file while a block runs; a lock whose owner died is free.

    Parameters
    ----------
    path : Path
        The lock file; it is removed at the end (a contender notices that and looks again).
    what : str
        What is locked, for the message.

    Raises
    ------
    LockedError
        If another live process holds it.
    """
    lock = filelock.FileLock(path, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        hint = "Wait for it, or stop it, and run the same command again."
        raise LockedError(
            f"another process is writing {what}", path=clean(path), hint=hint
        ) from None
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def check_output(path: Path, *, force: bool) -> None:
    """Refuse an output that exists, unless it may be replaced.

    Raises
    ------
    UsageError
        If `path` exists and `force` is False, or if its parent is no folder.
    """
    if path.exists() and not force:
        raise UsageError("it exists already", path=clean(path), hint="Use --force to replace it.")
    if not path.parent.is_dir():
        raise UsageError(
            "its folder does not exist", path=clean(path), hint="Make the folder first."
        )


def check_free(path: Path, needed: int, what: str) -> None:
    """Refuse work whose result would not fit the disk.

    Parameters
    ----------
    path : Path
        A folder on that disk.
    needed : int
        Bytes that will be written.
    what : str
        What needs them.

    Raises
    ------
    DiskError
        If fewer bytes are free.
    """
    free = shutil.disk_usage(path).free
    if free < needed:
        raise DiskError(
            f"{what} needs {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free",
            path=clean(path),
            hint="Free some space or choose another disk.",
        )


def read_small(path: Path, limit: int) -> bytes:
    """Read a small regular file.

    Parameters
    ----------
    path : Path
        The file; links and devices are refused.
    limit : int
        The most bytes it may have.

    Raises
    ------
    DiskError
        If it cannot be read, is no regular file, or is larger than `limit`.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise disk_error(error, path) from error
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise DiskError("not a regular file", path=clean(path))
        if facts.st_size > limit:
            raise DiskError(
                f"{facts.st_size:,} bytes, at most {limit:,} expected", path=clean(path)
            )
        return file.read()


def sha256(pieces: Iterable[Buffer]) -> str:
    """Return the SHA-256 of the pieces in order, in hexadecimal."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def in_pieces(data: Buffer) -> Iterator[memoryview]:
    """Yield bytes in pieces of bounded size, without copying them."""
    view = memoryview(data).cast("B")
    for start in range(0, len(view), PIECE):
        yield view[start : start + PIECE]


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, or raise DiskError."""
    try:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(PIECE):
                yield piece
    except OSError as error:
        raise disk_error(error, path) from error


def crc32c(pieces: Iterable[bytes]) -> int:
    """Return the crc32c of the pieces in order."""
    total = google_crc32c.Checksum()
    for piece in pieces:
        total.update(piece)
    return int.from_bytes(total.digest(), "big")
