"""Everything that can stand where a command is to write."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns.writers import REJECTS, Command

LONG_NAME = 240


class NotHere(Exception):
    """A kind of destination that a command cannot be given."""


@dataclass
class Spot:
    """Where a command is to write."""

    command: Command
    folder: Path  # in which it runs
    own: Path  # what the command made in a folder of its own
    ours: set[Path] = field(default_factory=set)  # made by streammach: it may replace these
    pipe: int | None = None  # the reading end of a destination that is a stream
    swallows: bool = False  # whether the destination is a device that swallows all

    @property
    def goal(self):
        return self.folder / self.command.goal

    @property
    def elsewhere(self):
        return self.folder / "elsewhere"

    def others(self, source):
        """Return what is read, where the destination can be named after it."""
        name = self.command.goal
        if not self.command.free or (name.endswith(REJECTS) and not source.endswith(REJECTS)):
            raise NotHere
        return self.folder / source

    def put_own(self, goal):
        """Put what the command made before at a place."""
        copy(self.own, goal)
        self.ours = {goal, *goal.rglob("*")} if goal.is_dir() else {goal}


def copy(source, to):
    if source.is_dir():
        shutil.copytree(source, to)
    else:
        shutil.copyfile(source, to)


def make_folder(path, *names):
    path.mkdir(parents=True)
    for name in ("thesis.txt", *names):
        (path / name).write_text('{"mine": true}')


def _own_with_others(spot, _):
    if not spot.own.is_dir():
        raise NotHere
    spot.put_own(spot.goal)
    (spot.goal / "notes.txt").write_text("mine")
    make_folder(spot.goal / "theses")


def _own_with_links(spot, _):
    """A folder of ours that is to be gone on with, whose files lead elsewhere."""
    if not spot.command.fills:
        raise NotHere
    spot.put_own(spot.goal)
    (spot.goal / "result.json").unlink(missing_ok=True)
    for name in ("log.jsonl", "plan.json", "training.json", ".lock", "train.vw.gz"):
        path, target = spot.goal / name, spot.elsewhere / name
        if path.exists():
            path.rename(target)
        else:
            target.write_text("")
        path.symlink_to(target)
    shutil.rmtree(spot.goal / "checkpoints", ignore_errors=True)  # which a part keeps
    (spot.goal / "checkpoints").symlink_to(spot.elsewhere / "folder")
    spot.ours |= {spot.goal / "checkpoints", *spot.goal.iterdir()}
    return spot.goal


def _put(make):
    def way(spot, _):
        make(spot.goal)
        return spot.goal

    return way


def _linked(name):
    def way(spot, _):
        spot.goal.symlink_to(spot.elsewhere / name)
        return spot.goal

    return way


def _look_alike(spot, _):
    """A folder with files of the names that ours have, and other content."""
    names = ("zarr.json", "manifest.json", "model.json", "plan.json", "train.zarr")
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
    copy(spot.folder / kind, spot.goal)
    return spot.goal


def _source_by_detour(spot, source):
    path = spot.others(source)
    (spot.elsewhere / "way").symlink_to(path.parent)
    return spot.elsewhere / "way" / path.name


def _hard_link(spot, source):
    path = spot.others(source)
    if path.is_dir():
        raise NotHere
    os.link(path, spot.goal)
    return spot.goal


def _above(n):
    """Return a way that names a folder so many levels above what is read."""

    def way(spot, source):
        if spot.command.goal.endswith(REJECTS):
            raise NotHere
        return spot.others(source).parents[n - 1]

    return way


def _inside(spot, source):
    path = spot.others(source)
    if not path.is_dir():
        raise NotHere
    return path / spot.goal.name


def _link_to_own(spot, _):
    target = spot.elsewhere / "made"
    copy(spot.own, target)
    spot.goal.symlink_to(target)
    if spot.command.fills:
        spot.ours = set(target.rglob("*"))
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
    name, beside = spot.goal.name.removesuffix(REJECTS), spot.goal.parent
    for affix in ("partial", "0123abcd.scratch"):
        make_folder(beside / f".{name}.{affix}")
    for taken in (f".{name}.lock", f".{name}.01234567.tmp"):
        (beside / taken).write_text("mine")
    if not spot.command.goal.endswith(REJECTS):
        (beside / f"{name}{REJECTS}").write_text("mine")
    return spot.goal


def _marked_neighbours(spot, _):
    """Folders with such names and the marker's name, but another marker."""
    name = spot.goal.name.removesuffix(REJECTS)
    for affix in ("partial", "0123abcd.scratch"):
        folder = spot.goal.parent / f".{name}.{affix}"
        make_folder(folder, "streammach.json", "conversion.json")
    return spot.goal


def _named(text, folder="out"):
    """Return a way that names the destination by a text; None: by a long one."""

    def way(spot, _):
        if not spot.command.free:
            raise NotHere
        name = spot.goal.name
        if text is None:
            suffix = REJECTS if name.endswith(REJECTS) else spot.goal.suffix
            return spot.folder / folder / ("n" * (LONG_NAME - len(suffix)) + suffix)
        return spot.folder / folder / (text + name)

    return way


@dataclass(frozen=True)
class Kind:
    """What stands at a destination: its name in the table, what puts it there and returns it."""

    name: str
    make: Callable[[Spot, str], Path]
    sources: bool = False  # whether there is one for each source


KINDS = (
    Kind("absent", lambda spot, _: spot.goal),
    Kind("own", lambda spot, _: spot.put_own(spot.goal) or spot.goal),
    Kind("own with others' files", lambda spot, _: _own_with_others(spot, _) or spot.goal),
    Kind("own with links", _own_with_links),
    Kind("foreign file", _put(lambda goal: goal.write_text("mine\n"))),
    Kind("foreign folder", _put(make_folder)),
    Kind("empty folder", _put(Path.mkdir)), Kind("look-alike folder", _look_alike),
    Kind("another of ours", _other_product),
    Kind("source", lambda spot, source: spot.others(source), sources=True),
    Kind("source by a link", _source_by_detour, sources=True),
    Kind("hard link of source", _hard_link, sources=True),
    Kind("parent of source", _above(1), sources=True),
    Kind("grandparent of source", _above(2), sources=True),
    Kind("inside source", _inside, sources=True),
    Kind("link to own", _link_to_own), Kind("link to file", _linked("file.txt")),
    Kind("link to folder", _linked("folder")), Kind("dangling link", _linked("nothing")),
    Kind("FIFO", _fifo), Kind("device", _device),
    Kind("hidden names taken", _hidden_neighbours), Kind("marked names taken", _marked_neighbours),
    Kind("no such folder", _named("no/such/")),
    Kind("below a file", _named("file.txt/", "elsewhere")),
    Kind("long name", _named(None)), Kind("odd name", _named("a\n\x1b[2J \u202e\udcff")),
)  # fmt: skip
