"""Tells a model that streammach made from everything else, whatever its name is."""

from __future__ import annotations

from pathlib import Path

from streammach.errors import DiskError
from streammach.files.destinations import Product, not_folder
from streammach.files.reading import read_small
from streammach.spec.documents import from_json

DOCUMENT, TENSORS = "model.json", "model.safetensors"
MAX_DOCUMENT = 4 << 20
FIELDS = {"format", "spec", "training", "tensors"}  # of every version


def foreign(path: Path) -> str | None:
    """Return why a folder is not a model of ours, with nothing else in it; None if it is."""
    why = not_folder(path, (DOCUMENT, TENSORS))
    if why is not None:
        return why
    try:
        document = from_json(read_small(path / DOCUMENT, MAX_DOCUMENT), dict[str, object])
    except (ValueError, DiskError, RecursionError):
        document = {}
    return None if document.keys() >= FIELDS else "it is no model that streammach made"


MODEL = Product("a model", foreign)
