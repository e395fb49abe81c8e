"""Writes a store: arrays, then metadata, the manifest, and last the root: it is complete.

Or rows in memory that are read as those of a store are: the same arrays, and no files.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.options.types import STORE_FORMAT
from streammach.rows.block import RowBlock
from streammach.rows.names import Names, TrainedColumns
from streammach.rows.texts import Texts
from streammach.store.blobs import FileFacts
from streammach.store.root import Root, RootFacts
from streammach.store.row_totals import RowTotals
from streammach.store.stored_arrays import (
    CHUNK,
    SHARD_CHUNKS,
    ArrayInMemory,
    ArrayWriter,
    encode_chunk,
    shuffle_of,
)
from streammach.system.errors import DataError
from streammach.system.files.folders import make_folder
from streammach.system.files.reading import sha256
from streammach.system.files.writing import write_atomic

Chunks = list[tuple[ArrayWriter, NDArray[np.generic]]]  # that are full
Bodies = list[tuple[ArrayWriter, bytes]]

# Bytes of documents, for who writes and who reads them: the root, with the recipe of a table of
# many columns and a line for each source; that of an array; the list of all files.
MAX_DOCUMENT, MAX_ARRAY_DOCUMENT, MAX_MANIFEST = 8 << 20, 64 << 10, 64 << 20
NO_CHECK = b'"check": ""'  # of the root document, before its digest stands there
ARRAY_ENCODING = {"encoding-type": "array", "encoding-version": "0.2.0"}


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a store: shards by size and digest, metadata documents by SHA-256."""

    files: dict[str, FileFacts]
    metadata: dict[str, str]


class RowsWriter(ABC):
    """Takes in rows in their final order, and names, as the arrays of a store.

    `value_type` is uint8 or float32; `labels`, where rows have lists of labels, float32 where these
    have weights, else uint8. Blocks of the store have `block_rows` rows.
    """

    def __init__(
        self, value_type: type[np.generic], *, block_rows: int, weighted: bool,
        tagged: bool = False, labels: type[np.generic] | None = None,
    ) -> None:  # fmt: skip
        self.totals = RowTotals(block_rows)  # of the rows appended so far
        self._tagged, self._listed = tagged, labels is not None
        self._kinds: dict[str, str] = {}
        types: dict[str, type[np.generic]] = {
            "X/indptr": np.int64, "X/indices": np.int32, "X/data": value_type, "row": np.int64
        }  # fmt: skip
        if labels is None:
            types["y"] = np.int32
        else:
            types |= {"y/indptr": np.int64, "y/indices": np.int32, "y/data": labels}
        if weighted:
            types["weight"] = np.float32
        if tagged:
            types |= {"tag/offsets": np.int64, "tag/bytes": np.uint8}
        self._arrays: dict[str, Any] = {name: self._new(name, t) for name, t in types.items()}
        for name in self._arrays.keys() & {"X/indptr", "y/indptr", "tag/offsets"}:
            self._arrays[name].cut(np.zeros(1, np.int64))

    @abstractmethod
    def _new(self, name: str, dtype: type[np.generic]) -> ArrayWriter | ArrayInMemory:
        """Return a new array of rows."""

    def append_rows(self, rows: RowBlock) -> Chunks:
        """Append rows in their final order; return the chunks that are full, for :meth:`write`."""
        # Ids of features rise within each; values fit the store's type; each row has its number,
        # and its importance and tag where the store has them.
        assert rows.numbers is not None
        self.totals.add(rows)
        arrays = self._arrays
        more: dict[str, NDArray[np.generic]] = {
            "X/indptr": rows.indptr[1:] + arrays["X/indices"].n_values, "X/indices": rows.features,
            "X/data": rows.values, "row": rows.numbers,
        }  # fmt: skip
        if self._listed:
            lists = rows.lists
            weights = None if arrays["y/data"].dtype == np.uint8 else lists.weights
            more |= {
                "y/indptr": lists.starts[1:] + arrays["y/indices"].n_values,
                "y/indices": lists.classes,
                "y/data": np.ones(lists.n_labels, np.float32) if weights is None else weights,
            }
        else:
            more["y"] = rows.classes
        if "weight" in arrays and rows.importance is not None:
            more["weight"] = rows.importance
        if "tag/bytes" in arrays:
            tags = rows.tags or Texts.of([b""] * rows.n_rows)
            more["tag/offsets"] = tags.offsets[1:] + arrays["tag/bytes"].n_values
            more["tag/bytes"] = tags.data
        return [(arrays[n], chunk) for n, some in more.items() for chunk in arrays[n].cut(some)]

    @staticmethod
    def encode(chunks: Chunks) -> Bodies:
        """Return chunks as they are written; any thread may call it."""
        return [(array, encode_chunk(array.dtype, chunk)) for array, chunk in chunks]

    @staticmethod
    def write(bodies: Bodies) -> None:
        """Write chunks, in the order in which they came, or raise DiskError."""
        for array, body in bodies:
            array.write(body)

    @abstractmethod
    def _add(self, name: str, values: NDArray[np.generic]) -> None:
        """Add a whole array."""

    def release(self) -> None:
        """Close the files that are open, if any are, and leave them as they are."""
        return

    @abstractmethod
    def finish(self, facts: RootFacts) -> Root:
        """End the work; return the root of what was made."""

    def add_names(self, group: str, names: Names, numbers: NDArray[Any], of: str = "count") -> None:
        """Write names of a group, and a number `of` each, or raise DiskError."""
        for name, values in (("offsets", names.offsets), ("bytes", names.data), (of, numbers)):
            self._add(f"{group}/{name}", values)
        self._kinds[group] = names.kind

    def add_columns(self, columns: TrainedColumns) -> None:
        """Write each feature's column, where columns had names, or raise DiskError."""
        if columns.positions is not None:
            self._add("features/column", columns.positions.astype(np.int32, copy=False))

    def _documents(self, root: Root) -> dict[str, bytes]:
        """Return every ``zarr.json`` but that of the root."""
        matrix = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
        groups: dict[str, dict[str, Any]] = {
            "X": {**matrix, "shape": [root.rows, root.features]},
            **({"y": {**matrix, "shape": [root.rows, root.classes]}} if self._listed else {}),
            **{group: {"kind": kind} for group, kind in self._kinds.items()},
            **({"tag": {}} if self._tagged else {}),
        }
        arrays = {name: array_of(a.n_values, a.dtype) for name, a in self._arrays.items()}
        found = {name: group_of(said) for name, said in groups.items()} | arrays
        return {f"{name}/zarr.json": _encode(document) for name, document in found.items()}


class StoreWriter(RowsWriter):
    """Writes the arrays of a store into a folder, then what makes it a store."""

    def __init__(self, folder: Path, value_type: type[np.generic], **content: Any) -> None:
        self._folder = folder
        make_folder(folder)
        super().__init__(value_type, **content)

    def _new(self, name: str, dtype: type[np.generic]) -> ArrayWriter:
        return ArrayWriter(self._folder / name, dtype)

    def _add(self, name: str, values: NDArray[np.generic]) -> None:
        self._arrays[name] = ArrayWriter(self._folder / name, values.dtype)
        self._arrays[name].append(values)

    def release(self) -> None:
        for array in self._arrays.values():
            array.release()

    def finish(self, facts: RootFacts) -> Root:
        """Write metadata, manifest and last the root; return it, or raise DiskError."""
        # The root says that the store is complete. Its check stands in the document alone.
        files: dict[str, FileFacts] = {}
        for name, array in self._arrays.items():
            array.close()
            files.update({f"{name}/{file}": f for file, f in array.files.items()})
        root = Root(
            **msgspec.structs.asdict(facts), format=STORE_FORMAT,
            complete=True, manifest="", check="",
        )  # fmt: skip
        documents = self._documents(root)
        for name, document in documents.items():
            write_atomic(self._folder / name, document)
        digests = {name: sha256([document]) for name, document in sorted(documents.items())}
        manifest = msgspec.json.encode(Manifest(dict(sorted(files.items())), digests))
        self._write("manifest.json", manifest, MAX_MANIFEST)
        root = msgspec.structs.replace(root, manifest=sha256([manifest]))
        unchecked = _encode(group_of({"streammach": root.document()}))
        checked = unchecked.replace(NO_CHECK, NO_CHECK[:-1] + f'{sha256([unchecked])}"'.encode())
        self._write("zarr.json", checked, MAX_DOCUMENT)
        return root

    def _write(self, name: str, document: bytes, most: int) -> None:
        if len(document) > most:
            what = f"{name} of the store would have {len(document):,} bytes, at most {most:,}"
            raise DataError(f"{what} are read", hint="Convert fewer files or columns at a time.")
        write_atomic(self._folder / name, document)


class MemoryWriter(RowsWriter):
    """Takes in rows and names as a store's writer does, and holds them."""

    def __init__(
        self, value_type: type[np.generic], *, n_rows: int, nnz: int, n_labels: int, **content: Any
    ) -> None:
        self._room = {
            "X/indptr": n_rows + 1, "X/indices": nnz, "X/data": nnz, "y": n_rows, "row": n_rows,
            "y/indptr": n_rows + 1, "y/indices": n_labels, "y/data": n_labels, "weight": n_rows,
        }  # fmt: skip
        super().__init__(value_type, **content)

    def _new(self, name: str, dtype: type[np.generic]) -> ArrayInMemory:
        return ArrayInMemory(np.empty(self._room[name], dtype))

    def _add(self, name: str, values: NDArray[Any]) -> None:
        self._arrays[name] = ArrayInMemory(values, len(values))

    def finish(self, facts: RootFacts) -> Root:
        """Return the root of the rows, with a digest of all that they are."""
        content = {**msgspec.structs.asdict(facts), "source": [], "options": {}}
        digest = hashlib.sha256(msgspec.json.encode(content, order="sorted"))
        for name, array in sorted(self._arrays.items()):
            digest.update(f"{name} {array.dtype} {array.n_values}".encode())
            digest.update(np.ascontiguousarray(array.values).data)
        return Root(
            **msgspec.structs.asdict(facts), format=STORE_FORMAT,
            complete=True, manifest=digest.hexdigest(), check="",
        )  # fmt: skip

    def content(self, root: Root) -> tuple[dict[str, ArrayInMemory], dict[str, bytes]]:
        """Return arrays and documents, as of a store; `root` is what :meth:`finish` returned."""
        return self._arrays, self._documents(root)


# As zarr-python writes them, which takes a third of a second to import. A test compares.
def group_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a group of Zarr."""
    return {"attributes": attributes, "zarr_format": 3, "node_type": "group"}


def array_of(n_values: int, dtype: np.dtype[np.generic]) -> dict[str, Any]:
    """Return the document of an array of Zarr, stored as all of a store are."""
    little: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
    checked = {"name": "crc32c"}
    blosc = {
        "typesize": dtype.itemsize, "cname": "lz4", "clevel": 5, "shuffle": shuffle_of(dtype),
        "blocksize": 0,
    }  # fmt: skip
    sharding = {
        "chunk_shape": [CHUNK],
        "codecs": [
            little if dtype.itemsize > 1 else {"name": "bytes"},
            {"name": "blosc", "configuration": blosc},
            checked,
        ],
        "index_codecs": [little, checked],
        "index_location": "end",
    }
    shard = {"chunk_shape": [CHUNK * SHARD_CHUNKS]}
    return {
        "shape": [n_values],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": shard},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": dtype.type(0).item(),
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": ARRAY_ENCODING,
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()
