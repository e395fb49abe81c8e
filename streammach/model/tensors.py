"""Arrays in a file: the safetensors layout, written as a stream and checked before it is mapped.

The layout is 8 bytes of header length, a JSON header, the arrays' bytes. Writing it here streams
arrays of any size without a second copy and takes the checksum on the way; the safetensors library
reads the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.errors import ModelError, clean
from streammach.files.reading import PIECE, crc32c, disk_error, file_pieces, in_pieces
from streammach.files.writing import Writer
from streammach.spec import from_json

DTYPES = {
    "F32": np.float32,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
MAX_HEADER = 1 << 20
COPY_AGAIN = "Copy the folder again, or train again."


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array of the header: type, shape, and where its bytes lie."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class TensorFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a document says of a tensor file beside it."""

    size: int
    crc32c: int


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
    return len(text).to_bytes(8, "little") + text


def map_tensors(path: Path, facts: TensorFile) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, mapped into memory, read-only.

    Parameters
    ----------
    path : Path
        The file.
    facts : TensorFile
        Its size and checksum, from the document beside it.

    Raises
    ------
    ModelError
        If the file is missing, cut short, damaged, or its header is not sound.
    """
    base, header = _checked(path, facts)
    out: dict[str, NDArray[Any]] = {}
    for name, tensor in header.items():
        dtype = np.dtype(DTYPES[tensor.dtype])
        if 0 in tensor.shape:
            out[name] = np.empty(tensor.shape, dtype)
        else:
            out[name] = np.memmap(path, dtype, "r", base + tensor.data_offsets[0], tensor.shape)
    return out


def read_tensors(path: Path, facts: TensorFile, into: dict[str, NDArray[Any]]) -> None:
    """Read the arrays of a file into arrays of the same names, types and shapes.

    Raises
    ------
    ModelError
        If the file is missing, damaged, or does not hold just these arrays.
    """
    base, header = _checked(path, facts)
    wanted = {name: (NAMES[a.dtype], a.shape) for name, a in into.items()}
    if {name: (t.dtype, t.shape) for name, t in header.items()} != wanted:
        raise _damaged(path, "it does not hold the arrays that are needed")
    try:
        with open(path, "rb", buffering=0) as file:
            for name, array in into.items():
                file.seek(base + header[name].data_offsets[0])
                view = array.reshape(-1).view(np.uint8).data
                done = 0
                while done < len(view):
                    got = file.readinto(view[done : done + PIECE])
                    if not got:
                        raise _damaged(path, "it is cut short")
                    done += got
    except OSError as error:
        raise disk_error(error, path) from error


def _checked(path: Path, facts: TensorFile) -> tuple[int, dict[str, Tensor]]:
    """Return where the arrays start and the header, after checking the file against `facts`."""
    if not path.is_file() or path.is_symlink():
        raise ModelError("the file is missing", path=clean(path, 300), hint=COPY_AGAIN)
    if path.stat().st_size != facts.size or crc32c(file_pieces(path)) != facts.crc32c:
        raise _damaged(path, "size or checksum is wrong")
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = from_json(file.read(min(length, MAX_HEADER)), dict[str, Tensor])
    except ValueError as error:
        raise _damaged(path, clean(error)) from None
    except OSError as error:
        raise disk_error(error, path) from error
    end = 0
    for tensor in header.values():
        size = np.dtype(DTYPES.get(tensor.dtype, np.void)).itemsize * math.prod(tensor.shape)
        if tensor.data_offsets != (end, end + size) or min(tensor.shape, default=0) < 0:
            raise _damaged(path, "an array does not lie where its shape says")
        end += size
    if 8 + length + end != facts.size:
        raise _damaged(path, "its arrays do not fill it")
    return 8 + length, header


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"damaged: {what}", path=clean(path, 300), hint=COPY_AGAIN)
