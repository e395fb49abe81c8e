"""Rows in memory: compressed sparse rows with class ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.uint8] | NDArray[np.float32]


@dataclass(frozen=True)
class RowBlock:
    """Some rows: features and values of each, its class, its weight.

    Attributes
    ----------
    indptr : int64 (n + 1,)
        Row i's values lie in ``indptr[i]:indptr[i + 1]``; the first entry is 0.
    features : int32 (nnz,)
        Feature ids.
    values : uint8 or float32 (nnz,)
        Their values.
    labels : int32 (n,)
        Class ids; -1 where the class is unknown.
    weights : float32 (n,) or None
        Importance of each row; None where all are 1.
    places : int64 (n,) or None
        Where each row stood in its source; None where that is not known.
    """

    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    values: Values
    labels: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None
    places: NDArray[np.int64] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        return int(self.indptr[-1])

    def part(self, start: int, stop: int) -> RowBlock:
        """Return rows ``start:stop`` as views, with their own row pointers."""
        a, b = int(self.indptr[start]), int(self.indptr[stop])
        return RowBlock(
            self.indptr[start : stop + 1] - a,
            self.features[a:b],
            self.values[a:b],
            self.labels[start:stop],
            None if self.weights is None else self.weights[start:stop],
            None if self.places is None else self.places[start:stop],
        )
