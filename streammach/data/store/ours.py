"""Tells a store that streammach made from everything else, whatever its name is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from streammach.errors import DiskError, clean
from streammach.files.destinations import Product
from streammach.files.reading import read_small
from streammach.spec.documents import from_json

MAX_DOCUMENT = 8 << 20  # bytes of the root, which holds the recipe of a table of many columns
MAX_ARRAY_DOCUMENT = 64 << 10
MAX_MANIFEST = 64 << 20
NO_STORE = "it is no store that streammach made"


def foreign(path: Path) -> str | None:
    """Return why a folder is not a store of ours, with nothing else in it; None if it is."""
    if not path.is_dir():
        return NO_STORE
    try:
        root = from_json(read_small(path / "zarr.json", MAX_DOCUMENT), dict[str, Any])
        manifest = msgspec.json.decode(
            read_small(path / "manifest.json", MAX_MANIFEST), type=dict[str, dict[str, Any]]
        )
    except (ValueError, DiskError, RecursionError):
        return NO_STORE
    attributes = root.get("attributes")
    if not isinstance(attributes, dict) or "streammach" not in attributes:
        return NO_STORE
    known = {"zarr.json", "manifest.json"}.union(*manifest.values())
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            place = Path(parent, name)
            inside = place.relative_to(path).as_posix()
            ours = name in folders or (inside in known and place.is_file())
            if place.is_symlink() or not ours:
                return f"{clean(inside)} in it was not made by streammach"
    return None


STORE = Product("a store", foreign)
