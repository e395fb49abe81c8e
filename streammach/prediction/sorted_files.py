"""Predictions of a range of a store's rows as a file in the order of the source, and their merge.

Several processes rank ranges of a store's rows, and each leaves a file. The rows of all files whose
numbers lie in a slice make a piece of the table; slices can be read by several processes, too. A
file holds a head of int64, for each slice where its rows and their tags begin, the rows by rising
number, and the tags.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.files.reading import disk_error, regular
from streammach.files.writing import Writer
from streammach.prediction.inputs import Seen
from streammach.prediction.order import (
    GIVEN_ROWS,
    PLACE_BYTES,
    SPREAD,
    TAG_COPIES,
    Order,
    Predictions,
    by_number,
    record_type,
    records_of,
)
from streammach.rows.texts import Texts

HEAD = 4  # numbers of the head
NUMBER = np.dtype(np.int64)


@dataclass(frozen=True)
class Slices:
    """The numbers of all rows, in so many slices of one width."""

    n: int  # how many
    width: int  # numbers of each

    @classmethod
    def of(cls, order: Order, k: int, room: int, n_workers: int) -> Slices:
        """Return slices that fit a room of bytes, some for each worker where there are rows for it.

        `room` is in bytes.
        """
        held = int(SPREAD * order.n_rows * row_bytes(order, k))
        shared = min(4 * n_workers, -(-order.n_rows // GIVEN_ROWS))
        return cls.cut(order, max(1, -(-held // room), shared))

    @classmethod
    def cut(cls, order: Order, n: int) -> Slices:
        """Return so many slices of all numbers."""
        return cls(n, order.last // n + 1)


def row_bytes(order: Order, k: int) -> int:
    """Return the bytes that a row takes while rows are sorted."""
    tag = -(-order.tag_bytes // max(order.n_rows, 1))
    return record_type(k).itemsize + PLACE_BYTES + TAG_COPIES * tag


def write_sorted(
    path: Path, parts: Iterable[Predictions], n_rows: int, k: int, slices: Slices, seen: Seen
) -> None:
    """Write the predictions of a range of rows; they are held meanwhile."""
    records, n, data = np.empty(n_rows, record_type(k)), 0, bytearray()
    for part in parts:
        found, tags = records_of(part, np.arange(len(part.rows)))
        records[n : n + len(found)] = found
        n += len(found)
        data += tags
    order = np.argsort(records["row"], kind="stable")
    texts = Texts(_ends(records["tag"]), np.frombuffer(data, np.uint8))
    edges = np.arange(slices.n + 1) * slices.width
    starts = np.searchsorted(records["row"][order], edges)
    index = np.stack([starts, _ends(records["tag"][order])[starts]], axis=1)
    with Writer(path) as out:
        head = [n_rows, seen.unknown_values, slices.n, len(data)]
        out.write(np.array(head, NUMBER).tobytes())
        out.write(index.astype(NUMBER).tobytes())
        for chosen in _pieces(order):
            out.write(records[chosen].tobytes())
        for chosen in _pieces(order) if data else ():
            out.write(texts.take(chosen).data.tobytes())
        out.commit()


def facts_of(path: Path, n_rows: int, k: int, slices: Slices) -> Seen | None:
    """Return what was met in a range of so many rows; None where no file says it."""
    try:
        with open(path, "rb", opener=regular) as file:
            head = np.frombuffer(file.read(HEAD * NUMBER.itemsize), NUMBER).tolist()
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(head) < HEAD or head[0] != n_rows or head[2] != slices.n:
        return None
    if size != _records_at(slices) + n_rows * record_type(k).itemsize + head[3]:
        return None
    return Seen(rows=head[0], unknown_values=head[1])


def slice_of(paths: Sequence[Path], k: int, slices: Slices, number: int) -> Iterator[Predictions]:
    """Yield the rows of a slice by rising number; all of them are held."""
    found = [_segment(path, k, slices, number) for path in paths]
    data = b"".join([tags for _, tags in found])
    records = np.concatenate([records for records, _ in found])
    del found
    yield from by_number(records, data)


def _segment(path: Path, k: int, slices: Slices, number: int) -> tuple[NDArray[Any], bytes]:
    """Return a slice's rows of one file, and their tags."""
    kind, pair = record_type(k), 2 * NUMBER.itemsize
    try:
        with open(path, "rb", buffering=0, opener=regular) as file:

            def read(at: int, n_bytes: int) -> bytes:
                found = os.pread(file.fileno(), n_bytes, at)
                if len(found) < n_bytes:
                    raise OSError(f"it ends at byte {at + len(found):,}")
                return found

            head = np.frombuffer(read(0, HEAD * NUMBER.itemsize), NUMBER).tolist()
            index = read(HEAD * NUMBER.itemsize + number * pair, 2 * pair)
            (row, tag), (next_row, next_tag) = np.frombuffer(index, NUMBER).reshape(2, 2).tolist()
            rows_at = _records_at(slices)
            tags_at = rows_at + head[0] * kind.itemsize
            rows = read(rows_at + row * kind.itemsize, (next_row - row) * kind.itemsize)
            return np.frombuffer(rows, kind), read(tags_at + tag, next_tag - tag)
    except OSError as error:
        raise disk_error(error, path) from error


def _records_at(slices: Slices) -> int:
    return (HEAD + 2 * (slices.n + 1)) * NUMBER.itemsize


def _ends(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _pieces(order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    return (order[start : start + GIVEN_ROWS] for start in range(0, len(order), GIVEN_ROWS))
