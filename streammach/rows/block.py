"""Rows in memory: compressed sparse rows with class ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.texts import Texts

Values = NDArray[np.uint8] | NDArray[np.float32]
Places = slice | NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RowBlock:
    """Some rows: features and values of each, its class, its importance.

    Attributes
    ----------
    indptr : int64 (n + 1,)
        Row i's values lie in ``indptr[i]:indptr[i + 1]``; the first entry is 0.
    features : int32 (nnz,)
        Feature ids.
    values : uint8 or float32 (nnz,)
        Their values.
    classes : int32 (n,)
        Class ids; -1 where the class is unknown.
    importance : float32 (n,) or None
        Importance of each row; None where all are 1.
    places : int64 (n,) or None
        Where each row stood in its source: a byte of the text, or a row of the matrix; None where
        that is not known.
    numbers : int64 (n,) or None
        Number of each row among those of its source, from 0; None where that is not known.
    tags : Texts or None
        The tag of each row, empty where it has none; None where no row has one.
    """

    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    values: Values
    classes: NDArray[np.int32]
    importance: NDArray[np.float32] | None = None
    places: NDArray[np.int64] | None = None
    numbers: NDArray[np.int64] | None = None
    tags: Texts | None = None

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
        tags = None if self.tags is None else self.tags.part(start, stop)
        indptr = self.indptr[start : stop + 1] - a
        return self._rows(indptr, slice(a, b), slice(start, stop), tags)

    def numbered(self, before: int) -> RowBlock:
        """Return the rows with numbers that are so much larger."""
        assert self.numbers is not None
        return replace(self, numbers=self.numbers + before)

    def take(self, chosen: NDArray[np.int64]) -> RowBlock:
        """Return copies of the chosen rows, in that order."""
        lengths = np.diff(self.indptr)[chosen]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        values = np.repeat(self.indptr[chosen] - indptr[:-1], lengths) + np.arange(int(indptr[-1]))
        tags = None if self.tags is None else self.tags.take(chosen)
        return self._rows(indptr, values, chosen, tags)

    def with_values(self, kept: NDArray[np.bool_]) -> RowBlock:
        """Return the rows with those of their values for which `kept` bool (nnz,) is True."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return replace(
            self, indptr=before[self.indptr], features=self.features[kept],
            values=self.values[kept],
        )  # fmt: skip

    def _rows(
        self, indptr: NDArray[np.int64], values: Places, rows: Places, tags: Texts | None
    ) -> RowBlock:
        def of(array: Any) -> Any:
            return None if array is None else array[rows]

        return RowBlock(
            indptr=indptr, features=self.features[values], values=self.values[values],
            classes=self.classes[rows], importance=of(self.importance), places=of(self.places),
            numbers=of(self.numbers), tags=tags,
        )  # fmt: skip

    @classmethod
    def concat(cls, parts: Sequence[RowBlock]) -> RowBlock:
        """Return the rows of all parts, one after the other; none have float32 values."""
        # Importance, places and numbers are kept where all parts have them; tags are not.

        def joined(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            return None if any(a is None for a in arrays) else np.concatenate(arrays)

        if not parts:
            nothing = np.zeros(0, np.int32)
            return cls(
                indptr=np.zeros(1, np.int64), features=nothing, values=np.zeros(0, np.float32),
                classes=nothing,
            )  # fmt: skip
        starts = np.cumsum([0, *(part.nnz for part in parts[:-1])])
        ends = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=True)]
        names = ("features", "values", "classes", "importance", "places", "numbers")
        return cls(indptr=np.concatenate([[0], *ends]), **{name: joined(name) for name in names})


def evenly(n: int, some: int) -> NDArray[np.int64]:
    """Return `some` numbers below n at even distances: int64 (some,)."""
    return np.arange(some, dtype=np.int64) * n // max(some, 1)
