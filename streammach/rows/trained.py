"""What a model or a store remembers of the columns of the matrix that it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TrainedColumns:
    """The columns of the matrix that was trained on, by which others are read.

    Attributes
    ----------
    n_columns : int
        How many, those without a value too; 0 where rows came from no matrix, or from some whose
        columns had other names or places.
    positions : int32 (d,) or None
        The column of each feature, -1 where it has none; None where columns had no names, and
        features are named by their numbers.
    """

    n_columns: int = 0
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

    def remark(self, ids: NDArray[np.int32]) -> str | None:
        """Return how columns that are told by name differ from those trained on, or None.

        Parameters
        ----------
        ids : int32 (columns,)
            The feature of each column by its name, -1 where there is none.
        """
        known = np.flatnonzero(ids >= 0)
        said = []
        if self.n_columns and len(ids) != self.n_columns:
            said.append(f"{len(ids):,} columns where {self.n_columns:,} were trained on")
        if self.positions is not None:
            places = self.positions[ids[known]]
            if not said and np.array_equal(places, known):
                return None  # the others are those that had no value in training
            if (np.diff(places) <= 0).any():
                said.append("columns in another order than in training")
        if len(known) < len(ids):
            said.append(f"{len(ids) - len(known):,} columns with names that no feature has")
        return f"{', '.join(said)}; they are told by their names" if said else None

    def difference(self, n_columns: int) -> str | None:
        """Return how a matrix without names of columns differs in width, or None."""
        if self.n_columns in (0, n_columns):
            return None
        return f"the matrix has {n_columns:,} columns, {self.n_columns:,} were trained on"


NO_COLUMNS = TrainedColumns()
