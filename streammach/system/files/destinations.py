"""Where results go: the one place that decides what may be written, and what may be replaced.

Nothing that the user did not make with streammach is ever replaced or removed. What stands at a
destination is replaced only if `force` is given and a marker in it says that streammach made it;
its name says nothing. A source is never replaced, nor a folder that holds one, nor a link. Pipes
and devices are written to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from streammach.system.errors import UsageError, clean
from streammach.system.files.folders import give_name, remove_leftovers, scratch
from streammach.system.files.reading import Buffer, disk_error
from streammach.system.files.urls import Url, locate
from streammach.system.files.writing import Writer

FORCE_HINT = "Use --force to replace it, or another name."
AFFIX_BYTES = 32  # of hidden names beside a destination, and of a list that goes with it
MAX_NAME_BYTES = 255
STANDARD_OUTPUT = (Path("-"), Path("/dev/stdout"))
Foreign = Callable[[Path], str | None]  # why streammach did not make it, or None if it did
WHOLE = (("zarr.json", "manifest.json"), ("model.json", "model.safetensors"))  # nothing is added


@dataclass(frozen=True)
class Destination:
    """A name under which a file or a folder will appear when it is whole.

    The request is checked when the object is made, and again when the name is taken: what came to
    stand there in the meantime is kept.
    """

    path: Path  # the name
    foreign: Foreign  # asked of what stands there
    force: bool = False  # whether one that streammach made may be replaced
    inputs: Sequence[Path] = field(default=())  # what the work reads, or other results of it

    def __post_init__(self) -> None:
        remove_leftovers(self.path)  # by a process that was killed
        self.check()

    def check(self) -> None:
        """Refuse what must not be written or replaced, or raise UsageError."""
        path = self.path
        check_name(path)
        if not path.parent.is_dir():
            if os.path.lexists(path.parent):
                raise self._refusal("its folder is no folder", "Choose another name.")
            raise self._refusal("its folder does not exist", "Make the folder first.")
        if len(os.fsencode(path.name)) + AFFIX_BYTES > MAX_NAME_BYTES:
            raise self._refusal("its name is too long", "Choose a shorter one.")
        self._check_inputs()
        check_place(path)
        if not os.path.lexists(path):
            return
        if path.is_symlink():
            raise self._refusal("it is a link, and links are not replaced")
        if not self.force:
            raise self._refusal("it exists already", FORCE_HINT)
        why = self.foreign(path)
        if why is not None:
            raise self._refusal(
                f"{why}, and is not replaced", "Remove it yourself, or name another path."
            )

    def scratch(self) -> AbstractContextManager[Path]:
        """Hold a free name beside the destination for what will be given its name."""
        return scratch(self.path)

    def take(self, made: Path) -> None:
        """Give a finished file or folder the name; its files are durable already."""
        self.check()
        try:
            give_name(made, self.path)
        except FileExistsError:
            raise self._refusal("it has come to exist in the meantime", FORCE_HINT) from None
        except OSError as error:
            raise disk_error(error, self.path) from error

    def write(self, pieces: Iterable[Buffer]) -> None:
        """Write a file, whole or not at all, or raise UsageError or DiskError."""
        with self.scratch() as content:
            with Writer(content) as out:
                for piece in pieces:
                    out.write(piece)
                out.commit()
            self.take(content)

    def _refusal(self, what: str, hint: str = "Name another path.") -> UsageError:
        return UsageError(what, path=self.path, hint=hint)

    def _check_inputs(self) -> None:
        """Refuse an input, a folder that holds one, and a place inside a folder that is one."""
        here = real(self.path)
        for given in self.inputs:
            there = real(given)
            if here == there or _same(self.path, given):
                raise self._refusal("it is read as well")
            if here in there.parents:
                raise self._refusal(f"{clean(given, 100)} lies in it, which is read")
            if there in here.parents:
                raise self._refusal(f"it would lie in {clean(given, 100)}, which is read")


def check_name(path: Path) -> None:
    """Raise UsageError if a path ends in no name: nothing can appear under it or beside it."""
    if path.name in ("", ".."):
        hint = "Name what is to be made."
        raise UsageError("it does not end in a name", path=path, hint=hint)


def check_place(path: Path) -> None:
    """Raise UsageError for a URL, and for a place in a store or a model: they stay as made."""
    if isinstance(locate(path), Url):
        what = "it is a URL, where stores alone are written"
        raise UsageError(what, path=locate(path), hint="Name a folder or a file.")
    for folder in real(path).parents:
        if any(all((folder / name).is_file() for name in names) for names in WHOLE):
            what = f"it would lie in {clean(folder, 100)}, to which nothing is added"
            raise UsageError(what, path=path, hint="Name another path.")


def is_stream(path: Path) -> bool:
    """Return whether a path is standard output, a pipe or a device: written to, never replaced."""
    if path in STANDARD_OUTPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def not_regular(path: Path) -> str | None:
    """Return why a path is no regular file, or None if it is one."""
    if path.is_dir():
        return "it is a folder"
    return None if path.is_file() and not path.is_symlink() else "it is no regular file"


def known_by_mark(mark: str, not_ours: str, within: int = 0) -> Foreign:
    """Return what tells a file by a mark with which it starts, or that is within some bytes."""

    def foreign(path: Path) -> str | None:
        why = not_regular(path)
        if why is not None:
            return why
        with open(path, "rb") as file:
            return None if mark.encode() in file.read(within or len(mark)) else not_ours

    return foreign


def not_folder(path: Path, files: Sequence[str]) -> str | None:
    """Return why a path is no folder that holds these files and nothing else, None if it is."""
    if not path.is_dir():
        return "it is no folder"
    for name in sorted(os.listdir(path)):
        if name not in files or not_regular(path / name):
            return f"{clean(name)} in it was not made by streammach"
    return None


def real(path: Path) -> Path:
    """Return a path without links."""
    return Path(os.path.realpath(path))


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False
