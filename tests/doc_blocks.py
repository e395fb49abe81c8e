"""Runs the code blocks of a page of the documentation, as a reader would type them.

Blocks that are fenced as ``python`` and ``console`` run in their order and share their names and
their folder; those within a comment of the page run, too, and are not shown. What a console block
shows after a command, and a ``text`` block after Python, is the output: its lines must be among
those that came, in their order, where numbers, units and blanks do not count and ``...`` stands for
anything. A comment ``<!-- not run: REASON -->`` before a block leaves it out.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from streammach.cli.main import main
from streammach.conversion import build, folder
from streammach.system.clock import Clock

PROCESS_BYTES = 150_000_000  # that a command holds before its work
ROOT = Path(__file__).parent.parent
FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n+)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
UNIT = re.compile(r"(?<=0 )(?:[kMGT]?B|us|ms|s|min|h)\b")
SHELL = set("|<>&;*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str  # what stands behind the fence
    code: str
    line: int  # where the code starts, counted from 1
    why_not: str  # why it is not run; empty where it is
    hidden: bool = False  # whether it stands within a comment of the page


def blocks_of(text):
    """All fenced blocks of a page, in their order."""
    return [
        Block(found["kind"], found["code"], text[: found.start("code")].count("\n") + 1,
              found["why"] or "", hidden=text.rfind("<!--", 0, found.start("code"))
              > text.rfind("-->", 0, found.start("code")))
        for found in FENCE.finditer(text)
    ]  # fmt: skip


class Session:
    """What runs the blocks of one page, in the present folder.

    `told` is called with each command or line of code and what it printed.
    """

    def __init__(self, page, told=lambda what, output: None):
        self.page, self._told = page, told
        self.names = {"__name__": "__main__"}
        self._printed = ""

    def run(self, hidden=True):
        """Run every block; raise AssertionError where one does not do what is shown."""
        for block in blocks_of(self.page.read_text()):
            if block.why_not or (block.hidden and not hidden):
                continue
            where = f"{self.page.name} line {block.line}"
            if block.kind == "python":
                self._python(block, where)
            elif block.kind == "console":
                self._console(block, where)
            elif block.kind == "text":
                check(block.code, self._printed, where)

    def _python(self, block, where):
        code = compile("\n" * (block.line - 1) + block.code, str(self.page), "exec")
        with captured() as printed, warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)  # a reader sees them and goes on
            warnings.showwarning = lambda said, *rest, **more: printed.write(f"{said}\n")
            exec(code, self.names)
        self._printed = printed.getvalue()
        self._told(f"{where}: Python", self._printed)

    def _console(self, block, where):
        for command, shown in commands_of(block.code):
            code, output = typed(command)
            self._told(f"{where}: $ {command}", output)
            fails = "streammach: error:" in shown
            assert (code != 0) == fails, f"{where}: {command} returned {code}\n{output}"
            check(shown, output, where)


def commands_of(code):
    """Each command of a console block, and what is shown of its output."""
    joined = code.replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return [(" ".join(command.split()), "\n".join(shown)) for command, shown in found]


def typed(command):
    """Exit code and output of a command as it is typed."""
    if command.startswith("pip "):
        return 0, ""  # nothing is installed in tests
    if command.startswith("streammach ") and not SHELL & set(command):
        with captured() as printed, apart_from_pytest():
            code = main(shlex.split(command)[1:])
        return code, printed.getvalue()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    here = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command.replace("tools/", f"{ROOT}/tools/")], env=here, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@contextlib.contextmanager
def apart_from_pytest():
    """Commands in this process count neither its time nor the memory that it held before."""
    with (
        patch.object(Clock, "of_process", Clock),
        patch.object(folder, "resident_bytes", lambda: PROCESS_BYTES),
        patch.object(build, "resident_bytes", lambda: PROCESS_BYTES),
    ):
        yield


@contextlib.contextmanager
def captured():
    """What is printed and told within."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield printed


def plain(line):
    """A line without its numbers, units and repeated blanks."""
    return " ".join(UNIT.sub("B", NUMBER.sub("0", line)).split())


def check(shown, output, where):
    """Compare the shape of what a page shows with what came."""
    came = [plain(line) for line in output.splitlines()]
    at = 0
    for line in shown.splitlines():
        wanted = plain(line)
        if wanted in ("", "..."):
            continue
        pattern = re.compile(re.escape(wanted).replace(r"\.\.\.", ".*"))
        places = [i for i in range(at, len(came)) if pattern.fullmatch(came[i])]
        assert places, f"{where}: not in the output: {line}\n{output}"
        at = places[0] + 1
