"""What is known of a store before its rows are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streammach.options.types import Count, Index, Size

HEADS = (0.7, 0.8, 0.9, 0.95, 0.98)  # shares of all values that the first features make up


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What a plan needs to know of a store."""

    path: str  # the store, as the user named it
    digest: str  # SHA-256 of its manifest: its content
    n_rows: Size  # n_rows, n_classes, n_features, nnz: its shape
    n_classes: Index
    n_features: Index
    nnz: Count
    n_pairs: Count  # about how many distinct (feature, class) pairs its rows hold, to 1%
    max_row_nnz: Count  # values of its longest row
    # block_rows, max_block_nnz: rows of a block, the unit of reading, and the most values that one
    # has
    block_rows: Size
    max_block_nnz: Count
    value_bytes: Size  # bytes of a stored value: 1 or 4
    weighted: bool  # whether rows have importance weights
    names_bytes: Count  # bytes of all label and feature names with their offsets
    label_name_bytes: Count = 0  # bytes of what labels are called, with offsets; 0 where not said
    row_postings: Count = 0  # about how many pairs the features of a row have together, on average
    # n_labels, max_row_labels, max_block_labels: where rows have lists of labels: those of all
    # rows, and the most of a row and of a block; 0 where each has one
    n_labels: Count = 0
    max_row_labels: Count = 0
    max_block_labels: Count = 0
    held_bytes: Count = 0  # bytes of the rows where they are in memory; 0 where they are in a store
    intake_bytes: Count = 0  # the memory that it took to bring them there, those bytes included
    # the memory of libraries that the rows came by; 0 where these are not known
    libraries_bytes: Count = 0
    # how many of the most frequent features make up each of HEADS; none where that is not known
    heads: tuple[Index, ...] = ()
    # how many of the first features every row has, beside others, in eights: those of an embedding
    # beside text. They tell by their values alone
    shared: Count = 0

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels."""
        return self.n_labels > 0

    @property
    def labels(self) -> tuple[int, int]:
        """Labels of all rows, and the most of a row, where rows have lists of them; else zeros."""
        return self.n_labels, self.max_row_labels

    @property
    def density(self) -> float:
        """Share of the features that a row holds on average."""
        return self.nnz / (self.n_rows * self.n_features)

    @property
    def whole(self) -> bool:
        """Whether every row has all features."""
        d = self.n_features
        return self.nnz == self.n_rows * d and self.max_row_nnz == d

    def share(self, n_features: int) -> float:
        """Return about what share of all values the first features make up."""
        known = np.log([1, *self.heads, self.n_features])
        return float(np.interp(math.log(n_features), known, [0.0, *HEADS[: len(known) - 2], 1.0]))
