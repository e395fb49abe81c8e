"""Runs a command in a process of its own, and tells what lies in a folder before and after."""

import contextlib
import io
import os
import runpy
import select
import signal
import stat
import sys
import sysconfig
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

from streammach.cli import main as command_line
from streammach.errors import StreammachError

HUNG_SECONDS = 180.0
ROOT = Path(__file__).parents[2]


def snapshot(folder):
    """Return what everything in a folder is: its kind, and its bytes or where it leads."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            facts = path.lstat()
            if path.is_symlink():
                found[path] = ("link", os.readlink(path))
            elif path.is_dir():
                found[path] = ("folder", None)
            elif stat.S_ISFIFO(facts.st_mode):
                found[path] = ("fifo", facts.st_ino)
            elif not stat.S_ISREG(facts.st_mode):
                found[path] = ("device", facts.st_rdev)
            else:
                found[path] = ("file", path.read_bytes())
    return found


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (None: it hung), and what it said."""

    code: int | None
    out: str
    err: str

    def __str__(self):
        return f"code {self.code}: {self.err[-800:].strip()!r}"


def started(arguments, where, folder):
    """Run a command, or a script with its path, in a forked process; return how it ended."""
    said = [tempfile.TemporaryFile(dir=folder) for _ in range(2)]  # noqa: SIM115 - closed below
    ready, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: none of ours run here
        pid = os.fork()
    if pid == 0:
        try:
            os.close(ready)
            for number, file in enumerate(said, start=1):
                os.dup2(file.fileno(), number)
            code = _command(arguments, where)
        except BaseException:
            traceback.print_exc()
            code = StreammachError.exit_code
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    os.close(theirs)
    hung = not select.select([ready], [], [], HUNG_SECONDS)[0]
    if hung:
        os.kill(pid, signal.SIGKILL)
    os.close(ready)
    _, status = os.waitpid(pid, 0)
    texts = []
    for file in said:
        file.seek(0)
        texts.append(file.read().decode("utf-8", "replace"))
        file.close()
    return Ended(None if hung else os.waitstatus_to_exitcode(status), *texts)


def _command(arguments, where):
    """Run a command in this process, which is its own; return its exit code."""
    os.chdir(where)
    around = where.parent
    os.environ.update({
        "HOME": str(around / "home"), "TMPDIR": str(around / "tmp"),
        "XDG_CACHE_HOME": str(around.parent / "cache"),
    })  # fmt: skip
    tempfile.tempdir = None
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True)
    library = {"stdlib": str(where / "in/library")}
    given = sysconfig.get_paths
    sysconfig.get_paths = lambda *args, **kwargs: given(*args, **kwargs) | library
    if not arguments[0].endswith(".py"):
        return command_line.main(arguments)
    sys.argv = arguments
    try:
        runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
    except SystemExit as error:
        return error.code or 0
    return 0
