"""Folders: made, locked, given their names, removed so that no half is ever taken for whole."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock

from streammach.system.errors import DiskError, LockedError, UsageError
from streammach.system.files.reading import disk_error, disk_errors
from streammach.system.files.writing import fsync_file, fsync_folder
from streammach.system.linux import rename_new, replace_folder

MARKER = "streammach.json"  # says that a folder is ours, and what it is
SCRATCH = b'{"streammach": "scratch"}\n'
CONTENT = "content"
SCRATCH_TRIES = 5


def walk_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield all that is in a folder and in those in it, by its name there; links stay links."""
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            yield path.relative_to(folder).as_posix(), path


def check_ours(folder: Path, known: re.Pattern[str]) -> None:
    """Refuse a folder of ours that holds a link, a pipe, or a name that we do not give."""
    wrong = [folder] if os.path.lexists(folder) and not folder.is_dir() else []
    wrong += [folder] if folder.is_symlink() else []
    for name, path in walk_folder(folder):
        plain = (path.is_dir() or path.is_file()) and not path.is_symlink()
        if not plain or not known.fullmatch(name):
            wrong.append(path)
    if wrong:
        hint = "Move it away, or name another folder."
        raise UsageError("streammach did not make it", path=wrong[0], hint=hint)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, or raise DiskError."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def lock_file(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file while a block runs; a lock whose owner died is free."""
    with contextlib.suppress(FileNotFoundError):
        facts = os.lstat(path)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size:  # ours are empty
            raise UsageError(
                "it has the name of a lock file and is none", path=path,
                hint="Move it away, or choose another name.",
            )  # fmt: skip
    lock = filelock.FileLock(path, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        if not path.exists():
            raise DiskError("no lock file can be made", path=path.parent) from None
        hint = "Wait for it, or stop it, and run the same command again."
        raise LockedError(f"another process is writing {what}", path=path, hint=hint) from None
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


@contextlib.contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """Hold a hidden folder beside a path; it goes at the end with everything in it.

    So do those that processes which were killed have left for the same path. They are told by a
    file in them, which a live owner holds locked, and not by their names.
    """
    remove_leftovers(beside)
    with disk_errors(beside):
        folder, lock = _locked_scratch(beside)
    try:
        try:
            yield folder / CONTENT
        except BaseException:
            with contextlib.suppress(OSError):  # what stays goes with the next
                _empty(folder)
            raise
        with disk_errors(folder):
            _empty(folder)
    finally:
        lock.release()


def _locked_scratch(beside: Path) -> tuple[Path, filelock.BaseFileLock]:
    """Return a new folder beside a path, and the lock that is held on it."""
    for others in range(SCRATCH_TRIES):
        name = f".{beside.name}."
        folder = Path(tempfile.mkdtemp(prefix=name, suffix=".scratch", dir=beside.parent))
        lock = filelock.FileLock(folder / MARKER, blocking=False)
        try:
            lock.acquire()
            (folder / MARKER).write_bytes(SCRATCH)
            break
        except BaseException as error:  # a full disk for example
            lock.release()
            shutil.rmtree(folder, ignore_errors=True)
            # Before it was locked, another process may have taken it for one that was left.
            taken = isinstance(error, FileNotFoundError | filelock.Timeout)
            if not taken or others == SCRATCH_TRIES - 1:
                raise
    return folder, lock


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Hold a folder for temporary files, where the system has them; see :func:`scratch`."""
    with disk_errors("TMPDIR"):  # where no folder that is tried can be written
        folder = Path(tempfile.gettempdir())
    with scratch(folder / "streammach") as content:
        yield content


def remove_leftovers(beside: Path) -> None:
    """Remove the scratch folders that killed processes have left beside a path."""
    named = re.compile(rf"\.{re.escape(beside.name)}\.[a-z0-9_]{{8}}\.scratch")
    with contextlib.suppress(OSError):
        for name in filter(named.fullmatch, os.listdir(beside.parent)):
            with contextlib.suppress(OSError, filelock.Timeout):
                _remove_leftover(beside.parent / name)


def _remove_leftover(folder: Path) -> None:
    marker = folder / MARKER
    if folder.is_symlink() or marker.is_symlink():
        return
    if not marker.is_file():
        folder.rmdir()  # fails unless it is empty
        return
    with filelock.FileLock(marker, blocking=False):
        alone = os.listdir(folder) == [MARKER]
        if marker.read_bytes() == SCRATCH or (alone and not marker.stat().st_size):
            _empty(folder)


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
        remove_leftovers(path)
        return
    with scratch(path) as content, disk_errors(path):
        os.rename(path, content)
        fsync_folder(path.parent)


def give_name(made: Path, name: Path) -> None:
    """Give a name to a finished file or folder; OSError if it is taken meanwhile, or fails.

    A folder that had the name is found under the old one.
    """
    if made.is_dir():
        for folder, _, _ in os.walk(made):
            fsync_folder(Path(folder))
    else:
        fsync_file(made)
    if not os.path.lexists(name):
        rename_new(made, name)
    elif made.is_dir():
        replace_folder(made, name)
    else:
        os.replace(made, name)
    fsync_folder(name.parent)


def commit_folder(made: Path, name: Path) -> None:
    """Give a finished folder a name in a folder of ours, or raise DiskError."""
    with disk_errors(name):
        give_name(made, name)
