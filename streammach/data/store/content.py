"""What decoded rows must be, checked beside decoding: nothing that was checked leads out of bounds.

Kernels compute and check nothing, and a store may come from a stranger who wrote right checksums.
The loops here run over each chunk when it was decoded, and compare numbers as integers of a word,
many at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.blobs import damaged
from streammach.data.store.root import Root
from streammach.errors import StoreError
from streammach.jit import Array, kernel
from streammach.rows.arrays import (
    ALL,
    INFINITE,
    MOST_IMPORTANCE,
    NO_SIGN,
    look_at_ids,
    look_at_numbers,
)
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MINUS, Names, TrainedColumns

MOST_WEIGHT = int(np.float32(MOST_IMPORTANCE).view(np.int32))  # its bits rise with it
MOST_LEFT_OUT = 16  # rows of the sources for each that is there, of which a list is kept


@kernel()
def falls_between_rows(indptr: Array, ids: Array) -> Any:
    """Return at how many of the places where a row starts the ids do not rise."""
    falls, before, base, last = np.int64(0), np.int64(0), indptr[0], ids.shape[0] - 1
    for i in range(1, indptr.shape[0] - 1):
        start = indptr[i] - base
        place = max(min(start, last), 1)  # without a branch
        inside = (start > before) & (start <= last)
        falls += inside & (ids[place] <= ids[place - 1])
        before = start
    return falls


@kernel()
def longest_row(indptr: Array) -> Any:
    """Return the most values of a row; -1 where row pointers fall."""
    longest = np.int64(0)
    falling = False
    for i in range(1, indptr.shape[0]):
        length = indptr[i] - indptr[i - 1]
        falling = falling | (length < 0)
        longest = max(longest, length)
    return np.int64(-1) if falling else longest


class ChunkLooks:
    """What is looked at while rows are read, each chunk when it was decoded.

    Attributes
    ----------
    ids : int64 (2,)
        The largest id of a feature, negative ones as large ones; places where ids do not rise.
    classes : int64 (2,)
        The largest class, negative ones as large ones.
    values, importance, label_weights : int64 (1,)
        The largest bits of a value without its sign; of a weight with it: negative ones are
        large.
    """

    def __init__(self) -> None:
        self.ids, self.classes = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self.values, self.importance = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.label_weights = np.zeros(1, np.int64)

    def looks(self) -> dict[str, Callable[[NDArray[Any]], None]]:
        """Return what looks at each array of a store."""
        return {
            "X/indices": self.look_at_features, "X/data": self.look_at_values,
            "y": self.look_at_classes, "weight": self.look_at_importance,
        }  # fmt: skip

    def look_at_features(self, some: NDArray[np.int32]) -> None:
        """Take in ids of features."""
        look_at_ids(some, self.ids)

    def look_at_values(self, some: NDArray[np.float32]) -> None:
        """Take in values."""
        look_at_numbers(some, NO_SIGN, self.values)

    def look_at_classes(self, some: NDArray[np.int32]) -> None:
        """Take in ids of classes."""
        look_at_ids(some, self.classes)

    def look_at_importance(self, some: NDArray[np.float32]) -> None:
        """Take in importances."""
        look_at_numbers(some, ALL, self.importance)

    def look_at_label_weights(self, some: NDArray[np.float32]) -> None:
        """Take in weights of labels."""
        look_at_numbers(some, ALL, self.label_weights)


@dataclass(frozen=True)
class Content:
    """What a store promises of its rows."""

    path: Path  # the store
    root: Root  # its root document

    def check_pointers(self, indptr: NDArray[np.int64], start: int) -> None:
        """Raise StoreError if pointers int64 (n + 1,) of rows from `start` on are not sound."""
        if not self._lead(indptr, start, self.root.nnz, self.root.max_row_nnz):
            raise self._wrong("row pointers", start, len(indptr) - 1)

    def check_label_pointers(self, starts: NDArray[np.int64], start: int) -> None:
        """Raise StoreError if pointers int64 (n + 1,) to rows' labels are not sound."""
        if not self._lead(starts, start, self.root.labels, self.root.max_row_labels):
            raise self._wrong("pointers to labels", start, len(starts) - 1)

    def _lead(self, indptr: NDArray[np.int64], start: int, total: int, most: int) -> bool:
        """Return whether pointers of rows from `start` on lead through their part of an array."""
        first, last = int(indptr[0]), int(indptr[-1])
        at_end = start + len(indptr) - 1 < self.root.rows or last == total
        sound = (start > 0 or first == 0) and at_end and first >= 0 and last <= total
        return sound and 0 <= longest_row(indptr) <= most

    def check_rows(
        self, start: int, indptr: NDArray[np.int64], features: NDArray[np.int32], seen: ChunkLooks
    ) -> None:
        """Refuse rows that hold anything else than a store may, or raise StoreError.

        `indptr` is int64 (n + 1,), `features` is int32 (nnz,).
        """
        root, (largest, falls) = self.root, seen.ids.tolist()
        if largest >= root.features or (falls and falls != falls_between_rows(indptr, features)):
            raise self._wrong("ids of features", start, len(indptr) - 1)
        if seen.values[0] >= INFINITE:
            raise self._wrong("values", start, len(indptr) - 1)
        if seen.classes[0] >= root.classes:
            raise self._wrong("ids of classes", start, len(indptr) - 1)
        if seen.importance[0] > MOST_WEIGHT:
            raise self._wrong("importances", start, len(indptr) - 1)

    def check_lists(self, start: int, lists: LabelLists, seen: ChunkLooks) -> None:
        """Refuse labels of rows that a store may not hold, or raise StoreError."""
        largest, falls = seen.classes.tolist()
        rising = not falls or falls == falls_between_rows(lists.starts, lists.classes)
        if largest >= self.root.classes or not rising:
            raise self._wrong("labels", start, len(lists))
        if seen.label_weights[0] >= INFINITE:
            raise self._wrong("weights of labels", start, len(lists))

    def check_numbers(self, numbers: NDArray[np.int64], start: int, most: int) -> None:
        """Raise StoreError if a number of a row is not from 0 to below `most`."""
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < most:
            raise self._wrong("numbers", start, len(numbers))

    def _wrong(self, what: str, start: int, n: int) -> StoreError:
        return damaged(self.path, f"{what} of rows {start:,} to {start + n:,} are wrong")


def check_names(path: Path, group: str, names: Names) -> Names:
    """Return the names, or raise StoreError if they are not what their list says."""
    if not names.sound():
        raise damaged(path, f"the names of {group} are wrong")
    return names


def check_distinct(path: Path, group: str, names: Names) -> None:
    """Raise StoreError if two names are the same."""
    # What is looked up by name would be one of them.
    try:
        names.ids_of(Names.of([]))
    except StoreError:
        raise damaged(path, f"a name of {group} is there twice") from None


class DistinctNumbers:
    """Tells whether numbers of rows are all different."""

    def __init__(self, most: int, n_rows: int) -> None:
        # A root may promise any number of rows that were left out.
        self._seen = np.zeros(most if most <= MOST_LEFT_OUT * n_rows else 0, bool)
        self._few: list[NDArray[np.int64]] = []
        self._n = 0

    def take(self, numbers: NDArray[np.int64]) -> None:
        """Take in the numbers of some rows, which are within the range."""
        self._n += len(numbers)
        if len(self._seen):
            self._seen[numbers] = True
        else:
            self._few.append(numbers)

    def twice(self) -> bool:
        """Return whether one of them came twice."""
        if len(self._seen):
            return int(self._seen.sum()) != self._n
        return len(np.unique(np.concatenate(self._few))) != self._n


def checked_columns(
    path: Path, n: int, positions: NDArray[np.int32] | None, features: Callable[[], Names]
) -> TrainedColumns:
    """Return the columns of the matrix that a store's rows came from, or raise StoreError.

    `positions` is int32 (d,) or None.
    """
    if positions is not None:
        known = positions[positions >= 0]
        if positions.min() < -1 or positions.max() >= n or len(np.unique(known)) < len(known):
            raise damaged(path, "the columns of features are wrong")
    elif n and not _numbers_below(features(), n):
        raise damaged(path, "features are not the numbers of columns")
    return TrainedColumns(n, positions)


def _numbers_below(names: Names, n: int) -> bool:
    """Return whether all names are integers from 0 to below n."""
    longest = int(np.diff(names.offsets).max())
    negative = (names.data[names.offsets[:-1]] == MINUS).any()
    if names.kind != "integer" or negative or longest > len(str(n)):
        return False
    return longest < len(str(n)) or max(int(names.raw(i)) for i in range(len(names))) < n
