"""Conversions that are killed, or whose disk is full or broken, and that are started again."""

import contextlib
import errno
import gzip
import io
import json
import shutil
import time
from collections import Counter
from unittest import mock

import numpy as np

import streammach.inputs.text
from streammach.cli import main as command
from streammach.conversion import intake, spills
from streammach.conversion.convert import convert
from streammach.conversion.folder import ConversionMemory
from streammach.conversion.shuffle import Shuffle
from streammach.store.dataset import Dataset
from streammach.system.errors import DiskError, StreammachError
from tests.campaigns.operations import SHORT, Failing, KilledAt, Operations, able
from tests.campaigns.trials import GOLDEN, Failed, Fork, Verdict, files_of, spread

BLOCK_BYTES = 4096
BIN_BITS = 6
ROOM_BYTES = 16_000  # for rows: about a dozen runs, and as many ranges of bins
ROWS = (700, 500, 300)
HUNG_SECONDS = 60.0
MOST_KILLS = 4
BEFORE = 40  # operations before the swap of two stores
FORCED = 0.3  # share of trials that replace an older store
FAULTS = [
    (number, sticky, old)
    for number in (errno.ENOSPC, errno.EIO, SHORT)
    for sticky in (True, False)
    for old in (False, True)
]


class Conversion:
    """Sources, the store that they make undisturbed, and the same for an older store.

    `folder` is a new one, on the disk whose file system is meant; `seed` decides the rows.
    """

    def __init__(self, folder, seed):
        self.folder = folder
        rng = np.random.default_rng([seed, 0])
        self.sources = [folder / "a.vw", folder / "b.vw.gz", folder / "c.vw"]
        for path, n_rows in zip(self.sources, ROWS, strict=True):
            text = "\n".join(_lines(rng, n_rows)).encode()
            path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        streammach.inputs.text.BLOCK_BYTES = BLOCK_BYTES
        whole = self._converted("whole")  # in memory, and it loads every kernel
        ConversionMemory.room = lambda *_: ROOM_BYTES
        spills.BIN_BITS, spills.BINS = BIN_BITS, 1 << BIN_BITS
        with (
            mock.patch.object(intake, "write_spill", wraps=intake.write_spill) as written,
            mock.patch.object(Shuffle, "write", autospec=True, side_effect=Shuffle.write) as ranges,
        ):
            self._converted("runs")
        self.n_runs, self.n_ranges = written.call_count, ranges.call_count
        self.old = folder / "old"
        convert(self.sources[:1], self.old, on_bad_row="skip", threads=1)
        self.old_files, self.files = files_of(self.old), files_of(folder / "whole/out")
        self.listed = (folder / "whole/out.rejects.tsv").read_bytes()
        self.digest = whole.digest
        self.check(folder / "runs", "put aside, undisturbed")
        # How long an undisturbed one takes, and what it does to files.
        ends = [self.end(self.new_trial(f"time {n}")) for n in range(2)]
        self.seconds = min(answer["seconds"] for answer in ends)
        self.operations, self.forced_operations = (
            self.end(self.new_trial(name, old=old), old=old, operations=Operations())["operations"]
            for name, old in (("count", False), ("force", True))
        )
        self.check(folder / "count", "undisturbed")

    def _converted(self, name):
        (self.folder / name).mkdir()
        return convert(self.sources, self.folder / name / "out", on_bad_row="skip", threads=2)

    def facts(self):
        """What the conversion is that is disturbed."""
        return {
            "runs": self.n_runs, "ranges": self.n_ranges, "seconds": round(self.seconds, 3),
            "operations": len(self.operations), "by_name": Counter(self.forced_operations),
            "store_bytes": sum(map(len, self.files.values())),
        }  # fmt: skip

    def new_trial(self, name, *, old=False):
        """Return the folder of a trial, with an older store under the final name if asked for."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        if old:
            shutil.copytree(self.old, folder / "out")
        return folder

    def end(self, folder, *, old=False, operations=None, kill_after=None):
        """Convert in a process of its own; return what it answered, None where it was killed."""

        def work(tell):
            if operations is not None:
                operations.install()
            tell("ready")
            began = time.monotonic()
            answer = self._answer(folder, force=old) | {"seconds": time.monotonic() - began}
            if operations is not None:
                answer["operations"] = operations.names
            tell(answer)

        child = Fork(work)
        child.hear(HUNG_SECONDS, 1)
        code = child.end(HUNG_SECONDS, kill_after)
        if code is None:
            raise Failed("hung", f"no end after {HUNG_SECONDS:.0f} seconds")
        if code < 0:
            return None
        answer = child.told[-1]
        if "crash" in answer:
            raise Failed("crashed", answer["crash"])
        code, err = answer["code"], answer["err"]
        if code and (err.count("\n") != 1 or code == StreammachError.exit_code):
            raise Failed("crashed", f"code {code}: {err}")
        return answer

    def _answer(self, folder, *, force):
        """Convert as the command does; return what it said."""
        out, err = io.StringIO(), io.StringIO()
        arguments = [
            "convert", *map(str, self.sources), str(folder / "out"), "--on-bad-row", "skip",
            "--threads", "2", "--progress", "none", "--json", *["--force"] * force,
        ]  # fmt: skip
        with (
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
            mock.patch.object(command, "_as_ours", wraps=command._as_ours) as failed,
        ):  # fmt: skip
            code = command.main(arguments)
        raised = type(failed.call_args[0][0]).__name__ if failed.called else None
        said = json.loads(out.getvalue() or "null")
        return {"code": code, "raised": raised, "err": err.getvalue(), "said": said}

    def finish(self, folder, *, old):
        """Convert undisturbed and look at what came out; return whether work was gone on with."""
        whole = files_of(folder / "out") == self.files
        answer = self.end(folder, old=old)
        there = answer["code"] == 2 and whole and not old  # it says: it exists already
        if answer["code"] and not there:
            raise Failed("crashed", f"the last conversion said: {answer['err']}")
        self.check(folder, "at the end")
        return not there and answer["said"]["resumed"]

    def check(self, folder, when):
        """Hold the store in a folder, and what lies beside it, to the undisturbed ones."""
        found = files_of(folder / "out")
        if found != self.files:
            wrong = sorted({name for name, _ in found.items() ^ self.files.items()})
            kind = "silent_wrong" if found else "lost"
            raise Failed(kind, f"{when}: other files: {wrong}")
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
        found = files_of(folder / "out")
        if found == self.files:
            return
        if old and found != self.old_files:
            raise Failed("silent_wrong" if found else "lost", f"{when}: the old store is gone")
        if not old and (folder / "out").exists():
            raise Failed("silent_wrong", f"{when}: something half made has the final name")


def at_any_time(work, rng, trial):
    """Kill at a time of the work, then up to three more times; then let it finish."""
    more = rng.random(int(rng.integers(MOST_KILLS)) if trial % 2 else 0)
    times = [(trial * GOLDEN + 0.01 * rng.random()) % 1, *more]
    ways = [(f"{t:.4g}", None, t * work.seconds) for t in times]
    return _killed(work, ways, old=bool(rng.random() < FORCED))


def at_point(work, rng, trial):
    """Kill before an operation, or in the middle of a write.

    Half of the trials are at operations that are no writes, a quarter at those that follow when an
    older store is about to be replaced, a quarter in writes; each has its turn.
    """
    old = trial % 4 == 1
    names = work.forced_operations if old else work.operations
    writes = trial % 4 == 3
    first = names.index("exchange") - BEFORE if old else 0
    points = [k for k, name in enumerate(names) if k >= first and writes == (name == "write")]
    number = trial // 2 if trial % 2 == 0 else trial // 4
    more = rng.integers(len(names), size=rng.integers(3) if rng.integers(2) else 0).tolist()
    moments = [points[spread(number, len(points))], *more]
    return _killed(work, [(str(at), KilledAt(at), None) for at in moments], old=old)


def _killed(work, ways, *, old):
    folder = work.new_trial("killed", old=old)
    facts = {"kills": 0, "resumed": 0, "late": 0, "old_store": int(old)}
    for at, operations, seconds in ways:
        if work.end(folder, old=old, operations=operations, kill_after=seconds) is not None:
            facts["late"] += 1  # it was faster
            break
        facts["kills"] += 1
        work.check_between(folder, f"after kill {facts['kills']} at {at}", old=old)
    facts["resumed"] += work.finish(folder, old=old)
    return Verdict(facts=facts)


def failing(work, rng, trial):
    """Let one operation fail, or all from one on; then the same command with a sound disk."""
    number, sticky, old = FAULTS[trial % len(FAULTS)]
    names = work.forced_operations if old else work.operations
    n_able = sum(name in able(number) for name in names)
    at = spread(trial // len(FAULTS), n_able)
    short = number == errno.ENOSPC and bool(rng.integers(2))
    folder = work.new_trial("disk", old=old)
    operations = Failing(at, number, sticky=sticky, short=short)
    answer = work.end(folder, old=old, operations=operations)
    fault = errno.errorcode.get(number, "short write") + (" from" if sticky else " at")
    what = f"{fault} {at} of {n_able}"
    facts = {"refused": 0, "unharmed": 0, "resumed": 0, "old_store": int(old)}
    if answer["code"] == DiskError.exit_code and answer["raised"] == "DiskError":
        facts["refused"] = 1
    elif answer["code"]:
        raise Failed(
            "crashed", f"{what}: {answer['raised']}, code {answer['code']}: {answer['err']}"
        )
    else:  # half a write, or what was not needed: a lock's removal, a swap (two renames do it)
        facts["unharmed"] = 1
        work.check(folder, f"{what}: it said that all was well")
    work.check_between(folder, what, old=old)
    if answer["code"] or old:
        facts["resumed"] += work.finish(folder, old=old)
    return Verdict(facts=facts)


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
