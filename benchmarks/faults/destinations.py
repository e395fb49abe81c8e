"""Every command that writes, with everything that can stand where it is to write."""

import contextlib
import io
import itertools
import os
import runpy
import select
import shutil
import signal
import stat
import sys
import sysconfig
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.faults.work import Failed, Verdict, spread
from streammach.cli import main as command_line
from streammach.errors import StreammachError

HUNG_SECONDS = 180.0
ROOT = Path(__file__).parents[2]
N_CLASSES = 12
LOADED = (
    "streammach.data.convert", "streammach.reports.run_page", "streammach.training.trainer",
    "streammach.prediction.diagnose", "streammach.training.sweep", "matplotlib.pyplot",
)  # fmt: skip
TRAIN = ("--buckets", "5", "--repetitions", "3", "--epochs", "1", "--learning-rate", "0.5",
         "--transform", "binary", "--threads", "1")  # fmt: skip
SHORT = {"created": "+", "replaced": "R", "went on": "~", "written to": "w", "refused": "."}
LONG_NAME = 240
# Of Python's library, for a small demo.
MODULES = ("bisect.py", "heapq.py", "shlex.py", "csv.py", "queue.py", "sched.py", "copy.py",
           "textwrap.py", "fnmatch.py", "glob.py")  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command that writes, and what it reads.

    Attributes
    ----------
    name : str
        What the table calls it.
    arguments : callable
        Its arguments, given the destination.
    sources : tuple of str
        What it reads, within the folder of the trial.
    goal : str
        Where it writes.
    free : bool
        Whether the destination is named; else it follows from what is read.
    again : str or None
        The option that allows to replace an earlier result, or to go on with it.
    goes_on : bool
        Whether the same command goes on with an earlier result without an option.
    fills : bool
        Whether it fills a folder, which may be reached by a link.
    """

    name: str
    arguments: Callable[[str], list[str]]
    sources: tuple[str, ...]
    goal: str
    free: bool = True
    again: str | None = "--force"
    goes_on: bool = False
    fills: bool = False


def _trained(name, source, *more):
    return lambda goal: [name, source, "--out", goal, *TRAIN, *more]


def _without(suffix, arguments):
    """Name the store whose list of rows left out has the name that is looked at."""
    return lambda goal: arguments(goal.removesuffix(suffix))


STORE, RUN, PART, TEXT = "in/train.zarr", "in/run", "in/part", "in/a.vw"
MODEL_FILE = "in/run/model/model.json"
SYNTHETIC = ["--rows", "60", "--classes", "5", "--features", "6200", "--test-rows", "20"]
REJECTS = ".rejects.tsv"
COMMANDS = (
    Command("convert", lambda goal: ["convert", TEXT, goal], (TEXT,), "out/goal.zarr"),
    Command("convert two", lambda goal: ["convert", TEXT, "in/b.vw", goal], (TEXT, "in/b.vw"),
            "out/goal.zarr"),
    Command("convert --like", lambda goal: ["convert", "in/b.vw", goal, "--like", STORE],
            (STORE, "in/b.vw"), "out/goal.zarr"),
    Command("convert: rejects", _without(REJECTS, lambda goal: [
        "convert", f"in/bad{REJECTS}", goal, "--format", "vw", "--on-bad-row", "skip"]),
            (f"in/bad{REJECTS}",), f"out/goal{REJECTS}"),
    Command("train", _trained("train", STORE), (STORE,), "out/goal", again="--resume",
            fills=True),
    Command("fit", _trained("fit", TEXT), (TEXT,), "out/goal", again="--resume",
            fills=True),
    Command("train --part", _trained("train", STORE, "--part", "1/1"), (STORE,), "out/goal",
            again="--resume", fills=True),
    Command("merge", lambda goal: ["merge", goal, PART], (PART,), "out/goal", again="--resume",
            fills=True),
    Command("sweep", lambda goal: [
        "sweep", STORE, "--memory", "1GB", "--buckets", "5", "--repetitions", "2,3", "--epochs",
        "1", "--learning-rate", "0.5", "--transform", "binary", "--threads", "1", "--out", goal],
            (STORE,), "out/goal", again=None, goes_on=True, fills=True),
    Command("shrink", lambda goal: ["shrink", RUN, "--out", goal, "--on", STORE],
            (RUN, "in/run/model", STORE), "out/goal"),
    Command("predict", lambda goal: ["predict", RUN, TEXT, "--out", goal],
            (TEXT, RUN, MODEL_FILE, "in/run/plan.json"), "out/goal.tsv"),
    Command("report", lambda goal: ["report", RUN, "--on", STORE, "--out", goal],
            (RUN, MODEL_FILE, "in/run/plan.json", STORE, f"{STORE}/zarr.json"), "out/goal.html"),
    Command("report: own name", lambda _: ["report", RUN], (RUN,), f"{RUN}/report.html",
            free=False),
    Command("sweep: page", lambda _: [
        "sweep", STORE, "--memory", "1GB", "--buckets", "5", "--repetitions", "2,3", "--epochs",
        "1", "--learning-rate", "0.5", "--transform", "binary", "--threads", "1",
        "--out", "in/sweep"],
            (STORE,), "in/sweep/sweep.html", free=False, again=None, goes_on=True),
    Command("demo", lambda goal: ["demo", "--folder", goal], ("in/library",), "out/goal",
            fills=True),
    Command("make_synthetic: vw", lambda goal: [
        "tools/make_synthetic.py", "odp", goal, "--format", "vw", *SYNTHETIC], (),
            "out/goal.vw.gz"),
    Command("make_synthetic: hdf5", lambda goal: [
        "tools/make_synthetic.py", "odp", goal, "--format", "hdf5", *SYNTHETIC], (),
            "out/goal.h5"),
    Command("make_synthetic: store", lambda goal: [
        "tools/make_synthetic.py", "odp", goal, "--format", "store", *SYNTHETIC, "--part", "test",
        "--like", "in/synthetic.zarr"], ("in/synthetic.zarr",), "out/goal.zarr"),
    Command("make_synthetic: test", lambda goal: [
        "tools/make_synthetic.py", "odp", "out/first.vw", "--test", goal, "--format", "vw",
        *SYNTHETIC], (), "out/goal.vw"),
    Command("convert_odp", lambda goal: [
        "tools/convert_odp.py", "in/odp", "--sample", "--out", str(Path(goal).parent)],
            ("in/odp/odp_train.vw.gz",), "out/odp_train.zarr", free=False),
    Command("convert_odp: test", lambda goal: [
        "tools/convert_odp.py", "in/odp", "--sample", "--out", str(Path(goal).parent)],
            ("in/odp/odp_test.vw.gz",), "out/odp_test.zarr", free=False),
)  # fmt: skip
READERS = (  # these write nothing at all
    ("explore", TEXT), ("verify", STORE, "--deep"), ("info", RUN), ("info", STORE),
    ("evaluate", RUN, STORE), ("plan", STORE), ("predict", RUN, TEXT),
)  # fmt: skip


class NotHere(Exception):
    """A kind of destination that a command cannot be given."""


@dataclass
class Spot:
    """Where a command is to write.

    Attributes
    ----------
    command : Command
        The command.
    folder : Path
        The folder in which it runs.
    own : Path
        What the command made in a folder of its own.
    ours : set of Path
        What lies there that streammach made, and may replace where that is asked for.
    pipe : int or None
        The reading end of a destination that is a stream.
    swallows : bool
        Whether the destination is a device that swallows all.
    """

    command: Command
    folder: Path
    own: Path
    ours: set[Path] = field(default_factory=set)
    pipe: int | None = None
    swallows: bool = False

    @property
    def goal(self):
        """The destination, where nothing else is named."""
        return self.folder / self.command.goal

    def others(self, source):
        """Return what is read, where the destination can be named after it."""
        name = self.command.goal
        if not self.command.free or (name.endswith(REJECTS) and not source.endswith(REJECTS)):
            raise NotHere
        return self.folder / source

    def put_own(self, goal):
        """Put what the command made before at a place."""
        _copy(self.own, goal)
        self.ours = {goal, *goal.rglob("*")} if goal.is_dir() else {goal}


def _absent(spot, _):
    return spot.goal


def _own(spot, _):
    spot.put_own(spot.goal)
    return spot.goal


def _own_with_others(spot, _):
    if not spot.own.is_dir():
        raise NotHere
    spot.put_own(spot.goal)
    (spot.goal / "notes.txt").write_text("mine")
    (spot.goal / "theses").mkdir()
    (spot.goal / "theses/thesis.txt").write_text("mine")
    return spot.goal


def _own_with_links(spot, _):
    """A folder of ours that is to be gone on with, whose files lead elsewhere."""
    if not spot.command.fills:
        raise NotHere
    spot.put_own(spot.goal)
    (spot.goal / "result.json").unlink(missing_ok=True)
    for name in ("log.jsonl", "plan.json", "training.json", ".lock", "sweep.html", "train.vw.gz"):
        path, target = spot.goal / name, spot.folder / "elsewhere" / name
        if path.exists():
            path.rename(target)
        else:
            target.write_text("")
        path.symlink_to(target)
    shutil.rmtree(spot.goal / "checkpoints", ignore_errors=True)  # which a part keeps
    (spot.goal / "checkpoints").symlink_to(spot.folder / "elsewhere/folder")
    spot.ours |= {spot.goal / "checkpoints", *spot.goal.iterdir()}
    return spot.goal


def _foreign_file(spot, _):
    spot.goal.write_text("mine\n")
    return spot.goal


def _foreign_folder(spot, _):
    _make_folder(spot.goal)
    return spot.goal


def _empty_folder(spot, _):
    spot.goal.mkdir()
    return spot.goal


def _look_alike(spot, _):
    """A folder with files of the names that ours have, and other content."""
    names = ("zarr.json", "manifest.json", "model.json", "plan.json", "sweep.json", "train.zarr")
    spot.goal.mkdir()
    for name in (*names, "streammach.json", "report.html", "train.vw.gz", ".lock"):
        (spot.goal / name).write_text('{"mine": true}')
    return spot.goal


def _other_product(spot, _):
    """What streammach made, but not what this command makes."""
    others = ("in/train.zarr", "in/run/model", "in/table.tsv", "in/run")
    made = sorted(p.name for p in spot.own.iterdir()) if spot.own.is_dir() else []
    kind = next(
        other for other in others
        if (spot.folder / other).is_dir() != spot.own.is_dir()
        or (made and sorted(p.name for p in (spot.folder / other).iterdir()) != made)
    )  # fmt: skip
    _copy(spot.folder / kind, spot.goal)
    return spot.goal


def _source(spot, source):
    return spot.others(source)


def _source_by_detour(spot, source):
    path = spot.others(source)
    (spot.folder / "elsewhere/way").symlink_to(path.parent)
    return spot.folder / "elsewhere/way" / path.name


def _hard_link(spot, source):
    path = spot.others(source)
    if path.is_dir():
        raise NotHere
    os.link(path, spot.goal)
    return spot.goal


def _parent(spot, source):
    return _parent_of(spot, source, 1)


def _grandparent(spot, source):
    return _parent_of(spot, source, 2)


def _parent_of(spot, source, n):
    if spot.command.goal.endswith(REJECTS):
        raise NotHere
    return spot.others(source).parents[n - 1]


def _inside(spot, source):
    path = spot.others(source)
    if not path.is_dir():
        raise NotHere
    return path / spot.goal.name


def _link_to_own(spot, _):
    target = spot.folder / "elsewhere/made"
    _copy(spot.own, target)
    spot.goal.symlink_to(target)
    if spot.command.fills:
        spot.ours = set(target.rglob("*"))
    return spot.goal


def _link_to_file(spot, _):
    spot.goal.symlink_to(spot.folder / "elsewhere/file.txt")
    return spot.goal


def _link_to_folder(spot, _):
    spot.goal.symlink_to(spot.folder / "elsewhere/folder")
    return spot.goal


def _dangling(spot, _):
    spot.goal.symlink_to(spot.folder / "elsewhere/nothing")
    return spot.goal


def _fifo(spot, _):
    os.mkfifo(spot.goal)
    spot.pipe = os.open(spot.goal, os.O_RDWR | os.O_NONBLOCK)  # so that nobody waits for a reader
    return spot.goal


def _device(spot, _):
    """A private node of the device that swallows all, or a terminal that cannot be replaced."""
    try:
        os.mknod(spot.goal, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        spot.swallows = True
    except OSError:
        if not spot.command.free or spot.command.goal.endswith(REJECTS):
            raise NotHere from None
        spot.pipe, other = os.openpty()
        return Path(os.ttyname(other))
    return spot.goal


def _hidden_neighbours(spot, _):
    """The names that a writer uses beside its destination are taken."""
    name = spot.goal.name.removesuffix(REJECTS)
    (spot.goal.parent / f".{name}.lock").write_text("mine")
    for affix in ("partial", "0123abcd.scratch"):
        _make_folder(spot.goal.parent / f".{name}.{affix}")
    (spot.goal.parent / f".{name}.01234567.tmp").write_text("mine")
    if not spot.command.goal.endswith(REJECTS):
        (spot.goal.parent / f"{name}{REJECTS}").write_text("mine")
    return spot.goal


def _marked_neighbours(spot, _):
    """Folders with such names and the marker's name, but another marker."""
    name = spot.goal.name.removesuffix(REJECTS)
    for affix in ("partial", "0123abcd.scratch"):
        _make_folder(spot.goal.parent / f".{name}.{affix}", "streammach.json", "conversion.json")
    return spot.goal


def _no_folder(spot, _):
    return _named(spot, "no/such/")


def _below_file(spot, _):
    return _named(spot, "file.txt/", "elsewhere")


def _long_name(spot, _):
    suffix = REJECTS if spot.command.goal.endswith(REJECTS) else spot.goal.suffix
    return _named(spot, "n" * (LONG_NAME - len(suffix)) + suffix, whole=True)


def _odd_name(spot, _):
    return _named(spot, "a\n\x1b[2J \u202e\udcff")


def _named(spot, before, folder="out", *, whole=False):
    if not spot.command.free:
        raise NotHere
    return spot.folder / folder / (before if whole else before + spot.goal.name)


@dataclass(frozen=True)
class Kind:
    """What stands at a destination.

    Attributes
    ----------
    name : str
        What the table calls it.
    make : callable
        Puts it there, and returns the destination.
    sources : bool
        Whether there is one for each source.
    """

    name: str
    make: Callable[[Spot, str], Path]
    sources: bool = False


KINDS = (
    Kind("absent", _absent), Kind("own", _own), Kind("own with others' files", _own_with_others),
    Kind("own with links", _own_with_links),
    Kind("foreign file", _foreign_file), Kind("foreign folder", _foreign_folder),
    Kind("empty folder", _empty_folder), Kind("look-alike folder", _look_alike),
    Kind("another of ours", _other_product),
    Kind("source", _source, sources=True),
    Kind("source by a link", _source_by_detour, sources=True),
    Kind("hard link of source", _hard_link, sources=True),
    Kind("parent of source", _parent, sources=True),
    Kind("grandparent of source", _grandparent, sources=True),
    Kind("inside source", _inside, sources=True),
    Kind("link to own", _link_to_own), Kind("link to file", _link_to_file),
    Kind("link to folder", _link_to_folder), Kind("dangling link", _dangling),
    Kind("FIFO", _fifo), Kind("device", _device),
    Kind("hidden names taken", _hidden_neighbours), Kind("marked names taken", _marked_neighbours),
    Kind("no such folder", _no_folder), Kind("below a file", _below_file),
    Kind("long name", _long_name), Kind("odd name", _odd_name),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command, what stands where it is to write, and whether it may replace that."""

    command: Command
    kind: Kind
    source: str
    again: bool

    def __str__(self):
        given = f" {self.command.again}" if self.again else ""
        return f"{self.command.name}{given} on {self.kind.name} {self.source}".rstrip()


def cases():
    """Return every command with every kind, with and without the option to replace."""
    found = []
    for command, kind in itertools.product(COMMANDS, KINDS):
        for source in command.sources if kind.sources else ("",):
            found += [Case(command, kind, source, again=False)]
            if command.again is not None:
                found += [Case(command, kind, source, again=True)]
    return found


class Destinations:
    """What the commands read, what each of them made before, and the table of what came out.

    Parameters
    ----------
    folder : Path
        A new folder.
    seed : int
        Decides the rows.
    """

    def __init__(self, folder, seed):
        self.folder = folder
        self.cases = cases()
        self.table = {}
        for name in LOADED:  # once, before processes are forked
            with contextlib.suppress(ImportError):
                import_module(name)
        self._sources(folder / "kept/in", np.random.default_rng([seed, 3]))
        for number, command in enumerate(COMMANDS):
            where = self.new_trial()
            goal = where / command.goal
            self._do(where, command.arguments(command.goal), f"to have {command.name}")
            _copy(goal, self._own(number))

    def _own(self, number):
        return self.folder / f"made-{number}"

    def _sources(self, to, rng):
        to.mkdir(parents=True)
        for name, n_rows in (("a.vw", 300), ("b.vw", 90), (f"bad{REJECTS}", 60)):
            lines = list(_lines(rng, n_rows))
            (to / name).write_text("\n".join(lines + ["3 oops |w x"] * name.startswith("bad")))
        (to / "odp").mkdir()
        for name in ("odp_train.vw.gz", "odp_test.vw.gz"):
            (to / "odp" / name).write_text("\n".join(_lines(rng, 60)))
        (to / "library").mkdir()
        library = Path(sysconfig.get_paths()["stdlib"])
        for name in MODULES:
            shutil.copyfile(library / name, to / "library" / name)
        where = to.parent
        for made in (
            ["convert", TEXT, STORE],
            ["train", STORE, "--out", RUN, *TRAIN],
            ["train", STORE, "--out", PART, *TRAIN, "--part", "1/1"],
            ["predict", RUN, TEXT, "--out", "in/table.tsv"],
            next(one for one in COMMANDS if one.name == "sweep").arguments("in/sweep"),
            ["tools/make_synthetic.py", "odp", "in/synthetic.zarr", *SYNTHETIC],
        ):
            self._do(where, made, "to have sources")
        (to / "sweep/sweep.html").unlink()

    def _do(self, where, arguments, why):
        ended = started(arguments, where, self.folder)
        if ended.code:
            raise RuntimeError(f"{why}: {arguments}: {ended}")

    def new_trial(self):
        """Return a folder with what is read, and files of others around."""
        where = self.folder / "trial/work"
        shutil.rmtree(where.parent, ignore_errors=True)
        where.parent.mkdir()
        shutil.copytree(self.folder / "kept", where)
        (where / "out").mkdir()
        (where / "out/neighbour.txt").write_text("mine")
        _make_folder(where / "elsewhere/folder")
        (where / "elsewhere/file.txt").write_text("mine")
        for name in ("home", "tmp"):
            _make_folder(where.parent / name)
        return where

    def note(self, case, word):
        """Put what came out into the table."""
        row = self.table.setdefault(case.command.name, {})
        cell = row.setdefault(case.kind.name, {"without": [], "with": []})
        words = cell["with" if case.again else "without"]
        words += [word] * (word not in words)

    def summary(self):
        """Print the table; return it for the figures."""
        if not self.table:
            return {}
        print(", ".join(f"{mark} {word}" for word, mark in SHORT.items()))
        print("without and with --force or --resume; nothing: it cannot be asked for")
        width = max(map(len, self.table))
        for number, kind in enumerate(KINDS):
            print(f"{number:>3}  {kind.name}")
        print(" " * width, "".join(f"{number:>5}" for number in range(len(KINDS))))
        for name, row in self.table.items():
            shown = (_shown(row.get(kind.name, {})) for kind in KINDS)
            print(name.ljust(width), "".join(f"{text:>5}" for text in shown))
        return {"table": self.table}


def _shown(cell):
    return " ".join("".join(SHORT.get(word, "!") for word in words) for words in cell.values())


def written(place, rng, trial):
    """Let a command write where something stands; nothing that is not ours may change."""
    if trial >= len(place.cases):
        return _nothing_written(place, READERS[trial % len(READERS)])
    case = place.cases[spread(trial, len(place.cases))]
    where = place.new_trial()
    spot = Spot(case.command, where, place._own(COMMANDS.index(case.command)))
    try:
        goal = case.kind.make(spot, case.source)
    except NotHere:
        return Verdict(facts={"cannot_be_asked": 1})
    try:
        return _judged(place, case, spot, goal)
    finally:
        if spot.pipe is not None:
            os.close(spot.pipe)


def _judged(place, case, spot, goal):
    where = spot.folder.parent
    name = os.path.relpath(goal, spot.folder) if goal.is_relative_to(where) else str(goal)
    arguments = case.command.arguments(name) + [case.command.again] * case.again
    before = snapshot(where)
    ended = started(arguments, spot.folder, place.folder)
    after = snapshot(where)
    gone = sorted(p for p, was in before.items() if p not in spot.ours and after.get(p) != was)
    gone = [p for p in gone if not _dates_alone(before[p], after.get(p))]
    if gone:
        raise Failed("lost", f"{case}: {_names(gone, where)}: {ended}")
    _check_said(case, ended)
    new = sorted(after.keys() - before.keys())
    touched = sorted(p for p in spot.ours if p in before and after.get(p) != before[p])
    if ended.code:
        if new or touched:
            raise Failed("leaked", f"{case}: refused, yet {_names(new + touched, where)}: {ended}")
        word = "refused"
    else:
        word = _done(case, spot, goal, new, touched, ended)
    place.note(case, word)
    _check_expected(case, word, ended)
    return Verdict(facts={word.replace(" ", "_"): 1})


def _done(case, spot, goal, new, touched, ended):
    """Return what a command did that did not refuse."""
    where = spot.folder.parent
    allowed = {goal, Path(os.path.realpath(goal)), Path(f"{goal}{REJECTS}")}
    new = [p for p in new if p not in goal.parents]  # folders on the way to it
    if goal.name.endswith(REJECTS):
        allowed.add(Path(str(goal).removesuffix(REJECTS)))
    if case.command.name == "convert_odp":
        allowed.add(goal.with_name("odp_test.zarr"))
    if case.command.name == "convert_odp: test":
        allowed.add(goal.with_name("odp_train.zarr"))
    if case.command.name == "make_synthetic: test":
        allowed.add(spot.folder / "out/first.vw")
    beside = [p for p in new if not any(p == a or a in p.parents for a in allowed)]
    if beside:
        raise Failed("leaked", f"{case}: {_names(beside, where)}: {ended}")
    if _was_written_to(spot):
        return "written to"
    if not spot.ours:
        return "created" if goal in new or case.command.fills else "went on"
    if case.again or case.command.goes_on:
        return "went on" if case.command.again != "--force" else "replaced"
    if touched:
        raise Failed("lost", f"{case}: replaced without being asked to: {ended}")
    return "went on"


def _was_written_to(spot):
    """Return whether something came out of a stream, as far as that can be known."""
    if spot.swallows:
        return spot.command.free
    if spot.pipe is None:
        return False
    os.set_blocking(spot.pipe, False)
    try:
        return bool(os.read(spot.pipe, 1))
    except BlockingIOError:
        return False


def _check_said(case, ended):
    """A refusal is one line, and no mistake of ours."""
    if ended.code is None:
        raise Failed("hung", f"{case}: no end after {HUNG_SECONDS:.0f} seconds")
    error = "streammach: error: "
    lines = [line for line in ended.err.split("\n") if line]
    odd = "Traceback" in ended.err or "\x1b" in ended.err or ended.code == StreammachError.exit_code
    if odd or (ended.code and [line.startswith(error) for line in lines[-1:]] != [True]):
        raise Failed("crashed", f"{case}: {ended}")
    if ended.code and sum(line.startswith(error) for line in lines) != 1:
        raise Failed("crashed", f"{case}: {ended}")


def _check_expected(case, word, ended):
    """A free name is taken, and a result of ours is replaced only where that is asked for."""
    wanted = {"absent": {"created"}}
    if case.again:
        wanted["own"] = {"replaced", "went on"}
    elif not case.command.goes_on:
        wanted["own"] = {"refused"}
    if case.command.name.startswith("make_synthetic") and "store" not in case.command.name:
        wanted.pop("own", None)  # nothing in a file of rows says who made it
    if word not in wanted.get(case.kind.name, {word}):
        raise Failed("silent_wrong", f"{case}: {word}: {ended}")


def _nothing_written(place, arguments):
    """A command that only reads leaves everything as it is."""
    where = place.new_trial()
    before = snapshot(where.parent)
    ended = started(list(arguments), where, place.folder)
    after = snapshot(where.parent)
    if ended.code or before != after:
        names = _names(sorted(before.items() ^ after.items()), where)
        raise Failed("leaked", f"{arguments}: {names}: {ended}")
    return Verdict(facts={"nothing_written": 1})


def _names(paths, where):
    return [os.path.relpath(p if isinstance(p, Path) else p[0], where) for p in paths[:6]]


def _dates_alone(was, now):
    return now is not None and was[:2] == now[:2] and was[0] in ("fifo", "device")


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


def _copy(source, to):
    if source.is_dir():
        shutil.copytree(source, to)
    else:
        shutil.copyfile(source, to)


def _make_folder(path, *names):
    path.mkdir(parents=True)
    for name in ("thesis.txt", *names):
        (path / name).write_text('{"mine": true}')


def _lines(rng, n_rows):
    for row in range(n_rows):
        y = row % N_CLASSES + 1
        words = " ".join(f"w{y}_{rng.integers(3)} v{rng.integers(30)}" for _ in range(2))
        yield f"{y} |w {words}"


N_CASES = len(cases()) + len(READERS)
