"""Opens a store's documents, which are checked before anything is taken; tells ours from others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from streammach.data.store.arrays import CHUNK, SHARD_CHUNKS, ArrayReader
from streammach.data.store.blobs import CONVERT_AGAIN, Blobs, damaged, is_remote
from streammach.data.store.codecs import codec_of
from streammach.data.store.root import MOST_ROWS, Root
from streammach.data.store.writer import Manifest
from streammach.errors import DiskError, StoreError, UsageError, clean
from streammach.files.destinations import Product
from streammach.files.reading import read_small, sha256
from streammach.formats import STORE_FORMAT
from streammach.spec.documents import from_json

MAX_DOCUMENT = 8 << 20  # bytes of the root, which holds the recipe of a table of many columns
MAX_ARRAY_DOCUMENT = 64 << 10
MAX_MANIFEST = 64 << 20
NO_STORE = "it is no store that streammach made"
ARRAYS: dict[str, tuple[str, ...]] = {
    "X/indptr": ("int64",), "X/indices": ("int32",), "X/data": ("uint8", "float32"),
    "labels/offsets": ("int64",), "labels/bytes": ("uint8",), "labels/count": ("int64",),
    "features/offsets": ("int64",), "features/bytes": ("uint8",), "features/count": ("int64",),
}  # fmt: skip
ONE_LABEL: dict[str, tuple[str, ...]] = {"y": ("int32",)}
LABEL_LISTS: dict[str, tuple[str, ...]] = {
    "y/indptr": ("int64",), "y/indices": ("int32",), "y/data": ("uint8", "float32"),
}  # fmt: skip
NUMBERED = "row"
MORE_ARRAYS: dict[str, tuple[str, ...]] = {
    NUMBERED: ("int64",), "weight": ("float32",),
    "tag/offsets": ("int64",), "tag/bytes": ("uint8",),
    "features/column": ("int32",),
}  # fmt: skip

T = TypeVar("T")
DataType = Literal["int64", "int32", "uint8", "float32"]
Kind = Literal["integer", "utf8", "bytes"]


class _Inner(msgspec.Struct, frozen=True):
    """A codec of an array."""

    name: str
    configuration: dict[str, Any] = {}


class _Grid(msgspec.Struct, frozen=True):
    """How an array is cut."""

    name: str
    configuration: dict[str, tuple[int, ...]]


class _ArrayDocument(msgspec.Struct, frozen=True):
    """The document of an array, as far as it matters."""

    shape: tuple[int]
    data_type: DataType
    chunk_grid: _Grid
    codecs: tuple[_Inner]


class _Kinds(msgspec.Struct, frozen=True):
    """The attributes of a group of names."""

    kind: Kind


class _NamesDocument(msgspec.Struct, frozen=True):
    """The document of a group of names."""

    attributes: _Kinds


def read_root(blobs: Blobs) -> Root:
    """Return the root document of a store, or raise UsageError, StoreError or DiskError."""
    place = clean(blobs.place, 300)
    try:
        text = blobs.root(MAX_DOCUMENT)
        document = from_json(text, dict[str, Any])
        attributes = document["attributes"]["streammach"]
        found = attributes["format"]
        if found != STORE_FORMAT:
            raise StoreError(
                f"its format is {clean(found)}, this release reads {STORE_FORMAT}",
                path=place,
                hint="Use the release that wrote it, or convert the source again.",
            )
        root = msgspec.convert(attributes, Root)
    except (ValueError, KeyError, TypeError, DiskError) as error:
        if isinstance(error, StoreError | UsageError):
            raise
        if isinstance(error, DiskError) and is_remote(error):
            raise
        hint = "Was it written by streammach convert?"
        raise StoreError(f"not a store ({clean(error)})", path=place, hint=hint) from None
    if not root.complete:
        raise StoreError("the store is not complete", path=place, hint=CONVERT_AGAIN)
    if not is_whole_root(text, root.check):
        raise damaged(blobs.place, "zarr.json was changed")
    wrong = root.wrong()
    if wrong is not None:
        raise damaged(blobs.place, f"its root says what cannot be: {wrong}")
    return root


def is_whole_root(text: bytes, check: str) -> bool:
    """Return whether the digest that a root document holds is that of the rest of it."""
    return sha256([text.replace(check.encode() or b"?", b"", 1)]) == check


def read_manifest(blobs: Blobs, root: Root) -> Manifest:
    """Return the manifest that the root names, or raise StoreError or DiskError."""
    try:
        text = blobs.document("manifest.json", MAX_MANIFEST, root.manifest)
        if sha256([text]) != root.manifest:
            raise ValueError("its digest is not the one that the root names")
        return msgspec.json.decode(text, type=Manifest)
    except (ValueError, RecursionError, DiskError) as error:
        if isinstance(error, DiskError) and is_remote(error):
            raise
        raise StoreError(
            f"the manifest is missing or damaged ({clean(error, 120)})",
            path=blobs.place,
            hint=CONVERT_AGAIN,
        ) from None


def read_documents(blobs: Blobs, root: Root, manifest: Manifest) -> dict[str, bytes]:
    """Return metadata by name; StoreError if they, files or sizes are not the manifest's."""
    blobs.check(["zarr.json", "manifest.json", *manifest.metadata], manifest.files)
    documents = dict[str, bytes]()
    for name, digest in manifest.metadata.items():
        documents[name] = _read(blobs, name, digest)
        if sha256([documents[name]]) != digest:
            raise damaged(blobs.place, f"{clean(name)} was changed")
    needed = [*ARRAYS, *_labels(root), NUMBERED]
    missing = [name for name in needed if f"{name}/zarr.json" not in manifest.metadata]
    if missing:
        raise damaged(blobs.place, f"it lacks {missing[0]}")
    return documents


def _labels(root: Root) -> dict[str, tuple[str, ...]]:
    """Return the arrays that hold the rows' labels, and their types."""
    return LABEL_LISTS if root.listed else ONE_LABEL


def open_arrays(
    blobs: Blobs, root: Root, manifest: Manifest, documents: Mapping[str, bytes]
) -> dict[str, ArrayReader]:
    """Return a store's arrays by name; StoreError if one is not as format and root say."""
    n, k, d = root.rows, root.classes, root.features
    lengths = {
        "X/indptr": n + 1, "X/indices": root.nnz, "X/data": root.nnz, "y": n, "weight": n,
        "y/indptr": n + 1, "y/indices": root.labels, "y/data": root.labels,
        NUMBERED: n, "tag/offsets": n + 1, "labels/offsets": k + 1, "labels/count": k,
        "features/offsets": d + 1, "features/count": d, "features/column": d,
    }  # fmt: skip
    known = {**ARRAYS, **_labels(root), **MORE_ARRAYS}
    found = {
        name: _open_array(blobs, name, manifest, documents, types)
        for name, types in known.items()
        if f"{name}/zarr.json" in manifest.metadata
    }
    for name, array in found.items():
        if array.n_values != lengths.get(name, array.n_values):
            raise damaged(
                blobs.place, f"{name} has {array.n_values:,} values, not {lengths[name]:,}"
            )
    return found


def _open_array(
    blobs: Blobs, name: str, manifest: Manifest, documents: Mapping[str, bytes],
    types: tuple[str, ...],
) -> ArrayReader:  # fmt: skip
    folder = blobs.place
    document = _document(folder, name, documents, _ArrayDocument)
    sharding = document.codecs[0].configuration
    inner = sharding.get("codecs")
    listed = inner if isinstance(inner, list) else []
    names = [codec.get("name") if isinstance(codec, dict) else None for codec in listed]
    codec = codec_of(names)
    shard = document.chunk_grid.configuration.get("chunk_shape")
    known = (
        document.codecs[0].name == "sharding_indexed"
        and sharding.get("chunk_shape") == [CHUNK]
        and shard == (CHUNK * SHARD_CHUNKS,)
        and document.data_type in types
        and 0 <= document.shape[0] <= MOST_ROWS
    )
    if codec is None or not known:
        raise damaged(folder, f"{name} is not stored as this format stores it")
    files = {
        n.removeprefix(name + "/"): f for n, f in manifest.files.items() if n.startswith(name + "/")
    }
    n_values = document.shape[0]
    n_shards = -(-n_values // (CHUNK * SHARD_CHUNKS))
    if len(files) != n_shards or files.keys() != {f"c/{i}" for i in range(n_shards)}:
        raise damaged(folder, f"{name} has {len(files):,} files for {n_values:,} values")
    return ArrayReader(blobs, name, np.dtype(document.data_type), n_values, files, codec)


def kind_of_names(folder: Path, group: str, documents: Mapping[str, bytes]) -> Kind:
    """Return the type that names of ``labels`` or ``features`` come in, or raise StoreError."""
    return _document(folder, group, documents, _NamesDocument).attributes.kind


def _document(folder: Path, name: str, documents: Mapping[str, bytes], kind: type[T]) -> T:
    text = documents.get(f"{name}/zarr.json", b"")
    try:
        return from_json(text, kind)
    except ValueError as error:
        raise damaged(folder, f"{name}/zarr.json ({clean(error)})") from None


def _read(blobs: Blobs, name: str, digest: str) -> bytes:
    """Return a document; one that is no file, or too large for a document, is damage."""
    try:
        return blobs.document(name, MAX_ARRAY_DOCUMENT, digest)
    except DiskError as error:
        if error.__cause__ is not None or is_remote(error):  # the disk itself, or the way to it
            raise
        raise damaged(blobs.place, f"{clean(name)}: {error.message}") from None


def foreign(path: Path) -> str | None:
    """Return why a folder is not a store of ours, with nothing else in it; None if it is."""
    if not path.is_dir():
        return NO_STORE
    try:
        root = from_json(read_small(path / "zarr.json", MAX_DOCUMENT), dict[str, Any])
        manifest = msgspec.json.decode(
            read_small(path / "manifest.json", MAX_MANIFEST), type=dict[str, dict[str, Any]]
        )
    except (ValueError, DiskError, RecursionError):
        return NO_STORE
    attributes = root.get("attributes")
    if not isinstance(attributes, dict) or "streammach" not in attributes:
        return NO_STORE
    known = {"zarr.json", "manifest.json"}.union(*manifest.values())
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            place = Path(parent, name)
            inside = place.relative_to(path).as_posix()
            ours = name in folders or (inside in known and place.is_file())
            if place.is_symlink() or not ours:
                return f"{clean(inside)} in it was not made by streammach"
    return None


STORE = Product("a store", foreign)
