"""What Linux alone offers, and beside each call what other systems have.

Nothing else in the package needs Linux. Where ``STREAMMACH_PORTABLE`` is 1 all is done as on
another system: tests run so, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

LINUX = platform.system() == "Linux" and os.environ.get("STREAMMACH_PORTABLE", "0") != "1"
AT_CWD, NO_REPLACE, EXCHANGE = -100, 1, 2  # of renameat2()
M_MMAP, M_TRIM, MOST_INT = -3, -1, (1 << 31) - 1  # of mallopt(): thresholds, and their largest
CGROUPS = Path("/sys/fs/cgroup")
NO_FULL_SYNC = errno.EINVAL, errno.ENOTSUP, errno.ENOTTY  # says a file system that has none


def c_function(name: str) -> Callable[..., int] | None:
    """Return a function of Linux' C library; None on another system, or in a library without it."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None) if LINUX else None


def give_back() -> None:
    """Give memory that is free to the system, which the C library of Linux keeps otherwise."""
    if trim := c_function("malloc_trim"):
        trim(0)


@contextlib.contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep memory that is freed for what needs some next, where the environment says otherwise.

    Dask has Linux' C library, in its workers, give all back at once (``MALLOC_TRIM_THRESHOLD_``):
    each array then begins with page faults.
    """
    mallopt, asked = c_function("mallopt"), os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    if not (asked.isdecimal() and mallopt):
        yield
        return
    for what, n_bytes in ((M_MMAP, 32 << 20), (M_TRIM, 64 << 20)):  # as they come to be
        mallopt(what, n_bytes)
    try:
        yield
    finally:
        for what, n_bytes in ((M_MMAP, 128 << 10), (M_TRIM, min(int(asked), MOST_INT))):
            mallopt(what, n_bytes)
        give_back()


def rename_new(old: Path, new: Path) -> None:
    """Give something a free name; FileExistsError if it is not free, OSError if it fails.

    Elsewhere than on Linux a file or an empty folder that gets the name meanwhile is replaced.
    """
    if _rename_with(old, new, NO_REPLACE):
        return
    if os.path.lexists(new):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
    os.rename(old, new)


def replace_folder(new: Path, old: Path) -> None:
    """Swap two folders, on Linux in one step and elsewhere in three, or raise OSError."""
    if _rename_with(new, old, EXCHANGE):
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


def _rename_with(a: Path, b: Path, flags: int) -> bool:
    """Rename in a way that only Linux offers; return whether it was done."""
    rename = c_function("renameat2")
    if rename is None:
        return False
    if rename(AT_CWD, os.fsencode(a), AT_CWD, os.fsencode(b), flags) == 0:
        return True
    if flags == NO_REPLACE and ctypes.get_errno() == errno.EEXIST:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(b))
    return False


def sync(handle: int) -> None:
    """Have an open file or folder outlast a loss of power, or raise OSError."""
    full = getattr(fcntl, "F_FULLFSYNC", None)  # of macOS, whose fsync does not wait for the disk
    try:
        if full is not None:
            fcntl.fcntl(handle, full)
            return
    except OSError as error:
        if error.errno not in NO_FULL_SYNC:
            raise
    os.fsync(handle)


def group_limits(root: Path, controller: str, newer: str, *older: str) -> Iterator[list[int]]:
    """Yield the numbers in a file of each of this process's control groups; of version 1, several.

    A group whose file has a word is left out, as those of version 2 that have no limit.
    """
    for line in _proc("cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder, names = root / controller, older
        elif controllers:
            continue
        else:
            folder, names = root, (newer,)
        relative = Path(path.lstrip("/"))
        for part in (relative, *relative.parents):
            with contextlib.suppress(OSError, ValueError):
                texts = [(folder / part / name).read_text() for name in names]
                yield [int(number) for number in " ".join(texts).split()]


def processors() -> int:
    """Return the number of processors that this process may use; elsewhere, that there are."""
    if LINUX and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _proc(name: str) -> str:
    """Return what Linux tells of this process in a file; nothing elsewhere."""
    with contextlib.suppress(OSError):
        if LINUX:
            return Path("/proc/self", name).read_text()
    return ""


def resident_bytes() -> int:
    """Return the resident memory that this process has now, in bytes."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """Return the largest resident memory that this process has had, in bytes."""
    if match := re.search(r"VmHWM:\s*(\d+) kB", _proc("status")):
        return int(match[1]) * 1024
    unit = 1 if platform.system() == "Darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def at_fork(**calls: Callable[[], Any]) -> None:
    """Have functions called at a fork (see ``os.register_at_fork``), where processes fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
