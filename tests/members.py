"""What somebody else puts in the place of a member of a folder of ours, or beside it."""

import os
import shutil
from pathlib import Path

from streammach.system.errors import StreammachError

PRECIOUS = b"precious\n"


def linked(member, elsewhere):
    """A link to a copy, beside which something precious lies."""
    os.rename(member, elsewhere / member.name)
    member.symlink_to(elsewhere / member.name)
    place = elsewhere / member.name
    for folder in {elsewhere, place if place.is_dir() else elsewhere}:
        (folder / "step-1").mkdir()
        (folder / "step-1/precious").write_bytes(PRECIOUS)


def piped(member, elsewhere):
    """A pipe that nobody writes to, nor reads."""
    os.rename(member, elsewhere / member.name)
    os.mkfifo(member)


def joined(member, elsewhere):
    """Another's file and folder within, or a folder in the place of a file."""
    if not member.is_dir():
        os.rename(member, elsewhere / member.name)
        member.mkdir()
    (member / "step-77").mkdir()
    (member / "step-77/precious").write_bytes(PRECIOUS)
    (member / "notes.json").write_bytes(PRECIOUS)


WAYS = {"link": linked, "pipe": piped, "foreign content": joined}


def members(folder):
    """All paths within a folder, and the folder itself."""
    return [".", *sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))]


def foreign_in(folder):
    """What is not ours: bytes by path, without following links; names of links and pipes."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():
                found[path] = os.readlink(path)
            elif path.is_fifo():
                found[path] = "pipe"
            elif path.is_file() and path.read_bytes() == PRECIOUS:
                found[path] = PRECIOUS
    return found


def harmed(folder, member, way, resume):
    """Replace a member, go on; return what is wrong: something foreign lost, or many lines.

    Whether it goes on or is refused depends on the member.
    """
    elsewhere = folder.with_name("elsewhere")
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    WAYS[way](folder / member, elsewhere)
    before = foreign_in(folder.parent)
    try:
        resume()
    except StreammachError as error:
        if "\n" in str(error):
            return f"{member}, {way}: {error!r}"
    after = foreign_in(folder.parent)
    lost = [path for path, what in before.items() if after.get(path) != what]
    return f"{member}, {way}: lost {lost}" if lost else ""
