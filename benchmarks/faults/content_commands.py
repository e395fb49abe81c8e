"""Commands that run one after another in a forked process, and how each of them ended."""

import contextlib
import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass

from streammach.cli import main as command_line
from streammach.errors import StreammachError
from streammach.machine import peak_bytes, reset_peak

HUNG_SECONDS = 60.0
MOST_SAID = 1 << 20  # bytes of what a command says that are looked at
MOST_ADDRESSES = 16 << 30  # so that what goes wrong does not take the machine with it


@dataclass(frozen=True)
class Step:
    """A command, and the ones before it without whose success it has nothing to do."""

    arguments: tuple
    needs: tuple = ()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes
    ----------
    step : Step
        The command.
    code : int or None
        Its exit code, a negative signal, or None: it hung.
    peak : int
        The most bytes that the process held meanwhile.
    seconds : float
        What it took.
    out, err : str
        What it said.
    """

    step: Step
    code: int | None
    peak: int = 0
    seconds: float = 0.0
    out: str = ""
    err: str = ""

    def __str__(self):
        said = f"{self.err[-600:].strip()!r}" if self.err else f"{self.out[-300:].strip()!r}"
        return f"{' '.join(map(str, self.step.arguments))}: code {self.code}: {said}"


def ended(steps, where, cache, patience=HUNG_SECONDS):
    """Run commands in a folder, in a process of their own; return how each ended that was begun.

    Parameters
    ----------
    steps : sequence of Step
        The commands.
    where : Path
        The working folder; beside it are ``home`` and ``tmp``.
    cache : Path
        The user's folder of caches.
    patience : float
        Seconds that each may take.
    """
    files = [tempfile.TemporaryFile(dir=cache) for _ in range(2)]  # noqa: SIM115 - closed below
    answers, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: none of ours run here
        pid = os.fork()
    if pid == 0:
        try:
            os.close(answers)
            _work(steps, where, cache, files, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    found, hung = _heard(steps, answers, patience)
    if hung:
        os.kill(pid, signal.SIGKILL)
    os.close(answers)
    _, status = os.waitpid(pid, 0)
    begun = next((s for s in steps if _wanted(s, found) and s not in found), None)
    if begun is not None and (hung or os.WIFSIGNALED(status)):
        code = None if hung else -os.WTERMSIG(status)
        found[begun] = Ended(begun, code, 0, patience, *map(_said, files))
    for file in files:
        file.close()
    return list(found.values())


def _heard(steps, answers, patience):
    """Return what the process told of each command, and whether one of them took too long."""
    found, data, left = {}, b"", list(steps)
    while True:
        if not select.select([answers], [], [], patience)[0]:
            return found, True
        more = os.read(answers, 1 << 20)
        if not more:
            return found, False
        data += more
        *lines, data = data.split(b"\n")
        for line in lines:
            number, *facts = json.loads(line)
            found[left[number]] = Ended(left[number], *facts)


def _wanted(step, found):
    return all(need in found and found[need].code == 0 for need in step.needs)


def _work(steps, where, cache, files, answers):
    """Do the commands, as the process that was forked for them."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    os.chdir(where)
    around = where.parent
    os.environ.update({
        "HOME": str(around / "home"), "TMPDIR": str(around / "tmp"), "XDG_CACHE_HOME": str(cache),
    })  # fmt: skip
    tempfile.tempdir = None
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
        reset_peak()
        began = time.perf_counter()
        try:
            code = command_line.main(list(step.arguments))
        except BaseException:
            traceback.print_exc()
            code = StreammachError.exit_code
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        seconds = round(time.perf_counter() - began, 3)
        found[step] = Ended(step, code)
        facts = [number, code, peak_bytes(), seconds, *map(_said, files)]
        left = memoryview(json.dumps(facts).encode() + b"\n")
        while left:
            left = left[os.write(answers, left) :]


def _said(file):
    return os.pread(file.fileno(), MOST_SAID, 0).decode("utf-8", "replace")
