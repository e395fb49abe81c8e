"""Folders in which work goes on, such as that of a run: made by us, and told by a marker."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streammach.system.errors import UsageError
from streammach.system.files.destinations import check_place
from streammach.system.files.folders import MARKER, make_folder
from streammach.system.files.reading import read_facts
from streammach.system.files.writing import write_atomic

MAX_MARKER = 64 << 10
LOCK = ".lock"
# What a process may leave that was killed before it had written the marker.
BEGUN = re.compile(rf"{re.escape(LOCK)}|\.{re.escape(MARKER)}\.[0-9a-f]{{8}}\.tmp")
GOES_ON = "The same command with --resume goes on."


@dataclass(frozen=True)
class Workplace:
    """A folder that work fills, and goes on in: absent, empty, or one that holds our marker."""

    path: Path  # the folder
    kind: str  # what it is: `run` or `demo`

    def check(self) -> None:
        """Refuse a folder that is somebody else's, or raise UsageError."""
        path = self.path
        check_place(path)
        if path.is_symlink() and not path.exists():
            raise UsageError("it is a link to nothing", path=path)
        if not path.exists():
            above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
            if not above.is_dir():
                raise UsageError("it is no folder", path=above)
            return
        if not path.is_dir():
            raise UsageError("it is no folder", path=path, hint="Name another path.")
        for member in path.iterdir():
            if member.is_symlink() or not (member.is_file() or member.is_dir()):
                what = "it is no regular file and no folder"
                hint = "Move it away, or name another folder."
                raise UsageError(what, path=member, hint=hint)
        others = (name for name in os.listdir(path) if not BEGUN.fullmatch(name))
        if self.facts() is None and any(others):
            what = f"the folder holds other files and is not that of a {self.kind}"
            raise UsageError(what, path=path, hint="Name a new folder.")

    def facts(self) -> Mapping[str, object] | None:
        """Return what the marker says; None without one of this kind."""
        found = read_facts(self.path / MARKER, MAX_MARKER)
        return found if found.get("streammach") == self.kind else None

    def open(self, **facts: object) -> None:
        """Make the folder and its marker; `facts` are added to what that says."""
        self.check()
        known = self.facts() or {}
        wanted = {**known, "streammach": self.kind, **facts}
        make_folder(self.path)
        if known != wanted:
            write_atomic(self.path / MARKER, msgspec.json.encode(wanted, order="sorted") + b"\n")
