"""What a store says of its rows as a whole: sums over rows, counted as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.distinct import PairSketch

MAX_BLOCK_ROWS = 1 << 18  # that are read together, however few values they have
BLOCK_VALUES = 1 << 20  # of a block, the unit in which rows are read


def block_rows(n_rows: int, nnz: int) -> int:
    """Return the rows of a block of a store."""
    return min(max(1, BLOCK_VALUES * n_rows // nnz), MAX_BLOCK_ROWS)


@dataclass(frozen=True)
class RowImportance:
    """What rows count as in sums over them."""

    # the importance of one row: 1, or the mean importance of what the importances add up to (`sum
    # w^2 / sum w`) where that is smaller, so that importances may be shares of 1
    unit: float
    labels: NDArray[Any]  # int64 or float64 (K,): the rows of each class, in such units


class Occurrences:
    """How many rows hold each feature and each label."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        # int64 (d,) and (K,)
        self.features, self.labels = np.zeros(n_features, np.int64), np.zeros(n_classes, np.int64)

    def add(self, rows: RowBlock) -> None:
        """Count those of rows."""
        self.features += np.bincount(rows.features, minlength=len(self.features))
        self.labels += np.bincount(rows.lists.classes, minlength=len(self.labels))


class RowTotals:
    """What the root of a store says of rows, which come in their order, and of their blocks."""

    def __init__(self, block_rows: int) -> None:
        self.block_rows = block_rows  # rows of a block
        self.pairs = PairSketch()  # their pairs, which the caller adds
        self.n_rows, self._listed = 0, False
        # values and labels of each block, the last of which may not be full, and the most of a row
        self._sums: tuple[list[int], list[int]] = [], []
        self._most = [0, 0]

    def add(self, rows: RowBlock) -> None:
        """Count the next rows."""
        blocks = (self.n_rows + np.arange(rows.n_rows)) // self.block_rows
        self.n_rows += rows.n_rows
        self._add(0, blocks, np.diff(rows.indptr))
        if rows.labels is not None:
            self._listed = True
            self._add(1, blocks, rows.labels.lengths)

    def _add(self, kind: int, blocks: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        sums, first = self._sums[kind], int(blocks[0])
        sums.extend([0] * (int(blocks[-1]) + 1 - len(sums)))
        for block, n in enumerate(np.bincount(blocks - first, weights=lengths), first):
            sums[block] += int(n)
        self._most[kind] = max(self._most[kind], int(lengths.max()))

    def facts(self) -> dict[str, int]:
        """Return them by their names in the root."""
        (values, labels), nnz = self._sums, sum(self._sums[0])
        longest_list = max(self._most[1], int(self._listed))
        return {
            "rows": self.n_rows, "block_rows": self.block_rows,
            "nnz": nnz, "max_row_nnz": self._most[0], "max_block_nnz": max(values, default=0),
            "labels": sum(labels), "max_row_labels": longest_list,
            "max_block_labels": max([longest_list, *labels]),
            "pairs": min(self.pairs.estimate(), nnz * max(1, longest_list)),
        }  # fmt: skip
