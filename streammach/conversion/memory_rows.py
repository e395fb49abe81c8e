"""Rows in memory, matrices, tables or text, as a data set: in memory, or written into a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.conversion.buffer import RowBuffer
from streammach.conversion.build import Build
from streammach.conversion.folder import ConversionFolder
from streammach.conversion.intake import NAME_BYTES
from streammach.conversion.memory_labels import (
    drop_weightless,
    name_as_cells,
    take_rows,
    to_labels,
    to_own_type,
    to_weights,
)
from streammach.conversion.memory_sources import MemoryMatrices, iterator_source, matrix_source
from streammach.conversion.request import ConversionRequest, KnownNames
from streammach.conversion.shuffle import AHEAD, PIECE_ROWS, PIECE_VALUES
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.identity import PLACE
from streammach.inputs.label_arrays import Labels
from streammach.inputs.source import NamedLabels, Source
from streammach.inputs.source_options import (
    BadRowOptions,
    ConvertOptions,
    SourceOptions,
    TableOptions,
)
from streammach.inputs.sources import agree_recipe
from streammach.inputs.tables.cells import Listed
from streammach.inputs.tables.memory_objects import (
    NamedMatrix,
    is_recipe_table,
    rows_and_labels,
    to_matrix,
)
from streammach.inputs.tables.memory_tables import MemorySource
from streammach.inputs.tables.values import FALSE, TRUE, is_missing
from streammach.options.recipe import Recipe
from streammach.rows.arrays import csr_array
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.store.dataset import Dataset
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import BudgetError, DataError, UsageError, type_name
from streammach.system.jit import CODE_BYTES, compiler_bytes, remember_compiled_work
from streammach.system.linux import give_back, resident_bytes
from streammach.system.machine import advise_memory, cores, memory_limit, size_text

ROW_BYTES = 8 + 4 + 8 + 4  # of a row in its order: pointer, class, number, importance
FEATURE_BYTES = 4
LIST_BYTES, LABEL_BYTES = 8, 4 + 4  # of a row's list of labels, and of a label in it
SMALL = 1 << 20  # values that one thread takes in
COPIED_BYTES = 40  # of a value of a piece, and of a row, while they are brought into order
FIXED_BYTES = 8 << 20  # of tables of names, and of what calls leave behind
LIBRARY_BYTES = 100_000_000  # of pandas and Arrow (measured: 84 MB)
KIND = ("table in memory",)  # of work, by which compiled kernels are kept
PARTLY = "rows of a table have an importance by a column or by an array: weight, sample_weight"
MOST_EQUAL_ROWS, MOST_EQUAL_COLUMNS = 100, 10_000  # that are compared with one another
APART = "labels of an array have importances of an array, not of a column: weight, sample_weight"


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory with their labels, and how they become a data set."""

    rows: NamedMatrix  # the rows
    labels: Labels  # their labels
    # float32 (n,) or None: the importance of each row; None where all are 1
    weights: NDArray[np.float32] | None = None
    seed: int = 0  # decides the order of the rows
    # labels and features that have ids already; by falling frequency otherwise
    known: KnownNames | None = None
    recipe: Recipe | None = None  # how rows of a table became these
    # what was said of labels beside the rows
    label_facts: LabelFacts = field(default_factory=LabelFacts)
    libraries_bytes: int = 0  # the memory of libraries that the rows came by
    # what labels are called, by a column of a table
    named_labels: NamedLabels = field(default_factory=dict)
    skip: bool = False  # whether rows that cannot be read are left out
    # int64 (n,): which of the rows that were given these are; None where they are all
    numbers: NDArray[np.int64] | None = None

    @property
    def source(self) -> MemoryMatrices:
        """The rows as a source."""
        return matrix_source(self.rows, self.labels, self.weights)

    @property
    def label_kind(self) -> str:
        """The type that the labels had."""
        return self.labels.kind

    def _request(self, **more: Any) -> ConversionRequest:
        return ConversionRequest(
            asked=_options(self.seed, skip=self.skip), options=[SourceOptions(recipe=self.recipe)],
            known=replace(self.known or KnownNames(), named_labels=self.named_labels),
            n_threads=1 if self.rows.nnz <= SMALL else cores(), **more,
        )  # fmt: skip

    @property
    def _buffer_bytes(self) -> int:
        n, nnz = self.rows.shape[0], self.rows.nnz
        return int(RowBuffer(0, wide=True).bytes_of(n, nnz, n_labels=self.labels.n_labels))

    @property
    def code_bytes(self) -> int:
        """The memory of code before any row."""
        return CODE_BYTES + self.libraries_bytes

    @property
    def intake_bytes(self) -> int:
        """The memory that :meth:`to_dataset` takes at most, what it returns included."""
        n, nnz, n_labels = self.rows.shape[0], self.rows.nnz, self.labels.n_labels
        rows = ROW_BYTES * n + (FEATURE_BYTES + 4) * nnz
        if self.labels.lists is not None:
            rows += LIST_BYTES * n + LABEL_BYTES * n_labels
        threads = self._request().n_threads
        pieces = (2 * threads + 1) * self.source.reading_bytes().piece
        copied = min(nnz, PIECE_VALUES) + min(n, PIECE_ROWS)
        copies = AHEAD * threads * COPIED_BYTES * copied
        names = NAME_BYTES * (min(self.rows.shape[1], nnz) + (n_labels or n))
        return FIXED_BYTES + names + self._buffer_bytes + max(pieces, rows + copies)

    def view(self, dataset: Dataset) -> Dataset:
        """Return the rows with what was said of labels, or raise UsageError or DataError."""
        dataset = self.label_facts.view(dataset)
        dataset.given = self.numbers
        return dataset

    def to_dataset(self) -> Dataset:
        """Return the rows in their order, in memory, or raise DataError."""
        request = self._request(memory_bytes=self._buffer_bytes)
        outcome = Build([self.source], ConversionFolder(PLACE), request).run(resume=False)
        dataset = outcome.in_memory
        assert dataset is not None, "rows in memory"
        dataset.intake_bytes, dataset.libraries_bytes = self.intake_bytes, self.libraries_bytes
        give_back()  # rows that were on their way
        return dataset

    def write_store(self, folder: Path, memory: int) -> Dataset:
        """Write the rows into a store in a folder; return it, opened."""
        try:
            dataset = _write_store(folder, self.source, self._request(), memory - self.code_bytes)
        except BudgetError as error:
            enough = self.code_bytes + self.intake_bytes
            what = f"the rows do not fit {size_text(memory)}, nor does writing them into a store"
            hint = f"More than {advise_memory(enough)} hold them; a model takes more."
            raise BudgetError(what, path="memory", hint=hint) from error
        dataset.libraries_bytes = self.libraries_bytes
        return dataset


@dataclass(frozen=True)
class IteratorRows:
    """Rows of an iterator, which is gone through once: they are trained on in a store."""

    source: Source[Any]
    options: SourceOptions  # how they are read, with the recipe of tables
    seed: int = 0
    # what was said of labels beside the rows
    label_facts: LabelFacts = field(default_factory=LabelFacts)
    skip: bool = False  # whether rows that cannot be read are left out

    @property
    def label_kind(self) -> str:
        """The type that labels of pairs had, once they were read; empty: as a store says."""
        return self.source.label_kind if isinstance(self.source, MemoryMatrices) else ""

    @property
    def recipe(self) -> Recipe | None:
        """How rows of tables become features."""
        return self.options.recipe

    def write_store(self, folder: Path, memory: int) -> Dataset:
        """Write the rows into a store in a folder; return it, opened."""
        asked = _options(self.seed, skip=self.skip)
        request = ConversionRequest(asked=asked, options=[self.options], n_threads=cores())
        return _write_store(folder, self.source, request, memory - CODE_BYTES)

    def view(self, dataset: Dataset) -> Dataset:
        """Return the rows with what was said of labels, or raise UsageError or DataError."""
        return self.label_facts.view(dataset)


def iterator_rows(
    rows: Iterator[Any], name: str, labels: Any, options: TableOptions, *, skip: bool,
    more: Mapping[str, Any],
) -> IteratorRows:  # fmt: skip
    """Return rows of an iterator as a training takes them, or raise UsageError or DataError.

    `labels` names the column of tables, and is None for pairs; nothing of `more` may be given.
    """
    for option, value in more.items():
        if value is not None:
            what = f"the rows of a {name} bring it with them: {option}"
            hint = "Give pairs (X, y), or name a column of tables; or give list(rows)."
            raise UsageError(what, hint=hint)
    how = SourceOptions(table=replace(options, label=labels))
    source = iterator_source(rows, how, name)
    (how,) = agree_recipe([source], [how], None)
    return IteratorRows(source, how, skip=skip)


def merge_equal_rows(data: MemoryRows | IteratorRows) -> MemoryRows | IteratorRows:
    """Return rows of numbers of which few are one where they and their labels are equal.

    Then a row that is there twice is one of twice its weight, to the last bit: where some rows are
    equal, or all weights are whole numbers, the order in which they came does not count either.
    """
    if isinstance(data, IteratorRows):
        return data
    (n, d), labels = data.rows.shape, data.labels
    # Bins and weights of classes go by which rows there are.
    counted = data.recipe is not None or data.label_facts.weights is not None
    if n > MOST_EQUAL_ROWS or d > MOST_EQUAL_COLUMNS or counted or labels.lists is not None:
        return data
    if len(labels.codes) != n:  # which is refused where rows are taken in
        return data
    x = data.rows.matrix
    x = np.asarray(x.toarray() if data.rows.sparse else x, np.float64)
    if not np.isfinite(x).all():  # a row that cannot be read is told by its number
        return data
    _, codes = np.unique(np.array(labels.raws(labels.codes.tolist()), object), return_inverse=True)
    rows = np.column_stack([codes, x])
    _, kept, places = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    weights = np.ones(n) if data.weights is None else data.weights.astype(np.float64)
    whole = data.weights is not None and (weights == np.floor(weights)).all()
    if len(kept) == n and not whole:
        return data
    own = np.bincount(places.reshape(-1), weights).astype(np.float32)
    return replace(
        data, rows=take_rows(data.rows, kept),
        labels=replace(labels, codes=labels.codes[kept]),
        weights=None if (own == 1).all() else own,
        numbers=kept if data.numbers is None else data.numbers[kept],
    )  # fmt: skip


def _options(seed: int, *, skip: bool) -> ConvertOptions:
    bad_rows = BadRowOptions(on_bad_row="skip" if skip else "error")
    return ConvertOptions(seed=seed, bad_rows=bad_rows)


def _write_store(
    folder: Path, source: Source[Any], request: ConversionRequest, memory: int
) -> Dataset:
    """Write the rows of a source into a store, with so many bytes more; return it, opened."""
    most = min(resident_bytes() + max(memory, 0), memory_limit().n_bytes)
    rows = ConversionFolder(folder / "rows")
    rows.prepare(b"{}")
    request = replace(request, asked=replace(request.asked, memory=most))
    Build([source], rows, request).run(resume=False)
    give_back()
    return Dataset.open(rows.store)


def collect_rows(
    rows: Any, labels: Any, weights: Any = None, *, columns: Any = None,
    options: TableOptions | None = None, bad_rows: BadRows | None = None,
    recipe: Recipe | None = None,
) -> MemoryRows:  # fmt: skip
    """Return rows in memory with their labels, checked, as a training takes them.

    Rows are those that :func:`streammach.inputs.tables.memory_objects.as_rows` knows; labels are
    array (n,), n lists, matrix (n, labels), or the name of a column. A `recipe` reads a table as
    another one was read.
    """
    options, bad_rows = options or TableOptions(), bad_rows or BadRows()
    rows, labels = rows_and_labels(rows, labels)
    rows, labels, weights, kept = drop_weightless(rows, labels, weights)
    if columns is not None or not (recipe or is_recipe_table(rows, labels, options)):
        if options != TableOptions() or isinstance(labels, str):
            what = f"only a table has columns to name, no {type_name(rows)}: a DataFrame, or a list"
            what += " of dicts or strings"
            raise UsageError(what)
        matrix = to_matrix(rows, columns)
        own, skip = to_labels(labels, strict=not bad_rows.skip), bad_rows.skip
        return MemoryRows(
            matrix, own, to_weights(weights, matrix.shape[0]), skip=skip, numbers=kept
        )
    table = _table(rows, labels, weights, options, bad_rows, recipe)
    if kept is None:
        return table
    return replace(table, numbers=kept if table.numbers is None else kept[table.numbers])


def _table(
    rows: Any, labels: Any, weights: Any, options: TableOptions, bad_rows: BadRows,
    recipe: Recipe | None,
) -> MemoryRows:  # fmt: skip
    """Read a table by its recipe, as a conversion does."""
    by_column = isinstance(labels, str)
    if options.weight is not None and not by_column:
        raise UsageError(APART)
    if by_column:
        if isinstance(rows, list) and isinstance(rows[0], str):
            raise UsageError("strings have no columns: the labels are an array of their own")
        options = replace(options, label=labels)
        recipe = recipe and msgspec.structs.replace(recipe, label=labels)
    how = SourceOptions(table=options, multilabel="auto" if by_column else "off", recipe=recipe)
    table = MemorySource(rows, how, labelled=by_column)
    recipe, vocabulary, compiling = table.recipe, Vocabulary(), compiler_bytes(*KIND)
    block = table.block(vocabulary, label_needed=by_column, bad_rows=bad_rows)
    remember_compiled_work(*KIND)
    if bad_rows.total:
        assert block.numbers is not None, "rows of a table"
        labels, weights = (take_rows(one, block.numbers) for one in (labels, weights))
    if recipe.weight is not None and weights is not None:
        raise UsageError(PARTLY)
    own = block.importance if recipe.weight is not None else weights
    matrix = _matrix(block, vocabulary)
    assert matrix.names is not None, "names of features"
    if by_column:
        own_labels = _labels(block, vocabulary, table)
    else:
        own_labels = name_as_cells(to_labels(labels), recipe)
    return MemoryRows(
        matrix, own_labels, to_weights(own, block.n_rows), recipe=recipe,
        numbers=block.numbers if bad_rows.total else None, named_labels=table.named_labels,
        libraries_bytes=LIBRARY_BYTES + compiling + matrix.n_bytes + 3 * matrix.names.n_bytes,
    )  # fmt: skip


def _matrix(block: RowBlock, vocabulary: Vocabulary) -> NamedMatrix:
    if not block.nnz:
        raise DataError("no row has a feature")
    shape = (block.n_rows, vocabulary.n_features)
    matrix = csr_array((block.values, block.features, block.indptr), shape=shape)
    matrix.sum_duplicates()
    return NamedMatrix(matrix, vocabulary.feature_names(), spaced=True)


def _labels(block: RowBlock, vocabulary: Vocabulary, table: MemorySource) -> Labels:
    names = vocabulary.label_names()
    raws = [names.raw(i) for i in range(len(names))]
    kind = _kind(table, raws)
    if block.labels is not None:
        return Labels.of_lists(block.labels.sort(), raws, kind)
    return Labels(block.classes.astype(np.int64), raws, kind=kind)


def _kind(table: MemorySource, raws: list[bytes]) -> str:
    """Return the type of the labels in a column, by its first cells and the names of all."""
    assert table.recipe.label is not None, "labels are in a column"
    cells = next(iter(table.first_rows())).values(table.recipe.label)
    rows = [cell if isinstance(cell, Listed) else (cell,) for cell in cells]
    flat = [label for row in rows for label in row if not is_missing(label)]
    kind = to_own_type(np.fromiter(flat, object, len(flat)))[1]
    if kind == "bool" and {*raws} <= {TRUE, FALSE}:
        return kind
    sign = b"" if kind == "uint" else b"-"
    whole = all(raw.removeprefix(sign).isdigit() for raw in raws)
    if not whole or any(isinstance(label, str | bytes) for label in flat):
        return "str"
    return kind if kind in ("uint", "float") else "int"
