"""What all campaigns share: verdicts, processes that are forked, what lies in a folder."""

import contextlib
import io
import json
import math
import os
import resource
import runpy
import select
import signal
import stat
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from streammach.cli import main as command_line
from streammach.system.errors import StreammachError
from streammach.system.linux import peak_bytes

ROOT = Path(__file__).parents[2]
HUNG_SECONDS = 180.0
MOST_SAID = 1 << 20  # bytes of what a command says that are looked at
MOST_ADDRESSES = 16 << 30  # so that what goes wrong does not take the machine with it
GOLDEN = 0.6180339887498949
VERDICTS = ("passed", "silent_wrong", "lost", "hung", "crashed", "leaked")
WRITE = os.write  # whatever becomes of it in a trial


def spread(number, n):
    """Return a number below `n`: each once in the first `n`, and any first ones far apart."""
    step = max(1, round(GOLDEN * n))
    while math.gcd(step, n) > 1:
        step += 1
    return number * step % n


@dataclass
class Verdict:
    """What a trial came to: one of VERDICTS, and facts that are added up."""

    name: str = "passed"
    facts: dict = field(default_factory=dict)


class Failed(Exception):
    """A promise that was not kept: its verdict, and what was seen."""

    def __init__(self, name, why):
        super().__init__(why)
        self.name, self.why = name, why


def files_of(folder):
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def snapshot(folder):
    """Return what everything in a folder is: its kind, and its bytes or where it leads."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
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


class Fork:
    """A process that does some work and tells of it; what it needs is loaded and compiled already.

    `work` gets a function whose argument, as JSON, comes to :attr:`told`.
    """

    def __init__(self, work):
        self._pipe, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: none of ours run here
            self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._pipe)
                work(lambda said: _send(theirs, said))
            except BaseException:
                _send(theirs, {"crash": traceback.format_exc()})
            finally:
                os._exit(0)
        os.close(theirs)
        self._data, self.told = b"", []

    def hear(self, patience, n=None):
        """Wait until so much is told, or all; return whether it came in time."""
        while n is None or len(self.told) < n:
            if not select.select([self._pipe], [], [], patience)[0]:
                return False
            more = os.read(self._pipe, 1 << 20)
            if not more:
                return True
            *lines, self._data = (self._data + more).split(b"\n")
            self.told += map(json.loads, lines)
        return True

    def end(self, patience, kill_after=None):
        """Wait for its end, or kill it after some seconds; return its exit code, None: it hung."""
        if kill_after is not None:
            time.sleep(max(0.0, kill_after))
            os.kill(self.pid, signal.SIGKILL)
        hung = not self.hear(patience)
        if hung:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._pipe)
        _, status = os.waitpid(self.pid, 0)
        return None if hung else os.waitstatus_to_exitcode(status)


def _send(pipe, said):
    left = memoryview(json.dumps(said).encode() + b"\n")
    while left:
        left = left[WRITE(pipe, left) :]


def in_a_process(work, patience):
    """Return the dict that a function returns in a forked process, or how that ended."""
    process = Fork(lambda tell: tell(work()))
    code = process.end(patience)
    if code is None:
        return {"code": None, "said": f"no end after {patience:.0f} seconds"}
    if not process.told:
        return {"code": abs(code) or 1, "ended": True, "said": ""}
    found = process.told[0]
    crash = found.get("crash")
    return found if crash is None else {"code": StreammachError.exit_code, "said": crash}


@dataclass(frozen=True)
class Step:
    """A command, or a script by its path, and the ones before it that must have had success."""

    arguments: tuple
    needs: tuple = ()


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (None: it hung), the most bytes it held, what it said."""

    step: Step
    code: int | None
    peak: int = 0
    seconds: float = 0.0
    out: str = ""
    err: str = ""

    def __str__(self):
        said = f"{self.err[-800:].strip()!r}" if self.err else f"{self.out[-300:].strip()!r}"
        return f"{' '.join(map(str, self.step.arguments))}: code {self.code}: {said}"


def ended(steps, where, patience=HUNG_SECONDS):
    """Run commands in a folder, in a process of their own; return how each ended that was begun.

    Beside the folder are ``home`` and ``tmp``; the user's caches are one further up. Each command
    may say nothing for `patience` seconds.
    """
    files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - closed below
    process = Fork(lambda tell: _work(steps, where, files, tell))
    code = process.end(patience)
    found = {steps[number]: Ended(steps[number], *facts) for number, *facts in process.told}
    begun = next((s for s in steps if _wanted(s, found) and s not in found), None)
    if begun is not None and code != 0:
        found[begun] = Ended(begun, code, 0, patience, *map(_said, files))
    for file in files:
        file.close()
    return list(found.values())


def started(arguments, where):
    return ended([Step(tuple(arguments))], where)[0]


def _wanted(step, found):
    return all(need in found and found[need].code == 0 for need in step.needs)


def _work(steps, where, files, tell):
    """Do the commands, as the process that was forked for them."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    os.chdir(where)
    around = where.parent
    os.environ.update({
        "HOME": str(around / "home"), "TMPDIR": str(around / "tmp"),
        "XDG_CACHE_HOME": str(around.parent / "cache"),
    })  # fmt: skip
    tempfile.tempdir = None
    given, library = sysconfig.get_paths, {"stdlib": str(where / "in/library")}
    sysconfig.get_paths = lambda *args, **kwargs: given(*args, **kwargs) | library
    for number, file in enumerate(files, start=1):
        os.dup2(file.fileno(), number)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True)
    found = {}
    for number, step in enumerate(steps):
        if not _wanted(step, found):
            continue
        for file in files:
            file.seek(0)
            file.truncate()
        with contextlib.suppress(OSError):  # the peak starts anew, on Linux
            Path("/proc/self/clear_refs").write_text("5")
        began = time.perf_counter()
        try:
            code = _done(list(step.arguments))
        except BaseException:
            traceback.print_exc()
            code = StreammachError.exit_code
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        seconds = round(time.perf_counter() - began, 3)
        found[step] = Ended(step, code)
        tell([number, code, peak_bytes(), seconds, *map(_said, files)])


def _done(arguments):
    """Return the exit code of a command, or of a script."""
    if not arguments[0].endswith(".py"):
        return command_line.main(arguments)
    sys.argv = arguments
    try:
        runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
    except SystemExit as error:
        return error.code or 0
    return 0


def _said(file):
    return os.pread(file.fileno(), MOST_SAID, 0).decode("utf-8", "replace")
