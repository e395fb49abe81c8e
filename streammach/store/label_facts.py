"""Names of labels beside a store's rows: labels that no row has are classes, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streammach.inputs.label_names import (
    NamesOfLabels,
    add_labels,
    find_labels,
    read_label_names,
    splitter,
)
from streammach.rows.names import MAX_NAME, ClassNames, Names
from streammach.store.class_weights import BALANCED, ClassWeights, weigh_classes
from streammach.store.dataset import Dataset
from streammach.system.errors import UsageError

OWN = "labels"  # in place of a file: labels are names themselves


@dataclass(frozen=True, kw_only=True)
class LabelFacts:
    """What the user says of labels beside the rows that have them."""

    # weights: what the rows of a label count for (:func:`streammach.store.class_weights
    # .weigh_classes`); names: what labels are called, or :data:`OWN`; None without
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
