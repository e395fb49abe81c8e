"""Rows to predict, from a store or a file, with the ids of a model: as many as fit the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.matrices.zarr_folders import is_matrix_folder
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.inputs.sources import open_source, tables_of
from streammach.inputs.tables.document_folder import is_document_folder
from streammach.model.model import Model
from streammach.options.byte_lines import Line, bytes_in
from streammach.prediction.in_memory import no_recipe
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.columns import ids_of_features
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary
from streammach.store.dataset import Dataset
from streammach.store.root import check_recipe
from streammach.system.errors import UsageError
from streammach.system.files.raw_text import is_piped
from streammach.system.files.urls import Url
from streammach.system.jit import remember_compiled_work

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much of an input is held at a time, and what all comes to."""

    # rows, values: most rows and values of a block, but for a row that has more values alone. Where
    # rows have lists of labels, these count as values
    rows: int
    values: int
    # bytes of predictions that are brought into the order of their source at a time
    sorted_bytes: int
    lines: tuple[Line, ...]  # what is taken, by name
    kind: tuple[object, ...] = ()  # what decides which kernels are called

    def keep_kernels(self) -> None:
        """Say that the work was done: its kernels are kept from now on."""
        remember_compiled_work(*self.kind)

    def keep_kernels_after(self, parts: Iterator[T]) -> Iterator[T]:
        """Yield what is made within it, and say then that the work was done."""
        yield from parts
        self.keep_kernels()

    @property
    def projected_bytes(self) -> int:
        """All of it."""
        return bytes_in(self.lines, "host")

    def ranges(self, indptr: NDArray[np.int64]) -> Iterator[slice]:
        """Yield ranges of rows that may be held, of row pointers int64 (n + 1,) from 0."""
        limits = (indptr, self.values), (np.arange(len(indptr)), self.rows)
        yield from (slice(*one) for one in ranges_that_fit(*limits))

    def cut(self, block: RowBlock) -> Iterator[RowBlock]:
        """Yield the rows of a block in parts that may be held."""
        ends = block.indptr if block.labels is None else block.indptr + block.labels.starts
        for rows in self.ranges(ends):
            yield block if rows == slice(0, block.n_rows) else block.part(rows.start, rows.stop)


@dataclass
class InputCounts:
    """What was met in an input."""

    rows: int = 0  # rows read
    unknown_values: int = 0  # values whose feature the model does not know; they are left out
    total: int = 0  # all rows of the input; 0 where that is not known


@dataclass
class InputLabels:
    """Labels of an input, those that the model does not know among them."""

    names: Names | None = None  # the model's, then others by their ids; there when all are read


def is_store(path: Path) -> bool:
    """Return whether a path is a store, in a folder or at a URL, and no other rows."""
    if isinstance(path, Url) or not path.is_dir():
        return isinstance(path, Url)
    return not (is_matrix_folder(path) or is_document_folder(path))


def rows_of(
    path: Path, model: Model, seen: InputCounts, room: Room, *, options: SourceOptions = GUESSED,
    label_needed: bool = True, met: InputLabels | None = None, bad_rows: BadRows | None = None,
) -> Iterator[RowBlock]:  # fmt: skip
    """Yield the rows of an input with the model's ids, numbers and tags, in their order."""
    piped = is_piped(path)
    stored = not piped and is_store(path)
    if not (piped or stored or path.exists()):
        raise UsageError("there is no such store or file", path=path)
    if stored:
        if options != GUESSED:
            raise UsageError("a store needs no options of files", path=path)
        with Dataset.open(path) as dataset:
            rows, seen.total = StoreRows(dataset, model, label_needed, met), dataset.n_rows
            yield from rows.blocks(0, dataset.n_rows, seen, room)
        return
    bad_rows = bad_rows or BadRows()
    yield from _file_rows(path, model, seen, room, options, label_needed, met, bad_rows)


class StoreRows:
    """The rows of a store with the ids of a model, any range of them."""

    def __init__(
        self, dataset: Dataset, model: Model, label_needed: bool, met: InputLabels | None = None
    ) -> None:
        features = labels = None
        other = dataset.digest != model.store or len(dataset.features) != len(model.features)
        check_recipe(dataset.root, model.recipe, dataset.path)
        if other:
            features = ids_of_features(
                model.features, model.columns, dataset.features, dataset.columns
            )
        renamed = other or model.says is not None
        if label_needed and (renamed or met is not None):
            labels = _ids_of_labels(dataset, model.labels, met, other=renamed)
        if labels is not None and met is None and model.says is not None:
            labels = np.where(labels >= 0, model.says[labels], -1)
        same = features is None or np.array_equal(features, np.arange(len(features)))
        self._dataset, self._labels = dataset, labels
        self._features = None if same else features

    def blocks(self, start: int, stop: int, seen: InputCounts, room: Room) -> Iterator[RowBlock]:
        """Yield rows ``start:stop`` as they lie, with their numbers and tags.

        Where `start` is a multiple of the most rows of a block, blocks are those of all rows.
        """
        data = self._dataset
        for first in range(start, stop, room.rows):
            last = min(first + room.rows, stop)
            ends = data.pointers(first, last)
            if data.listed:
                ends = ends + data.label_pointers(first, last)
            for some in room.ranges(ends - ends[0]):
                place = first + some.start, first + some.stop
                block = data.rows(*place)
                done = canonicalize(block, self._features, self._labels)
                seen.rows += block.n_rows
                seen.unknown_values += block.nnz - done.nnz
                numbers, tags = data.origins(*place)
                yield replace(done, numbers=numbers, tags=tags)


def _ids_of_labels(
    dataset: Dataset, known: Names, met: InputLabels | None, *, other: bool
) -> NDArray[np.int32] | None:
    """Return the id of each class of a store, None where it is the same; -1 for one not known."""
    labels = known.labels_of(dataset.labels) if other else None
    if met is not None:
        met.names = known
        if labels is not None:
            others = labels < 0
            labels[others] = len(known) + np.arange(np.count_nonzero(others))
            met.names = known.followed_by(dataset.labels.take(np.flatnonzero(others)))
    return labels


def _file_rows(
    path: Path, model: Model, seen: InputCounts, room: Room, options: SourceOptions,
    label_needed: bool, met: InputLabels | None, bad_rows: BadRows,
) -> Iterator[RowBlock]:  # fmt: skip
    vocabulary = Vocabulary(
        model.labels if label_needed else None, model.features, add_labels=met is not None,
        add_features=False, columns=model.columns,
    )  # fmt: skip
    if options.multilabel == "auto":
        options = replace(options, multilabel="on" if model.listed else "off")
    prompt = is_piped(path) and not label_needed
    options = replace(options, recipe=model.recipe, prompt=prompt, labelled=label_needed)
    source = open_source(path, options)
    if model.recipe is None and tables_of([source]):
        raise no_recipe(path)
    for block in source.blocks(vocabulary, bad_rows, label_needed=label_needed):
        for part in room.cut(block):
            seen.rows += part.n_rows
            yield canonicalize(part, None, model.says if met is None else None)
    seen.unknown_values += bad_rows.unknown_values
    if met is not None:
        met.names = vocabulary.label_names()
