"""Folders of Zarr that other programs wrote, formats 2 and 3, such as AnnData, read by zarr-python.

It takes a chunk that is missing for zeros, so chunks are counted before any is read. Codecs are
those of the list below; others are refused by name, and none runs code.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import files_in
from streammach.inputs.matrices.named_arrays import (
    MAX_CHUNK_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    TEXT_BYTES,
    NamedArrays,
    StoredArray,
)
from streammach.options.documents import from_json
from streammach.system.errors import DataError, DiskError, clean
from streammach.system.files.reading import disk_error, disk_errors, read_small

MAX_DOCUMENT = 16 << 20  # bytes: the root of a group may repeat the metadata of all its members
DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")
PACKERS = ("zstd", "blosc", "gzip", "zlib")
CODECS = ("bytes", "vlen-utf8", "transpose", "crc32c", *PACKERS)
COPY_HINT = "Copy or write the folder again."
WRITE_HINT = "Write it again as anndata or zarr-python do by default."
ZEROS_HINT = (
    "If it held only zeros and was left out for that, write it again with "
    "zarr.config.set({'array.write_empty_chunks': True})."
)


def is_matrix_folder(path: Path) -> bool:
    """Return whether a folder looks like AnnData or a matrix, and not like a store."""
    # Without zarr-python, which takes a while to load.
    if (path / ".zarray").exists():
        return True
    try:
        name = next(name for name in ("zarr.json", ".zattrs") if (path / name).exists())
        document = from_json(read_small(path / name, MAX_DOCUMENT), dict[str, Any])
        attributes = document if name == ".zattrs" else document.get("attributes", {})
        known = attributes.get("encoding-type") in ("anndata", "csr_matrix", "csc_matrix")
    except (StopIteration, ValueError, AttributeError, DiskError):
        return False
    return (known or document.get("node_type") == "array") and "streammach" not in attributes


def open_zarr(path: Path) -> NamedArrays:
    """Return the arrays of a folder, whose files are open while they are read; or DataError."""
    import zarr  # where a folder of Zarr is read

    if _find_document(path) is None:
        what = "the folder is neither AnnData nor a matrix of Zarr"
        hint = "It has no zarr.json, .zgroup or .zarray; several files are named one by one."
        raise DataError(what, path=path, hint=hint)
    arrays, attributes = dict[str, StoredArray](), dict[str, Any]()
    for name in _find_nodes(path):
        try:
            node = _open_node(path / name)
        except Exception as error:  # of zarr-python, on what is no array; it may never be read
            what = f"zarr-python does not read it ({type(error).__name__}: {clean(error, 100)})"
            wrong = DataError(what, path=path / name, hint=WRITE_HINT)
            arrays[name] = ZarrArray(path / name, wrong)
            continue
        attributes[name] = node.attrs.asdict()
        if isinstance(node, zarr.Array):
            arrays[name] = ZarrArray(path / name, node)
    if "streammach" in attributes.get("", {}):
        hint = "Use it as it is: streammach info, plan and train take it."
        raise DataError("it is a store already", path=path, hint=hint)
    if "" in arrays:
        arrays[""].check()
    return NamedArrays(path, arrays, lambda name: attributes.get(name, {}))


def _open_node(folder: Path) -> Any:
    import zarr
    from zarr.storage import LocalStore

    document = _find_document(folder)
    assert document is not None, "a group or an array"
    # zarr-python takes a group whose document says nothing for an empty one.
    from_json(read_small(document, MAX_DOCUMENT), dict[str, Any])["zarr_format"]
    store = LocalStore(folder, read_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is not in the specification yet
        return zarr.open(store, mode="r", use_consolidated=False)


def _find_document(folder: Path) -> Path | None:
    """Return the document of a group or an array, None in other folders."""
    return next((folder / name for name in DOCUMENTS[:3] if (folder / name).exists()), None)


def _find_nodes(top: Path) -> Iterator[str]:
    """Yield the paths of groups and arrays, or raise DataError for links and what is no file."""
    groups, n_nodes = set[Path](), 0
    for parent, folders, files in os.walk(top):
        place = Path(parent)
        for name in (*folders, *files):
            _check_file(place / name, top)
        inner = place == top or (place.parent in groups and n_nodes < MAX_NODES)
        if inner and _find_document(place):
            n_nodes += 1
            parts = place.relative_to(top).parts
            yield "/".join(parts)
            if len(parts) <= MAX_DEPTH:
                groups.add(place)


def _check_file(path: Path, top: Path) -> None:
    with disk_errors(path):
        mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        hint = "Copy the folder with its files in it."
        raise DataError(f"{clean(path.relative_to(top), 100)} is {what}", path=top, hint=hint)


class ZarrArray(StoredArray):
    """An array that is read in ranges of its first axis, or why it cannot be read."""

    def __init__(self, folder: Path, array: Any) -> None:
        self._folder, self._array = folder, array
        self.shape, self.dtype = (), np.dtype("V")
        self._error = array if isinstance(array, DataError) else self._find_error()
        if self._error is None:
            self.shape, self.unit = array.shape, array.chunks[0]
            self.dtype = np.dtype(object) if array.dtype.kind in "OT" else array.dtype
        self._last = 0, np.zeros(0, self.dtype)  # the chunk in which a range ended, its place
        self._counted = False  # whether its chunks were counted

    def _find_error(self) -> DataError | None:
        array = self._array
        document = array.metadata.to_dict()
        names, wrong = _list_codecs(document), ""
        foreign = [name for name in names if name not in CODECS]
        packers = [name for name in names if name in PACKERS]
        if foreign or len(packers) > 1:
            named = foreign[0] if foreign else ", ".join(packers)
            wrong = f"it is stored by the codec '{clean(named, 40)}'"
        elif array.dtype.kind == "O" and "vlen-utf8" not in names:
            wrong = "it has the type of Python objects"
        elif array.dtype.kind not in "biufUSOT":
            wrong = f"it has the type {clean(array.dtype, 60)}"
        elif array.ndim not in (1, 2):
            wrong = f"it has {array.ndim} axes"
        if wrong:
            return DataError(f"{wrong}, which is not read", path=self._folder, hint=WRITE_HINT)
        item = TEXT_BYTES if array.dtype.kind in "OT" else array.dtype.itemsize
        size = math.prod(array.chunks) * item
        if size <= MAX_CHUNK_BYTES:
            return None
        what = f"it has chunks of {size:,} bytes, at most {MAX_CHUNK_BYTES:,} are read"
        return DataError(what, path=self._folder, hint="Write it again with smaller chunks.")

    def check(self) -> None:
        """Raise DataError if it cannot be read, or chunks are missing.

        A mask without any true value has no chunks where anndata wrote it.
        """
        if self._error is not None:
            raise self._error
        if self._counted:
            return
        self._counted, sizes = True, self._array.shards or self._array.chunks
        n_chunks = math.prod(-(-n // size) for n, size in zip(self.shape, sizes, strict=True))
        n_files = sum(file.name not in DOCUMENTS for file in files_in(self._folder))
        if n_files < n_chunks and (n_files or self.dtype.kind != "b"):
            raise DataError("a chunk is missing", path=self._folder, hint=ZEROS_HINT)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items (of two axes: rows) ``start:stop``, or raise DataError or DiskError."""
        if len(self.shape) == 2:
            return self._read(start, stop)
        # The next range may begin within the chunk in which this one ends.
        first, kept = self._last
        inside = kept[start - first : stop - first] if first <= start else kept[:0]
        if len(inside) == stop - start:
            return inside
        start += len(inside)
        end = min(-(-stop // self.unit) * self.unit, self.shape[0])
        more, last = self._read(start, end), max((end - 1) // self.unit * self.unit, start)
        self._last = last, more[last - start :].copy()
        more = more[: stop - start]
        return np.concatenate([inside, more]) if len(inside) else more

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        try:
            return np.asarray(self._array[start:stop]).astype(self.dtype, copy=False)
        except Exception as error:  # of zarr-python and its codecs
            if isinstance(error, OSError) and error.errno:
                raise disk_error(error, self._folder) from error
            what = f"a chunk is damaged ({clean(error, 100)})"
            raise DataError(what, path=self._folder, hint=COPY_HINT) from None


def _list_codecs(document: dict[str, Any]) -> list[str]:
    """Return the names of an array's codecs, those of its shards' tables among them."""
    if document["zarr_format"] == 2:
        codecs = [*(document.get("filters") or ()), document.get("compressor")]
        return [codec["id"] for codec in codecs if codec]
    codecs = document["codecs"]
    if codecs[0]["name"] == "sharding_indexed":
        shards = codecs[0]["configuration"]
        codecs = [*codecs[1:], *shards["codecs"], *shards["index_codecs"]]
    return [codec["name"] for codec in codecs]
