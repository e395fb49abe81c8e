"""Opens a store and reads rows from it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.store.arrays import CHUNK, DTYPES, SHARD_CHUNKS, ArrayReader
from streammach.data.store.writer import FORMAT, Manifest
from streammach.errors import DiskError, StoreError, clean
from streammach.files.reading import read_small, sha256
from streammach.rows.block import RowBlock
from streammach.rows.dense import product
from streammach.rows.distinct import PairSketch
from streammach.rows.names import Names
from streammach.rows.texts import Texts
from streammach.rows.trained import TrainedColumns
from streammach.spec import DataFacts, from_json

MAX_DOCUMENT = 64 << 10
MAX_MANIFEST = 64 << 20
CONVERT_AGAIN = "Convert the source again."
ARRAYS = (
    "X/indptr", "X/indices", "X/data", "y",
    "labels/offsets", "labels/bytes", "labels/count",
    "features/offsets", "features/bytes", "features/count",
)  # fmt: skip
MORE_ARRAYS = ("row", "weight", "tag/offsets", "tag/bytes", "features/column")
FORMATS = (2, FORMAT)  # that are read


class Root(msgspec.Struct, frozen=True):
    """What the root document of a store says under ``streammach``."""

    format: int
    complete: bool
    rows: int
    classes: int
    features: int
    nnz: int
    pairs: int
    max_row_nnz: int
    block_rows: int
    max_block_nnz: int
    seed: int
    options: dict[str, Any]
    source: list[dict[str, Any]]
    skipped: dict[str, int]
    counts: dict[str, int]
    manifest: str
    check: str
    columns: int = 0

    @property
    def source_rows(self) -> list[int]:
        """Rows of each source, those that were left out too; empty up to format 2."""
        return [int(facts.get("rows", 0)) for facts in self.source]


class Dataset:
    """A store of labelled rows, opened for reading; safe to read from several threads.

    Use :meth:`open`. A ``with`` block closes its files.

    Attributes
    ----------
    path : Path
        The store's folder.
    root : Root
        Its root document.
    """

    def __init__(self, path: Path, root: Root, arrays: dict[str, ArrayReader]) -> None:
        self.path = path
        self.root = root
        self._arrays = arrays

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dataset:
        """Open a store: metadata are read and checked, rows are not.

        Parameters
        ----------
        path : path-like
            The store's folder.

        Raises
        ------
        StoreError
            If it is no store, is not complete, has another version, or its files are not those of
            its manifest.
        DiskError
            If it cannot be read.
        """
        folder = Path(path)
        root = _read_root(folder)
        manifest = _read_manifest(folder, root)
        _check_files(folder, root, manifest)
        names = [n for n in (*ARRAYS, *MORE_ARRAYS) if f"{n}/zarr.json" in manifest.metadata]
        arrays = {name: _open_array(folder, name, manifest) for name in names}
        dataset = cls(folder, root, arrays)
        dataset._check_lengths()
        return dataset

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
            str(self.path),
            self.digest,
            self.n_rows,
            self.n_classes,
            self.n_features,
            self.nnz,
            self.root.pairs,
            self.root.max_row_nnz,
            self.root.block_rows,
            self.root.max_block_nnz,
            self.value_type.itemsize,
            self.weighted,
            names,
            self._row_postings,
        )

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
    def weighted(self) -> bool:
        """Whether rows have importance weights."""
        return "weight" in self._arrays

    @property
    def numbered(self) -> bool:
        """Whether rows have the numbers that they had in their sources: from format 3 on."""
        return "row" in self._arrays

    @property
    def tagged(self) -> bool:
        """Whether rows have tags."""
        return "tag/bytes" in self._arrays

    @cached_property
    def columns(self) -> TrainedColumns:
        """The columns of the matrix that the rows came from."""
        positions = self.array("features/column") if "features/column" in self._arrays else None
        return TrainedColumns(self.root.columns, positions)

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
        return self.array("labels/count")

    @cached_property
    def feature_counts(self) -> NDArray[np.int64]:
        """Rows that hold each feature: int64 (d,)."""
        return self.array("features/count")

    def array(self, name: str) -> NDArray[Any]:
        """Return a whole array by its path in the store."""
        reader = self._arrays[name]
        return reader.read(0, reader.n_values)

    def read_into(self, name: str, start: int, stop: int, out: NDArray[Any]) -> None:
        """Read values ``start:stop`` of an array into `out`, of the array's type."""
        self._arrays[name].read(start, stop, out)

    def rows(self, start: int, stop: int) -> RowBlock:
        """Return rows ``start:stop`` in the store's order.

        Raises
        ------
        StoreError
            If what is read is damaged.
        """
        indptr = self._arrays["X/indptr"].read(start, stop + 1).astype(np.int64, copy=False)
        a, b = int(indptr[0]), int(indptr[-1])
        weights = self._arrays["weight"].read(start, stop) if self.weighted else None
        return RowBlock(
            indptr - a,
            self._arrays["X/indices"].read(a, b),
            self._arrays["X/data"].read(a, b),
            self._arrays["y"].read(start, stop),
            weights,
        )

    def origins(self, start: int, stop: int) -> tuple[NDArray[np.int64], Texts | None]:
        """Return where rows ``start:stop`` of the store's order came from.

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
            numbers = self._arrays["row"].read(start, stop)
        if not self.tagged:
            return numbers, None
        offsets = self._arrays["tag/offsets"].read(start, stop + 1)
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
        n, step = min(n_rows, self.n_rows), self.root.block_rows
        features = np.zeros(self.n_features, np.int64)
        labels = np.zeros(self.n_classes, np.int64)
        pairs = PairSketch()
        for start in range(0, n, step):
            block = self.rows(start, min(start + step, n))
            features += np.bincount(block.features, minlength=self.n_features)
            labels += np.bincount(block.labels, minlength=self.n_classes)
            pairs.add(block.indptr, block.features, block.labels)
        nnz = int(features.sum())
        digest = sha256([f"{self.digest} {n}".encode()])
        root = msgspec.structs.replace(
            self.root, rows=n, nnz=nnz, pairs=min(pairs.estimate(), nnz), manifest=digest
        )
        view = Dataset(self.path, root, self._arrays)
        view.feature_counts, view.label_counts = features, labels
        return view

    def verify(self, *, deep: bool = True) -> list[str]:
        """Return a line for each thing that is wrong.

        Parameters
        ----------
        deep : bool
            Whether every byte is read, every chunk decoded and every row checked; else only the
            index at the end of each file, beside what :meth:`open` checks.
        """
        found = [line for array in self._arrays.values() for line in array.verify(deep=deep)]
        if found or not deep:
            return found
        indptr = self.array("X/indptr")
        if indptr[0] != 0 or indptr[-1] != self.nnz or (np.diff(indptr) < 0).any():
            return [f"damaged: {self.path}/X/indptr does not rise from 0 to {self.nnz:,}"]
        counts = np.zeros(self.n_features, np.int64)
        for start in range(0, self.n_rows, CHUNK):
            block = self.rows(start, min(start + CHUNK, self.n_rows))
            found += self._wrong_ids(block, start)
            counts += np.bincount(block.features, minlength=self.n_features)[: self.n_features]
        if not found and not np.array_equal(counts, self.feature_counts):
            found.append(f"damaged: {self.path}/features/count does not agree with the rows")
        return found

    def _wrong_ids(self, block: RowBlock, start: int) -> list[str]:
        ends = np.zeros(block.nnz, bool)
        ends[block.indptr[1:-1][block.indptr[1:-1] < block.nnz]] = True
        rising = np.diff(block.features) > 0
        inside = (block.features >= 0) & (block.features < self.n_features)
        classes = (block.labels >= 0) & (block.labels < self.n_classes)
        if (rising | ends[1:]).all() and inside.all() and classes.all():
            return []
        return [
            f"damaged: {self.path}: ids of rows {start:,} to {start + block.n_rows:,} are wrong"
        ]

    def close(self) -> None:
        """Close the store's files."""
        for array in self._arrays.values():
            array.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Dataset({str(self.path)!r}: {self.n_rows:,} rows, {self.n_features:,} features, "
            f"{self.n_classes:,} classes)"
        )

    def _names(self, group: str) -> Names:
        document = read_small(self.path / group / "zarr.json", MAX_DOCUMENT)
        kind = msgspec.json.decode(document)["attributes"]["kind"]
        return Names(self.array(f"{group}/offsets"), self.array(f"{group}/bytes"), kind)

    def _check_lengths(self) -> None:
        lengths = {
            "X/indptr": self.n_rows + 1,
            "X/indices": self.nnz,
            "X/data": self.nnz,
            "y": self.n_rows,
            "weight": self.n_rows,
            "row": self.n_rows,
            "tag/offsets": self.n_rows + 1,
            "features/column": self.n_features,
            "labels/offsets": self.n_classes + 1,
            "labels/count": self.n_classes,
            "features/offsets": self.n_features + 1,
            "features/count": self.n_features,
        }
        for name, reader in self._arrays.items():
            if reader.n_values != lengths.get(name, reader.n_values):
                raise StoreError(
                    f"{name} has {reader.n_values:,} values, not {lengths[name]:,}",
                    path=clean(self.path, 300),
                    hint=CONVERT_AGAIN,
                )


def _read_root(folder: Path) -> Root:
    place = clean(folder, 300)
    if not folder.is_dir():
        raise StoreError(
            "there is no such store", path=place, hint="Make one with: streammach convert"
        )
    if not (folder / "zarr.json").is_file():
        raise StoreError("not a store: it has no zarr.json", path=place, hint=CONVERT_AGAIN)
    try:
        text = read_small(folder / "zarr.json", MAX_DOCUMENT)
        document = from_json(text, dict[str, Any])
        attributes = document["attributes"]["streammach"]
        found = attributes["format"]
        if found not in FORMATS:
            known = " and ".join(map(str, FORMATS))
            raise StoreError(
                f"its format is {clean(found)}, this release reads {known}",
                path=place,
                hint="Use the release that wrote it, or convert the source again.",
            )
        root = msgspec.convert(attributes, Root)
    except (ValueError, KeyError, TypeError, DiskError) as error:
        if isinstance(error, StoreError):
            raise
        hint = "Was it written by streammach convert?"
        raise StoreError(f"not a store ({clean(error)})", path=place, hint=hint) from None
    if not root.complete:
        raise StoreError("the store is not complete", path=place, hint=CONVERT_AGAIN)
    if sha256([text.replace(root.check.encode() or b"?", b"", 1)]) != root.check:
        raise _damaged(folder, "zarr.json was changed")
    return root


def _read_manifest(folder: Path, root: Root) -> Manifest:
    try:
        text = read_small(folder / "manifest.json", MAX_MANIFEST)
        if sha256([text]) != root.manifest:
            raise ValueError("its digest is not the one that the root names")
        return msgspec.json.decode(text, type=Manifest)
    except (ValueError, DiskError) as error:
        raise StoreError(
            f"the manifest is missing or damaged ({clean(error, 120)})",
            path=clean(folder, 300),
            hint=CONVERT_AGAIN,
        ) from None


def _check_files(folder: Path, root: Root, manifest: Manifest) -> None:
    """Compare what lies in the folder with the manifest: names, kinds, sizes, metadata digests."""
    expected = {"zarr.json", "manifest.json", *manifest.files, *manifest.metadata}
    found: set[str] = set()
    for parent, folders, files in os.walk(folder):
        links = [name for name in (*folders, *files) if os.path.islink(os.path.join(parent, name))]
        if links:
            raise _damaged(folder, f"{clean(links[0])} is a link")
        found.update(os.path.relpath(os.path.join(parent, name), folder) for name in files)
    names = {Path(name).as_posix() for name in found}
    for name in sorted(expected ^ names):
        raise _damaged(folder, f"{clean(name)} is {'missing' if name in expected else 'foreign'}")
    for name, facts in manifest.files.items():
        size = (folder / name).stat().st_size
        if size != facts.size:
            raise _damaged(folder, f"{name} has {size:,} bytes, not {facts.size:,}")
    for name, digest in manifest.metadata.items():
        if sha256([read_small(folder / name, MAX_DOCUMENT)]) != digest:
            raise _damaged(folder, f"{name} was changed")
    missing = [name for name in ARRAYS if f"{name}/zarr.json" not in manifest.metadata]
    if missing or root.rows < 1 or root.features < 1:
        raise _damaged(folder, f"it lacks {missing[0] if missing else 'rows or features'}")


def _damaged(folder: Path, what: str) -> StoreError:
    return StoreError(f"damaged: {what}", path=clean(folder, 300), hint=CONVERT_AGAIN)


def _open_array(folder: Path, name: str, manifest: Manifest) -> ArrayReader:
    document = msgspec.json.decode(read_small(folder / name / "zarr.json", MAX_DOCUMENT))
    sharding = document["codecs"][0]["configuration"]
    codecs = [codec["name"] for codec in sharding["codecs"]]
    shard = document["chunk_grid"]["configuration"]["chunk_shape"]
    known = (
        codecs == ["bytes", "blosc", "crc32c"]
        and sharding["chunk_shape"] == [CHUNK]
        and shard == [CHUNK * SHARD_CHUNKS]
        and document["data_type"] in DTYPES
    )
    if not known:
        raise _damaged(folder, f"{name} is not stored as this format stores it")
    files = {
        n.removeprefix(name + "/"): f for n, f in manifest.files.items() if n.startswith(name + "/")
    }
    return ArrayReader(folder / name, np.dtype(document["data_type"]), document["shape"][0], files)
