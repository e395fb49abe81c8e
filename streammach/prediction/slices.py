"""Where a model is right by the values of a namespace: which rows it serves, and which it fails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError, clean
from streammach.prediction.sums import BlockSums, Figures, IdCounts
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, Names, in_namespace, namespaces

FREQUENT, WORST = 10, 5  # values that are told of
LEAST_ROWS = 20  # of a value that may be among the worst


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The rows that have a value."""

    # the feature without its namespace; empty for rows that have none which the model knows
    value: str
    n_rows: int  # rows
    # accuracy, error: share of them whose best class is their label, and its standard error
    accuracy: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Rows by the first feature that they have of a namespace."""

    by: str  # the namespace, or the column of a table
    n_values: int  # values that occur
    without: Slice | None  # rows without any value that the model knows; None where all have one
    frequent: tuple[Slice, ...]  # the ten most frequent values
    # the five values of the lowest accuracy, of those with 20 rows or more
    worst: tuple[Slice, ...]


class SliceSums(Figures):
    """Adds up rows and right ones by value, block by block."""

    def __init__(self, features: Names, by: str) -> None:
        self._features, self._by = features, by
        self._own = np.flatnonzero(in_namespace(features, by.encode())).astype(np.int32)
        if not len(self._own):
            known = ", ".join(namespaces(features)) or "none"
            raise UsageError(
                f"no feature of the model is in the namespace {clean(by)}: --by",
                hint=f"There are: {known}.",
            )
        n = len(self._own) + 1  # the last one stands for rows without any
        super().__init__(there=np.zeros(n, np.int64), right=np.zeros(n, np.int64))

    def block_sums(self, block: RowBlock, right: NDArray[np.bool_]) -> BlockSums:
        """Return how many rows there are by value, and of how many the best class is right."""
        places = np.searchsorted(self._own, block.features)
        places = np.minimum(places, len(self._own) - 1)
        own = np.flatnonzero(self._own[places] == block.features)
        rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))[own]
        with_one, first = np.unique(rows, return_index=True)
        group = np.full(block.n_rows, len(self._own))
        group[with_one] = places[own[first]]
        return {"there": IdCounts.of(group), "right": IdCounts.of(group[right])}

    def result(self) -> Slices:
        """Return the rows by value."""
        there, right = self.sums["there"][:-1], self.sums["right"][:-1]
        some = np.flatnonzero(there)
        frequent = some[np.lexsort((some, -there[some]))][:FREQUENT]
        many = some[there[some] >= LEAST_ROWS]
        shares = right[many] / there[many]
        worst = many[np.lexsort((many, -there[many], shares))][:WORST]
        return Slices(
            by=self._by, n_values=len(some),
            without=self._slice(-1) if self.sums["there"][-1] else None,
            frequent=tuple(map(self._slice, frequent.tolist())),
            worst=tuple(map(self._slice, worst.tolist())),
        )  # fmt: skip

    def _slice(self, place: int) -> Slice:
        n, right = int(self.sums["there"][place]), int(self.sums["right"][place])
        share = right / n
        name = self._features.raw(int(self._own[place])) if place >= 0 else b""
        value = name.partition(bytes([SEPARATOR]))[2].decode("utf-8", "replace")
        return Slice(value=value, n_rows=n, accuracy=share, error=(share * (1 - share) / n) ** 0.5)
