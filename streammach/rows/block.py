"""Rows in memory: compressed sparse rows with class ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import ranges_that_fit
from streammach.rows.label_lists import LabelLists, places_of
from streammach.rows.layouts import ends
from streammach.rows.texts import Texts

Values = NDArray[np.uint8] | NDArray[np.float32]
REPEATED_VALUES = 1 << 20  # of rows that are repeated for their labels, at a time
REPEATED_BYTES = 32  # of such a value: feature, value, and its place while it is copied
LABEL_BYTES = 24  # of a label of the block: its row, where its values end, and work
Places = slice | NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RowBlock:
    """Some rows: features and values of each, its class, its importance."""

    # int64 (n + 1,): row i's values lie in `indptr[i]:indptr[i + 1]`; the first entry is 0
    indptr: NDArray[np.int64]
    features: NDArray[np.int32]  # int32 (nnz,): feature ids
    values: Values  # uint8 or float32 (nnz,): their values
    # int32 (n,): class ids; -1 where the class is unknown. Where rows have lists of labels the
    # first of each
    classes: NDArray[np.int32]
    labels: LabelLists | None = None  # all labels of each row; None where each has one
    # float32 (n,) or None: importance of each row; None where all are 1
    importance: NDArray[np.float32] | None = None
    # int64 (n,) or None: where each row stood in its source: a byte of the text, or a row of the
    # matrix; None where that is not known
    places: NDArray[np.int64] | None = None
    # int64 (n,) or None: number of each row among those of its source, from 0; None where that is
    # not known
    numbers: NDArray[np.int64] | None = None
    # the tag of each row, empty where it has none; None where no row has one
    tags: Texts | None = None

    @property
    def weights(self) -> NDArray[np.float32]:
        """What each row counts: float32 (n,)."""
        return np.ones(self.n_rows, np.float32) if self.importance is None else self.importance

    @property
    def n_alike(self) -> float:
        """How many rows that count alike tell as much: ``(sum w)^2 / sum w^2``."""
        w = self.weights.astype(np.float64)
        return float(w.sum() ** 2 / max(float((w * w).sum()), 1e-300)) if len(w) else 0.0

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
        indptr = self.indptr[start : stop + 1] - a
        rows = slice(start, stop)
        return self._rows(indptr, slice(a, b), rows, lambda lists: lists.part(start, stop))

    def add_to_numbers(self, before: int) -> RowBlock:
        """Return the rows with numbers that are so much larger."""
        assert self.numbers is not None
        return replace(self, numbers=self.numbers + before)

    def take(self, chosen: NDArray[np.int64]) -> RowBlock:
        """Return copies of the chosen rows, in that order."""
        indptr, values = places_of(self.indptr, chosen)
        return self._rows(indptr, values, chosen, lambda lists: lists.take(chosen))

    def with_values(self, kept: NDArray[np.bool_]) -> RowBlock:
        """Return the rows with those of their values for which `kept` bool (nnz,) is True."""
        before = ends(kept)
        return replace(
            self, indptr=before[self.indptr], features=self.features[kept],
            values=self.values[kept],
        )  # fmt: skip

    def first_in(self, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Return each row's first feature of the chosen ones, bool (d,), or -1: int32 (n,)."""
        found, places = np.full(self.n_rows, -1, np.int32), np.flatnonzero(chosen[self.features])
        owners = np.searchsorted(self.indptr, places, "right") - 1
        rows, first = np.unique(owners, return_index=True)
        found[rows] = self.features[places[first]]
        return found

    def beyond(self, n_features: int) -> RowBlock:
        """Return the rows without the values of so many first features."""
        return self.with_values(self.features >= n_features) if n_features else self

    def with_labels(self, labels: LabelLists | None) -> RowBlock:
        """Return the rows with lists of labels; without any they stay as they are."""
        return self if labels is None else replace(self, labels=labels, classes=labels.first)

    @property
    def empty(self) -> NDArray[np.intp]:
        """The rows without features: (m,)."""
        return np.flatnonzero(np.diff(self.indptr) == 0)

    @property
    def lists(self) -> LabelLists:
        """The labels of each row as a list; an unknown class is one label."""
        return LabelLists.single(self.classes) if self.labels is None else self.labels

    @property
    def with_known_class(self) -> RowBlock:
        """The rows that have a known class."""
        known = self.classes >= 0 if self.labels is None else self.labels.has_known_class
        return self.take(np.flatnonzero(known))

    def rows_by_label(self) -> Iterator[tuple[RowBlock, NDArray[np.int64]]]:
        """Yield a row for each label, with it as its class, and which row that was: int64 (n,).

        Where rows have lists of labels; they come in pieces of a bounded number of values.
        """
        if self.labels is None:
            yield self, np.arange(self.n_rows)
            return
        rows, classes, single = self.labels.rows, self.labels.classes, replace(self, labels=None)
        before, every = ends(np.diff(self.indptr)[rows]), np.arange(len(rows) + 1)
        for start, stop in ranges_that_fit((before, REPEATED_VALUES), (every, len(rows))):
            some = rows[start:stop]
            yield replace(single.take(some), classes=classes[start:stop]), some

    @staticmethod
    def repeated_footprint(block_nnz: int, block_labels: int, row_nnz: int, row_labels: int) -> int:
        """Return the bytes that :meth:`rows_by_label` takes, by the most of a block and a row."""
        values = min(REPEATED_VALUES + row_nnz, block_nnz * row_labels)
        return REPEATED_BYTES * values + LABEL_BYTES * block_labels

    def _rows(
        self, indptr: NDArray[np.int64], values: Places, rows: Places, some: Callable[[Any], Any]
    ) -> RowBlock:
        """Return rows by their places and those of their values; `some` picks from lists."""

        def of(array: Any) -> Any:
            return None if array is None else array[rows]

        return RowBlock(
            indptr=indptr, features=self.features[values], values=self.values[values],
            classes=self.classes[rows], importance=of(self.importance), places=of(self.places),
            numbers=of(self.numbers), labels=None if self.labels is None else some(self.labels),
            tags=None if self.tags is None else some(self.tags),
        )  # fmt: skip

    @classmethod
    def concat(cls, parts: Sequence[RowBlock]) -> RowBlock:
        """Return the rows of all parts, one after the other; none have float32 values."""
        # Importance, places and numbers are kept where all parts have them. Labels are lists where
        # one of the parts has lists, and rows have tags where those of one part have.

        def join_arrays(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            return None if any(a is None for a in arrays) else np.concatenate(arrays)

        if not parts:
            nothing = np.zeros(0, np.int32)
            return cls(
                indptr=np.zeros(1, np.int64), features=nothing, values=np.zeros(0, np.float32),
                classes=nothing,
            )  # fmt: skip
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        names = ("features", "values", "classes", "importance", "places", "numbers")
        listed = any(part.labels is not None for part in parts)
        tagged = any(part.tags is not None for part in parts)
        tags = [part.tags or Texts.of([b""] * part.n_rows) for part in parts] if tagged else []
        return cls(
            indptr=ends(lengths), **{name: join_arrays(name) for name in names},
            labels=LabelLists.concat([part.lists for part in parts]) if listed else None,
            tags=Texts.concat(tags) if tagged else None,
        )  # fmt: skip


def evenly(n: int, some: int) -> NDArray[np.int64]:
    """Return `some` numbers below n at even distances: int64 (some,)."""
    return np.arange(some, dtype=np.int64) * n // max(some, 1)
