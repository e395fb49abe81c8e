"""The conversion that is disturbed: its sources, processes that do it, and what must come out."""

import contextlib
import gzip
import io
import json
import math
import os
import select
import shutil
import signal
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np

import streammach.data.text
from benchmarks.faults.operations import Counted, real_write
from streammach.cli import main as command
from streammach.data.conversion import intake, spills
from streammach.data.conversion.folder import ConversionMemory
from streammach.data.conversion.shuffle import Shuffle
from streammach.data.convert import convert
from streammach.data.store.dataset import Dataset
from streammach.errors import StreammachError

BLOCK_BYTES = 4096
BIN_BITS = 6
ROOM_BYTES = 16_000  # for rows: about a dozen runs, and as many ranges of bins
ROWS = (700, 500, 300)
HUNG_SECONDS = 60.0
GOLDEN = 0.6180339887498949
VERDICTS = ("passed", "silent_wrong", "lost", "hung", "crashed", "leaked")


def spread(number, n):
    """Return a number below `n`: each once in the first `n`, and any first ones far apart."""
    step = max(1, round(GOLDEN * n))
    while math.gcd(step, n) > 1:
        step += 1
    return number * step % n


@dataclass
class Verdict:
    """What a trial came to: one of VERDICTS, why, and facts that are added up."""

    name: str = "passed"
    why: str = ""
    facts: dict = field(default_factory=dict)


class Failed(Exception):
    """A promise that was not kept.

    Parameters
    ----------
    name : str
        Its verdict.
    why : str
        What was seen.
    """

    def __init__(self, name, why):
        super().__init__(why)
        self.name = name
        self.why = why


@dataclass
class Ended:
    """How a process ended: killed, hung, or with what its conversion returned or raised."""

    killed: bool = False
    hung: bool = False
    seconds: float = 0.0
    answer: dict = field(default_factory=dict)


class Child:
    """A process that converts; it is forked, so everything is imported and compiled already."""

    def __init__(self, work, folder, *, force, operations=None):
        self._pipe, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: zarr resets its own
            self.pid = os.fork()
        if self.pid == 0:
            try:
                if operations is not None:
                    operations.install()
                real_write(theirs, b"ready\n")
                answer = work.convert_here(folder, force=force)
                if operations is not None:
                    answer["operations"] = getattr(operations, "names", None)
                    answer["failed"] = getattr(operations, "failed", None)
                real_write(theirs, json.dumps(answer).encode())
            except BaseException:
                real_write(theirs, json.dumps({"crash": traceback.format_exc()}).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        self._data = b""
        self._read(time.monotonic() + HUNG_SECONDS, stop=b"ready\n")
        self.began = time.monotonic()

    def _read(self, deadline, stop=None):
        """Read until the process closes its end; return whether it did so in time."""
        while stop is None or stop not in self._data:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                return False
            more = os.read(self._pipe, 1 << 16)
            if not more:
                return True
            self._data += more
        return True

    def end(self, kill_after=None):
        """Wait for its end, or kill it after so many seconds; return how it ended."""
        hung = False
        if kill_after is not None:
            time.sleep(max(0.0, self.began + kill_after - time.monotonic()))
            os.kill(self.pid, signal.SIGKILL)
        elif not self._read(time.monotonic() + HUNG_SECONDS):
            hung = True
            os.kill(self.pid, signal.SIGKILL)
        self._read(time.monotonic() + HUNG_SECONDS)
        os.close(self._pipe)
        _, status = os.waitpid(self.pid, 0)
        answer = self._data.partition(b"\n")[2]
        killed = os.WIFSIGNALED(status) and not hung
        seconds = time.monotonic() - self.began
        return Ended(killed, hung, seconds, json.loads(answer) if answer and not killed else {})


class Work:
    """Sources, the store that they make undisturbed, and the same for an older store.

    Parameters
    ----------
    folder : Path
        A new folder, on the disk whose file system is meant.
    seed : int
        Decides the rows.
    """

    def __init__(self, folder, seed):
        self.folder = folder
        rng = np.random.default_rng([seed, 0])
        self.sources = [folder / "a.vw", folder / "b.vw.gz", folder / "c.vw"]
        for path, n_rows in zip(self.sources, ROWS, strict=True):
            text = "\n".join(_lines(rng, n_rows)).encode()
            path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        streammach.data.text.BLOCK_BYTES = BLOCK_BYTES
        (folder / "whole").mkdir()
        whole = self._converted(folder / "whole")  # in memory, and it loads every kernel
        ConversionMemory.room = lambda *_: ROOM_BYTES
        spills.BIN_BITS, spills.BINS = BIN_BITS, 1 << BIN_BITS
        (folder / "runs").mkdir()
        self.n_runs, self.n_ranges = _counted(lambda: self._converted(folder / "runs"))
        self.old = folder / "old"
        convert(self.sources[:1], self.old, on_bad_row="skip", threads=1)
        self.old_files = _files(self.old)
        self.files = _files(folder / "whole/out")
        self.listed = (folder / "whole/out.rejects.tsv").read_bytes()
        self.digest = whole.digest
        self._number = 0
        self.check(self.new_trial("runs"), "put aside, undisturbed")
        self._measure()

    def _measure(self):
        """Learn how long an undisturbed conversion takes, and what it does to files."""
        ends = []
        for name in ("count", "time 1", "time 2"):
            operations = Counted() if name == "count" else None
            folder = self.new_trial(name)
            ends.append(Child(self, folder, force=False, operations=operations).end())
            self.check(folder, "undisturbed")
        self.operations = ends[0].answer["operations"]
        self.seconds = min(end.seconds for end in ends[1:])
        folder = self.new_trial("force", old=True)
        counted = Child(self, folder, force=True, operations=Counted()).end()
        self.forced_operations = counted.answer["operations"]
        shutil.rmtree(folder)

    def new_trial(self, name, *, old=False):
        """Return the folder of a trial, with an older store under the final name if asked for."""
        folder = self.folder / str(name)
        folder.mkdir(exist_ok=True)
        if old:
            shutil.copytree(self.old, folder / "out")
        return folder

    def convert_here(self, folder, *, force):
        """Convert as the command does; return what it said, for a process to pass on."""
        out, err = io.StringIO(), io.StringIO()
        arguments = [
            "convert", *map(str, self.sources), str(folder / "out"), "--on-bad-row", "skip",
            "--threads", "2", "--progress", "none", "--json", *(["--force"] if force else []),
        ]  # fmt: skip
        with (
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
            mock.patch.object(command, "_as_ours", wraps=command._as_ours) as failed,
        ):  # fmt: skip
            code = command.main(arguments)
        raised = type(failed.call_args[0][0]).__name__ if failed.called else None
        said = json.loads(out.getvalue() or "null")
        return {"code": code, "raised": raised, "err": err.getvalue(), "said": said}

    def _converted(self, folder):
        return convert(self.sources, folder / "out", on_bad_row="skip", threads=2)

    def finish(self, folder, *, force):
        """Convert undisturbed and look at what came out; return whether work was gone on with."""
        whole = _files(folder / "out") == self.files
        end = Child(self, folder, force=force).end()
        answer = self.judge_answer(end)
        if answer["code"] == 2 and whole and not force:  # it says: it exists already
            resumed = False
        elif answer["code"]:
            raise Failed("crashed", f"the last conversion said: {answer['err']}")
        else:
            resumed = answer["said"]["resumed"]
        self.check(folder, "at the end")
        return resumed

    def judge_answer(self, end):
        """Return what a process that was not killed said, or say that it crashed or hung."""
        if end.hung:
            raise Failed("hung", f"no end after {HUNG_SECONDS:.0f} seconds")
        if "crash" in end.answer or not end.answer:
            raise Failed("crashed", end.answer.get("crash", "it died"))
        code, err = end.answer["code"], end.answer["err"]
        if code and (err.count("\n") != 1 or code == StreammachError.exit_code):
            raise Failed("crashed", f"code {code}: {err}")
        return end.answer

    def check(self, folder, when):
        """Hold the store in a folder, and what lies beside it, to the undisturbed ones."""
        found = _files(folder / "out")
        if found != self.files:
            wrong = sorted(found.items() ^ self.files.items())
            kind = "silent_wrong" if found else "lost"
            raise Failed(kind, f"{when}: other files: {sorted({name for name, _ in wrong})}")
        with Dataset.open(folder / "out") as data:
            if (lines := data.verify(deep=True)) or data.digest != self.digest:
                raise Failed("silent_wrong", f"{when}: {lines} {data.digest}")
        listed = folder / "out.rejects.tsv"
        if not listed.exists() or listed.read_bytes() != self.listed:
            raise Failed("silent_wrong", f"{when}: another list of rows left out")
        beside = sorted(path.name for path in folder.iterdir())
        if beside != ["out", "out.rejects.tsv"]:
            raise Failed("leaked", f"{when}: {beside}")

    def check_between(self, folder, when, *, old):
        """Under the final name there is nothing, the older store, or the whole new one."""
        found = _files(folder / "out")
        if found == self.files:
            return
        if old and found != self.old_files:
            raise Failed("lost" if not found else "silent_wrong", f"{when}: the old store is gone")
        if not old and (folder / "out").exists():
            raise Failed("silent_wrong", f"{when}: something half made has the final name")


def _counted(work):
    """Do something; return how many runs it put aside and how many ranges of them it wrote."""
    with (
        mock.patch.object(intake, "write_spill", wraps=intake.write_spill) as written,
        mock.patch.object(Shuffle, "write", autospec=True, side_effect=Shuffle.write) as ranges,
    ):
        work()
    return written.call_count, ranges.call_count


def _files(folder):
    """Return the bytes of every file in a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def _lines(rng, n_rows):
    """Return VW rows: namespaces, importances, values, repeated features, some that are bad."""
    out = []
    for row in range(n_rows):
        y = int(rng.integers(60))
        words = " ".join(f"w{y}_{rng.integers(4)}" for _ in range(rng.integers(1, 5)))
        values = " ".join(f"v{j}:{rng.integers(1, 9) / 4}" for j in rng.integers(0, 200, 4))
        weight = f" {rng.integers(1, 20) / 4}" if row % 11 == 0 else ""
        out.append(f"class-{y}{weight} |w {words} |values {values} |")
        if row % 83 == 40:
            out.append((f"class-{y} oops |w x", f"class-{y} |w x:nan", "|w no label")[row % 3])
    return out
