"""Training rows that stand beside counts: a row that is like one of them may have its labels.

How alike two rows are is the cosine of their rarer features, each worth ``idf_f = ln(n / n_f)``,
where n_f of n rows have it; frequent features say little, and have long lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.layouts import ArrayLayout, ArrayTable, are_lists, ends
from streammach.system.jit import Array, Number, kernel

SHARE, MOST_ROWS = 20, 8192  # a feature is rare if a 20th of the rows or fewer have it, so many
# What a feature, a row, and a value or label of one take, with what makes them.
FEATURE_BYTES, ROW_BYTES, VALUE_BYTES = 24, 24, 4
Blocks = Callable[[], Iterable[tuple[RowBlock, NDArray[np.bool_]]]]  # rows; which are held out


@dataclass(frozen=True, kw_only=True)
class Neighbours(ArrayTable):
    """n training rows by their Z rare features, and their labels."""

    # int64 (d + 1,): the rows with feature f lie in `rows[starts[f]:starts[f + 1]]`, none where it
    # is frequent
    starts: Annotated[NDArray[np.int64], ArrayLayout(("ends",), "steps")]
    # int32 (Z,): rising within a feature
    rows: Annotated[NDArray[np.int32], ArrayLayout(("any",), "lists")]
    # float32 (n,): 1 over the length of each row, in the digits of float16; 0 if it is not asked
    norms: Annotated[NDArray[np.float32], ArrayLayout(("any",), "halves")]
    # int64 (n + 1,): where each row's labels lie in `labels`
    label_starts: Annotated[NDArray[np.int64], ArrayLayout(("any",), "steps")]
    # int32 (m,): rising within a row
    labels: Annotated[NDArray[np.int32], ArrayLayout(("any",))]
    weight: float  # of what they say, beside counts

    @classmethod
    def of(
        cls, arrays: Mapping[str, NDArray[Any]], prefix: str, weight: float, n_classes: int
    ) -> Neighbours:
        """Return the rows of arrays named with a prefix; ValueError if an index is wrong."""
        found = cls.of_arrays(arrays, prefix, weight=weight)
        n, norms = len(found.norms), found.norms
        if not (
            are_lists(found.starts, found.rows, n)
            and are_lists(found.label_starts, found.labels, n_classes)
            and len(found.label_starts) == n + 1
            and (not n or 0 <= norms.min() <= norms.max() < np.inf)
        ):
            raise ValueError("the neighbours are wrong")
        return found

    @staticmethod
    def footprint(*, features: int, nnz: int, rows: int, labels: int) -> int:
        """Return the most bytes that so many rows take."""
        return FEATURE_BYTES * features + ROW_BYTES * rows + VALUE_BYTES * (nnz + labels)

    def idf(self) -> NDArray[np.float32]:
        """Return what each feature is worth, 0 for frequent ones: float32 (d,)."""
        lengths = np.diff(self.starts)
        found = np.log(max(len(self.norms), 1) / np.maximum(lengths, 1))
        return np.where(lengths > 0, found, 0).astype(np.float32)

    def of_features(self, chosen: NDArray[np.bool_]) -> Neighbours:
        """Return the rows with some features alone: bool (d,). Their places are then their ids."""
        lengths = np.diff(self.starts)
        rows = self.rows[np.repeat(chosen, lengths)]
        return replace(self, starts=ends(lengths[chosen]), rows=rows)


def gather_rows(
    blocks: Blocks, n_features: int, n_bytes: int
) -> tuple[Neighbours, NDArray[np.float32]]:
    """Return rows by their features, of weight 0; and the norms of all of them, float32 (n,).

    Rows are read twice: the first ones, which so many bytes have room for. Rows of importance 0 are
    left out, and held-out ones are not asked.
    """
    rows_of, numbers = np.zeros(n_features, np.int64), list[NDArray[np.int64]]()
    left, n_read = n_bytes - FEATURE_BYTES * n_features, list[int]()
    for block, _ in blocks():
        there = block.take(np.flatnonzero(block.weights > 0))
        sizes = ROW_BYTES + VALUE_BYTES * (np.diff(there.indptr) + there.lists.lengths)
        fits = int(np.searchsorted(np.cumsum(sizes), left, "right"))
        there, left = there.part(0, fits), left - int(sizes[:fits].sum())
        rows_of += np.bincount(there.features, minlength=n_features)
        numbers.append(there.lists.lengths)
        n_read.append(fits)
        if fits < len(sizes):
            break
    label_starts = ends(np.concatenate([np.zeros(0, np.int64), *numbers]))
    n = len(label_starts) - 1
    starts = ends(np.where(rows_of <= min(n // SHARE, MOST_ROWS), rows_of, 0))
    found = Neighbours(
        starts=starts, rows=np.empty(starts[-1], np.int32), norms=np.zeros(n, np.float32),
        label_starts=label_starts, labels=np.empty(label_starts[-1], np.int32), weight=0.0,
    )  # fmt: skip
    at, idf, every, first = starts[:-1].copy(), found.idf(), found.norms.copy(), 0
    for (block, held), n_own in zip(blocks(), n_read, strict=False):
        chosen = np.flatnonzero(block.weights > 0)[:n_own]
        there, last = block.take(chosen), first + len(chosen)
        own = slice(int(label_starts[first]), int(label_starts[last]))
        found.labels[own] = there.lists.classes
        list_rows(there.indptr, there.features, first, idf, at, found.rows, every[first:last])
        every[first:last] = every[first:last].astype(np.float16)
        found.norms[first:last] = np.where(held[chosen], 0, every[first:last])
        first = last
    return found, every


@kernel()
def list_rows(
    indptr: Array, features: Array, first: int, idf: Array, at: Array, rows: Array, norms: Array
) -> None:
    """Append rows, numbered from `first` on, to the lists of their features.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    idf, at, rows : float32 (d,), int64 (d,), int32 (Z,)
        What features are worth; where the next row of each goes; their lists.
    norms : float32 (n,)
        Receives 1 over the length of each row; 0 where it has no rare feature.
    """
    for i in range(norms.shape[0]):
        total: Number = np.float32(0)
        for z in range(indptr[i], indptr[i + 1]):
            f = features[z]
            if idf[f] > 0:
                total += idf[f] * idf[f]
                rows[at[f]] = first + i
                at[f] += 1
        norms[i] = 1 / np.sqrt(total) if total > 0 else np.float32(0)
