"""Lock files: one process at a time writes a store or a run."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import filelock

from streammach.errors import DiskError, LockedError, UsageError, clean
from streammach.files.reading import disk_error


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file while a block runs; a lock whose owner died is free."""
    _check_empty(path)
    lock = filelock.FileLock(path, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        if not path.exists():
            raise DiskError("no lock file can be made", path=clean(path.parent, 300)) from None
        hint = "Wait for it, or stop it, and run the same command again."
        raise LockedError(
            f"another process is writing {what}", path=clean(path, 300), hint=hint
        ) from None
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _check_empty(path: Path) -> None:
    """Refuse what is no lock file of ours: these are empty."""
    try:
        facts = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(facts.st_mode) or facts.st_size:
        raise UsageError(
            "it has the name of a lock file and is none",
            path=clean(path, 300),
            hint="Move it away, or choose another name.",
        )
