"""What people give to train on: matrices, tables and text, with their labels and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streammach.data.bad_rows import BadRows
from streammach.data.given import Given, given_rows, given_weights, without_weightless
from streammach.data.given_labels import GivenLabels, given_labels, listed
from streammach.data.label_sets import NamedSets
from streammach.data.memory import Labelled
from streammach.data.source_options import TableOptions
from streammach.data.tables.given import as_rows, is_recipe_table
from streammach.data.tables.memory import columns_of, recipe_of_table, rows_of_table
from streammach.errors import DataError, UsageError, clean
from streammach.jit import compiler_bytes, keep_compiled
from streammach.rows.block import RowBlock
from streammach.rows.sparse import csr_array, is_sparse
from streammach.rows.vocabulary import Vocabulary

LIBRARY_BYTES = 100_000_000  # of pandas and Arrow (measured: 84 MB)
KIND = ("table in memory",)  # of work, by which compiled kernels are kept
PARTLY = "rows of a table have an importance by a column or by an array: weight, sample_weight"
APART = "labels of an array have importances of an array, not of a column: weight, sample_weight"


def given(
    rows: Any, labels: Any, weights: Any = None, *, columns: Any = None,
    options: TableOptions | None = None, bad_rows: BadRows | None = None,
) -> Labelled:  # fmt: skip
    """Return what people gave to train on: the one place that tells what it is.

    `rows` is matrix, array (n, columns), DataFrame, Arrow table, list of dicts or of strings,
    `labels` is array (n,), n lists, matrix (n, labels), or str, `weights` is array (n,).
    """
    options, rows, bad_rows = options or TableOptions(), as_rows(rows), bad_rows or BadRows()
    if weights is not None and (np.asarray(weights) == 0).any():
        rows, labels, weights = without_weightless(rows, labels, weights)
    if columns is not None or not is_recipe_table(rows, labels, options):
        if options != TableOptions() or isinstance(labels, str):
            what = "only a table has columns to name: a DataFrame, or a list of dicts or strings"
            raise UsageError(what)
        found = given_rows(rows, columns)
        own, skip = given_labels(labels, strict=not bad_rows.skip), bad_rows.skip
        return Labelled(found, own, given_weights(weights, found.n_rows), skip=skip)
    return _table(rows, labels, weights, options, bad_rows)


def _table(
    rows: Any, labels: Any, weights: Any, options: TableOptions, bad_rows: BadRows
) -> Labelled:
    """Read a table by its recipe, as a conversion does."""
    by_column = isinstance(labels, str)
    if options.weight is not None and not by_column:
        raise UsageError(APART)
    if by_column:
        _check_column(rows, labels)
        options = replace(options, label=labels)
    recipe = recipe_of_table(rows, options, labelled=by_column)
    vocabulary, compiling = Vocabulary(), compiler_bytes(*KIND)
    multilabel: Any = "auto" if by_column else "off"
    block = rows_of_table(
        rows, recipe, vocabulary, label_needed=by_column, multilabel=multilabel, bad_rows=bad_rows
    )
    keep_compiled(*KIND)
    if bad_rows.total:
        labels = labels if by_column else _some(labels, block.numbers)
        weights = None if weights is None else _some(weights, block.numbers)
    if recipe.weight is not None and weights is not None:
        raise UsageError(PARTLY)
    own = block.importance if recipe.weight is not None else weights
    found = _matrix(block, vocabulary)
    assert found.names is not None, "names of features"
    return Labelled(
        found, _labels(block, vocabulary) if by_column else given_labels(labels),
        given_weights(own, block.n_rows), recipe=recipe,
        libraries_bytes=LIBRARY_BYTES + compiling + found.n_bytes + 3 * found.names.n_bytes,
    )  # fmt: skip


def _some(values: Any, rows: Any) -> Any:
    """Return the labels, or the importances, of some rows."""
    lists = listed(values)
    if lists is not None:
        return [lists[row] for row in rows]
    return values.tocsr()[rows] if is_sparse(values) else np.asarray(values)[rows]


def _check_column(rows: Any, label: str) -> None:
    """Raise UsageError if rows have no column of labels of this name."""
    if isinstance(rows, list | tuple) and isinstance(rows[0], str):
        raise UsageError("strings have no columns: the labels are an array of their own")
    there = columns_of(rows)
    if label not in there:
        some = ", ".join(clean(name, 40) for name in there[:8])
        what = f"there is no column '{clean(label, 40)}', but {some}"
        raise UsageError(what, hint="Give labels as an array, or name their column.")


def _matrix(block: RowBlock, vocabulary: Vocabulary) -> Given:
    """Return rows as a matrix whose columns are features by name."""
    if not block.nnz:
        raise DataError("no row has a feature")
    shape = (block.n_rows, vocabulary.n_features)
    matrix = csr_array((block.values, block.features, block.indptr), shape=shape)
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
