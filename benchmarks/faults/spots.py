"""Everything that can stand where a command is to write."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.writers import REJECTS, Command

LONG_NAME = 240


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
        copy(self.own, goal)
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
    make_folder(spot.goal)
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
    copy(spot.folder / kind, spot.goal)
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
    copy(spot.own, target)
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
        make_folder(spot.goal.parent / f".{name}.{affix}")
    (spot.goal.parent / f".{name}.01234567.tmp").write_text("mine")
    if not spot.command.goal.endswith(REJECTS):
        (spot.goal.parent / f"{name}{REJECTS}").write_text("mine")
    return spot.goal


def _marked_neighbours(spot, _):
    """Folders with such names and the marker's name, but another marker."""
    name = spot.goal.name.removesuffix(REJECTS)
    for affix in ("partial", "0123abcd.scratch"):
        make_folder(spot.goal.parent / f".{name}.{affix}", "streammach.json", "conversion.json")
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


def copy(source, to):
    """Copy a file or a folder."""
    if source.is_dir():
        shutil.copytree(source, to)
    else:
        shutil.copyfile(source, to)


def make_folder(path, *names):
    """Make a folder with files of others."""
    path.mkdir(parents=True)
    for name in ("thesis.txt", *names):
        (path / name).write_text('{"mine": true}')
