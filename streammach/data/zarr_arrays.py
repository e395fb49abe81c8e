"""Zarr arrays that other programs wrote, formats 2 and 3, read chunk by chunk.

Not by zarr-python, because it takes a chunk that is missing for zeros, follows links out of the
folder, and lets a chunk decompress to any size. A store of its own that refuses links and missing
files is not enough: over it, zarr-python 3 took a chunk missing within a shard for zeros, passed
over storage transformers, and made 128 MB of a gzip chunk of 28 bytes before it looked at its
size. What is read is what the table of codecs below names; everything else is refused by name.
"""

from __future__ import annotations

import math
import os
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import VLenUTF8, Zstd, blosc
from numpy.typing import NDArray

from streammach.data.matrix_tree import TreeArray
from streammach.data.zarr_metadata import MAX_CHUNK_BYTES, Chain, Node, Shards
from streammach.errors import DataError, clean
from streammach.files.reading import disk_error, zstd_size

ABSENT = 2**64 - 1
KEPT_BYTES = 64 << 20  # of decoded chunks
KEPT_SHARDS = 64  # tables of
COPY_HINT = "Copy or write the folder again."
ZEROS_HINT = (
    "If it held only zeros and was left out for that, write it again with "
    "zarr.config.set({'array.write_empty_chunks': True})."
)
DAMAGED = (ValueError, RuntimeError, TypeError, zlib.error)


def _zstd(body: bytes, most: int) -> bytes:
    size = zstd_size(body)
    # Without a size the decoder wants a buffer of exactly the size that comes out.
    return bytes(Zstd().decode(body, np.empty(most if size is None else _within(size, most), "u1")))


def _blosc(body: bytes, most: int) -> bytes:
    if len(body) < 16 or int.from_bytes(body[12:16], "little") > len(body):
        raise ValueError("not a whole blosc buffer")
    _within(int.from_bytes(body[4:8], "little"), most)
    return bytes(blosc.decompress(body))


def _deflate(body: bytes, most: int) -> bytes:
    """Decompress gzip or zlib, whichever it is."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    out = stream.decompress(body, most + 1)
    _within(len(out), most)
    if not stream.eof:
        raise ValueError("the stream is cut short")
    return out


def _crc32c(body: bytes, most: int) -> bytes:
    if len(body) < 4 or google_crc32c.value(body[:-4]) != int.from_bytes(body[-4:], "little"):
        raise ValueError("its checksum is wrong")
    return body[:-4]


def _within(size: int, most: int) -> int:
    if size > most:
        raise ValueError(f"it decompresses to more than {most:,} bytes")
    return size


DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "zstd": _zstd, "blosc": _blosc, "gzip": _deflate, "zlib": _deflate, "crc32c": _crc32c,
}  # fmt: skip


def decoded(chain: Chain, body: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the chunk of this shape that some bytes hold, or raise one of :data:`DAMAGED`."""
    n = math.prod(shape)
    size = None if chain.dtype is None else n * chain.dtype.itemsize
    sums = 4 * chain.packed.count("crc32c")
    for codec in reversed(chain.packed):
        body = DECODERS[codec](body, (MAX_CHUNK_BYTES if size is None else size) + sums)
        sums -= 4 * (codec == "crc32c")
    if size is None:
        if int.from_bytes(body[:4], "little") != n:
            raise ValueError("it holds another number of strings")
        return np.asarray(VLenUTF8().decode(body)).reshape(shape)
    if len(body) != size:
        raise ValueError(f"{len(body):,} bytes, {size:,} expected")
    stored = np.frombuffer(body, chain.dtype).reshape([shape[axis] for axis in chain.order])
    return stored.transpose(np.argsort(chain.order))


@dataclass(frozen=True)
class _Place:
    """Where the bytes of a chunk are: a file, and the part of it; size None: all of it."""

    path: Path
    offset: int = 0
    size: int | None = None


class ZarrArray(TreeArray):
    """An array that is read in ranges of its first axis."""

    def __init__(self, node: Node) -> None:
        self._wrong: DataError | None = None
        self.shape, self.dtype = (), np.dtype("V")
        try:
            self.facts = node.facts()
        except DataError as error:  # of an array that may never be read
            self._wrong = error
            return
        dtype = self.facts.chain.dtype
        self.shape, self.dtype = self.facts.shape, np.dtype(object) if dtype is None else dtype
        self.unit = self.facts.chunks[0]
        documents = ("zarr.json", ".zarray", ".zattrs")
        self.left_out = all(name in documents for name in os.listdir(node.folder))
        self._kept: dict[tuple[int, ...], NDArray[Any]] = {}
        self._tables: dict[tuple[int, ...], NDArray[np.uint64]] = {}

    def check(self) -> None:
        """Raise DataError if what its metadata say is not read here."""
        if self._wrong is not None:
            raise self._wrong

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items (of two axes: rows) ``start:stop``, or raise DataError or DiskError."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        height = self.facts.chunks[0]
        for i in range(start // height, -(-stop // height)):
            a, b = max(start, i * height), min(stop, (i + 1) * height)
            if len(self.shape) == 1:
                out[a - start : b - start] = self._chunk((i,))[a - i * height : b - i * height]
                continue
            width = self.facts.chunks[1]
            for j in range(-(-self.shape[1] // width)):
                columns = out[a - start : b - start, j * width : (j + 1) * width]
                chunk = self._chunk((i, j))
                columns[:] = chunk[a - i * height : b - i * height, : columns.shape[1]]
        return out

    def _chunk(self, at: tuple[int, ...]) -> NDArray[Any]:
        if at in self._kept:
            return self._kept[at]
        place = self._place(at)
        body = self._bytes(place)
        try:
            chunk = decoded(self.facts.chain, body, self.facts.chunks)
        except DAMAGED as error:
            raise _damaged(place.path, clean(error, 100)) from None
        while self._kept and (len(self._kept) + 1) * chunk.nbytes > KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        self._kept[at] = chunk
        return chunk

    def _place(self, at: tuple[int, ...]) -> _Place:
        shards = self.facts.shards
        if shards is None:
            return _Place(self.facts.file_of(at))
        shard = tuple(c // n for c, n in zip(at, shards.chunks, strict=True))
        path = self.facts.file_of(shard)
        if shard not in self._tables:
            if len(self._tables) >= KEPT_SHARDS:
                self._tables.clear()
            self._tables[shard] = self._table(path, shards)
        inside = tuple(c % n for c, n in zip(at, shards.chunks, strict=True))
        offset, size = (int(x) for x in self._tables[shard][inside])
        if offset == ABSENT and size == ABSENT:
            raise _missing(path, f"chunk {', '.join(map(str, inside))} of the shard")
        return _Place(path, offset, size)

    def _table(self, path: Path, shards: Shards) -> NDArray[np.uint64]:
        """Return the table of a shard: offset and size of each of its chunks."""
        size = 16 * math.prod(shards.chunks) + 4 * shards.sealed
        table = self._bytes(_Place(path, -size if shards.at_end else 0, size))
        try:
            body = _crc32c(table, size) if shards.sealed else table
            return np.frombuffer(body, "<u8").reshape(*shards.chunks, 2)
        except DAMAGED as error:
            raise _damaged(path, f"the table of its chunks: {clean(error, 100)}") from None

    def _bytes(self, place: _Place) -> bytes:
        """Return the bytes at a place; a negative offset counts from the file's end."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        most = self.facts.most_packed
        try:
            handle = os.open(place.path, flags)
        except FileNotFoundError:
            raise _missing(place.path, "a chunk") from None
        except OSError as error:
            raise disk_error(error, place.path) from error
        try:
            found = os.fstat(handle)
            offset = place.offset + (found.st_size if place.offset < 0 else 0)
            size = found.st_size if place.size is None else place.size
            if not stat.S_ISREG(found.st_mode):
                raise _damaged(place.path, "it is no regular file")
            if offset < 0 or offset + size > found.st_size:
                raise _damaged(place.path, "it is cut short")
            if size > most:
                raise _damaged(place.path, f"a chunk of {size:,} bytes, {most:,} are possible")
            body = os.pread(handle, size, offset)
        except OSError as error:
            raise disk_error(error, place.path) from error
        finally:
            os.close(handle)
        if len(body) != size:
            raise _damaged(place.path, "it is cut short")
        return body


def _damaged(path: Path, what: str) -> DataError:
    return DataError(f"a chunk is damaged ({what})", path=path, hint=COPY_HINT)


def _missing(path: Path, what: str) -> DataError:
    return DataError(f"{what} is missing", path=path, hint=ZEROS_HINT)
