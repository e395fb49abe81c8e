"""The root document of a store: what it says of the rows, of their sources, and of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from streammach.inputs.identity import Fingerprint
from streammach.options.recipe import Recipe
from streammach.system.errors import MismatchError, clean

MOST = 2**31 - 1  # classes and features: ids are int32
MOST_ROWS = 2**48

OF_LISTS = ("labels", "max_row_labels", "max_block_labels")
Decided = dict[str, str | int | bool | None]  # options of a conversion that decide its store


class StoredSource(Fingerprint, frozen=True, kw_only=True):
    """What a store says of a source; ``rows`` count those that were left out, too."""

    rows: int


class RootFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the root document of a store says of its content.

    ``labels`` are those of all rows where these have lists of them, ``max_row_labels`` and
    ``max_block_labels`` the most of a row and of a block; they are 0, and are not written, where
    each row has one. ``recipe`` says how rows of tables became features; it is not written where
    there is none.
    """

    rows: int
    classes: int
    features: int
    nnz: int
    pairs: int
    max_row_nnz: int
    block_rows: int
    max_block_nnz: int
    columns: int = 0
    labels: int = 0
    max_row_labels: int = 0
    max_block_labels: int = 0
    seed: int
    options: Decided
    source: list[StoredSource]
    skipped: dict[str, int]
    counts: dict[str, int]
    recipe: Recipe | None = None

    @property
    def source_rows(self) -> int:
        """Rows of all sources, those that were left out too."""
        return sum(facts.rows for facts in self.source)

    @property
    def old_rows(self) -> int:
        """Rows of the store that this one extends: their numbers come first. 0 without one."""
        return self.source[0].rows if self.options.get("extend") else 0


def check_recipe(root: RootFacts, recipe: Recipe | None, path: Path) -> None:
    """Raise MismatchError where cells of a table became other features than by a recipe."""
    odd = None if root.recipe is None or recipe is None else root.recipe.differs(recipe)
    if odd is not None:
        raise MismatchError(
            f"cells of the column '{clean(odd, 60)}' became other features than in training",
            path=path, hint="Convert the table again with --like, or give the table itself.",
        )  # fmt: skip


class Root(RootFacts, frozen=True, kw_only=True):
    """What the root document of a store says under ``streammach``."""

    format: int
    complete: bool
    manifest: str
    check: str

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels."""
        return self.max_row_labels > 0

    def document(self) -> dict[str, Any]:
        """Return what is written."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        left_out: tuple[str, ...] = () if self.listed else OF_LISTS
        left_out += () if self.recipe is not None else ("recipe",)
        return {name: value for name, value in found.items() if name not in left_out}

    def wrong(self) -> str | None:
        """Return which figure cannot be, or None."""
        ranges = {
            "rows": (1, MOST_ROWS), "classes": (1, MOST), "features": (1, MOST),
            "nnz": (1, MOST_ROWS), "pairs": (0, self.nnz * max(1, self.max_row_labels)),
            "max_row_nnz": (1, self.features),
            "block_rows": (1, MOST_ROWS), "max_block_nnz": (self.max_row_nnz, self.nnz),
            "seed": (0, 2**63 - 1), "columns": (0, MOST_ROWS), "labels": (0, MOST_ROWS),
            "max_row_labels": (0, min(self.classes, self.labels)),
            "max_block_labels": (self.max_row_labels, self.labels),
        }  # fmt: skip
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                return name
        if not self.rows <= self.source_rows <= MOST_ROWS:
            return "the rows of the sources"
        if any(facts.rows < 0 or facts.bytes < 0 for facts in self.source):
            return "a source"
        return None
