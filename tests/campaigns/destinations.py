"""Every command that writes, with everything that can stand where it is to write."""

import contextlib
import itertools
import os
import shutil
import sysconfig
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from streammach.system.errors import StreammachError
from tests.campaigns import writers
from tests.campaigns.spots import KINDS, Kind, NotHere, Spot, copy, make_folder
from tests.campaigns.trials import HUNG_SECONDS, Failed, Verdict, snapshot, spread, started
from tests.campaigns.writers import COMMANDS, READERS, REJECTS, Command

N_CLASSES = 12
LOADED = (
    "streammach.conversion.convert", "streammach.frontends.reports.pages",
    "streammach.training.trainer", "streammach.prediction.diagnose", "matplotlib.pyplot",
)  # fmt: skip
# Of Python's library, for a small demo.
MODULES = ("bisect.py", "heapq.py", "shlex.py", "csv.py", "queue.py", "sched.py", "copy.py",
           "textwrap.py", "fnmatch.py", "glob.py")  # fmt: skip


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
    return [
        Case(command, kind, source, again=again)
        for command, kind in itertools.product(COMMANDS, KINDS)
        for source in (command.sources if kind.sources else ("",))
        for again in ((False, True) if command.again is not None else (False,))
    ]


class Destinations:
    """What the commands read, and what each of them made before; `seed` decides the rows."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.cases = cases()
        for name in LOADED:  # once, before processes are forked
            with contextlib.suppress(ImportError):
                import_module(name)
        self._sources(folder / "kept/in", np.random.default_rng([seed, 3]))
        for number, command in enumerate(COMMANDS):
            where = self.new_trial()
            self._do(where, command.arguments(command.goal))
            copy(where / command.goal, self.folder / f"made-{number}")

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
        store, run, train = writers.STORE, writers.RUN, writers.TRAIN
        for made in (
            ("convert", writers.TEXT, store), ("train", store, "--out", run, *train),
            ("train", store, "--out", writers.PART, *train, "--part", "1/1"),
            ("predict", run, writers.TEXT, "--out", "in/table.tsv"),
        ):  # fmt: skip
            self._do(to.parent, made)

    def _do(self, where, arguments):
        if (ended := started(arguments, where)).code:
            raise RuntimeError(f"to be done first: {ended}")

    def new_trial(self):
        where = self.folder / "trial/work"
        shutil.rmtree(where.parent, ignore_errors=True)
        where.parent.mkdir()
        shutil.copytree(self.folder / "kept", where)
        (where / "out").mkdir()
        (where / "out/neighbour.txt").write_text("mine")
        make_folder(where / "elsewhere/folder")
        (where / "elsewhere/file.txt").write_text("mine")
        for name in ("home", "tmp"):
            make_folder(where.parent / name)
        return where


def written(place, rng, trial):
    """Let a command write where something stands; nothing that is not ours may change."""
    if trial >= len(place.cases):
        return _nothing_written(place, READERS[trial % len(READERS)])
    case = place.cases[spread(trial, len(place.cases))]
    where = place.new_trial()
    spot = Spot(case.command, where, place.folder / f"made-{COMMANDS.index(case.command)}")
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
    ended = started(arguments, spot.folder)
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
    _check_expected(case, word, ended)
    return Verdict(facts={word.replace(" ", "_"): 1})


def _done(case, spot, goal, new, touched, ended):
    """Return what a command did that did not refuse."""
    where = spot.folder.parent
    allowed = {goal, Path(os.path.realpath(goal)), Path(f"{goal}{REJECTS}")}
    new = [p for p in new if p not in goal.parents]  # folders on the way to it
    if goal.name.endswith(REJECTS):
        allowed.add(Path(str(goal).removesuffix(REJECTS)))
    if case.command.name.startswith("convert_odp"):
        allowed |= {goal.with_name(f"odp_{part}.zarr") for part in ("test", "train")}
    if case.command.name == "make_synthetic: test":
        allowed.add(spot.folder / "out/first.vw")
    beside = [p for p in new if not any(p == a or a in p.parents for a in allowed)]
    if beside:
        raise Failed("leaked", f"{case}: {_names(beside, where)}: {ended}")
    if _was_written_to(spot):
        return "written to"
    if not spot.ours:
        return "created" if goal in new or case.command.fills else "went on"
    if case.again:
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
    said = [line.startswith(error) for line in lines]
    odd = "Traceback" in ended.err or "\x1b" in ended.err or ended.code == StreammachError.exit_code
    if odd or (ended.code and (said[-1:] != [True] or sum(said) != 1)):
        raise Failed("crashed", f"{case}: {ended}")


def _check_expected(case, word, ended):
    """A free name is taken, and a result of ours is replaced only where that is asked for."""
    wanted = {"absent": {"created"}}
    if case.again:
        wanted["own"] = {"replaced", "went on"}
    else:
        wanted["own"] = {"refused"}
    if case.command.name.startswith("make_synthetic"):
        wanted.pop("own", None)  # nothing in a file of rows says who made it
    if word not in wanted.get(case.kind.name, {word}):
        raise Failed("silent_wrong", f"{case}: {word}: {ended}")


def _nothing_written(place, arguments):
    """A command that only reads leaves everything as it is."""
    where = place.new_trial()
    before = snapshot(where.parent)
    ended = started(arguments, where)
    after = snapshot(where.parent)
    if ended.code or before != after:
        names = _names(sorted(before.items() ^ after.items()), where)
        raise Failed("leaked", f"{arguments}: {names}: {ended}")
    return Verdict(facts={"nothing_written": 1})


def _names(paths, where):
    return [os.path.relpath(p if isinstance(p, Path) else p[0], where) for p in paths[:6]]


def _dates_alone(was, now):
    return now is not None and was[:2] == now[:2] and was[0] in ("fifo", "device")


def _lines(rng, n_rows):
    for row in range(n_rows):
        y = row % N_CLASSES + 1
        words = " ".join(f"w{y}_{rng.integers(3)} v{rng.integers(30)}" for _ in range(2))
        yield f"{y} |w {words}"


N_CASES = len(cases()) + len(READERS)
