"""Folders: made, removed so that no half of one is ever taken for whole, given their names."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock

from streammach.errors import UsageError, clean
from streammach.files.reading import disk_error
from streammach.files.writing import fsync_folder

MARKER = "streammach.json"  # says that a folder is ours, and what it is
SCRATCH = b'{"streammach": "scratch"}\n'
CONTENT = "content"
AT_CWD, NO_REPLACE, EXCHANGE = -100, 1, 2  # of Linux' renameat2


def check_ours(folder: Path, known: re.Pattern[str]) -> None:
    """Refuse a folder of ours that holds a link, a pipe, or a name that we do not give."""
    for path in _strange(folder, known):
        raise UsageError(
            "streammach did not make it", path=clean(path, 300),
            hint="Move it away, or name another folder.",
        )  # fmt: skip


def _strange(folder: Path, known: re.Pattern[str]) -> Iterator[Path]:
    if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
        yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            kept = name in folders or path.is_file()
            if not kept or path.is_symlink() or not known.fullmatch(str(path.relative_to(folder))):
                yield path


def make_folder(path: Path) -> None:
    """Make a folder and its parents, or raise DiskError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error


@contextlib.contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """Hold a hidden folder beside a path; it goes at the end with everything in it.

    So do those that processes which were killed have left for the same path. They are told by a
    file in them, which a live owner holds locked, and not by their names.
    """
    remove_left(beside)
    try:
        place = tempfile.mkdtemp(prefix=f".{beside.name}.", suffix=".scratch", dir=beside.parent)
        folder = Path(place)
        lock = filelock.FileLock(folder / MARKER, blocking=False)
        try:
            lock.acquire()
            (folder / MARKER).write_bytes(SCRATCH)
        except BaseException:  # a full disk for example
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise disk_error(error, beside) from error
    try:
        try:
            yield folder / CONTENT
        except BaseException:
            with contextlib.suppress(OSError):  # what stays goes with the next
                _empty(folder)
            raise
        try:
            _empty(folder)
        except OSError as error:
            raise disk_error(error, folder) from error
    finally:
        lock.release()


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Hold a folder for temporary files, where the system has them; see :func:`scratch`."""
    with scratch(Path(tempfile.gettempdir()) / "streammach") as content:
        yield content


def remove_left(beside: Path) -> None:
    """Remove the scratch folders that killed processes have left beside a path."""
    named = re.compile(rf"\.{re.escape(beside.name)}\.[a-z0-9_]{{8}}\.scratch")
    with contextlib.suppress(OSError):
        for name in filter(named.fullmatch, os.listdir(beside.parent)):
            _remove_if_left(beside.parent / name)


def _remove_if_left(folder: Path) -> None:
    with contextlib.suppress(OSError, filelock.Timeout):
        marker = folder / MARKER
        if folder.is_symlink() or marker.is_symlink():
            return
        if not marker.is_file():
            folder.rmdir()  # fails unless it is empty
            return
        lock = filelock.FileLock(marker, blocking=False)
        lock.acquire()
        try:
            alone = os.listdir(folder) == [MARKER]
            if marker.read_bytes() == SCRATCH or (alone and not marker.stat().st_size):
                _empty(folder)
        finally:
            lock.release()


def _empty(folder: Path) -> None:
    """Remove a scratch folder, its marker last: without it nobody would know whose the rest is."""
    for name in os.listdir(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif name != MARKER:
            path.unlink()
    (folder / MARKER).unlink(missing_ok=True)
    folder.rmdir()


def remove_folder(path: Path) -> None:
    """Remove a folder of ours, or raise DiskError."""
    # It is renamed first, so that a half-removed one never looks whole.
    if not os.path.lexists(path):
        remove_left(path)
        return
    with scratch(path) as content:
        os.rename(path, content)
        fsync_folder(path.parent)


def fsync_tree(path: Path) -> None:
    """Make all names in a folder and those below durable."""
    for folder, _, _ in os.walk(path):
        fsync_folder(Path(folder))


def commit_folder(made: Path, name: Path) -> None:
    """Give a finished folder a name in a folder of ours; what had it is found under the old one."""
    try:
        fsync_tree(made)
        if os.path.lexists(name):
            replace_folder(made, name)
        else:
            rename_new(made, name)
        fsync_folder(name.parent)
    except OSError as error:
        raise disk_error(error, name) from error


def rename_new(old: Path, new: Path) -> None:
    """Give something a free name; FileExistsError if it is not free, OSError if it fails."""
    if _renameat2(old, new, NO_REPLACE):
        return
    if os.path.lexists(new):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
    os.rename(old, new)


def replace_folder(new: Path, old: Path) -> None:
    """Swap two folders, in one step where the system can (Linux), or raise OSError."""
    if _renameat2(new, old, EXCHANGE):
        return
    aside = new.with_name(f"{new.name}.aside")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        with contextlib.suppress(OSError):
            os.rename(aside, old)
        raise
    os.rename(aside, new)


def _renameat2(a: Path, b: Path, flags: int) -> bool:
    """Rename in a way that only Linux offers; return whether it was done."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(AT_CWD, os.fsencode(a), AT_CWD, os.fsencode(b), flags) == 0:
        return True
    if flags == NO_REPLACE and ctypes.get_errno() == errno.EEXIST:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(b))
    return False
