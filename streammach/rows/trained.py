"""What a model or a store remembers of the columns of the matrix that it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DataError, clean
from streammach.rows.names import Names


@dataclass(frozen=True)
class TrainedColumns:
    """The columns of the matrix that was trained on, by which others are read."""

    # how many, those without a value too; 0 where rows came from no matrix, or from some whose
    # columns had other names or places
    n_columns: int = 0
    # int32 (d,) or None: the column of each feature, -1 where it has none; None where columns had
    # no names, and features are named by their numbers
    positions: NDArray[np.int32] | None = None

    def ids(self) -> NDArray[np.int32] | None:
        """Return the feature of each column, -1 where it has none: int32 (n_columns,).

        None where features are named by the numbers of their columns.
        """
        if self.positions is None:
            return None
        ids = np.full(self.n_columns, -1, np.int32)
        known = np.flatnonzero(self.positions >= 0)
        ids[self.positions[known]] = known
        return ids

    def of(self, features: NDArray[np.int64]) -> TrainedColumns:
        """Return them for some of the features, whose ids are then their places among these."""
        if self.positions is None:
            return self
        return TrainedColumns(self.n_columns, self.positions[features])

    def remark(self, ids: NDArray[np.int32], given: Names, features: Names) -> str | None:
        """Return what columns that are told by name lack, or have beyond those trained on, or None.

        `ids` is int32 (columns,).
        """
        known = np.sort(ids[ids >= 0])
        if not len(known):
            hint = f"The model knows {_some(features, np.arange(len(features)))}."
            raise DataError("no column has the name of a feature of the model: columns", hint=hint)
        twice = known[1:][np.diff(known) == 0]
        if len(twice):
            what = f"two columns have the name of one feature: {_some(features, twice[:1])}"
            raise DataError(what)
        said, unknown = [], np.flatnonzero(ids < 0)
        if self.n_columns:
            trained = np.arange(len(features)) if self.positions is None else self.positions
            lost = np.setdiff1d(np.flatnonzero(trained >= 0), known)
            if len(lost):
                said.append(f"{_some(features, lost)} not there, which counts as 0 in all rows")
        if len(unknown) > max(0, self.n_columns - len(features)):  # these had no value in training
            said.append(f"{_some(given, unknown)} with a name that no feature has, not used")
        return "; ".join(said) or None

    def difference(self, n_columns: int) -> str | None:
        """Return how a matrix without names of columns differs in width, or None."""
        if self.n_columns in (0, n_columns):
            return None
        return f"the matrix has {n_columns:,} columns, {self.n_columns:,} were trained on"


def _some(names: Names, places: NDArray[np.int64]) -> str:
    """Return some columns by their names."""
    first = ", ".join(clean(names.raw(i), 40) for i in places[:8].tolist())
    more = f" and {len(places) - 8:,} more" if len(places) > 8 else ""
    return f"column{'' if len(places) == 1 else 's'} {first}{more}"


NO_COLUMNS = TrainedColumns()
