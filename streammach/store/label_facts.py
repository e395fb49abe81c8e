"""What a user says of labels beside a store's rows: weights in the loss, and names.

Labels that have names and no row are classes, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.label_arrays import label_name
from streammach.inputs.label_names import (
    NamesOfLabels,
    add_labels,
    find_labels,
    read_label_names,
    splitter,
)
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.names import MAX_NAME, ClassNames, Names
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, UsageError, clean
from streammach.system.files.raw_text import numbered_lines

OWN = "labels"  # in place of a file: labels are names themselves
BALANCED = "balanced"
Entry = tuple[int | None, bytes, Any]  # line of a file, label, weight
ClassWeights = str | os.PathLike[str] | Mapping[Any, float]


@dataclass(frozen=True, kw_only=True)
class LabelFacts:
    """What the user says of labels beside the rows that have them."""

    # weights: what the rows of a label count for (:func:`weigh_classes`); names: what labels are
    # called, or :data:`OWN`; None without
    weights: ClassWeights | None = None
    names: NamesOfLabels | None = None
    language: str | None = None  # of the names in SKOS that are taken; None: of all
    add: bool = True  # whether labels that no row has are classes

    @classmethod
    def of_files(
        cls, weights: str | os.PathLike[str] | None, names: str | os.PathLike[str] | None,
        language: str | None = None,
    ) -> LabelFacts:  # fmt: skip
        """Return facts whose files are known by absolute paths, for another process."""

        def place(file: str | os.PathLike[str] | None, word: str) -> str | None:
            return None if file is None else word if file == word else os.path.abspath(file)

        return cls(weights=place(weights, BALANCED), names=place(names, OWN), language=language)

    def view(self, dataset: Dataset) -> Dataset:
        """Return a data set as it is with these facts, or raise UsageError or DataError."""
        if self.names is None and self.language is not None:
            raise UsageError("a language of names without names: --label-language")
        kept = dataset.stored_names
        if self.names is not None:
            dataset = name_labels(dataset, self.names, self.language, add=self.add)
        elif kept is not None:
            dataset = dataset.name_labels(kept, dataset.labels, _add_words(dataset, kept))
        return dataset if self.weights is None else weigh_classes(dataset, self.weights)


def names_column(names: object) -> bool:
    """Return whether what is given for names of labels names a column: it is no file."""
    return isinstance(names, str) and names != OWN and not os.path.exists(names)


def name_labels(
    dataset: Dataset, names: NamesOfLabels, language: str | None = None, *, add: bool = True
) -> Dataset:
    """Return a view of a store whose labels have names; with `add` also labels that no row has."""
    if names == OWN:
        own = dataset.labels
        found = ClassNames(np.arange(len(own), dtype=np.int32), own)
        return dataset.name_labels(found, own, dataset.features)
    given = read_label_names(names, language)
    labels = dataset.labels
    labels, ids = add_labels(labels, given) if add else (labels, find_labels(labels, given.labels))
    if not ((ids >= 0) & (ids < dataset.n_classes)).any():
        what = "no label of the rows has a name there: --label-names"
        path = None if isinstance(names, Mapping) else names
        raise UsageError(what, path=path, hint="A line is a label, a tab and its name.")
    found = given.by_class(ids)
    return dataset.name_labels(found, labels, _add_words(dataset, found))


def _add_words(dataset: Dataset, names: ClassNames) -> Names:
    """Return the features of a store, and behind them words of names that no row has.

    They are words of every column of text; without columns there are none.
    """
    recipe, known = dataset.root.recipe, dataset.features
    if recipe is None or not recipe.ngrams:
        return known
    every = sorted(set().union(*(own for _, own in names.words(splitter(recipe)))))
    spaces = [column.namespace for column in recipe.columns if column.role == "text"]
    wanted = Names.of(f"{space}^{word}".encode() for space in spaces for word in every)
    new = (known.ids_of(wanted) < 0) & (np.diff(wanted.offsets) <= MAX_NAME)
    return known.followed_by(wanted.take(np.flatnonzero(new)))


def weigh_classes(dataset: Dataset, weights: ClassWeights) -> Dataset:
    """Return a view of a store whose rows also count by their class."""
    if dataset.listed:
        raise UsageError("rows have lists of labels: --class-weight")
    if weights == BALANCED:
        counts = np.maximum(dataset.label_counts, 1)
        return dataset.weigh_classes(
            (dataset.n_rows / (dataset.n_classes * counts)).astype(np.float32)
        )
    if not isinstance(weights, Mapping):
        return dataset.weigh_classes(_by_class(dataset, _entries_in(Path(weights)), Path(weights)))
    named = {label_name(label): value for label, value in weights.items()}
    entries: list[Entry] = [(None, label, value) for label, value in named.items()]
    return dataset.weigh_classes(_by_class(dataset, [entries], None))


def _entries_in(path: Path) -> Iterator[list[Entry]]:
    """Yield the lines of a file that are not empty, or raise DataError or DiskError."""
    for lines in numbered_lines(path):
        entries = list[Entry]()
        for number, line in lines:
            label, tab, value = line.rpartition(b"\t")
            if not tab:
                what = f"it is no label, tab and weight: '{clean(line, 60)}'"
                raise DataError(what, path=path, line=number)
            entries.append((number, label, value))
        yield entries


def _by_class(
    dataset: Dataset, pieces: Iterable[list[Entry]], path: Path | None
) -> NDArray[np.float32]:
    """Return the weight of each class: float32 (K,)."""
    weights, named = np.ones(dataset.n_classes, np.float32), np.zeros(dataset.n_classes, np.bool_)
    index = dataset.labels.index()
    for entries in pieces:
        ids = dataset.labels.labels_of(Names.of([label for _, label, _ in entries]), index)
        for (line, label, value), i in zip(entries, ids.tolist(), strict=True):
            what = f"no row has the label '{clean(label, 60)}'" if i < 0 else ""
            if i >= 0 and named[i]:
                what = f"a label is there twice: '{clean(label, 60)}'"
            elif i >= 0:
                named[i], weights[i] = True, _number_of(value)
                if not 0 <= weights[i] <= MOST_IMPORTANCE:
                    what = (
                        f"the weight '{clean(value, 30)}' of '{clean(label, 60)}' is no number "
                        "from 0 to 1e9"
                    )
            if what:
                raise DataError(f"{what}: --class-weight", path=path, line=line)
    if not weights.any():
        what = "all classes have the weight 0: nothing can be learnt: --class-weight"
        raise DataError(what, path=path)
    return weights


def _number_of(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
