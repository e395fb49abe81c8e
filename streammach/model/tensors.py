"""Arrays in a file: the safetensors layout, written as a stream and checked while it is read.

The layout is 8 bytes of header length, a JSON header, the arrays' bytes. Writing it here streams
arrays of any size without a second copy and takes the checksum on the way; the safetensors library
reads the result.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import google_crc32c
import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.options.documents import from_json
from streammach.options.types import Count
from streammach.rows.arrays import INFINITE, NO_SIGN, look_at_numbers
from streammach.system.errors import DivergedError, ModelError, clean
from streammach.system.files.reading import PIECE, disk_error, regular
from streammach.system.files.writing import Writer

DType = Literal["F32", "I64", "I32", "I16", "I8", "U8"]
DTYPES: dict[DType, Any] = {
    "F32": np.float32,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
LENGTH_BYTES = 8
MAX_HEADER = 1 << 20
LOOKED_AT = 256 << 10  # bytes that are read at once: they are in the cache when they are looked at
COPY_AGAIN = "Copy the folder again, or train again."


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array of the header: type, shape, and where its bytes lie."""

    dtype: DType
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    @property
    def type(self) -> str:
        """Its type as NumPy calls it."""
        return str(np.dtype(DTYPES[self.dtype]))


TensorHeader = dict[str, Tensor]


class TensorFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a document says of a tensor file beside it."""

    size: Count
    crc32c: Count


def write_tensors(path: Path, arrays: dict[str, NDArray[Any]]) -> TensorFile:
    """Write arrays to a file, whole or not at all; or DiskError, DivergedError: not all finite."""
    head = header_bytes(arrays)
    crc = google_crc32c.Checksum(head)
    with Writer(path) as out:
        out.write(head)
        for name, array in arrays.items():
            largest = np.zeros(1, np.int64)
            for piece in _pieces(array):
                out.write(piece.view(np.uint8).data)
                _look(crc, piece, largest)
            if largest[0] >= INFINITE:
                raise diverged_error(name)
        out.commit()
        return TensorFile(out.size, int.from_bytes(crc.digest(), "big"))


def diverged_error(name: str) -> DivergedError:
    """Return the error of an array that is not finite."""
    return DivergedError(f"the {name} are not finite", hint="Use a smaller --learning-rate.")


def check_finite(arrays: dict[str, NDArray[Any]]) -> None:
    """Raise DivergedError for an array that holds NaN or infinity."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not all(np.isfinite(x).all() for x in _pieces(array)):
            raise diverged_error(name)


def _pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array in pieces (n,) of the bytes that one call writes."""
    for rows in _whole_rows(array):
        flat = np.ascontiguousarray(rows).reshape(-1)
        step = PIECE // flat.itemsize
        yield from (flat[start : start + step] for start in range(0, len(flat), step))


def _look(crc: google_crc32c.Checksum, piece: NDArray[Any], largest: NDArray[np.int64]) -> None:
    """Take a piece (n,) of a file into its checksum, and the largest bits of a float32."""
    crc.update(piece.view(np.uint8))
    if piece.dtype == np.float32:
        largest[0] = max(largest[0], look_at_numbers(piece, NO_SIGN))


def header_bytes(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return what stands in a file before the bytes of the arrays."""
    header: dict[str, Tensor] = {}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = Tensor(NAMES[array.dtype], array.shape, (start, end))
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def load_tensors(
    path: Path, facts: TensorFile, check: Callable[[TensorHeader], None]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, in memory of their own, or raise ModelError."""
    return _read(path, facts, check, lambda _, t: np.empty(t.shape, DTYPES[t.dtype]))


class ArrayOnDisk:
    """The bytes of an array as they lie in an open file; some are read whenever they are needed."""

    def __init__(self, path: Path, handle: int, start: int, tensor: Tensor) -> None:
        self.tensor, self._path, self._handle = tensor, path, handle
        self._start, self._n = start, tensor.data_offsets[1] - tensor.data_offsets[0]

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, some: slice) -> NDArray[np.uint8]:
        """Return some bytes, uint8 (n,), or raise ModelError."""
        start, stop, _ = some.indices(self._n)
        found = os.pread(self._handle, stop - start, self._start + start)
        if len(found) < stop - start:
            raise damage_error(self._path, "it is cut short")
        return np.frombuffer(found, np.uint8)


@contextmanager
def open_tensors(path: Path, facts: TensorFile) -> Iterator[dict[str, ArrayOnDisk]]:
    """Open a file: its arrays by name, not compared with its checksum; or raise ModelError."""
    with _open_file(path, facts) as (file, head, header):
        yield {
            name: ArrayOnDisk(path, file.fileno(), len(head) + tensor.data_offsets[0], tensor)
            for name, tensor in header.items()
        }


def read_tensors(path: Path, facts: TensorFile, into: dict[str, NDArray[Any]]) -> None:
    """Read the arrays of a file, or raise ModelError or DiskError."""
    wanted = {name: (NAMES[a.dtype], a.shape) for name, a in into.items()}

    def check(header: TensorHeader) -> None:
        if {name: (t.dtype, t.shape) for name, t in header.items()} != wanted:
            raise damage_error(path, "it does not hold the arrays that are needed")

    _read(path, facts, check, lambda name, _: into[name])


def _read(
    path: Path, facts: TensorFile, check: Callable[[TensorHeader], None],
    room: Callable[[str, Tensor], NDArray[Any]],
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """Read the arrays of a file, each into its room, and compare what was read with `facts`."""
    with _open_file(path, facts) as (file, head, header):
        check(header)
        found = {name: room(name, tensor) for name, tensor in header.items()}
        crc, largest = google_crc32c.Checksum(head), np.zeros(1, np.int64)
        for piece in _read_into(file, path, found.values()):
            _look(crc, piece, largest)
    if int.from_bytes(crc.digest(), "big") != facts.crc32c:
        raise damage_error(path, "size or checksum is wrong")
    if largest[0] >= INFINITE:
        raise damage_error(path, "a number is not finite")
    return found


def _read_into(
    file: IO[bytes], path: Path, arrays: Iterable[NDArray[Any]]
) -> Iterator[NDArray[Any]]:
    """Read the next bytes of a file into arrays; yield them in pieces, each (n,)."""
    for array in arrays:
        for some in _whole_rows(array):
            whole = some if some.flags.c_contiguous else np.empty(some.shape, some.dtype)
            flat, step = whole.reshape(-1), max(1, LOOKED_AT // whole.itemsize)
            for start in range(0, len(flat), step):
                piece = flat[start : start + step]
                bytes_, done = piece.view(np.uint8).data, 0
                while done < len(bytes_):
                    got = file.readinto(bytes_[done:])  # type: ignore[attr-defined]
                    if not got:
                        raise damage_error(path, "it is cut short")
                    done += got
                yield piece
            if whole is not some:
                some[:] = whole


def _whole_rows(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array in pieces that follow one another in a file: whole, or some rows at a time."""
    if array.flags.c_contiguous:
        yield array
        return
    n = max(1, PIECE // max(array[:1].nbytes, 1))
    yield from (array[start : start + n] for start in range(0, len(array), n))


@contextmanager
def _open_file(path: Path, facts: TensorFile) -> Iterator[tuple[IO[bytes], bytes, TensorHeader]]:
    """Open a file: the bytes before its arrays and what they say; errors become one line."""
    if not path.is_file() or path.is_symlink():
        raise ModelError("the file is missing", path=path, hint=COPY_AGAIN)
    try:
        with open(path, "rb", buffering=0, opener=regular) as file:
            if os.fstat(file.fileno()).st_size != facts.size:
                raise damage_error(path, "size or checksum is wrong")
            start = file.read(LENGTH_BYTES)
            length = int.from_bytes(start, "little")
            text = file.read(min(length, MAX_HEADER))
            yield file, start + text, _header(path, text, facts.size - LENGTH_BYTES - length)
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise damage_error(path, clean(error)) from None
    except OSError as error:
        raise disk_error(error, path) from error


def _header(path: Path, text: bytes, n_bytes: int) -> TensorHeader:
    """Return the header of a file whose arrays take so many bytes."""
    header = from_json(text, dict[str, Tensor])
    end = 0
    for tensor in header.values():
        size = np.dtype(DTYPES[tensor.dtype]).itemsize * math.prod(tensor.shape)
        if tensor.data_offsets != (end, end + size) or min(tensor.shape, default=0) < 0:
            raise damage_error(path, "an array does not lie where its shape says")
        end += size
    if end != n_bytes:
        raise damage_error(path, "its arrays do not fill it")
    return header


def damage_error(place: str | os.PathLike[str], what: str) -> ModelError:
    """Return the error of a model in which something is wrong."""
    return ModelError(f"damaged: {what}", path=place, hint=COPY_AGAIN)
