"""Tables in memory as rows to train on: a matrix with named columns, labels, and the recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streammach.data.given import Given, given_rows, given_weights
from streammach.data.given_labels import GivenLabels, given_labels
from streammach.data.label_sets import LabelSets
from streammach.data.source_options import TableOptions
from streammach.data.tables.memory import columns_of, is_table, recipe_of_table, rows_of_table
from streammach.errors import DataError, UsageError, clean
from streammach.jit import compiler_bytes, keep_compiled
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Recipe

LIBRARY_BYTES = 100_000_000  # of pandas and Arrow (measured: 84 MB)
KIND = ("table in memory",)  # of work, by which compiled kernels are kept
PARTLY = "rows of a table have an importance by a column or by an array: weight, sample_weight"


@dataclass(frozen=True)
class NamedSets(LabelSets):
    """The labels of each row, by names.

    Attributes
    ----------
    names : list of bytes
        The name of each label.
    """

    names: list[bytes]

    def raws(self, numbers: list[int]) -> list[bytes]:
        """Return the names of labels by their numbers."""
        return [self.names[number] for number in numbers]


@dataclass(frozen=True)
class LabelledTable:
    """What was given to train on.

    Attributes
    ----------
    rows : Given
        The rows.
    labels : GivenLabels
        Their labels.
    weights : float32 (n,) or None
        Their importance; None where all are 1.
    recipe : Recipe or None
        How the rows of a table became features; None for a matrix.
    compiler_bytes : int
        What compiling the kernels that read them took, where they were not kept.
    """

    rows: Given
    labels: GivenLabels
    weights: NDArray[np.float32] | None = None
    recipe: Recipe | None = None
    compiler_bytes: int = 0

    @property
    def n_bytes(self) -> int:
        """What reading them took beside what was given: libraries, and a matrix with its names."""
        if self.recipe is None:
            return 0
        names = self.rows.names
        libraries = LIBRARY_BYTES + self.compiler_bytes
        return libraries + self.rows.n_bytes + (0 if names is None else 3 * names.n_bytes)


def given(
    rows: Any, labels: Any, weights: Any = None, *, columns: Any = None,
    options: TableOptions | None = None,
) -> LabelledTable:  # fmt: skip
    """Return what people gave to train on: the one place that tells what it is.

    Parameters
    ----------
    rows : matrix, array (n, columns), DataFrame, Arrow table, list of dicts or of strings
        The rows; see :func:`is_recipe_table`.
    labels : array (n,), matrix (n, labels), or str
        The labels; a string is the column of a table that holds them.
    weights : array (n,), optional
        The importance of each row.
    columns : sequence, optional
        A name for each column of a matrix.
    options : TableOptions, optional
        What is said of the columns of a table.

    Raises
    ------
    UsageError, DataError
        If rows or labels are none, or do not fit each other.
    """
    options, rows = options or TableOptions(), as_rows(rows)
    if columns is not None or not is_recipe_table(rows, labels, options):
        if options != TableOptions() or isinstance(labels, str):
            what = "only a table has columns to name: a DataFrame, or a list of dicts or strings"
            raise UsageError(what)
        found = given_rows(rows, columns)
        return LabelledTable(found, given_labels(labels), given_weights(weights, found.n_rows))
    return _table(rows, labels, weights, options)


def as_rows(rows: Any) -> Any:
    """Return rows as they are, or as a list where they are a column of strings or of dicts."""
    if getattr(rows, "ndim", 0) == 1 and hasattr(rows, "tolist"):
        found = rows.tolist()
        if found and isinstance(found[0], str | dict):
            return found
    return rows


def is_recipe_table(rows: Any, labels: Any, options: TableOptions) -> bool:
    """Return whether rows are read by a recipe and not as a matrix of numbers.

    So are strings, and tables of which more was said than their numbers: where labels are one of
    the columns, a role was named, or a column is not of numbers. Dicts without any of that are
    features by name.

    Parameters
    ----------
    rows : any
        The rows.
    labels : any
        Their labels; a string is the column that holds them.
    options : TableOptions
        What is said of the columns.
    """
    if not is_table(rows):
        return False
    if isinstance(labels, str) or options != TableOptions():
        return True
    if isinstance(rows, list | tuple):
        return isinstance(rows[0], str)
    return not _all_numbers(rows)


def _all_numbers(frame: Any) -> bool:
    """Return whether all columns of a frame hold numbers."""
    if hasattr(frame, "to_numpy") and hasattr(frame, "dtypes"):
        kinds = [str(getattr(dtype, "kind", "")) for dtype in frame.dtypes]
        if all(kinds):
            return all(kind in "biuf" for kind in kinds)
        return all(hasattr(dtype, "is_numeric") and dtype.is_numeric() for dtype in frame.dtypes)
    return False


def _table(rows: Any, labels: Any, weights: Any, options: TableOptions) -> LabelledTable:
    """Read a table by its recipe, as a conversion does."""
    if isinstance(labels, str):
        if isinstance(rows, list | tuple) and isinstance(rows[0], str):
            raise UsageError("strings have no columns: the labels are an array of their own")
        there = columns_of(rows)
        if labels not in there:
            some = ", ".join(clean(name, 40) for name in there[:8])
            what = f"there is no column '{clean(labels, 40)}', but {some}"
            raise UsageError(what, hint="Give labels as an array, or name their column.")
        options = replace(options, label=labels)
    recipe = recipe_of_table(rows, options)
    if not isinstance(labels, str):
        ignored = recipe.ignored if recipe.label is None else (*recipe.ignored, recipe.label)
        recipe = replaced(recipe, label=None, ignored=ignored)
    vocabulary, compiling = Vocabulary(), compiler_bytes(*KIND)
    multilabel: Any = "auto" if recipe.label is not None else "off"
    block = rows_of_table(
        rows, recipe, vocabulary, label_needed=recipe.label is not None, multilabel=multilabel
    )
    keep_compiled(*KIND)
    if recipe.weight is not None and weights is not None:
        raise UsageError(PARTLY)
    own = block.importance if recipe.weight is not None else weights
    return LabelledTable(
        _matrix(block, vocabulary),
        given_labels(labels) if recipe.label is None else _labels(block, vocabulary),
        given_weights(own, block.n_rows), recipe, compiling,
    )  # fmt: skip


def replaced(recipe: Recipe, **changes: Any) -> Recipe:
    """Return a recipe with other fields."""
    fields = {name: getattr(recipe, name) for name in recipe.__struct_fields__}
    return Recipe(**{**fields, **changes})


def _matrix(block: RowBlock, vocabulary: Vocabulary) -> Given:
    """Return rows as a matrix whose columns are features by name."""
    if not block.nnz:
        raise DataError("no row has a feature")
    shape = (block.n_rows, vocabulary.n_features)
    matrix = scipy.sparse.csr_array((block.values, block.features, block.indptr), shape=shape)
    matrix.sum_duplicates()
    return Given(matrix, vocabulary.feature_names(), spaced=True)


def _labels(block: RowBlock, vocabulary: Vocabulary) -> GivenLabels:
    """Return the labels of rows, which are names in a vocabulary."""
    names = vocabulary.label_names()
    raws = [names.raw(i) for i in range(len(names))]
    kind = "int" if names.kind == "integer" else "str"
    if block.labels is not None:
        return GivenLabels(NamedSets(block.labels.sorted(), raws), kind)
    known = np.empty(len(raws), object)
    known[:] = [raw.decode("utf-8", "surrogateescape") for raw in raws]
    return GivenLabels(given_labels(known[block.classes]).labels, kind)
