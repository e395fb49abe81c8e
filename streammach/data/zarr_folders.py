"""Folders of Zarr that other programs wrote, formats 2 and 3, such as AnnData.

zarr-python reads them. It takes a chunk that is missing for zeros, and lets a chunk decompress to
any size. So each chunk is looked at before it is read: it is there, and holds no more bytes than
its array says. Codecs are those of the list below; others are refused by name, and none runs code.
"""

from __future__ import annotations

import itertools
import math
import os
import stat
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numcodecs import Zstd
from numpy.typing import NDArray

from streammach.data.identity import files_in
from streammach.data.matrix_tree import MAX_DEPTH, MAX_NODES, OBJECT_BYTES, Tree, TreeSource
from streammach.data.source_options import SourceOptions
from streammach.errors import DataError, StreammachError, clean
from streammach.files.reading import disk_error, read_small, regular, zstd_size
from streammach.spec.documents import from_json

MAX_DOCUMENT = 16 << 20  # the root of a group may repeat the metadata of all its members
MAX_CHUNK_BYTES = 256 << 20
MAX_SHARD_CHUNKS = 1 << 22
ABSENT = b"\xff" * 16  # in the table of a shard
KEPT_SHARDS = 64  # tables of
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
    """Raise DataError for what is neither a file nor a folder."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise disk_error(error, path) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise DataError(
            f"{clean(path.relative_to(top), 100)} is {what}", path=top,
            hint="Copy the folder with its files in it.",
        )  # fmt: skip


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


class _Shards(NamedTuple):
    """Chunks of a file along each axis; whether their table is at its end, and has a checksum."""

    chunks: tuple[int, ...]
    at_end: bool
    sealed: bool


class ZarrArray:
    """An array that is read in ranges of its first axis."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self._folder = folder
        self._wrong: DataError | None = document.get("damaged")
        self.shape: tuple[int, ...] = ()
        self.dtype: np.dtype[Any] = np.dtype("V")
        self.unit, self.left_out = 1, False
        self._tables: dict[tuple[int, ...], bytes] = {}
        try:
            if self._wrong is None:
                self._open(document)
        except DataError as error:  # of an array that may never be read
            self._wrong = error
        except Exception as error:  # of zarr-python, on what is no array
            self._wrong = damaged(folder, error)

    def check(self) -> None:
        """Raise DataError if what its metadata say is not read here."""
        if self._wrong is not None:
            raise self._wrong

    def _open(self, document: dict[str, Any]) -> None:
        import zarr  # where a folder of Zarr is read
        from zarr.storage import LocalStore

        names, sharding = _codecs(document)
        foreign = [name for name in names if name not in CODECS]
        packers = [name for name in names if name in PACKERS]
        if foreign or len(packers) > 1:
            named = foreign[0] if foreign else ", ".join(packers)
            raise self._refused(f"it is stored by the codec '{clean(named, 40)}'")
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
        size = math.prod(array.chunks) * (OBJECT_BYTES if text else array.dtype.itemsize)
        if size > MAX_CHUNK_BYTES:
            raise DataError(
                f"it has chunks of {size:,} bytes, at most {MAX_CHUNK_BYTES:,} are read",
                path=self._folder, hint="Write it again with smaller chunks.",
            )  # fmt: skip
        self._array, self._packer = array, packers[0] if packers else ""
        self._most = MAX_CHUNK_BYTES if text else size  # bytes of a chunk when it was decompressed
        self._sums = 4 * names.count("crc32c")
        self._shards = None if sharding is None else self._sharded(sharding)
        self.shape, self.dtype = array.shape, np.dtype(object) if text else array.dtype
        self.unit = array.chunks[0]
        self._kept = 0, np.zeros(0, self.dtype)  # the chunk in which a range ended, its place
        documents = ("zarr.json", ".zarray", ".zattrs")
        self.left_out = all(name in documents for name in os.listdir(self._folder))

    def _sharded(self, sharding: dict[str, Any]) -> _Shards:
        index = [codec["name"] for codec in sharding["index_codecs"]]
        if index not in (["bytes"], ["bytes", "crc32c"]):
            raise self._refused(f"the table of a shard is stored by {clean(index, 60)}")
        assert self._array.shards is not None
        chunks = tuple(a // b for a, b in zip(self._array.shards, self._array.chunks, strict=True))
        if math.prod(chunks) > MAX_SHARD_CHUNKS:
            raise self._refused(f"a shard has {math.prod(chunks):,} chunks")
        return _Shards(chunks, sharding.get("index_location", "end") == "end", len(index) == 2)

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
        heights = range(start // self.unit, -(-stop // self.unit))
        widths = [
            range(-(-n // w)) for n, w in zip(self.shape[1:], self._array.chunks[1:], strict=True)
        ]
        for at in itertools.product(heights, *widths):
            self._check_chunk(at)
        try:
            return np.asarray(self._array[start:stop]).astype(self.dtype, copy=False)
        except Exception as error:  # of zarr-python and its codecs
            raise self._damaged(self._folder, clean(error, 100)) from None

    def _check_chunk(self, at: tuple[int, ...]) -> None:
        """Raise DataError if a chunk is not there or is larger than it may be."""
        shards, offset, size = self._shards, 0, -1
        if shards is None:
            path = self._folder / self._array.metadata.encode_chunk_key(at)
        else:
            shard = tuple(i // n for i, n in zip(at, shards.chunks, strict=True))
            path = self._folder / self._array.metadata.encode_chunk_key(shard)
            inside = tuple(i % n for i, n in zip(at, shards.chunks, strict=True))
            start = 16 * int(np.ravel_multi_index(inside, shards.chunks))
            entry = self._table(shard, path, shards)[start : start + 16]
            if entry == ABSENT:
                what = f"chunk {', '.join(map(str, inside))} of the shard"
                raise DataError(f"{what} is missing", path=path, hint=ZEROS_HINT)
            offset, size = (int.from_bytes(entry[i : i + 8], "little") for i in (0, 8))
        body = self._bytes(path, offset, size)
        try:
            self._check_size(body)
        except (ValueError, RuntimeError, zlib.error) as error:
            raise self._damaged(path, clean(error, 100)) from None

    def _check_size(self, body: bytes) -> None:
        """Raise ValueError if a chunk says, or is seen, to hold more than it may."""
        size, most = 0, self._most
        if self._packer == "zstd":
            found = zstd_size(body)
            if found is None:  # the decoder then wants a buffer of exactly what comes out
                Zstd().decode(body, np.empty(most, np.uint8))
            size = found or 0
        elif self._packer == "blosc":
            size = int.from_bytes(body[4:8], "little")
            if len(body) < 16 or int.from_bytes(body[12:16], "little") > len(body):
                raise ValueError("not a whole blosc buffer")
        elif self._packer:
            stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
            size = len(stream.decompress(body, most + self._sums + 1))
            if size <= most + self._sums and not stream.eof:
                raise ValueError("the stream is cut short")
        if size > most + self._sums:
            raise ValueError(f"it decompresses to more than {most:,} bytes")

    def _table(self, shard: tuple[int, ...], path: Path, shards: _Shards) -> bytes:
        """Return the table of a shard: offset and size of each of its chunks."""
        if shard not in self._tables:
            size = 16 * math.prod(shards.chunks) + 4 * shards.sealed
            table = self._bytes(path, -size if shards.at_end else 0, size)
            body, seal = table[: 16 * math.prod(shards.chunks)], table[-4:]
            if shards.sealed and google_crc32c.value(body) != int.from_bytes(seal, "little"):
                raise self._damaged(path, "the table of its chunks: its checksum is wrong")
            if len(self._tables) >= KEPT_SHARDS:
                self._tables.clear()
            self._tables[shard] = body
        return self._tables[shard]

    def _bytes(self, path: Path, offset: int, size: int) -> bytes:
        """Return bytes of a file, all for the size -1; a negative offset counts from its end."""
        table = 0 if self._shards is None else 16 * math.prod(self._shards.chunks) + 4
        most = max(self._most + self._most // 8 + (64 << 10), table)
        try:
            with open(path, "rb", opener=regular) as file:
                end = os.fstat(file.fileno()).st_size
                offset += end if offset < 0 else 0
                size = end if size < 0 else size
                if offset < 0 or offset + size > end:
                    raise self._damaged(path, "it is cut short")
                if size > most:
                    what = f"a chunk of {size:,} bytes, {most:,} are possible"
                    raise self._damaged(path, what)
                return os.pread(file.fileno(), size, offset)
        except FileNotFoundError:
            raise DataError("a chunk is missing", path=path, hint=ZEROS_HINT) from None
        except OSError as error:
            raise disk_error(error, path) from error

    def _damaged(self, path: Path, what: str) -> DataError:
        return DataError(f"a chunk is damaged ({what})", path=path, hint=COPY_HINT)

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
            raise DataError(
                "the folder is neither AnnData nor a matrix of Zarr", path=path,
                hint="It has no zarr.json, .zgroup or .zarray; several files are named one by one.",
            )  # fmt: skip
        if "streammach" in root.attributes:
            raise DataError(
                "it is a store already", path=path,
                hint="Use it as it is: streammach info, plan and train take it.",
            )  # fmt: skip
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
        """Bytes of the matrix."""
        return self._bytes

    def files(self) -> list[Path]:
        """Return the files of matrix, labels and names."""
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
