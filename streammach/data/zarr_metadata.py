"""What the metadata of foreign Zarr groups and arrays say, formats 2 and 3, strictly."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streammach.data.matrix_tree import OBJECT_BYTES
from streammach.errors import DataError, StreammachError, clean
from streammach.files.reading import disk_error, read_small
from streammach.spec.documents import from_json

MAX_DOCUMENT = 16 << 20  # the root of a group may repeat the metadata of all its members
MAX_CHUNK_BYTES = 256 << 20
MAX_SHARD_CHUNKS = 1 << 22
PACKERS = ("zstd", "blosc", "gzip", "zlib", "crc32c")
TYPES = {
    "bool": "b1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1",
    "uint16": "u2", "uint32": "u4", "uint64": "u8", "float16": "f2", "float32": "f4",
    "float64": "f8",
}  # fmt: skip
OLD_TYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|U\d{1,4}|S\d{1,4})")
WRITE_HINT = "Write it again as anndata or zarr-python do by default."


@dataclass(frozen=True)
class Chain:
    """How a chunk was made into bytes."""

    dtype: np.dtype[Any] | None  # of the numbers or fixed strings; None: strings of any length
    order: tuple[int, ...]  # the array's axes in the order in which they are stored
    packed: tuple[str, ...]  # what was done to the bytes, one after another


@dataclass(frozen=True)
class Shards:
    """Chunks of a file along each axis; whether their table is at its end, and has a checksum."""

    chunks: tuple[int, ...]
    at_end: bool
    sealed: bool


@dataclass(frozen=True, kw_only=True)
class ArrayFacts:
    """An array as its metadata describe it."""

    folder: Path  # where it lies
    shape: tuple[int, ...]  # shape, chunks: of the array, and of what is encoded at a time
    chunks: tuple[int, ...]
    chain: Chain  # how a chunk is encoded
    prefix: str = ""  # prefix, separator: how the files of chunks are named
    separator: str
    shards: Shards | None = None  # how many chunks share a file; None: each has its own

    def file_of(self, at: tuple[int, ...]) -> Path:
        """Return the file of a chunk or, if there are shards, of a shard."""
        return self.folder / (self.prefix + self.separator.join(map(str, at)))

    @property
    def most_packed(self) -> int:
        """The most bytes that a chunk or the table of a shard can take in its file."""
        items = math.prod(self.chunks)
        size = MAX_CHUNK_BYTES if self.chain.dtype is None else items * self.chain.dtype.itemsize
        table = 0 if self.shards is None else 16 * math.prod(self.shards.chunks) + 4
        return max(size + size // 8 + (64 << 10), table)


@dataclass(frozen=True)
class Node:
    """A group or an array: its attributes, and for an array what reads its metadata."""

    folder: Path
    attributes: Mapping[str, object]
    read: Callable[[], ArrayFacts] | None = None

    def facts(self) -> ArrayFacts:
        """Return what an array's metadata say, or raise DataError."""
        assert self.read is not None, "a group has no chunks"
        try:
            return self.read()
        except StreammachError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise _damaged(self.folder, error) from None


def read_node(folder: Path) -> Node | None:
    """Return the group or array that a folder is, or None; raise DataError or DiskError."""
    try:
        if _exists(folder / "zarr.json"):
            document = _document(folder / "zarr.json")
            attributes = document.get("attributes", {})
            if document["zarr_format"] != 3 or not isinstance(attributes, dict):
                raise ValueError("not the metadata of Zarr format 3")
            read = partial(_facts_3, folder, document)
            return Node(folder, attributes, read if document["node_type"] == "array" else None)
        names = [name for name in (".zarray", ".zgroup") if _exists(folder / name)]
        if not names:
            return None
        document = _document(folder / names[0])
        attributes = _document(folder / ".zattrs") if _exists(folder / ".zattrs") else {}
        if document["zarr_format"] != 2:
            raise ValueError("not the metadata of Zarr format 2")
        read = partial(_facts_2, folder, document)
        return Node(folder, attributes, read if names[0] == ".zarray" else None)
    except StreammachError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def _document(path: Path) -> dict[str, Any]:
    return from_json(read_small(path, MAX_DOCUMENT), dict[str, Any])


def _exists(path: Path) -> bool:
    if os.path.lexists(path):
        _check_kind(path, path.parent)
        return True
    return False


def _damaged(folder: Path, error: Exception) -> DataError:
    what = f"{clean(error, 60)} is missing" if isinstance(error, KeyError) else clean(error, 100)
    return DataError(f"its metadata are damaged ({what})", path=folder)


def _refused(folder: Path, what: str) -> DataError:
    return DataError(f"{what}, which is not read", path=folder, hint=WRITE_HINT)


def check_files(top: Path) -> None:
    """Refuse links and devices in a folder."""
    for parent, folders, files in os.walk(top):
        for name in (*folders, *files):
            _check_kind(Path(parent, name), top)


def _check_kind(path: Path, top: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise disk_error(error, path) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise DataError(
            f"{clean(path.relative_to(top), 100)} is {what}",
            path=top,
            hint="Copy the folder with its files in it.",
        )


def _facts_3(folder: Path, document: dict[str, Any]) -> ArrayFacts:
    if document.get("storage_transformers"):
        raise _refused(folder, "its chunks went through a storage transformer")
    grid, naming = document["chunk_grid"], document["chunk_key_encoding"]
    if grid["name"] != "regular":
        raise _refused(folder, f"it has chunks of the kind '{clean(grid['name'], 40)}'")
    shape, chunks = _sizes(document["shape"]), _sizes(grid["configuration"]["chunk_shape"])
    if naming["name"] not in ("default", "v2"):
        raise _refused(folder, f"its files are named by '{clean(naming['name'], 40)}'")
    usual = "/" if naming["name"] == "default" else "."
    separator = naming.get("configuration", {}).get("separator", usual)
    prefix = f"c{separator}" if naming["name"] == "default" else ""
    codecs, shards = list(document["codecs"]), None
    if [codec["name"] for codec in codecs] == ["sharding_indexed"]:
        sharding = codecs[0]["configuration"]
        inner = _sizes(sharding["chunk_shape"])
        shards = _shards(folder, sharding, chunks, inner)
        codecs, chunks = list(sharding["codecs"]), inner
    chain = _chain_3(folder, document["data_type"], codecs, len(shape))
    return _checked(ArrayFacts(
        folder=folder, shape=shape, chunks=chunks, chain=chain, prefix=prefix, separator=separator,
        shards=shards,
    ))  # fmt: skip


def _shards(
    folder: Path, sharding: dict[str, Any], outer: tuple[int, ...], inner: tuple[int, ...]
) -> Shards:
    if len(outer) != len(inner) or any(not b or a % b for a, b in zip(outer, inner, strict=True)):
        raise ValueError("chunks do not fill a shard")
    index = [_codec(codec) for codec in sharding["index_codecs"]]
    names = [name for name, _ in index]
    if names not in (["bytes"], ["bytes", "crc32c"]) or index[0][1].get("endian") != "little":
        raise _refused(folder, f"the table of a shard is stored by {clean(names, 60)}")
    place = sharding.get("index_location", "end")
    if place not in ("start", "end"):
        raise ValueError("index_location is neither start nor end")
    chunks = tuple(a // b for a, b in zip(outer, inner, strict=True))
    if math.prod(chunks) > MAX_SHARD_CHUNKS:
        raise _refused(folder, f"a shard has {math.prod(chunks):,} chunks")
    return Shards(chunks, place == "end", len(names) == 2)


def _codec(codec: Any) -> tuple[str, dict[str, Any]]:
    return (
        (codec, {}) if isinstance(codec, str) else (codec["name"], codec.get("configuration", {}))
    )


def _chain_3(folder: Path, data_type: Any, codecs: list[Any], ndim: int) -> Chain:
    text = data_type == "string"
    if not text and (not isinstance(data_type, str) or data_type not in TYPES):
        raise _refused(folder, f"it has the type {clean(data_type, 60)}")
    left = [_codec(codec) for codec in codecs]
    order = tuple(range(ndim))
    if left and left[0][0] == "transpose":
        order = _sizes(left.pop(0)[1]["order"])
        if sorted(order) != list(range(ndim)):
            raise ValueError("transpose names no order of the axes")
    name, settings = left.pop(0) if left else ("nothing", {})
    if name != ("vlen-utf8" if text else "bytes"):
        raise _refused(folder, f"it is stored by the codec '{clean(name, 40)}'")
    dtype = None
    if not text:
        endian = settings.get("endian", "little")
        if endian not in ("little", "big"):
            raise ValueError("endian is neither little nor big")
        dtype = np.dtype(("<" if endian == "little" else ">") + TYPES[data_type])
    return Chain(dtype, order, _packers(folder, [name for name, _ in left]))


def _packers(folder: Path, names: list[str]) -> tuple[str, ...]:
    foreign = [name for name in names if name not in PACKERS]
    if foreign:
        raise _refused(folder, f"it is stored by the codec '{clean(foreign[0], 40)}'")
    return tuple(names)


def _facts_2(folder: Path, document: dict[str, Any]) -> ArrayFacts:
    shape, chunks = _sizes(document["shape"]), _sizes(document["chunks"])
    filters = [f["id"] for f in document.get("filters") or ()]
    kind, packer = document["dtype"], document.get("compressor")
    dtype = None
    if kind == "|O" and filters == ["vlen-utf8"]:
        filters = []
    elif isinstance(kind, str) and OLD_TYPE.fullmatch(kind):
        dtype = np.dtype(kind)
    else:
        objects = " of Python objects" if kind == "|O" else ""
        raise _refused(folder, f"it has the type {clean(kind, 60)}{objects}")
    if document["order"] not in ("C", "F"):
        raise ValueError("order is neither C nor F")
    axes = tuple(range(len(shape)))
    order = axes[::-1] if document["order"] == "F" else axes
    packed = _packers(folder, [*filters, *([packer["id"]] if packer else [])])
    return _checked(ArrayFacts(
        folder=folder, shape=shape, chunks=chunks, chain=Chain(dtype, order, packed),
        separator=document.get("dimension_separator", "."),
    ))  # fmt: skip


def _sizes(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError("a shape is no list of numbers")
    return tuple(values)


def _checked(facts: ArrayFacts) -> ArrayFacts:
    """Refuse an array that does not have one or two axes, or has huge chunks."""
    axes = len(facts.shape)
    if axes not in (1, 2):
        raise _refused(facts.folder, f"it has {axes} axes")
    if len(facts.chunks) != axes or 0 in facts.chunks or facts.separator not in ("/", "."):
        raise ValueError("its chunks do not fit its shape")
    size = OBJECT_BYTES if facts.chain.dtype is None else facts.chain.dtype.itemsize
    if math.prod(facts.chunks) * size > MAX_CHUNK_BYTES:
        raise DataError(
            f"it has chunks of {math.prod(facts.chunks) * size:,} bytes, at most "
            f"{MAX_CHUNK_BYTES:,} are read",
            path=facts.folder,
            hint="Write it again with smaller chunks.",
        )
    return facts
