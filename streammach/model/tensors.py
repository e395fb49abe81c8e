"""Arrays in a file: the safetensors layout, written as a stream and checked before it is mapped.

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

from streammach.errors import ModelError, clean
from streammach.files.reading import PIECE, disk_error, in_pieces, regular
from streammach.files.writing import Writer
from streammach.rows.bounds import INFINITE, NO_SIGN, look_at_numbers
from streammach.spec.documents import from_json
from streammach.spec.types import Count

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
    """Write arrays to a file, whole or not at all.

    Parameters
    ----------
    path : Path
        The file.
    arrays : dict of str to array
        C-contiguous arrays of float32, int64, int32 or uint8.

    Raises
    ------
    DiskError
        If it cannot be written.
    """
    crc = google_crc32c.Checksum()
    with Writer(path) as out:
        for part in _parts(arrays):
            for piece in in_pieces(part):
                out.write(piece)
                crc.update(bytes(piece))
        out.commit()
        return TensorFile(out.size, int.from_bytes(crc.digest(), "big"))


def _parts(arrays: dict[str, NDArray[Any]]) -> Iterator[bytes | memoryview]:
    """Yield the header and the bytes of each array."""
    yield header_bytes(arrays)
    for array in arrays.values():
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


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


def map_tensors(
    path: Path, facts: TensorFile, check: Callable[[TensorHeader], None]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, mapped into memory, read-only.

    Parameters
    ----------
    path : Path
        The file.
    facts : TensorFile
        Its size and checksum, from the document beside it.
    check : callable
        Told what the arrays are, before they are read; what it raises ends the work.

    Raises
    ------
    ModelError
        If the file is missing, cut short, damaged, its header is not sound, or a number is not
        finite.
    """
    return _mapped(path, *_checked(path, facts, check))


def map_some(path: Path, facts: TensorFile, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return some arrays of a file, mapped and not compared with its checksum, or ModelError."""
    with _opened(path, facts) as (_, head, header):
        return _mapped(path, len(head), {name: header[name] for name in names})


def _mapped(path: Path, base: int, header: TensorHeader) -> dict[str, NDArray[Any]]:
    out: dict[str, NDArray[Any]] = {}
    for name, tensor in header.items():
        dtype = np.dtype(DTYPES[tensor.dtype])
        if 0 in tensor.shape:
            out[name] = np.empty(tensor.shape, dtype)
        else:
            out[name] = np.memmap(path, dtype, "r", base + tensor.data_offsets[0], tensor.shape)
    return out


def read_header(path: Path, facts: TensorFile) -> TensorHeader:
    """Return what arrays a file holds, without reading them, or raise ModelError."""
    with _opened(path, facts) as (_, _, header):
        return header


def read_tensors(path: Path, facts: TensorFile, into: dict[str, NDArray[Any]]) -> None:
    """Read the arrays of a file.

    Parameters
    ----------
    path : Path
        The file.
    facts : TensorFile
        Its size and checksum, from the document beside it.
    into : dict of str to array
        Receive the arrays, of the same names, types and shapes; columns of larger ones, too.

    Raises
    ------
    ModelError
        If the file is missing, damaged, or does not hold just these arrays.
    DiskError
        If it cannot be read.
    """
    wanted = {name: (NAMES[a.dtype], a.shape) for name, a in into.items()}

    def check(header: TensorHeader) -> None:
        if {name: (t.dtype, t.shape) for name, t in header.items()} != wanted:
            raise damaged(path, "it does not hold the arrays that are needed")

    base, header = _checked(path, facts, check)
    try:
        with open(path, "rb", buffering=0, opener=regular) as file:
            for name, array in into.items():
                file.seek(base + header[name].data_offsets[0])
                for some in _whole_rows(array):
                    piece = some if some.flags.c_contiguous else np.empty(some.shape, some.dtype)
                    _fill(file, path, piece)
                    if piece is not some:
                        some[:] = piece
    except OSError as error:
        raise disk_error(error, path) from error


def _whole_rows(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array in pieces that follow one another in a file: whole, or some rows at a time."""
    if array.flags.c_contiguous:
        yield array
        return
    n = max(1, PIECE // max(array[:1].nbytes, 1))
    yield from (array[start : start + n] for start in range(0, len(array), n))


def _fill(file: IO[bytes], path: Path, array: NDArray[Any]) -> None:
    """Read the next bytes of a file into a contiguous array."""
    view, done = array.reshape(-1).view(np.uint8).data, 0
    while done < len(view):
        got = file.readinto(view[done : done + PIECE])  # type: ignore[attr-defined]
        if not got:
            raise damaged(path, "it is cut short")
        done += got


def _checked(
    path: Path, facts: TensorFile, check: Callable[[TensorHeader], None]
) -> tuple[int, TensorHeader]:
    """Return where the arrays start and the header, after comparing the file with `facts`.

    The file is read once: its checksum is taken and its numbers are looked at in passing.
    """
    with _opened(path, facts) as (file, head, header):
        check(header)
        crc32c, finite = _seen(file, path, head, header)
    if crc32c != facts.crc32c:
        raise damaged(path, "size or checksum is wrong")
    if not finite:
        raise damaged(path, "a number is not finite")
    return len(head), header


@contextmanager
def _opened(path: Path, facts: TensorFile) -> Iterator[tuple[IO[bytes], bytes, TensorHeader]]:
    """Open a file: the bytes before its arrays and what they say; errors become one line."""
    if not path.is_file() or path.is_symlink():
        raise ModelError("the file is missing", path=clean(path, 300), hint=COPY_AGAIN)
    try:
        with open(path, "rb", buffering=0, opener=regular) as file:
            if os.fstat(file.fileno()).st_size != facts.size:
                raise damaged(path, "size or checksum is wrong")
            start = file.read(LENGTH_BYTES)
            length = int.from_bytes(start, "little")
            text = file.read(min(length, MAX_HEADER))
            yield file, start + text, _header(path, text, facts.size - LENGTH_BYTES - length)
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise damaged(path, clean(error)) from None
    except OSError as error:
        raise disk_error(error, path) from error


def _header(path: Path, text: bytes, n_bytes: int) -> TensorHeader:
    """Return the header of a file whose arrays take so many bytes."""
    header = from_json(text, dict[str, Tensor])
    end = 0
    for tensor in header.values():
        size = np.dtype(DTYPES[tensor.dtype]).itemsize * math.prod(tensor.shape)
        if tensor.data_offsets != (end, end + size) or min(tensor.shape, default=0) < 0:
            raise damaged(path, "an array does not lie where its shape says")
        end += size
    if end != n_bytes:
        raise damaged(path, "its arrays do not fill it")
    return header


def _seen(file: IO[bytes], path: Path, head: bytes, header: TensorHeader) -> tuple[int, bool]:
    """Read the arrays, which come next; return the crc32c and whether all float32 are finite."""
    crc, largest = google_crc32c.Checksum(head), np.zeros(1, np.int64)
    for tensor in header.values():
        left = tensor.data_offsets[1] - tensor.data_offsets[0]
        while left:
            piece = file.read(min(PIECE, left))
            if not piece or (len(piece) % 4 and tensor.dtype == "F32"):
                raise damaged(path, "it is cut short")
            crc.update(piece)
            if tensor.dtype == "F32":
                look_at_numbers(np.frombuffer(piece, np.float32), NO_SIGN, largest)
            left -= len(piece)
    return int.from_bytes(crc.digest(), "big"), bool(largest[0] < INFINITE)


def damaged(place: object, what: str) -> ModelError:
    """Return the error of a model in which something is wrong."""
    return ModelError(f"damaged: {what}", path=clean(place, 300), hint=COPY_AGAIN)
