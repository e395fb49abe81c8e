"""What decides a store's bytes, and whether a store was made from the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from streammach.data.identity import content_crc
from streammach.data.source import Source
from streammach.data.source_options import SourceOptions
from streammach.data.store.root import Decided, Root
from streammach.errors import clean
from streammach.files.reading import sha256
from streammach.spec.recipe import Recipe
from streammach.spec.types import Multilabel


def decided(options: Sequence[SourceOptions], on_bad_row: str, like: str) -> Decided:
    """Return what decides a store beside sources and seed, as its root document keeps it."""
    files = [given.labels for given in options if given.labels is not None]
    layout = options[0].layout
    more = {
        "x_path": options[0].x_path,
        "y_path": options[0].y_path,
        "first_label": options[0].first_label,
        "multilabel": _multilabel(options[0].multilabel, like),
        "labels": content_crc(files) if files else None,
        "quotes": None if layout.quotes == "auto" else layout.quotes,
        "no_header": not layout.header,
        "columns": ",".join(layout.columns),
        "recipe": None if options[0].recipe is None or like else digest_of(options[0].recipe),
    }
    given = {name: value for name, value in more.items() if value}
    return {"on_bad_row": on_bad_row, "like": like, **given}


def digest_of(recipe: Recipe) -> str:
    """Return what tells a recipe from others."""
    return sha256([msgspec.json.encode(recipe)])[:16]


def _multilabel(asked: Multilabel, like: str) -> str | None:
    """Return what is kept of it: nothing where it was left open, or follows another store."""
    return None if asked == "auto" or like else asked


def difference(root: Root, opened: Sequence[Source[Any]], asked: Decided, seed: int) -> str | None:
    """Return what a store was made with that differs from a request; None if nothing does."""
    if len(root.source) != len(opened):
        return f"it was made from {len(root.source):,} files, {len(opened):,} are named"
    for known, source in zip(root.source, opened, strict=True):
        name = clean(source.path, 300)
        if not source.files():
            return f"a pipe cannot be read again to compare it: {name}"
        if known.format != source.form:
            return f"it was made from {known.format}, {name} is {source.form}"
        if known.bytes != source.n_bytes or known.crc32c != source.content():
            return f"{name} has other content than what it was made from"
    if root.seed != seed:
        return f"it was made with --seed {root.seed}"
    for name in sorted(root.options.keys() | asked.keys()):
        if (root.options.get(name) or None) != (asked.get(name) or None):
            return f"it was made with another --{name.replace('_', '-')}"
    return None
