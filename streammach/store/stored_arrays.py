"""One-dimensional Zarr format 3 arrays, written and read chunk by chunk.

The bytes equal those that zarr-python writes and are read by it. Writing and reading them here
takes one checksum and one call of the codec per chunk, straight from and into the caller's buffers,
and a chunk that is missing is an error, not zeros.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import google_crc32c
import numpy as np
from numcodecs import Blosc, blosc
from numpy.typing import NDArray

from streammach.store.blobs import Blobs, FileFacts
from streammach.system.errors import StoreError, clean
from streammach.system.files.folders import make_folder
from streammach.system.files.reading import disk_errors, handle_pieces, sha256
from streammach.system.files.writing import Writer

CHUNK = 1 << 16  # values
SHARD_CHUNKS = 256
ABSENT = 2**64 - 1
CRC_OF_SEALED = 0x48674BC7  # crc32c of any bytes followed by their own crc32c
SMALL_BYTES = 1 << 20  # of a shard whose digest is compared when it is opened
CRC_BYTES = 4
INDEX_BYTES = 16 * SHARD_CHUNKS + CRC_BYTES
BLOSC_HEADER = struct.Struct("<4s3I")  # flags; bytes decoded, of a block, encoded

blosc.use_threads = False  # with its own threads the encoded bytes differ from run to run


def add_checksum(body: bytes) -> bytes:
    """Return the bytes followed by their crc32c."""
    return body + struct.pack("<I", google_crc32c.value(body))


def is_sealed(data: bytes) -> bool:
    """Return whether bytes end with the crc32c of those before."""
    return bool(google_crc32c.value(data) == CRC_OF_SEALED)


def shuffle_of(dtype: np.dtype[np.generic]) -> Literal["shuffle", "bitshuffle"]:
    """Return the shuffle that lz4 does best with: bytes of wide integers, bits of the rest."""
    return "shuffle" if dtype.kind in "iu" and dtype.itemsize >= 4 else "bitshuffle"


def compress_values(values: NDArray[Any], level: int = 5) -> bytes:
    """Return values, C-contiguous, as Blosc packs them with lz4 behind a shuffle."""
    mode = Blosc.SHUFFLE if shuffle_of(values.dtype) == "shuffle" else Blosc.BITSHUFFLE
    return bytes(Blosc("lz4", level, mode).encode(values))


def unpack(body: bytes | memoryview, out: NDArray[Any]) -> None:
    """Write the values of a chunk to `out`, C-contiguous; ValueError or RuntimeError if it fails.

    Blosc's own header says where its bytes end.
    """
    if len(body) < BLOSC_HEADER.size:
        raise ValueError("it has no header")
    _, decoded, _, size = BLOSC_HEADER.unpack_from(body)
    if decoded != out.nbytes or size != len(body):
        raise ValueError(f"{decoded:,} bytes, not {out.nbytes:,}")
    blosc.decompress(body, out)


def encode_chunk(dtype: np.dtype[np.generic], chunk: NDArray[np.generic]) -> bytes:
    """Return a chunk as it stands in a shard: `CHUNK` values, cast to a type."""
    return add_checksum(compress_values(np.ascontiguousarray(chunk, dtype)))


class ArrayWriter:
    """Writes an array of unknown length, one shard file after another."""

    def __init__(self, folder: Path, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.n_values = 0
        self.files: dict[str, FileFacts] = {}
        self._folder = folder
        self._chunk = np.zeros(CHUNK, self.dtype)
        self._n_written = 0
        self._index = np.full((SHARD_CHUNKS, 2), ABSENT, np.uint64)
        self._shard: Writer | None = None
        self._sha256 = hashlib.sha256()
        make_folder(folder / "c")

    def cut(self, values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        """Append values; return the chunks that are full, which :meth:`write` takes in this order.

        Any thread may make the bytes of a chunk: :func:`encode_chunk`.
        """
        at = self.n_values % CHUNK
        head = min(CHUNK - at, len(values)) if at else 0
        self._chunk[at : at + head] = values[:head]
        full = list[NDArray[np.generic]]()
        if at and at + head == CHUNK:
            full.append(self._chunk)
            self._chunk = np.zeros(CHUNK, self.dtype)
        stop = head + (len(values) - head) // CHUNK * CHUNK
        full += [values[i : i + CHUNK] for i in range(head, stop, CHUNK)]
        self._chunk[: len(values) - stop] = values[stop:]
        self.n_values += len(values)
        return full

    def append(self, values: NDArray[np.generic]) -> None:
        """Append values, which are cast to the array's type, or raise DiskError."""
        for chunk in self.cut(values):
            self.write(encode_chunk(self.dtype, chunk))

    def close(self) -> None:
        """Write what is left; the last chunk is filled up with zeros."""
        rest = self.n_values % CHUNK
        if rest:
            self._chunk[rest:] = 0
            self.write(encode_chunk(self.dtype, self._chunk))
        self._end_shard()

    def release(self) -> None:
        """Close the open shard and leave it as it is."""
        if self._shard is not None:
            self._shard.close()

    def write(self, body: bytes) -> None:
        """Write the next chunk, or raise DiskError."""
        chunk, self._n_written = self._n_written, self._n_written + 1
        if self._shard is None:
            self._shard = Writer(self._folder / "c" / str(chunk // SHARD_CHUNKS))
            self._sha256 = hashlib.sha256()
        self._index[chunk % SHARD_CHUNKS] = self._shard.size, len(body)
        self._add(self._shard, body)
        if chunk % SHARD_CHUNKS == SHARD_CHUNKS - 1:
            self._end_shard()

    def _end_shard(self) -> None:
        if self._shard is None:
            return
        index = add_checksum(self._index.astype("<u8").tobytes())
        self._add(self._shard, index)
        self._shard.commit()
        tail = int.from_bytes(index[-4:], "little")
        facts = FileFacts(self._shard.size, self._sha256.hexdigest(), tail)
        self.files[f"c/{self._shard.path.name}"] = facts
        self._shard = None
        self._index[:] = ABSENT

    def _add(self, shard: Writer, part: bytes) -> None:
        shard.write(part)
        self._sha256.update(part)


class ArrayReader:
    """Reads ranges of an array; safe to use from several threads."""

    def __init__(
        self, blobs: Blobs, name: str, dtype: np.dtype[Any], n_values: int,
        files: dict[str, FileFacts],
    ) -> None:  # fmt: skip
        self.dtype, self.n_values = dtype, n_values
        self._blobs, self._name, self._files = blobs, name, files
        self._indices: dict[int, NDArray[np.uint64]] = {}

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return values ``start:stop``, in `out` (stop - start,) if it is given."""
        if out is None:
            out = np.empty(stop - start, self.dtype)
        for chunk in range(start // CHUNK, -(-stop // CHUNK)):
            first = chunk * CHUNK
            a, b = max(start, first), min(stop, first + CHUNK)
            if b - a == CHUNK:
                self._decode(chunk, out[a - start : b - start])
            else:
                whole = np.empty(CHUNK, self.dtype)
                self._decode(chunk, whole)
                out[a - start : b - start] = whole[a - first : b - first]
        return out

    def verify(self, *, deep: bool) -> Iterator[str]:
        """Yield a line for each file whose index is damaged, and if `deep` for each chunk."""
        for number in range(-(-self.n_values // (CHUNK * SHARD_CHUNKS))):
            try:
                self._index(number)
            except StoreError as error:
                yield error.finding
                return
        if not deep:
            return
        for name, facts in self._files.items():
            with self._blobs.hold_open(f"{self._name}/{name}", facts) as handle:
                wrong = sha256(handle_pieces(handle)) != facts.sha256
            if wrong:
                place = self._blobs.place / self._name / name
                yield f"damaged: {clean(place, 300)}: its digest is wrong"
        whole = np.empty(CHUNK, self.dtype)
        for chunk in range(-(-self.n_values // CHUNK)):
            try:
                self._decode(chunk, whole)
            except StoreError as error:
                yield error.finding

    def _decode(self, chunk: int, out: NDArray[np.generic]) -> None:
        number = chunk // SHARD_CHUNKS
        wrong = self._decode_into(chunk, out)
        if wrong and self._blobs.refetch(self._files[f"c/{number}"]):
            wrong = self._decode_into(chunk, out)
        if wrong:
            raise _damage_error(self._place(number), wrong)

    def _decode_into(self, chunk: int, out: NDArray[np.generic]) -> str:
        """Decode a chunk; return what is wrong with it, if anything is."""
        number, at = chunk // SHARD_CHUNKS, chunk % SHARD_CHUNKS
        offset, size = (int(x) for x in self._index(number)[at])
        if offset == ABSENT:
            raise StoreError("a chunk is missing", path=self._place(number))
        with self._open_shard(number) as handle, disk_errors(self._place(number)):
            body = os.pread(handle, size, offset)
        if len(body) != size or not is_sealed(body):
            return f"the checksum of chunk {at} is wrong"
        try:
            unpack(memoryview(body)[:-CRC_BYTES], out)
        except (RuntimeError, ValueError) as error:
            return f"chunk {at} cannot be decoded ({clean(error)})"
        return ""

    def _index(self, number: int) -> NDArray[np.uint64]:
        """Return where the chunks of a shard lie: uint64 (chunks, 2), offset and bytes."""
        if number in self._indices:
            return self._indices[number]
        place, facts = self._place(number), self._files[f"c/{number}"]
        with self._open_shard(number) as handle:
            with disk_errors(place):
                size = os.fstat(handle).st_size
                table = os.pread(handle, INDEX_BYTES, max(0, size - INDEX_BYTES))
            tail = int.from_bytes(table[-4:], "little")
            whole = len(table) == INDEX_BYTES and is_sealed(table)
            if not whole or size != facts.size or tail != facts.tail:
                raise _damage_error(place, "it is cut short or is not the file of the manifest")
            # Another store's one chunk may well have this size, and so the same table.
            if size <= SMALL_BYTES and sha256(handle_pieces(handle)) != facts.sha256:
                raise _damage_error(place, "its digest is wrong")
        index = np.frombuffer(table[:-4], "<u8").reshape(SHARD_CHUNKS, 2)
        placed = index[index[:, 0] != ABSENT]
        if len(placed) and int(placed.max()) > size:
            raise StoreError("damaged: a chunk lies outside of its file", path=place)
        return self._indices.setdefault(number, index)

    def _open_shard(self, number: int) -> AbstractContextManager[int]:
        file = f"c/{number}"
        return self._blobs.hold_open(f"{self._name}/{file}", self._files[file])

    def _place(self, number: int) -> Path:
        return self._blobs.place / self._name / "c" / str(number)


class ArrayInMemory:
    """An array (n,) in memory, filled from its start, then read like one in a file."""

    def __init__(self, room: NDArray[Any], n_values: int = 0) -> None:
        self._room, self.n_values, self.dtype = room, n_values, room.dtype

    @property
    def values(self) -> NDArray[Any]:
        """All values, which nobody may change."""
        found = self._room[: self.n_values]
        found.flags.writeable = False
        return found

    def cut(self, values: NDArray[Any]) -> list[NDArray[np.generic]]:
        """Append values, which are cast to the array's type; return that no chunk is to write."""
        stop = self.n_values + len(values)
        self._room[self.n_values : stop] = values
        self.n_values = stop
        return []

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return values ``start:stop``, as a view where there is no `out` to receive them."""
        found = self.values[start:stop]
        if out is None:
            return found
        out[:] = found
        return out


ReadArray = ArrayReader | ArrayInMemory


def _damage_error(file: Path, what: str) -> StoreError:
    return StoreError(f"damaged: {what}", path=file, hint="Copy or convert the store again.")
