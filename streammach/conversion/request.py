"""What a conversion is asked for, what of it decides a store, and whether a store was made so.

Final ids are those of a store that is given, then by falling frequency.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import content_crc
from streammach.inputs.source import NamedLabels, Source
from streammach.inputs.source_options import ConvertOptions, SourceOptions, paths_of
from streammach.inputs.sources import agree_recipe, open_sources
from streammach.rows.names import NO_COLUMNS, Names, TrainedColumns
from streammach.rows.vocabulary import Vocabulary, by_frequency
from streammach.store.dataset import Dataset
from streammach.store.root import Decided, Root
from streammach.system.errors import clean
from streammach.system.files.reading import sha256
from streammach.system.progress import Told


@dataclass(frozen=True)
class RankedNames:
    """Names by final id, how often each occurs, and the final id of each provisional one.

    Ids from the number of names on are of those that are left out.
    """

    names: Names
    counts: NDArray[np.int64]
    rank: NDArray[np.int32]

    @classmethod
    def of(cls, names: Names, counts: NDArray[np.int64], known: Names | None) -> RankedNames:
        """Return names by frequency; those that are known come first and keep their ids."""
        first = 0 if known is None else len(known)
        new = first + by_frequency(names.part(first, len(names)), counts[first:])
        order = np.concatenate([np.arange(first), new])
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(names.take(order), counts[order], rank)

    def frequent(self, least: int, first: int = 0) -> RankedNames:
        """Return the first names, and those that occur so often; ids of others lie behind."""
        n = first + int(np.count_nonzero(self.counts[first:] >= least))
        return RankedNames(self.names.part(0, n), self.counts[:n], self.rank)


@dataclass(frozen=True)
class KnownNames:
    """The labels and features that ids must agree with, if any; these may grow or not."""

    labels: Names | None = None
    features: Names | None = None
    digest: str = ""
    columns: TrainedColumns = NO_COLUMNS
    grows: bool = False
    named_labels: NamedLabels = field(default_factory=dict)  # what labels are called there

    @classmethod
    def of(
        cls, like: str | os.PathLike[str] | None, extend: str | os.PathLike[str] | None = None
    ) -> KnownNames:
        """Return those of a store, which another one is like, or which it extends."""
        path = like if extend is None else extend
        if path is None:
            return cls()
        with Dataset.open(path) as dataset:
            columns = NO_COLUMNS if extend else dataset.columns
            names, labels, named_labels = dataset.stored_names, dataset.labels, NamedLabels()
            if names is not None:
                texts = names.texts.raws(np.arange(len(names.texts)))
                named_labels = dict.fromkeys(zip(labels.raws(names.classes), texts, strict=True))
            return cls(
                labels, dataset.features, dataset.digest, columns, extend is not None, named_labels
            )

    @property
    def fixed(self) -> bool:
        """Whether no feature is added."""
        return self.features is not None and not self.grows

    def vocabulary(self) -> Vocabulary:
        """Return a vocabulary that holds them; it takes in new labels, and features if none are."""
        return Vocabulary(
            self.labels, self.features, add_features=not self.fixed, columns=self.columns
        )

    def ranked_features(self, names: Names, counts: NDArray[np.int64]) -> RankedNames:
        """Return the final list of features, where each occurs so often."""
        if self.fixed:
            return RankedNames(names, counts, np.arange(len(names), dtype=np.int32))
        first = 0 if self.features is None else len(self.features)
        return RankedNames.of(names, counts, self.features).frequent(1, first)


@dataclass(frozen=True, kw_only=True)
class ConversionRequest:
    """What a conversion is made with."""

    asked: ConvertOptions = field(default_factory=ConvertOptions)  # what the user says
    options: list[SourceOptions]  # how each source is read
    n_threads: int  # threads that parse and compress
    progress: Told = lambda stage, done, total: None
    # the names and ids that rows get, where they are not those of a store
    known: KnownNames | None = None
    # the memory that rows take before they are in their order, where they stay in memory: then none
    # are put aside, and no file is written. 0 for a store
    memory_bytes: int = 0


def decisions_of(
    options: Sequence[SourceOptions], on_bad_row: str, like: str, min_rows: int = 1,
    extend: str | None = None,
) -> Decided:  # fmt: skip
    """Return what decides a store beside sources and seed, as its root document keeps it."""
    first = options[0]
    files = [own.labels for own in options if own.labels is not None]
    more = {
        "x_path": first.x_path,
        "y_path": first.y_path,
        "first_label": first.first_label,
        "multilabel": None if first.multilabel == "auto" or like else first.multilabel,
        "labels": content_crc(files) if files else None,
        "quotes": None if first.layout.quotes == "auto" else first.layout.quotes,
        "no_header": not first.layout.header,
        "columns": ",".join(first.layout.columns),
        "min_rows": min_rows if min_rows > 1 else None,
        "extend": extend,
        "recipe": None if first.recipe is None or like
        else sha256([msgspec.json.encode(first.recipe)])[:16],
    }  # fmt: skip
    options_set = {name: value for name, value in more.items() if value}
    return {"on_bad_row": on_bad_row, "like": like, **options_set}


def difference_from(
    store: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]],
    options: Sequence[SourceOptions], *, like: str | os.PathLike[str] | None, on_bad_row: str,
    seed: int,
) -> str | None:  # fmt: skip
    """Return why a store is not the one that a conversion would make; None if it is.

    The content of the sources is read.
    """
    opened = open_sources(paths_of(sources), options)
    with Dataset.open(store) as dataset:
        root = dataset.root
    recipe, digest = None, ""
    if like is not None:
        with Dataset.open(like) as dataset:
            recipe, digest = dataset.root.recipe, dataset.digest
    options = agree_recipe(opened, options, recipe)
    wanted = decisions_of(options, on_bad_row, digest)
    difference = _other_sources(root, opened) or _other_options(root, wanted, seed)
    if difference is None and like is not None and root.recipe != options[0].recipe:
        return "it was made with another --like"  # whose rows were the same
    return difference


def _other_sources(root: Root, opened: Sequence[Source[Any]]) -> str | None:
    """Return how the sources of a store differ from others; None if they do not."""
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
    return None


def _other_options(root: Root, wanted: Decided, seed: int) -> str | None:
    if root.seed != seed:
        return f"it was made with --seed {root.seed}"
    for name in sorted(root.options.keys() | wanted.keys()):
        if (root.options.get(name) or None) != (wanted.get(name) or None):
            return f"it was made with another --{name.replace('_', '-')}"
    return None
