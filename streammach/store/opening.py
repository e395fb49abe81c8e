"""Opens a store's documents, which are checked before anything is taken; tells ours from others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.options.documents import from_json
from streammach.options.types import STORE_FORMAT
from streammach.rows.names import MINUS, Names, TrainedColumns
from streammach.store.blobs import CONVERT_AGAIN, Blobs, damage_error, is_remote
from streammach.store.root import MOST_ROWS, Root
from streammach.store.stored_arrays import CHUNK, SHARD_CHUNKS, ArrayReader
from streammach.store.writer import (
    MAX_ARRAY_DOCUMENT,
    MAX_DOCUMENT,
    MAX_MANIFEST,
    Manifest,
    array_of,
)
from streammach.system.errors import DiskError, StoreError, UsageError, clean
from streammach.system.files.folders import walk_folder
from streammach.system.files.reading import read_small, sha256

NO_STORE = "it is no store that streammach made"
VALUES = "uint8", "float32"
OPTIONAL = "weight", "tag/", "features/column", "names/"

Kind = Literal["integer", "utf8", "bytes"]


def _arrays(root: Root) -> dict[str, tuple[tuple[str, ...], int | None]]:
    """Return the types that each array may have, and its length where the root tells it."""
    n, k, d, nnz, m = root.rows, root.classes, root.features, root.nnz, root.labels
    lists: dict[str, tuple[tuple[str, ...], int | None]] = {
        "y/indptr": (("int64",), n + 1), "y/indices": (("int32",), m), "y/data": (VALUES, m),
    }  # fmt: skip
    return {
        "X/indptr": (("int64",), n + 1), "X/indices": (("int32",), nnz), "X/data": (VALUES, nnz),
        **(lists if root.listed else {"y": (("int32",), n)}),
        "row": (("int64",), n), "weight": (("float32",), n),
        "tag/offsets": (("int64",), n + 1), "tag/bytes": (("uint8",), None),
        "labels/offsets": (("int64",), k + 1), "labels/bytes": (("uint8",), None),
        "labels/count": (("int64",), k), "features/count": (("int64",), d),
        "features/offsets": (("int64",), d + 1), "features/bytes": (("uint8",), None),
        "features/column": (("int32",), d),
        "names/class": (("int32",), None), "names/offsets": (("int64",), None),
        "names/bytes": (("uint8",), None),
    }  # fmt: skip


def open_store(blobs: Blobs) -> tuple[Root, dict[str, ArrayReader], dict[str, bytes], int]:
    """Return a store's root, its arrays and documents by name, all checked, and its bytes."""
    documents = dict[str, bytes]()
    root = _read_root(blobs, documents)
    manifest = _read_manifest(blobs, root, documents)
    _read_documents(blobs, manifest, documents)
    sizes = (*map(len, documents.values()), *(facts.size for facts in manifest.files.values()))
    return root, _open_arrays(blobs, root, manifest, documents), documents, sum(sizes)


def _read_root(blobs: Blobs, documents: dict[str, bytes]) -> Root:
    """Add the root document of a store; return it, or raise UsageError, StoreError, DiskError."""
    place = clean(blobs.place, 300)
    try:
        text = documents["zarr.json"] = blobs.root(MAX_DOCUMENT)
        document = from_json(text, dict[str, Any])
        attributes = document["attributes"]["streammach"]
        found = attributes["format"]
        if found != STORE_FORMAT:
            raise StoreError(
                f"its format is {clean(found)}, this release reads {STORE_FORMAT}", path=place,
                hint="Use the release that wrote it, or convert the source again.",
            )  # fmt: skip
        root = msgspec.convert(attributes, Root)
    except (ValueError, KeyError, TypeError, DiskError) as error:
        if isinstance(error, StoreError | UsageError) or is_remote(error):
            raise
        hint = "Was it written by streammach convert?"
        raise StoreError(f"not a store ({clean(error)})", path=place, hint=hint) from None
    if not root.complete:
        raise StoreError("the store is not complete", path=place, hint=CONVERT_AGAIN)
    # The digest that a root holds is that of the rest of it.
    if sha256([text.replace(root.check.encode() or b"?", b"", 1)]) != root.check:
        raise damage_error(blobs.place, "zarr.json was changed")
    wrong = root.wrong()
    if wrong is not None:
        raise damage_error(blobs.place, f"its root says what cannot be: {wrong}")
    return root


def _read_manifest(blobs: Blobs, root: Root, documents: dict[str, bytes]) -> Manifest:
    """Add the manifest that the root names; return it, or raise StoreError or DiskError."""
    name = "manifest.json"
    try:
        text = documents[name] = blobs.document(name, MAX_MANIFEST, root.manifest)
        if sha256([text]) != root.manifest:
            raise ValueError("its digest is not the one that the root names")
        return msgspec.json.decode(text, type=Manifest)
    except (ValueError, RecursionError, DiskError) as error:
        if is_remote(error):
            raise
        what = f"the manifest is missing or damaged ({clean(error, 120)})"
        raise StoreError(what, path=blobs.place, hint=CONVERT_AGAIN) from None


def _read_documents(blobs: Blobs, manifest: Manifest, documents: dict[str, bytes]) -> None:
    """Add metadata by name; StoreError if they, files or sizes are not the manifest's."""
    blobs.check(["zarr.json", "manifest.json", *manifest.metadata], manifest.files)
    for name, digest in manifest.metadata.items():
        try:
            documents[name] = blobs.document(name, MAX_ARRAY_DOCUMENT, digest)
        except DiskError as error:
            if error.__cause__ is not None or is_remote(error):  # the disk itself, or the way to it
                raise
            raise damage_error(blobs.place, f"{clean(name)}: {error.message}") from None
        if sha256([documents[name]]) != digest:
            raise damage_error(blobs.place, f"{clean(name)} was changed")


def _open_arrays(
    blobs: Blobs, root: Root, manifest: Manifest, documents: Mapping[str, bytes]
) -> dict[str, ArrayReader]:
    """Return a store's arrays by name; StoreError if one is not as format and root say."""
    arrays = dict[str, ArrayReader]()
    for name, (types, length) in _arrays(root).items():
        if f"{name}/zarr.json" in manifest.metadata:
            array = arrays[name] = _open_array(blobs, name, manifest, documents, types)
            if array.n_values != (array.n_values if length is None else length):
                what = f"{name} has {array.n_values:,} values, not {length:,}"
                raise damage_error(blobs.place, what)
        elif not name.startswith(OPTIONAL):
            raise damage_error(blobs.place, f"it lacks {name}")
    return arrays


def _open_array(
    blobs: Blobs, name: str, manifest: Manifest, documents: Mapping[str, bytes],
    types: tuple[str, ...],
) -> ArrayReader:  # fmt: skip
    document, stored = _document(blobs.place, name, documents), None
    match document.get("shape"), document.get("data_type"):
        case [int(n)], str(kind) if 0 <= n <= MOST_ROWS and kind in types:
            stored = array_of(n, np.dtype(kind))
    if document != stored:
        raise damage_error(blobs.place, f"{name} is not stored as this format stores it")
    (n_values,), dtype = document["shape"], np.dtype(document["data_type"])
    start = f"{name}/"
    files = {n[len(start) :]: f for n, f in manifest.files.items() if n.startswith(start)}
    n_shards = -(-n_values // (CHUNK * SHARD_CHUNKS))
    if len(files) != n_shards or files.keys() != {f"c/{i}" for i in range(n_shards)}:
        raise damage_error(blobs.place, f"{name} has {len(files):,} files for {n_values:,} values")
    return ArrayReader(blobs, name, dtype, n_values, files)


def kind_of_names(folder: Path, group: str, documents: Mapping[str, bytes]) -> Kind:
    """Return the type that names of ``labels`` or ``features`` come in, or raise StoreError."""
    attributes = _document(folder, group, documents).get("attributes")
    try:
        return msgspec.convert(attributes, dict[str, Kind])["kind"]
    except (ValueError, KeyError) as error:
        raise damage_error(folder, f"{group}/zarr.json ({clean(error)})") from None


def _document(folder: Path, name: str, documents: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        return from_json(documents.get(f"{name}/zarr.json", b""), dict[str, Any])
    except ValueError as error:
        raise damage_error(folder, f"{name}/zarr.json ({clean(error)})") from None


def check_columns(
    path: Path, n: int, positions: NDArray[np.int32] | None, features: Names | None
) -> TrainedColumns:
    """Return the n columns that features came from, by their numbers or names; or StoreError."""
    found = TrainedColumns(n, positions)
    if not found.is_sound():
        raise damage_error(path, "the columns of features are wrong")
    if positions is None and features is not None and not _numbers_below(features, n):
        raise damage_error(path, "features are not the numbers of columns")
    return found


def _numbers_below(names: Names, n: int) -> bool:
    """Return whether all names are integers from 0 to below n."""
    longest = int(np.diff(names.offsets).max())
    negative = (names.data[names.offsets[:-1]] == MINUS).any()
    if names.kind != "integer" or negative or longest > len(str(n)):
        return False
    return longest < len(str(n)) or max(int(names.raw(i)) for i in range(len(names))) < n


def names_of(root: bytes, manifest: bytes) -> set[str]:
    """Return the files of a store of ours by its documents; none where these are no store's."""
    try:
        document = from_json(root, dict[str, Any])
        files = msgspec.json.decode(manifest, type=dict[str, dict[str, Any]])
    except (ValueError, RecursionError):
        return set()
    attributes = document.get("attributes")
    ours = isinstance(attributes, dict) and "streammach" in attributes
    return {"zarr.json", "manifest.json"}.union(*files.values()) if ours else set()


def not_a_store(path: Path) -> str | None:
    """Return why a folder is not a store of ours, with nothing else in it; None if it is."""
    if not path.is_dir():
        return NO_STORE
    try:
        documents = (
            read_small(path / "zarr.json", MAX_DOCUMENT),
            read_small(path / "manifest.json", MAX_MANIFEST),
        )
    except DiskError:
        return NO_STORE
    known = names_of(*documents)
    if not known:
        return NO_STORE
    for name, place in walk_folder(path):
        ours = place.is_dir() or (name in known and place.is_file())
        if place.is_symlink() or not ours:
            return f"{clean(name)} in it was not made by streammach"
    return None
