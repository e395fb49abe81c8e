"""Opens a store's documents: what they say is checked before anything is taken from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from streammach.data.store.arrays import CHUNK, SHARD_CHUNKS, ArrayReader
from streammach.data.store.codecs import codec_of
from streammach.data.store.ours import MAX_ARRAY_DOCUMENT, MAX_DOCUMENT, MAX_MANIFEST
from streammach.data.store.root import FORMAT, MOST_ROWS, Root
from streammach.data.store.writer import Manifest
from streammach.errors import DiskError, StoreError, UsageError, clean
from streammach.files.reading import read_small, sha256
from streammach.formats import STORE_FORMATS
from streammach.spec.documents import from_json

CONVERT_AGAIN = "Convert the source again."
ARRAYS: dict[str, tuple[str, ...]] = {
    "X/indptr": ("int64",), "X/indices": ("int32",), "X/data": ("uint8", "float32"),
    "labels/offsets": ("int64",), "labels/bytes": ("uint8",), "labels/count": ("int64",),
    "features/offsets": ("int64",), "features/bytes": ("uint8",), "features/count": ("int64",),
}  # fmt: skip
ONE_LABEL: dict[str, tuple[str, ...]] = {"y": ("int32",)}
LABEL_LISTS: dict[str, tuple[str, ...]] = {
    "y/indptr": ("int64",), "y/indices": ("int32",), "y/data": ("uint8", "float32"),
}  # fmt: skip
NUMBERED = "row"  # from format 3 on
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


def read_root(folder: Path) -> Root:
    """Return the root document of a store, or raise UsageError or StoreError."""
    place = clean(folder, 300)
    if not folder.is_dir():
        hint = "Make one with: streammach convert"
        if not os.path.lexists(folder):
            raise UsageError("there is no such store", path=place, hint=hint)
        raise StoreError("it is no folder", path=place, hint=hint)
    if not (folder / "zarr.json").is_file():
        raise StoreError("not a store: it has no zarr.json", path=place, hint=CONVERT_AGAIN)
    try:
        text = read_small(folder / "zarr.json", MAX_DOCUMENT)
        document = from_json(text, dict[str, Any])
        attributes = document["attributes"]["streammach"]
        found = attributes["format"]
        if found not in STORE_FORMATS:
            known = " and ".join(map(str, STORE_FORMATS))
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
        raise damaged(folder, "zarr.json was changed")
    wrong = root.wrong()
    if wrong is not None:
        raise damaged(folder, f"its root says what cannot be: {wrong}")
    return root


def read_manifest(folder: Path, root: Root) -> Manifest:
    """Return the manifest that the root names, or raise StoreError."""
    try:
        text = read_small(folder / "manifest.json", MAX_MANIFEST)
        if sha256([text]) != root.manifest:
            raise ValueError("its digest is not the one that the root names")
        return msgspec.json.decode(text, type=Manifest)
    except (ValueError, RecursionError, DiskError) as error:
        raise StoreError(
            f"the manifest is missing or damaged ({clean(error, 120)})",
            path=folder,
            hint=CONVERT_AGAIN,
        ) from None


def check_files(folder: Path, root: Root, manifest: Manifest) -> None:
    """Raise StoreError if files, sizes or metadata are not those of the manifest."""
    expected = {"zarr.json", "manifest.json", *manifest.files, *manifest.metadata}
    found: set[str] = set()
    for parent, folders, files in os.walk(folder):
        links = [name for name in (*folders, *files) if os.path.islink(os.path.join(parent, name))]
        if links:
            raise damaged(folder, f"{clean(links[0])} is a link")
        found.update(os.path.relpath(os.path.join(parent, name), folder) for name in files)
    names = {Path(name).as_posix() for name in found}
    for name in sorted(expected ^ names):
        raise damaged(folder, f"{clean(name)} is {'missing' if name in expected else 'foreign'}")
    for name, facts in manifest.files.items():
        size = (folder / name).stat().st_size
        if size != facts.size:
            raise damaged(folder, f"{clean(name)} has {size:,} bytes, not {facts.size:,}")
    for name, digest in manifest.metadata.items():
        if sha256([_read(folder, name)]) != digest:
            raise damaged(folder, f"{clean(name)} was changed")
    needed = [*ARRAYS, *_labels(root), *([NUMBERED] if root.format >= FORMAT else [])]
    missing = [name for name in needed if f"{name}/zarr.json" not in manifest.metadata]
    if missing:
        raise damaged(folder, f"it lacks {missing[0]}")


def _labels(root: Root) -> dict[str, tuple[str, ...]]:
    """Return the arrays that hold the rows' labels, and their types."""
    return LABEL_LISTS if root.listed else ONE_LABEL


def open_arrays(folder: Path, root: Root, manifest: Manifest) -> dict[str, ArrayReader]:
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
        name: _open_array(folder, name, manifest, types)
        for name, types in known.items()
        if f"{name}/zarr.json" in manifest.metadata
    }
    for name, array in found.items():
        if array.n_values != lengths.get(name, array.n_values):
            raise damaged(folder, f"{name} has {array.n_values:,} values, not {lengths[name]:,}")
    return found


def _open_array(folder: Path, name: str, manifest: Manifest, types: tuple[str, ...]) -> ArrayReader:
    document = _document(folder, name, _ArrayDocument)
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
    return ArrayReader(folder / name, np.dtype(document.data_type), n_values, files, codec)


def kind_of_names(folder: Path, group: str) -> Kind:
    """Return the type that names of ``labels`` or ``features`` come in, or raise StoreError."""
    return _document(folder, group, _NamesDocument).attributes.kind


def _document(folder: Path, name: str, kind: type[T]) -> T:
    text = _read(folder, f"{name}/zarr.json")
    try:
        return from_json(text, kind)
    except ValueError as error:
        raise damaged(folder, f"{name}/zarr.json ({clean(error)})") from None


def _read(folder: Path, name: str) -> bytes:
    """Return a document; one that is no file, or too large for a document, is damage."""
    try:
        return read_small(folder / name, MAX_ARRAY_DOCUMENT)
    except DiskError as error:
        if error.__cause__ is not None:  # the disk itself
            raise
        raise damaged(folder, f"{clean(name)}: {error.message}") from None


def damaged(folder: Path, what: str) -> StoreError:
    """Return the error of a store in which something is wrong."""
    return StoreError(f"damaged: {what}", path=folder, hint=CONVERT_AGAIN)
