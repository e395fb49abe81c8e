"""Opens a store: what it says of itself, views of it, and its rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import name_of
from streammach.options.annotated import check_options
from streammach.options.facts import HEADS, DataFacts
from streammach.options.reported import Reported
from streammach.rows.dense import product
from streammach.rows.distinct import PairSketch
from streammach.rows.layouts import within
from streammach.rows.names import ClassNames, Names, TrainedColumns
from streammach.store.blobs import Blobs, damage_error
from streammach.store.opening import check_columns, kind_of_names, open_store
from streammach.store.remote import blobs_of
from streammach.store.root import Root
from streammach.store.row_totals import MAX_BLOCK_ROWS, Occurrences, RowImportance
from streammach.store.stored_arrays import ArrayInMemory, ReadArray
from streammach.store.stored_rows import StoredRows
from streammach.store.verification import find_damage
from streammach.system.files.reading import sha256
from streammach.system.progress import Wanted


class Dataset(StoredRows, Reported, AbstractContextManager["Dataset"]):
    """A store of labelled rows, opened for reading; safe to read from several threads.

    Use :meth:`open`. A ``with`` block closes its files.

    Attributes
    ----------
    path : Path
        The store's folder, or its URL.
    root : Root
        Its root document.
    stored_bytes : int
        Bytes of the store's files; 0 of rows in memory.
    intake_bytes : int
        The memory that it took to bring rows into memory; 0 of a store.
    libraries_bytes : int
        The memory of libraries that the rows came by.
    given : int64 (n,), optional
        Which of the rows that were given are those in memory; None where all are.
    label_names : ClassNames or None
        What classes are called; None where the user did not say it.
    """

    intake_bytes: int = 0
    libraries_bytes: int = 0
    given: NDArray[np.int64] | None = None
    label_names: ClassNames | None = None

    def __init__(
        self, path: Path, root: Root, arrays: Mapping[str, ReadArray],
        documents: Mapping[str, bytes] | None = None, stored_bytes: int = 0,
        blobs: Blobs | None = None,
    ) -> None:  # fmt: skip
        super().__init__(path, root, arrays)
        self.store_digest = root.manifest  # that of the store, of its views by class weights, too
        self._blobs, self._documents, self.stored_bytes = blobs, documents or {}, stored_bytes
        if blobs is not None:
            self.libraries_bytes = blobs.libraries_bytes

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
        check_options(Dataset.open.__annotations__, locals())
        blobs = blobs_of(path, cache, cache_size)
        return cls(blobs.place, *open_store(blobs), blobs)

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
        n_pairs, row_postings = self._telling_pairs
        sizes = {name: array.n_values for name, array in self._arrays.items()}
        names = sum(8 * sizes[f"{g}/offsets"] + sizes[f"{g}/bytes"] for g in ("labels", "features"))
        named = 0
        if self.label_names is not None:
            named = self.label_names.texts.n_bytes
            names = self.labels.n_bytes + self.features.n_bytes
        return DataFacts(
            path=name_of(self.path), digest=self.digest, n_rows=self.n_rows,
            n_classes=self.n_classes, n_features=self.n_features, nnz=self.nnz,
            n_pairs=n_pairs, max_row_nnz=self.root.max_row_nnz,
            block_rows=min(self.root.block_rows, MAX_BLOCK_ROWS),
            max_block_nnz=self.root.max_block_nnz, value_bytes=self.value_type.itemsize,
            weighted=self.weighted, names_bytes=names, label_name_bytes=named,
            row_postings=row_postings,
            n_labels=max(self.root.labels, 1) if self.listed else 0,  # of a sample without any, too
            max_row_labels=self.root.max_row_labels,
            max_block_labels=self.root.max_block_labels,
            held_bytes=self.held_bytes, intake_bytes=self.intake_bytes,
            libraries_bytes=self.libraries_bytes, heads=self._heads, shared=self.n_common_features,
        )  # fmt: skip

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are in memory, names aside: none of a store's are."""
        rows = (a for name, a in self._arrays.items() if not name.startswith(("labels/", "feat")))
        return sum(a.n_values * a.dtype.itemsize for a in rows if isinstance(a, ArrayInMemory))

    @cached_property
    def n_common_features(self) -> int:
        """How many of the first features every row has, in eights; 0 where there are no others."""
        some = self.feature_counts < self.n_rows
        return int(np.argmax(some)) // 8 * 8 if some.any() else 0

    @property
    def _telling_pairs(self) -> tuple[int, int]:
        """About how many pairs there are of features that tell something, and those of a row's."""
        n_pairs = max(self.root.pairs - self.n_common_features * self.n_classes, 0)
        # A feature's classes are at most its rows and K; the same share of that for all of them.
        rows = self.feature_counts[self.n_common_features :].astype(np.float64)
        most = np.minimum(rows, self.n_classes)
        return n_pairs, int(product(most, rows) / max(most.sum(), 1.0) * n_pairs / self.n_rows)

    @cached_property
    def _heads(self) -> tuple[int, ...]:
        """How many of the first features make up each share of the values."""
        values = np.cumsum(self.feature_counts)
        return tuple((np.searchsorted(values, values[-1] * np.array(HEADS)) + 1).tolist())

    @property
    def n_labels(self) -> int:
        """Labels of all rows together."""
        return self.root.labels if self.listed else self.n_rows

    @cached_property
    def columns(self) -> TrainedColumns:
        """The columns of the matrix that the rows came from."""
        name = "features/column"
        n, positions = self.root.columns, self.array(name) if name in self._arrays else None
        features = self.features if n and positions is None else None
        return check_columns(self.path, n, positions, features)

    @cached_property
    def labels(self) -> Names:
        """The classes' names by id."""
        return self._names("labels")

    @cached_property
    def stored_names(self) -> ClassNames | None:
        """What the sources call classes; None where they do not say it."""
        if "names/class" not in self._arrays:
            return None
        classes, texts = self.array("names/class"), self._names("names")
        rising = within(classes, self.root.classes) and not (np.diff(classes) < 0).any()
        if not rising or len(classes) != len(texts):
            raise damage_error(self.path, "the classes of names are wrong")
        return ClassNames(classes, texts)

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

    def block_ranges(self, n_rows: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield where the blocks of all rows, or of the first so many, start and stop.

        Parameters
        ----------
        n_rows : int, optional
            How many.
        """
        n, step = self.n_rows if n_rows is None else n_rows, self.facts.block_rows
        return ((start, min(start + step, n)) for start in range(0, n, step))

    @cached_property
    def counting(self) -> RowImportance:
        """What rows count as: each once, or by its importance."""
        if not self.weighted:
            return RowImportance(1.0, self.label_counts)
        sums, labels = np.zeros(2), np.zeros(self.n_classes)
        for start, stop in self.block_ranges():
            rows = self.importances(start, stop)
            w, lists = rows.weights.astype(np.float64), rows.lists
            sums += w.sum(), (w * w).sum()
            labels += np.bincount(lists.classes, w[lists.rows], self.n_classes)
        unit = min(1.0, float(sums[1] / sums[0])) if sums[0] else 1.0
        return RowImportance(unit, labels / unit)

    def _counts(self, group: str, total: int) -> NDArray[np.int64]:
        counts = self.array(f"{group}/count")
        if counts.min() < 0 or counts.max() > self.n_rows or int(counts.sum()) != total:
            raise damage_error(self.path, f"{group}/count cannot be")
        return counts

    def array(self, name: str) -> NDArray[Any]:
        """Return a whole array by its path in the store, as it is."""
        reader = self._arrays[name]
        return reader.read(0, reader.n_values)

    def first(self, n_rows: int) -> Dataset:
        """Return a view of the first rows: a random sample, since a store is shuffled.

        Counts and pairs are those of the sample, which is read for them; ids and names are those of
        the store.

        Parameters
        ----------
        n_rows : int
            Rows of the view, at least one; of a smaller store all.
        """
        n = min(n_rows, self.n_rows)
        counts, pairs = Occurrences(self.n_features, self.n_classes), PairSketch()
        for start, stop in self.block_ranges(n):
            block = self.rows(start, stop)
            counts.add(block)
            pairs.add(block)
        nnz = int(counts.features.sum())
        digest = sha256([f"{self.digest} {n}".encode()])
        root = msgspec.structs.replace(
            self.root, rows=n, nnz=nnz, manifest=digest,
            pairs=min(pairs.estimate(), nnz * max(1, self.root.max_row_labels)),
            labels=int(counts.labels.sum()) if self.listed else 0,
        )  # fmt: skip
        return self._view(
            root, store_digest=digest, feature_counts=counts.features, label_counts=counts.labels
        )

    def weigh_classes(self, class_weights: NDArray[np.float32]) -> Dataset:
        """Return a view whose rows count for as much as they do times the weight of their class.

        Parameters
        ----------
        class_weights : float32 (K,)
            The weights, finite and not below 0; rows have one label each.
        """
        digest = sha256([self.digest.encode(), class_weights.tobytes()])
        root = msgspec.structs.replace(self.root, manifest=digest)
        return self._view(root, _class_weights=class_weights)

    def name_labels(self, names: ClassNames, labels: Names, features: Names) -> Dataset:
        """Return a view whose classes have names.

        Parameters
        ----------
        names : ClassNames
            The names of classes.
        labels, features : Names
            Those of the rows, and behind them those that no row has.
        """
        lists = names.texts, labels, features
        parts = [names.classes, *(x for one in lists for x in (one.offsets, one.data))]
        digest = sha256([self.digest.encode(), *(part.tobytes() for part in parts)])
        root = msgspec.structs.replace(
            self.root, manifest=digest, classes=len(labels), features=len(features)
        )
        return self._view(
            root, label_names=names, labels=labels, features=features,
            label_counts=np.pad(self.label_counts, (0, len(labels) - self.n_classes)),
            feature_counts=np.pad(self.feature_counts, (0, len(features) - self.n_features)),
        )  # fmt: skip

    def _view(self, root: Root, **changes: Any) -> Self:
        """Return the same rows as another root tells them, with other attributes by name."""
        view = copy(self)
        view.root = root
        for name in ("n_common_features", "_heads", "counting"):  # which follow from these
            vars(view).pop(name, None)
        vars(view).update(changes)
        return view

    def verify(self, *, deep: bool = True, progress: Wanted = None) -> list[str]:
        """Return a line for each thing that is wrong.

        Parameters
        ----------
        deep : bool
            Whether every byte is read, every chunk decoded and every row checked; else only the
            index at the end of each file, beside what :meth:`open` checks.
        progress : bool, str or callable, optional
            Whether it is told how it goes, as for :func:`streammach.train`.

        Raises
        ------
        UsageError
            If there is no such way to tell it.
        """
        return find_damage(self, self._arrays, deep=deep, progress=progress)

    def close(self) -> None:
        """Close the store's files."""
        if self._blobs is not None:
            self._blobs.close()

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
        if not names.is_sound():
            raise damage_error(self.path, f"the names of {group} are wrong")
        return names


def verify(
    store: str | os.PathLike[str], *, deep: bool = True, progress: Wanted = None
) -> list[str]:
    """Return a line for each thing that is wrong with a store; none if it is what was written.

    Parameters
    ----------
    store : path-like
        The store.
    deep : bool
        Whether every byte is read, every chunk decoded and every row checked; else only metadata,
        the sizes of files and the index of each.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`.

    Raises
    ------
    UsageError, StoreError, DiskError
        If it cannot be opened as a store.
    """
    check_options(verify.__annotations__, locals())
    with Dataset.open(store) as dataset:
        return dataset.verify(deep=deep, progress=progress)
