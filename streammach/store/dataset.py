"""Opens a store: what it says of itself, views of it, and its rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
from streammach.rows.names import MINUS, ClassNames, Names, TrainedColumns
from streammach.store.blobs import Blobs, damage_error
from streammach.store.opening import (
    kind_of_names,
    open_arrays,
    read_documents,
    read_manifest,
    read_root,
)
from streammach.store.remote import blobs_of
from streammach.store.root import Root
from streammach.store.stored_arrays import ArrayReader, ReadArray
from streammach.store.stored_rows import StoredRows
from streammach.system.errors import StoreError
from streammach.system.files.reading import sha256
from streammach.system.progress import Told, Wanted, show_progress

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


class Dataset(StoredRows, Reported):
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
        blobs: Blobs | None = None, documents: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(path, root, arrays)
        self.store_digest = root.manifest  # that of the store, of its views by class weights, too
        self._blobs, self._documents = blobs, documents or {}
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
        root = read_root(blobs)
        manifest = read_manifest(blobs, root)
        documents = read_documents(blobs, manifest)
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
        sizes = {name: array.n_values for name, array in self._arrays.items()}
        names = sum(8 * sizes[f"{g}/offsets"] + sizes[f"{g}/bytes"] for g in ("labels", "features"))
        named = 0
        if self.label_names is not None:
            named = self.label_names.texts.n_bytes
            names = self.labels.n_bytes + self.features.n_bytes
        return DataFacts(
            path=name_of(self.path), digest=self.digest, n_rows=self.n_rows,
            n_classes=self.n_classes, n_features=self.n_features, nnz=self.nnz,
            n_pairs=self._telling_pairs, max_row_nnz=self.root.max_row_nnz,
            block_rows=min(self.root.block_rows, MAX_BLOCK_ROWS),
            max_block_nnz=self.root.max_block_nnz, value_bytes=self.value_type.itemsize,
            weighted=self.weighted, names_bytes=names, label_name_bytes=named,
            row_postings=self._row_postings,
            n_labels=max(self.root.labels, 1) if self.listed else 0,  # of a sample without any, too
            max_row_labels=self.root.max_row_labels,
            max_block_labels=self.root.max_block_labels,
            held_bytes=self.held_bytes, intake_bytes=self.intake_bytes,
            libraries_bytes=self.libraries_bytes, heads=self._heads, shared=self.n_common_features,
        )  # fmt: skip

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are in memory, names aside: none of a store's are."""
        return 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of the store's files; 0 of rows in memory."""
        return 0 if self._blobs is None else self._blobs.n_bytes()

    @cached_property
    def n_common_features(self) -> int:
        """How many of the first features every row has, in eights; 0 where there are no others."""
        some = self.feature_counts < self.n_rows
        return int(np.argmax(some)) // 8 * 8 if some.any() else 0

    @property
    def _telling_pairs(self) -> int:
        """About how many pairs there are of features that tell something."""
        return max(self.root.pairs - self.n_common_features * self.n_classes, 0)

    @property
    def _row_postings(self) -> int:
        """About how many of these pairs the features of a row have together."""
        # A feature's classes are at most its rows and K; the same share of that for all of them.
        rows = self.feature_counts[self.n_common_features :].astype(np.float64)
        most = np.minimum(rows, self.n_classes)
        return int(product(most, rows) / max(most.sum(), 1.0) * self._telling_pairs / self.n_rows)

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
        if positions is not None:
            known = positions[positions >= 0]
            if positions.min() < -1 or positions.max() >= n or len(np.unique(known)) < len(known):
                raise damage_error(self.path, "the columns of features are wrong")
        elif n and not _numbers_below(self.features, n):
            raise damage_error(self.path, "features are not the numbers of columns")
        return TrainedColumns(n, positions)

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
        features, classes = np.zeros(self.n_features, np.int64), np.zeros(self.n_classes, np.int64)
        pairs = PairSketch()
        for start, stop in self.block_ranges(n):
            block = self.rows(start, stop)
            features += np.bincount(block.features, minlength=self.n_features)
            classes += np.bincount(block.lists.classes, minlength=self.n_classes)
            pairs.add(block)
        nnz = int(features.sum())
        digest = sha256([f"{self.digest} {n}".encode()])
        root = msgspec.structs.replace(
            self.root, rows=n, nnz=nnz, manifest=digest,
            pairs=min(pairs.estimate(), nnz * max(1, self.root.max_row_labels)),
            labels=int(classes.sum()) if self.listed else 0,
        )  # fmt: skip
        view = self._seen_as(root)
        view.feature_counts, view.label_counts = features, classes
        return view

    def weigh_classes(self, class_weights: NDArray[np.float32]) -> Dataset:
        """Return a view whose rows count for as much as they do times the weight of their class.

        Parameters
        ----------
        class_weights : float32 (K,)
            The weights, finite and not below 0; rows have one label each.
        """
        digest = sha256([self.digest.encode(), class_weights.tobytes()])
        view = self._seen_as(msgspec.structs.replace(self.root, manifest=digest))
        view._class_weights, view.store_digest = class_weights, self.store_digest
        return view

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
        view = self._seen_as(root)
        view.label_names, view.labels, view.features = names, labels, features
        for name, own in (("label_counts", labels), ("feature_counts", features)):
            counts = getattr(self, name)
            more = np.zeros(len(own) - len(counts), np.int64)
            setattr(view, name, np.concatenate([counts, more]))
        view.store_digest = self.store_digest
        return view

    def _opened_as(self, root: Root) -> Dataset:
        return Dataset(self.path, root, self._arrays, self._blobs, self._documents)

    def _seen_as(self, root: Root) -> Dataset:
        view = self._opened_as(root)
        view._class_weights = self._class_weights
        if self.label_names is not None:
            for name in ("label_names", "labels", "features", "label_counts", "feature_counts"):
                setattr(view, name, getattr(self, name))
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
        with show_progress(progress, "", {"files": 1.0, "rows": 3.0}) as told:
            found = list[str]()
            sizes = [a.n_values * a.dtype.itemsize for a in self._arrays.values()]
            for i, array in enumerate(self._arrays.values()):
                told("files", sum(sizes[:i]), sum(sizes))
                if isinstance(array, ArrayReader):  # memory has no checksums
                    found += array.verify(deep=deep)
            return found if found or not deep else list(self._wrong_content(told))

    def _wrong_content(self, told: Told) -> Iterator[str]:
        """Yield a line for each thing that is wrong in what was decoded; all rows are read."""
        try:
            _ = self.columns, self.stored_names
            for group, names in (("labels", self.labels), ("features", self.features)):
                try:  # what is looked up by name would be one of two that are the same
                    names.ids_of(Names.of([]))
                except StoreError:
                    raise damage_error(self.path, f"a name of {group} is there twice") from None
            said = {"features": self.feature_counts, "labels": self.label_counts}
            yield from self.wrong_rows(said, self.block_ranges(), told)
        except StoreError as error:
            yield error.finding

    def close(self) -> None:
        """Close the store's files."""
        if self._blobs is not None:
            self._blobs.close()

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
        if not names.sound():
            raise damage_error(self.path, f"the names of {group} are wrong")
        return names


def _numbers_below(names: Names, n: int) -> bool:
    """Return whether all names are integers from 0 to below n."""
    longest = int(np.diff(names.offsets).max())
    negative = (names.data[names.offsets[:-1]] == MINUS).any()
    if names.kind != "integer" or negative or longest > len(str(n)):
        return False
    return longest < len(str(n)) or max(int(names.raw(i)) for i in range(len(names))) < n


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
