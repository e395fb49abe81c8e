"""Folders of Zarr that other programs wrote, formats 2 and 3, such as AnnData.

zarr-python reads them. It takes a chunk that is missing for zeros: so all are looked for before any
is read. Codecs are those of the list below; others are refused by name, and none runs code.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.identity import files_in
from streammach.data.matrix import TEXT_BYTES
from streammach.data.matrix_tree import MAX_DEPTH, MAX_NODES, Tree, TreeSource
from streammach.data.source_options import SourceOptions
from streammach.errors import DataError, StreammachError, clean
from streammach.files.reading import disk_error, disk_errors, read_small
from streammach.spec.documents import from_json

MAX_DOCUMENT = 16 << 20  # the root of a group may repeat the metadata of all its members
MAX_CHUNK_BYTES = 256 << 20
ABSENT = 2**64 - 1  # in the table of a shard
PACKERS = ("zstd", "blosc", "gzip", "zlib")
CODECS = ("bytes", "vlen-utf8", "transpose", "crc32c", *PACKERS)
COPY_HINT = "Copy or write the folder again."
WRITE_HINT = "Write it again as anndata or zarr-python do by default."
ZEROS_HINT = (
    "If it held only zeros and was left out for that, write it again with "
    "zarr.config.set({'array.write_empty_chunks': True})."
)


def damaged(folder: Path, error: Exception) -> DataError:
    """Return the error of metadata that cannot be."""
    what = f"{clean(error, 60)} is missing" if isinstance(error, KeyError) else clean(error, 100)
    return DataError(f"its metadata are damaged ({what})", path=folder)


class Node(NamedTuple):
    """A group or an array: its metadata and attributes."""

    document: dict[str, Any]
    attributes: dict[str, Any]
    is_array: bool


def read_node(folder: Path) -> Node | None:
    """Return the group or array that a folder is, or None; raise DataError or DiskError."""
    names = ("zarr.json", ".zarray", ".zgroup")
    name = next((name for name in names if _exists(folder / name)), None)
    if name is None:
        return None
    try:
        document = _document(folder / name)
        if name == "zarr.json":
            attributes, is_array = document.get("attributes", {}), document["node_type"] == "array"
        else:
            is_array, attributes = name == ".zarray", {}
            if _exists(folder / ".zattrs"):
                attributes = _document(folder / ".zattrs")
        form = 3 if name == "zarr.json" else 2
        if document["zarr_format"] != form or not isinstance(attributes, dict):
            raise ValueError(f"not the metadata of Zarr format {form}")
        return Node(document, attributes, is_array)
    except (ValueError, KeyError) as error:
        raise damaged(folder, error) from None


def _document(path: Path) -> dict[str, Any]:
    return from_json(read_small(path, MAX_DOCUMENT), dict[str, Any])


def _exists(path: Path) -> bool:
    there = os.path.lexists(path)
    if there:
        _check_kind(path, path.parent)
    return there


def _check_kind(path: Path, top: Path) -> None:
    with disk_errors(path):
        mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        hint = "Copy the folder with its files in it."
        raise DataError(f"{clean(path.relative_to(top), 100)} is {what}", path=top, hint=hint)


def is_matrix_folder(path: Path) -> bool:
    """Return whether a folder looks like AnnData or a matrix, and not like a store."""
    try:
        node = read_node(path)
    except StreammachError:
        return False
    if node is None or "streammach" in node.attributes:
        return False
    known = ("anndata", "csr_matrix", "csc_matrix")
    return node.is_array or node.attributes.get("encoding-type") in known


class ZarrArray:
    """An array that is read in ranges of its first axis."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self._folder = folder
        self._wrong: DataError | None = document.get("damaged")
        self.shape: tuple[int, ...] = ()
        self.dtype: np.dtype[Any] = np.dtype("V")
        self.unit, self.left_out = 1, False
        self._looked = False  # whether its chunks were looked for
        try:
            if self._wrong is None:
                self._open(document)
        except DataError as error:  # of an array that may never be read
            self._wrong = error
        except Exception as error:  # of zarr-python, on what is no array
            self._wrong = damaged(folder, error)

    def check(self) -> None:
        """Raise DataError if what its metadata say is not read here, or is not there."""
        if self._wrong is not None:
            raise self._wrong
        if not self._looked:
            with disk_errors(self._folder):
                self._look_for_chunks()

    def _open(self, document: dict[str, Any]) -> None:
        import zarr  # where a folder of Zarr is read
        from zarr.storage import LocalStore

        names, sharding = _codecs(document)
        foreign = [name for name in names if name not in CODECS]
        packers = [name for name in names if name in PACKERS]
        if foreign or len(packers) > 1:
            named = foreign[0] if foreign else ", ".join(packers)
            raise self._refused(f"it is stored by the codec '{clean(named, 40)}'")
        tables = [codec["name"] for codec in sharding["index_codecs"]] if sharding else ["bytes"]
        if tables not in (["bytes"], ["bytes", "crc32c"]):
            raise self._refused(f"the table of a shard is stored by {clean(tables, 60)}")
        if document.get("storage_transformers"):
            raise self._refused("its chunks went through a storage transformer")
        kind = document.get("dtype", "")  # of format 2
        if not isinstance(kind, str) or (kind == "|O" and "vlen-utf8" not in names):
            raise self._refused(f"it has the type {clean(kind, 60)} of Python objects")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is not in the specification yet
            array = zarr.open_array(
                store=LocalStore(self._folder, read_only=True), zarr_format=document["zarr_format"]
            )
        text = array.dtype.kind in "OT"
        if not text and array.dtype.kind not in "biufUS":
            raise self._refused(f"it has the type {clean(array.dtype, 60)}")
        if len(array.shape) not in (1, 2):
            raise self._refused(f"it has {len(array.shape)} axes")
        size = math.prod(array.chunks) * (TEXT_BYTES if text else array.dtype.itemsize)
        if size > MAX_CHUNK_BYTES:
            what = f"it has chunks of {size:,} bytes, at most {MAX_CHUNK_BYTES:,} are read"
            raise DataError(what, path=self._folder, hint="Write it again with smaller chunks.")
        self._array: Any = array
        self._sharding = sharding
        self.shape, self.dtype = array.shape, np.dtype(object) if text else array.dtype
        self.unit = array.chunks[0]
        self._kept = 0, np.zeros(0, self.dtype)  # the chunk in which a range ended, its place
        documents = ("zarr.json", ".zarray", ".zattrs")
        self.left_out = all(name in documents for name in os.listdir(self._folder))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items (of two axes: rows) ``start:stop``, or raise DataError or DiskError."""
        if len(self.shape) == 2:
            return self._read(start, stop)
        # The next range may begin within the chunk in which this one ends.
        first, kept = self._kept
        inside = kept[start - first : stop - first] if first <= start else kept[:0]
        if len(inside) == stop - start:
            return inside
        start += len(inside)
        end = min(-(-stop // self.unit) * self.unit, self.shape[0])
        more, last = self._read(start, end), max((end - 1) // self.unit * self.unit, start)
        self._kept = last, more[last - start :].copy()
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

    def _look_for_chunks(self) -> None:
        """Raise DataError where a chunk is missing, or one of a shard."""
        array, self._looked = self._array, True
        files = [-(-n // c) for n, c in zip(self.shape, array.shards or array.chunks, strict=True)]
        for n in range(math.prod(files)):
            at = (n,) if len(files) == 1 else divmod(n, files[1])
            path = self._folder / array.metadata.encode_chunk_key(at)
            if not path.exists():
                raise DataError("a chunk is missing", path=path, hint=ZEROS_HINT)
            if self._sharding is not None:
                self._look_into(path, at, self._sharding)

    def _look_into(self, path: Path, at: tuple[int, ...], sharding: dict[str, Any]) -> None:
        shape = [a // b for a, b in zip(self._array.shards, self._array.chunks, strict=True)]
        size = 16 * math.prod(shape)  # a place and a size for each chunk, perhaps a checksum
        start, at_end = 0, sharding.get("index_location", "end") == "end"
        if at_end:
            start = path.stat().st_size - size - 4 * (len(sharding["index_codecs"]) - 1)
        if start < 0 or path.stat().st_size < size:
            return  # zarr-python says so
        with open(path, "rb") as file:
            file.seek(start)
            table = file.read(size)
        # The last shard may reach beyond the array.
        chunks = zip(at, shape, self.shape, self._array.chunks, strict=True)
        there = tuple(slice(-(-n // c) - i * each) for i, each, n, c in chunks)
        entries = np.frombuffer(table, np.uint64).reshape(*shape, 2)[there]
        holes = np.argwhere((entries == ABSENT).all(axis=-1))
        if len(holes):
            what = f"chunk {', '.join(map(str, holes[0].tolist()))} of the shard is missing"
            raise DataError(what, path=path, hint=ZEROS_HINT)

    def _refused(self, what: str) -> DataError:
        return DataError(f"{what}, which is not read", path=self._folder, hint=WRITE_HINT)


def _codecs(document: dict[str, Any]) -> tuple[list[str], dict[str, Any] | None]:
    """Return the names of an array's codecs, and what is said of shards, if it has any."""
    if document["zarr_format"] == 2:
        given = [*(document.get("filters") or ()), document.get("compressor")]
        return [codec["id"] for codec in given if codec], None
    codecs, sharding = document["codecs"], None
    if codecs and isinstance(codecs[0], dict) and codecs[0]["name"] == "sharding_indexed":
        sharding = codecs[0]["configuration"]
        codecs = [*codecs[1:], *sharding["codecs"]]
    return [codec if isinstance(codec, str) else codec["name"] for codec in codecs], sharding


class AnnDataSource(TreeSource):
    """Rows of an AnnData folder, or of a Zarr group or array that is a matrix."""

    form = "anndata"
    is_folder = True

    def __init__(self, path: Path, options: SourceOptions) -> None:
        root = read_node(path)
        if root is None:
            what = "the folder is neither AnnData nor a matrix of Zarr"
            hint = "It has no zarr.json, .zgroup or .zarray; several files are named one by one."
            raise DataError(what, path=path, hint=hint)
        if "streammach" in root.attributes:
            hint = "Use it as it is: streammach info, plan and train take it."
            raise DataError("it is a store already", path=path, hint=hint)
        for parent, folders, files in os.walk(path):
            for name in (*folders, *files):
                _check_kind(Path(parent, name), path)
        nodes = dict(_nodes(path, root))
        self._tree = Tree(
            {name: ZarrArray(path / name, n.document) for name, n in nodes.items() if n.is_array},
            lambda name: nodes[name].attributes if name in nodes else {},
        )
        super().__init__(path, options)
        self._bytes = sum(file.stat().st_size for file in files_in(path / self._x))

    @property
    def n_bytes(self) -> int:
        return self._bytes

    def files(self) -> list[Path]:
        places = dict.fromkeys((self._x, self._y or self._x, self._names or self._x))
        return [file for name in places for file in files_in(self.path / name)]

    @contextmanager
    def tree(self) -> Iterator[Tree]:
        """Return the arrays of the folder, whose files are open while they are read."""
        yield self._tree


def _nodes(top: Path, root: Node) -> Iterator[tuple[str, Node]]:
    """Yield groups and arrays by their paths; one with damaged metadata cannot be read."""
    left, n = [("", root)], 0
    while left and n < MAX_NODES:
        name, node = left.pop()
        yield name, node
        n += 1
        if not node.is_array and name.count("/") < MAX_DEPTH:
            for folder in sorted(p for p in (top / name).iterdir() if p.is_dir()):
                try:
                    inner = read_node(folder)
                except DataError as error:
                    inner = Node({"damaged": error}, {}, is_array=True)
                if inner is not None:
                    left.append((folder.relative_to(top).as_posix(), inner))
