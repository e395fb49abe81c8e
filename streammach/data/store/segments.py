"""Ranges of arrays that are encoded apart from the rest, and put together chunk by chunk.

A chunk that lies in a range as a whole is encoded there. The values before the first and behind the
last of these wait for those of the ranges beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.store.arrays import CHUNK, ArrayWriter, encoded, is_sealed
from streammach.errors import StoreError
from streammach.files.reading import disk_error, regular
from streammach.files.writing import Writer


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A range of an array.

    Its values are those from ``first`` on. ``head`` are the bytes of those before the first
    whole chunk, ``tail`` of those behind the last; the chunks between lie in a file at ``places``,
    (offset, bytes).
    """

    first: int
    head: bytes
    places: list[tuple[int, int]]
    tail: bytes


class SegmentWriter:
    """Encodes a range of an array into a file that it shares with others.

    Parameters
    ----------
    out : Writer
        The file.
    first : int
        The range's first value in the array.
    dtype : dtype
        Type of the values.
    pool : Executor
        Its threads compress.

    Attributes
    ----------
    n_values : int
        Where in the array the next value goes.
    """

    def __init__(
        self, out: Writer, first: int, dtype: type[np.generic], pool: Executor | None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.n_values = self._first = first
        self._out, self._pool = out, pool
        self._whole_from = -(-first // CHUNK) * CHUNK  # the first whole chunk's first value
        self._head: list[NDArray[np.generic]] = []
        self._chunk = np.empty(CHUNK, self.dtype)
        self._places: list[tuple[int, int]] = []

    def append(self, values: NDArray[np.generic]) -> None:
        """Append values, which are cast to the array's type, or raise DiskError."""
        before = min(max(self._whole_from - self.n_values, 0), len(values))
        if before:
            self._head.append(values[:before].astype(self.dtype))
            self.n_values += before
            values = values[before:]
        if not len(values):
            return
        at = self.n_values % CHUNK
        head = min(CHUNK - at, len(values)) if at else 0
        self._chunk[at : at + head] = values[:head]
        whole = [self._chunk] if at and at + head == CHUNK else []
        stop = head + (len(values) - head) // CHUNK * CHUNK
        whole += [values[i : i + CHUNK] for i in range(head, stop, CHUNK)]
        each = map if self._pool is None else self._pool.map
        for body in each(partial(encoded, self.dtype), whole):
            self._places.append((self._out.size, len(body)))
            self._out.write(body)
        self._chunk[: len(values) - stop] = values[stop:]
        self.n_values += len(values)

    def done(self) -> Segment:
        """Return what the file and the edges hold."""
        rest = self.n_values % CHUNK if self.n_values > self._whole_from else 0
        return Segment(
            first=self._first, head=b"".join(values.tobytes() for values in self._head),
            places=self._places, tail=self._chunk[:rest].tobytes(),
        )  # fmt: skip


def append_segment(array: ArrayWriter, path: Path, segment: Segment) -> None:
    """Append a range to its array.

    Parameters
    ----------
    array : ArrayWriter
        The array, as far as it was written.
    path : Path
        The file that holds the whole chunks.
    segment : Segment
        The range.

    Raises
    ------
    StoreError
        If the file is damaged, or the range does not begin where the array ends.
    DiskError
        If a file cannot be read or written.
    """
    if array.n_values != segment.first:
        raise _damaged(path)
    array.append(np.frombuffer(segment.head, array.dtype))
    array.append_encoded(_chunks(path, segment.places))
    array.append(np.frombuffer(segment.tail, array.dtype))


def _chunks(path: Path, places: list[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the chunks at some places of a file."""
    if not places:
        return
    try:
        with open(path, "rb", buffering=0, opener=regular) as file:
            for offset, size in places:
                body = os.pread(file.fileno(), size, offset)
                if len(body) != size or not is_sealed(body):
                    raise _damaged(path)
                yield body
    except OSError as error:
        raise disk_error(error, path) from error


def _damaged(path: Path) -> StoreError:
    return StoreError(
        "a file of the conversion is damaged", path=path,
        hint="Remove its folder and convert again.",
    )  # fmt: skip
