"""URLs of stores in object storage, wherever a path may stand."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath
from urllib.parse import unquote

from streammach.system.errors import QUERY, UsageError, clean, without_secrets

REMOTE = ("s3", "gs", "https", "http")
SHAPE = re.compile(rf"({'|'.join((*REMOTE, 'file'))}):/+")


class Url(PosixPath):
    """The URL of something in object storage, as a path: its text is the URL.

    It has no query and names nobody: credentials come from where the libraries look for them.
    """

    def __str__(self) -> str:
        return SHAPE.sub(r"\1://", super().__str__(), count=1)

    def __fspath__(self) -> str:
        return str(self)

    @property
    def scheme(self) -> str:
        """``s3``, ``gs``, ``https`` or ``http``."""
        return str(self).split(":", 1)[0]


def locate(path: str | os.PathLike[str]) -> Path:
    """Return what a user named: a :class:`Url`, or a path."""
    text = os.fspath(path)
    if isinstance(path, Url) or not isinstance(text, str) or not SHAPE.match(text):
        return Path(path) if not isinstance(path, Path) else path
    _check(text)
    if text.startswith("file:"):
        return Path("/" + unquote(SHAPE.sub("", text, count=1)))
    return Url(SHAPE.sub(r"\1:/", text, count=1))


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that another process finds from where it works, or a URL as it is."""
    place = locate(path)
    return str(place) if isinstance(place, Url) else os.path.abspath(place)


def _check(text: str) -> None:
    """Refuse a URL that says who may read it, or that says not enough."""
    shown = clean(without_secrets(text), 300)
    # Not urlsplit: its errors say what stands before the host.
    scheme, _, rest = SHAPE.sub(r"\1://", text, count=1).partition("://")
    host, _, path = rest.partition("/")
    port = host.rpartition(":")[2] if ":" in host else ""
    if "@" in host or not (port.isdigit() or not port):
        hint = "Leave them to the environment, a profile or the machine's own identity."
        raise UsageError("a URL must not hold credentials", path=shown, hint=hint)
    if "?" in text or QUERY.search(text):
        hint = "Leave credentials to the environment, a profile or the machine's own identity."
        raise UsageError("a URL must not hold a query, such as a signature", path=shown, hint=hint)
    if ".." in path.split("/"):
        raise UsageError("a URL must not lead upwards", path=shown)
    if scheme != "file" and not (host and path.strip("/")):
        hint = "Write SCHEME://BUCKET/NAME."
        raise UsageError("it does not name a bucket and what is in it", path=shown, hint=hint)
