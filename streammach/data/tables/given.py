"""Tells rows that are read by a recipe from matrices and names of features."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.data.source_options import TableOptions
from streammach.data.tables.memory import is_table


def as_rows(rows: Any) -> Any:
    """Return rows as they are, or as a list where they are a column of strings or of dicts."""
    if getattr(rows, "ndim", 0) == 1 and hasattr(rows, "tolist"):
        found = rows.tolist()
        if found and isinstance(found[0], str | dict) and not any(map(_is_value, found)):
            return found
    return rows


def _is_value(cell: object) -> bool:
    """Return whether an object is a number, so that others beside it are cells of one row."""
    return isinstance(cell, int | float | np.number) and not np.isnan(cell)


def is_recipe_table(rows: Any, labels: Any, options: TableOptions) -> bool:
    """Return whether rows are read by a recipe and not as a matrix of numbers.

    So are strings, and tables of which more was said than their numbers: where labels are one of
    the columns, a role was named, or a column is not of numbers. Dicts without any of that are
    features by name.
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
