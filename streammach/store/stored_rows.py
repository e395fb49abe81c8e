"""Reads the rows of a store: values, labels, importances and origins, checked as they are read.

Kernels compute and check nothing, and a store may come from a stranger who wrote right checksums:
nothing that was checked leads out of bounds. Numbers are compared as integers of a word, many at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import (
    ALL,
    INFINITE,
    MOST_IMPORTANCE,
    NO_SIGN,
    look_at_ids,
    look_at_numbers,
)
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MAX_NAME
from streammach.rows.texts import Texts
from streammach.store.blobs import damage_error
from streammach.store.root import Root
from streammach.store.stored_arrays import ReadArray

MOST_WEIGHT = int(np.float32(MOST_IMPORTANCE).view(np.int32))  # its bits rise with it


def _falls_between_rows(indptr: NDArray[np.int64], ids: NDArray[np.int32]) -> int:
    """Return at how many of the places where a row starts the ids do not rise."""
    starts = indptr[1:-1] - indptr[0]
    starts = starts[(np.diff(starts, prepend=0) > 0) & (starts < len(ids))]
    return int(np.count_nonzero(ids[starts] <= ids[starts - 1]))


def _are_sound(ids: NDArray[np.int32], indptr: NDArray[np.int64], n: int) -> bool:
    """Return whether ids are below n, and fall nowhere but where rows start."""
    largest, falls = look_at_ids(ids)
    return largest < n and (not falls or falls == _falls_between_rows(indptr, ids))


class StoredRows:
    """The rows of a store; safe to read from several threads."""

    def __init__(self, path: Path, root: Root, arrays: Mapping[str, ReadArray]) -> None:
        self.path, self.root, self._arrays = path, root, arrays
        self._float = self.value_type == np.float32
        self._class_weights: NDArray[np.float32] | None = None
        # ranges of rows, with ids of features or without; chunks have checksums
        self._checked: set[tuple[int, int, bool]] = set()

    @property
    def value_type(self) -> np.dtype[np.generic]:
        """Type of the values: uint8 or float32."""
        return self._arrays["X/data"].dtype

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels."""
        return self.root.listed

    @property
    def weighted(self) -> bool:
        """Whether rows have an importance, of their own or by their class."""
        return "weight" in self._arrays or self._class_weights is not None

    @property
    def tagged(self) -> bool:
        """Whether rows have tags."""
        return "tag/bytes" in self._arrays

    @property
    def tag_bytes(self) -> int:
        """Bytes of all tags."""
        return self._arrays["tag/bytes"].n_values if self.tagged else 0

    def pointers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return where the values of rows ``start:stop`` lie: int64 (n + 1,), checked."""
        root = self.root
        return self._pointers("X", "row pointers", start, stop, (root.nnz, root.max_row_nnz))

    def _pointers(
        self, matrix: str, what: str, start: int, stop: int, sizes: tuple[int, int]
    ) -> NDArray[np.int64]:
        """Return pointers of rows; StoreError if they do not lead through the arrays of a matrix.

        These have so many values, and so many at most in one row.
        """
        indptr: NDArray[np.int64] = self._arrays[f"{matrix}/indptr"].read(start, stop + 1)
        (total, most), first, last = sizes, int(indptr[0]), int(indptr[-1])
        sound = (start > 0 or first == 0) and (stop < self.root.rows or last == total)
        lengths = np.diff(indptr)
        sound = sound and first >= 0 and last <= total and int(lengths.min(initial=0)) == 0
        sound = sound and int(lengths.max(initial=0)) <= most
        self._check(sound, what, start, stop)
        return indptr

    def _check(self, sound: Any, what: str, start: int, stop: int) -> None:
        if not sound:
            raise damage_error(self.path, f"{what} of rows {start:,} to {stop:,} are wrong")

    def read_into(self, start: int, indptr: NDArray[np.int64], rows: RowBlock) -> None:
        """Read rows into arrays of just their size, and check what they hold, the first time.

        `indptr` is int64 (n + 1,). Ids of features are read where there is room for them.
        """
        a, b, stop = int(indptr[0]), int(indptr[-1]), start + len(indptr) - 1
        arrays, root, key = self._arrays, self.root, (start, stop, len(rows.features) > 0)
        if len(rows.features) > 0:
            arrays["X/indices"].read(a, b, rows.features)
        arrays["X/data"].read(a, b, rows.values)
        if not self.listed:
            arrays["y"].read(start, stop, rows.classes)
        if rows.importance is not None:
            self._read_importance(start, stop, rows)
        if key in self._checked:
            return
        rising = _are_sound(rows.features, indptr, root.features)
        self._check(rising, "ids of features", start, stop)
        finite = not self._float or look_at_numbers(rows.values, NO_SIGN) < INFINITE
        self._check(finite, "values", start, stop)
        known = self.listed or look_at_ids(rows.classes)[0] < root.classes
        self._check(known, "ids of classes", start, stop)
        self._checked.add(key)

    def _read_importance(self, start: int, stop: int, rows: RowBlock) -> None:
        """Read what rows count for, times the weights of their classes where there are any."""
        importance = rows.importance
        assert importance is not None, "room for it"
        if "weight" in self._arrays:
            self._arrays["weight"].read(start, stop, importance)
            right = look_at_numbers(importance, ALL) <= MOST_WEIGHT
            self._check(right, "importances", start, stop)
        else:
            importance[:] = 1
        self.weigh_by_class(rows)

    def weigh_by_class(self, rows: RowBlock) -> RowBlock:
        """Multiply the importances of rows by those of their classes, where these have such."""
        if self._class_weights is not None:
            assert rows.importance is not None, "room for it"
            known = rows.classes >= 0
            rows.importance[known] *= self._class_weights[rows.classes[known]]
        return rows

    def importances(self, start: int, stop: int) -> RowBlock:
        """Return what rows ``start:stop`` count for, and their labels, without any values."""
        n, nothing = stop - start, np.zeros(0, np.int32)
        rows = RowBlock(
            indptr=np.zeros(n + 1, np.int64), features=nothing, values=nothing.view(np.float32),
            classes=np.empty(n, np.int32), importance=np.empty(n, np.float32),
        )  # fmt: skip
        if not self.listed:
            self._arrays["y"].read(start, stop, rows.classes)
        self._read_importance(start, stop, rows)
        return rows.with_labels(self.lists(start, stop))

    def rows(self, start: int, stop: int) -> RowBlock:
        """Return rows ``start:stop`` of the store; StoreError if what is read is damaged."""
        indptr = self.pointers(start, stop)
        n, nnz = stop - start, int(indptr[-1] - indptr[0])
        rows = RowBlock(
            indptr=indptr - indptr[0], features=np.empty(nnz, np.int32),
            values=np.empty(nnz, self.value_type), classes=np.empty(n, np.int32),
            importance=np.empty(n, np.float32) if self.weighted else None,
        )  # fmt: skip
        self.read_into(start, indptr, rows)
        return rows.with_labels(self.lists(start, stop))

    def label_pointers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return where the labels of rows ``start:stop`` lie: int64 (n + 1,), checked."""
        sizes = self.root.labels, self.root.max_row_labels
        return self._pointers("y", "pointers to labels", start, stop, sizes)

    def lists(self, start: int, stop: int) -> LabelLists | None:
        """Return the labels of rows ``start:stop``, where rows have lists of them."""
        if not self.listed:
            return None
        arrays, starts = self._arrays, self.label_pointers(start, stop)
        a, b, weights = int(starts[0]), int(starts[-1]), None
        classes = arrays["y/indices"].read(a, b)
        self._check(_are_sound(classes, starts, self.root.classes), "labels", start, stop)
        if arrays["y/data"].dtype == np.float32:
            weights = arrays["y/data"].read(a, b)
            finite = look_at_numbers(weights, ALL) < INFINITE
            self._check(finite, "weights of labels", start, stop)
        return LabelLists(starts - a, classes, weights)

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the places of rows among those of the source, int64 (n,), or raise StoreError."""
        numbers: NDArray[np.int64] = self._arrays["row"].read(start, stop)
        inside = not len(numbers) or 0 <= numbers.min() <= numbers.max() < self.root.source_rows
        self._check(inside, "numbers", start, stop)
        return numbers

    def origins(self, start: int, stop: int) -> tuple[NDArray[np.int64], Texts | None]:
        """Return the places of rows in the source, int64 (n,), and their tags, or StoreError."""
        numbers = self.numbers(start, stop)
        if not self.tagged:
            return numbers, None
        offsets = self._arrays["tag/offsets"].read(start, stop + 1)
        n_bytes, lengths = self._arrays["tag/bytes"].n_values, np.diff(offsets)
        sound = 0 <= offsets[0] <= offsets[-1] <= n_bytes
        sound = sound and 0 <= lengths.min() <= lengths.max() <= MAX_NAME
        self._check(sound, "tags", start, stop)
        data = self._arrays["tag/bytes"].read(int(offsets[0]), int(offsets[-1]))
        return numbers, Texts(offsets - offsets[0], data)
