"""Opens a store and reads rows from it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.identity import name_of
from streammach.data.store.arrays import ReadArray
from streammach.data.store.blobs import Blobs, damaged
from streammach.data.store.content import (
    Content,
    Numbers,
    Seen,
    check_distinct,
    check_names,
    checked_columns,
)
from streammach.data.store.opening import (
    NUMBERED,
    kind_of_names,
    open_arrays,
    read_documents,
    read_manifest,
    read_root,
)
from streammach.data.store.remote import blobs_of
from streammach.data.store.root import Root
from streammach.errors import StoreError
from streammach.files.reading import sha256
from streammach.progress import Told, Wanted, shown
from streammach.rows.block import RowBlock
from streammach.rows.dense import product
from streammach.rows.distinct import PairSketch
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import MAX_NAME, Names
from streammach.rows.texts import Texts
from streammach.rows.trained import TrainedColumns
from streammach.spec.facts import DataFacts
from streammach.spec.reported import Reported

MAX_BLOCK_ROWS = 1 << 18  # that are read together, however few values they have


class Dataset(Reported):
    """A store of labelled rows, opened for reading; safe to read from several threads.

    Use :meth:`open`. A ``with`` block closes its files.

    Attributes
    ----------
    path : Path
        The store's folder, or its URL.
    root : Root
        Its root document.
    intake_bytes : int
        The memory that it took to bring rows into memory; 0 of a store.
    libraries_bytes : int
        The memory of libraries that the rows came by.
    """

    intake_bytes: int = 0
    libraries_bytes: int = 0

    def __init__(
        self, path: Path, root: Root, arrays: Mapping[str, ReadArray],
        blobs: Blobs | None = None, documents: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.root = root
        self._arrays = arrays
        self._blobs, self._documents = blobs, documents or {}
        if blobs is not None:
            self.libraries_bytes = blobs.libraries_bytes
        self._float = self.value_type == np.float32
        self._class_weights: NDArray[np.float32] | None = None
        self._checked: set[tuple[int, int]] = set()  # ranges of rows; chunks have checksums
        self._content = Content(path=path, root=root)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *,
        cache: str | os.PathLike[str] | None = None, cache_size: str | int | None = None,
    ) -> Dataset:  # fmt: skip
        """Open a store: metadata are read and checked, rows are not.

        Parameters
        ----------
        path : path-like
            The store's folder, or its URL in object storage, such as ``s3://bucket/train.zarr``.
        cache : path-like, optional
            The folder in which files of a store at a URL are kept: a new one, or one that was made
            for this; that of the environment (STREAMMACH_CACHE) or of the user otherwise.
        cache_size : str or int, optional
            The most bytes of its files; those of the environment (STREAMMACH_CACHE_SIZE) or
            ``"20GB"`` otherwise.

        Raises
        ------
        UsageError
            If nothing has this name, or a URL or the cache cannot be used.
        StoreError
            If it is no store, is not complete, has another version, or its files are not those of
            its manifest.
        DiskError
            If it cannot be read.
        """
        blobs = blobs_of(path, cache, cache_size)
        root = read_root(blobs)
        manifest = read_manifest(blobs, root)
        documents = read_documents(blobs, root, manifest)
        arrays = open_arrays(blobs, root, manifest, documents)
        return cls(blobs.place, root, arrays, blobs, documents)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.root.rows

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.root.classes

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.root.features

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        return self.root.nnz

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest: equal for equal content."""
        return self.root.manifest

    @property
    def facts(self) -> DataFacts:
        """What a plan needs to know."""
        names = sum(
            self._arrays[f"{group}/{part}"].n_values * (8 if part == "offsets" else 1)
            for group in ("labels", "features")
            for part in ("offsets", "bytes")
        )
        return DataFacts(
            path=name_of(self.path), digest=self.digest, n_rows=self.n_rows,
            n_classes=self.n_classes, n_features=self.n_features, nnz=self.nnz,
            n_pairs=self.root.pairs, max_row_nnz=self.root.max_row_nnz,
            block_rows=min(self.root.block_rows, MAX_BLOCK_ROWS),
            max_block_nnz=self.root.max_block_nnz, value_bytes=self.value_type.itemsize,
            weighted=self.weighted, names_bytes=names, row_postings=self._row_postings,
            n_labels=max(self.root.labels, 1) if self.listed else 0,  # of a sample without any, too
            max_row_labels=self.root.max_row_labels,
            max_block_labels=self.root.max_block_labels,
            held_bytes=self.held_bytes, intake_bytes=self.intake_bytes,
            libraries_bytes=self.libraries_bytes,
        )  # fmt: skip

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are in memory, names aside: none of a store's are."""
        return 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of the store's files; 0 of rows in memory."""
        return 0 if self._blobs is None else self._blobs.n_bytes()

    def stored(self, folder: Path, n_rows: int) -> Path:
        """Return a store that holds the first rows: this one.

        Parameters
        ----------
        folder : Path
            Where one may be written of rows that are in none.
        n_rows : int
            How many it must hold at least.
        """
        del folder, n_rows
        return self.path

    @property
    def _row_postings(self) -> int:
        """About how many pairs the features of a row have together.

        A feature's classes are at most its rows and K; the same share of that for all of them.
        """
        rows = self.feature_counts.astype(np.float64)
        most = np.minimum(rows, self.n_classes)
        return int(product(most, rows) / max(most.sum(), 1.0) * self.root.pairs / self.n_rows)

    @property
    def value_type(self) -> np.dtype[np.generic]:
        """Type of the values: uint8 or float32."""
        return self._arrays["X/data"].dtype

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels: format 4."""
        return self.root.listed

    @property
    def n_labels(self) -> int:
        """Labels of all rows together."""
        return self.root.labels if self.listed else self.n_rows

    @property
    def weighted(self) -> bool:
        """Whether rows have an importance, of their own or by their class."""
        return "weight" in self._arrays or self._class_weights is not None

    @property
    def numbered(self) -> bool:
        """Whether rows have the numbers that they had in their sources: from format 3 on."""
        return NUMBERED in self._arrays

    @property
    def tagged(self) -> bool:
        """Whether rows have tags."""
        return "tag/bytes" in self._arrays

    @property
    def tag_bytes(self) -> int:
        """Bytes of all tags."""
        return self._arrays["tag/bytes"].n_values if self.tagged else 0

    @cached_property
    def columns(self) -> TrainedColumns:
        """The columns of the matrix that the rows came from."""
        name = "features/column"
        positions = self.array(name) if name in self._arrays else None
        return checked_columns(self.path, self.root.columns, positions, lambda: self.features)

    @cached_property
    def labels(self) -> Names:
        """The classes' names by id."""
        return self._names("labels")

    @cached_property
    def features(self) -> Names:
        """The features' names by id."""
        return self._names("features")

    @cached_property
    def label_counts(self) -> NDArray[np.int64]:
        """Rows of each class: int64 (K,)."""
        return self._counts("labels", self.n_labels)

    @cached_property
    def feature_counts(self) -> NDArray[np.int64]:
        """Rows that hold each feature: int64 (d,)."""
        return self._counts("features", self.nnz)

    def _counts(self, group: str, total: int) -> NDArray[np.int64]:
        """Return how many rows the names of a group have, which add up to a total."""
        counts = self.array(f"{group}/count")
        if counts.min() < 0 or counts.max() > self.n_rows or int(counts.sum()) != total:
            raise damaged(self.path, f"{group}/count cannot be")
        return counts

    def array(self, name: str) -> NDArray[Any]:
        """Return a whole array by its path in the store, as it is."""
        reader = self._arrays[name]
        return reader.read(0, reader.n_values)

    def pointers(
        self, start: int, stop: int, out: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return where the values of rows ``start:stop`` lie: int64 (n + 1,), checked.

        Parameters
        ----------
        start, stop : int
            The rows.
        out : int64 (n + 1,), optional
            Receives them.

        Raises
        ------
        StoreError
            If they are damaged, or lead anywhere else.
        """
        indptr = self._arrays["X/indptr"].read(start, stop + 1, out)
        self._content.check_pointers(indptr, start)
        return indptr

    def read_into(self, start: int, indptr: NDArray[np.int64], rows: RowBlock) -> None:
        """Read rows into arrays of just their size, and check what they hold, the first time.

        Parameters
        ----------
        start : int
            The first row.
        indptr : int64 (n + 1,)
            What :meth:`pointers` returned for them.
        rows : RowBlock
            Its arrays, row pointers aside, receive the rows; not the labels where rows have lists
            of them, which :meth:`lists` returns.

        Raises
        ------
        StoreError
            If the rows are damaged, or are none that a store may hold.
        """
        a, b, stop = int(indptr[0]), int(indptr[-1]), start + len(indptr) - 1
        arrays, seen, known = self._arrays, Seen(), (start, stop) in self._checked
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
        if self._class_weights is not None:
            importance *= self._class_weights[rows.classes]

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
        """Return where the labels of rows ``start:stop`` lie: int64 (n + 1,), checked.

        Parameters
        ----------
        start, stop : int
            The rows, which have lists of labels.

        Raises
        ------
        StoreError
            If they are damaged, or lead anywhere else.
        """
        starts = self._arrays["y/indptr"].read(start, stop + 1)
        self._content.check_label_pointers(starts, start)
        return starts

    def lists(self, start: int, stop: int) -> LabelLists | None:
        """Return the labels of rows ``start:stop``, where rows have lists of them.

        Parameters
        ----------
        start, stop : int
            The rows.

        Raises
        ------
        StoreError
            If what is read is damaged.
        """
        if not self.listed:
            return None
        arrays, seen = self._arrays, Seen()
        starts = self.label_pointers(start, stop)
        a, b, weights = int(starts[0]), int(starts[-1]), None
        classes = arrays["y/indices"].read(a, b, None, seen.look_at_classes)
        if arrays["y/data"].dtype == np.float32:
            weights = arrays["y/data"].read(a, b, None, seen.look_at_label_weights)
        lists = LabelLists(starts - a, classes, weights)
        self._content.check_lists(start, lists, seen)
        return lists

    def origins(self, start: int, stop: int) -> tuple[NDArray[np.int64], Texts | None]:
        """Return where rows of the store came from.

        Parameters
        ----------
        start, stop : int
            The rows ``start:stop`` of the store's order.

        Returns
        -------
        numbers : int64 (n,)
            Number of each row among those of all sources, in their order, from 0; rows that were
            left out count. A store of format 2 does not know it: there it is the store's order.
        tags : Texts or None
            Their tags, if any row has one.

        Raises
        ------
        StoreError
            If what is read is damaged.
        """
        numbers = np.arange(start, stop)
        if self.numbered:
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

    def first(self, n_rows: int) -> Dataset:
        """Return a view of the first rows: a random sample, since a store is shuffled.

        Counts and pairs are those of the sample, which is read for them; ids and names are those of
        the store.

        Parameters
        ----------
        n_rows : int
            Rows of the view, at least one; of a smaller store all.
        """
        n, step = min(n_rows, self.n_rows), self.facts.block_rows
        features, classes = np.zeros(self.n_features, np.int64), np.zeros(self.n_classes, np.int64)
        pairs = PairSketch()
        for start in range(0, n, step):
            block = self.rows(start, min(start + step, n))
            features += np.bincount(block.features, minlength=self.n_features)
            classes += np.bincount(block.lists.classes, minlength=self.n_classes)
            pairs.add(block.indptr, block.features, block.classes, block.labels)
        nnz = int(features.sum())
        digest = sha256([f"{self.digest} {n}".encode()])
        root = msgspec.structs.replace(
            self.root,
            rows=n,
            nnz=nnz,
            manifest=digest,
            pairs=min(pairs.estimate(), nnz * max(1, self.root.max_row_labels)),
            labels=int(classes.sum()) if self.listed else 0,
        )
        view = self._seen_as(root)
        view.feature_counts, view.label_counts = features, classes
        view._class_weights = self._class_weights
        return view

    def weighed(self, class_weights: NDArray[np.float32]) -> Dataset:
        """Return a view whose rows count for as much as they do times the weight of their class.

        Parameters
        ----------
        class_weights : float32 (K,)
            The weights, finite and not below 0; rows have one label each.
        """
        digest = sha256([self.digest.encode(), class_weights.tobytes()])
        view = self._seen_as(msgspec.structs.replace(self.root, manifest=digest))
        view._class_weights = class_weights
        return view

    def _seen_as(self, root: Root) -> Dataset:
        """Return a view of the same rows that says another thing of them."""
        return Dataset(self.path, root, self._arrays, self._blobs, self._documents)

    def verify(self, *, deep: bool = True, progress: Wanted = None) -> list[str]:
        """Return a line for each thing that is wrong.

        Parameters
        ----------
        deep : bool
            Whether every byte is read, every chunk decoded and every row checked; else only the
            index at the end of each file, beside what :meth:`open` checks.
        progress : bool, str or callable, optional
            Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what
            is called with (stage, done, total).

        Raises
        ------
        UsageError
            If there is no such way to tell it.
        """
        with shown(progress, "", {"files": 1.0, "rows": 3.0}) as told:
            found, sizes = (
                list[str](),
                [a.n_values * a.dtype.itemsize for a in self._arrays.values()],
            )
            for i, array in enumerate(self._arrays.values()):
                told("files", sum(sizes[:i]), sum(sizes))
                found += array.verify(deep=deep)
            return found if found or not deep else list(self._wrong_content(told))

    def _wrong_content(self, told: Told) -> Iterator[str]:
        """Yield a line for each thing that is wrong in what was decoded."""
        features, classes = np.zeros(self.n_features, np.int64), np.zeros(self.n_classes, np.int64)
        most, labels, step = 0, 0, min(self.facts.block_rows, self.n_rows)
        numbers = Numbers(self.root.source_rows, self.n_rows) if self.numbered else None
        try:
            _ = self.columns
            for group, names in (("labels", self.labels), ("features", self.features)):
                check_distinct(self.path, group, names)
            for start in range(0, self.n_rows, step):
                told("rows", start, self.n_rows)
                block = self.rows(start, min(start + step, self.n_rows))
                features += np.bincount(block.features, minlength=self.n_features)
                classes += np.bincount(block.lists.classes, minlength=self.n_classes)
                labels = max(labels, block.lists.n_labels)
                most = max(most, block.nnz)
                origins, _ = self.origins(start, start + block.n_rows)
                if numbers is not None:
                    numbers.take(origins)
            if not np.array_equal(features, self.feature_counts):
                yield f"damaged: {self.path}/features/count does not agree with the rows"
            if not np.array_equal(classes, self.label_counts):
                yield f"damaged: {self.path}/labels/count does not agree with the rows"
        except StoreError as error:
            yield str(error)
            return
        if numbers is not None and numbers.twice():
            yield f"damaged: {self.path}/row: two rows have one number"
        if most > self.root.max_block_nnz:
            yield f"damaged: {self.path}: a block has more values than the root says"
        if self.listed and labels > self.root.max_block_labels:
            yield f"damaged: {self.path}: a block has more labels than the root says"

    def close(self) -> None:
        """Close the store's files."""
        for array in self._arrays.values():
            array.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _line(self) -> str:
        return (
            f"{str(self.path)!r}: {self.n_rows:,} rows, {self.n_features:,} features, "
            f"{self.n_classes:,} classes"
        )

    def _names(self, group: str) -> Names:
        kind = kind_of_names(self.path, group, self._documents)
        names = Names(self.array(f"{group}/offsets"), self.array(f"{group}/bytes"), kind)
        return check_names(self.path, group, names)
