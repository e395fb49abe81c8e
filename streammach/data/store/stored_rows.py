"""Reads the rows of a store: values, labels, importances and origins, checked as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.arrays import ReadArray
from streammach.data.store.blobs import damaged
from streammach.data.store.content import ChunkLooks, Content, DistinctNumbers
from streammach.data.store.opening import NUMBERED
from streammach.data.store.root import Root
from streammach.progress import Told
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MAX_NAME
from streammach.rows.texts import Texts


class StoredRows:
    """The rows of a store; safe to read from several threads."""

    def __init__(self, path: Path, root: Root, arrays: Mapping[str, ReadArray]) -> None:
        self.path, self.root, self._arrays = path, root, arrays
        self._float = self.value_type == np.float32
        self._class_weights: NDArray[np.float32] | None = None
        self._checked: set[tuple[int, int]] = set()  # ranges of rows; chunks have checksums
        self._content = Content(path=path, root=root)

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

    def pointers(
        self, start: int, stop: int, out: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return where the values of rows ``start:stop`` lie: int64 (n + 1,), checked.

        `out` is int64 (n + 1,).
        """
        indptr = self._arrays["X/indptr"].read(start, stop + 1, out)
        self._content.check_pointers(indptr, start)
        return indptr

    def read_into(self, start: int, indptr: NDArray[np.int64], rows: RowBlock) -> None:
        """Read rows into arrays of just their size, and check what they hold, the first time.

        `indptr` is int64 (n + 1,).
        """
        a, b, stop = int(indptr[0]), int(indptr[-1]), start + len(indptr) - 1
        arrays, seen, known = self._arrays, ChunkLooks(), (start, stop) in self._checked
        looks = dict.fromkeys(("X/indices", "X/data", "y", "weight")) if known else seen.looks()
        arrays["X/indices"].read(a, b, rows.features, looks["X/indices"])
        arrays["X/data"].read(a, b, rows.values, looks["X/data"] if self._float else None)
        if not self.listed:
            arrays["y"].read(start, stop, rows.classes, looks["y"])
        if rows.importance is not None:
            self._read_importance(start, stop, rows, looks["weight"])
        if not known:
            self._content.check_rows(start, indptr, rows.features, seen)
            self._checked.add((start, stop))

    def _read_importance(self, start: int, stop: int, rows: RowBlock, look: Any) -> None:
        """Read what rows count for, times the weights of their classes where there are any."""
        importance = rows.importance
        assert importance is not None, "room for it"
        if "weight" in self._arrays:
            self._arrays["weight"].read(start, stop, importance, look)
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
        self._read_importance(start, stop, rows, None)
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
        starts = self._arrays["y/indptr"].read(start, stop + 1)
        self._content.check_label_pointers(starts, start)
        return starts

    def lists(self, start: int, stop: int) -> LabelLists | None:
        """Return the labels of rows ``start:stop``, where rows have lists of them."""
        if not self.listed:
            return None
        arrays, seen = self._arrays, ChunkLooks()
        starts = self.label_pointers(start, stop)
        a, b, weights = int(starts[0]), int(starts[-1]), None
        classes = arrays["y/indices"].read(a, b, None, seen.look_at_classes)
        if arrays["y/data"].dtype == np.float32:
            weights = arrays["y/data"].read(a, b, None, seen.look_at_label_weights)
        lists = LabelLists(starts - a, classes, weights)
        self._content.check_lists(start, lists, seen)
        return lists

    def origins(self, start: int, stop: int) -> tuple[NDArray[np.int64], Texts | None]:
        """Return where rows of the store came from, or raise StoreError.

        Returns `numbers` int64 (n,).
        """
        numbers = self._arrays[NUMBERED].read(start, stop)
        self._content.check_numbers(numbers, start, self.root.source_rows)
        if not self.tagged:
            return numbers, None
        offsets = self._arrays["tag/offsets"].read(start, stop + 1)
        n_bytes, lengths = self._arrays["tag/bytes"].n_values, np.diff(offsets)
        sound = 0 <= offsets[0] <= offsets[-1] <= n_bytes
        if not sound or lengths.min() < 0 or lengths.max() > MAX_NAME:
            raise damaged(self.path, f"tags of rows {start:,} to {stop:,} are wrong")
        data = self._arrays["tag/bytes"].read(int(offsets[0]), int(offsets[-1]))
        return numbers, Texts(offsets - offsets[0], data)

    def wrong_rows(
        self, said: Mapping[str, NDArray[np.int64]], step: int, told: Told
    ) -> Iterator[str]:
        """Yield a line for each thing that a store says of its rows and is not so; all are read.

        `said` has the counts of features and labels: int64 (d,) and (K,).
        """
        n, most, labels = self.root.rows, 0, 0
        counts = {name: np.zeros(len(c), np.int64) for name, c in said.items()}
        numbers = DistinctNumbers(self.root.source_rows, n)
        for start in range(0, n, step):
            told("rows", start, n)
            block = self.rows(start, min(start + step, n))
            for name, ids in (("features", block.features), ("labels", block.lists.classes)):
                counts[name] += np.bincount(ids, minlength=len(counts[name]))
            labels, most = max(labels, block.lists.n_labels), max(most, block.nnz)
            numbers.take(self.origins(start, start + block.n_rows)[0])
        for name, found in counts.items():
            if not np.array_equal(found, said[name]):
                yield f"damaged: {self.path}/{name}/count does not agree with the rows"
        if numbers.twice():
            yield f"damaged: {self.path}/row: two rows have one number"
        if most > self.root.max_block_nnz:
            yield f"damaged: {self.path}: a block has more values than the root says"
        if self.listed and labels > self.root.max_block_labels:
            yield f"damaged: {self.path}: a block has more labels than the root says"
