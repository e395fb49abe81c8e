"""Whether a store is the one that a conversion would make."""

from __future__ import annotations

import os
from collections.abc import Sequence

from streammach.data.conversion.request import decided, difference
from streammach.data.source_options import SourceOptions, paths_of
from streammach.data.sources import agreed, open_source
from streammach.data.store.dataset import Dataset


def difference_from(
    store: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str]],
    options: Sequence[SourceOptions],
    *,
    like: str | os.PathLike[str] | None,
    on_bad_row: str,
    seed: int,
) -> str | None:
    """Return why a store is not the one that a conversion would make; None if it is.

    The content of the sources is read.
    """
    opened = [open_source(p, o) for p, o in zip(paths_of(sources), options, strict=True)]
    with Dataset.open(store) as dataset:
        root = dataset.root
    recipe, digest = None, ""
    if like is not None:
        with Dataset.open(like) as dataset:
            recipe, digest = dataset.root.recipe, dataset.digest
    options = agreed(opened, options, recipe)
    return difference(root, opened, decided(options, on_bad_row, digest), seed)
