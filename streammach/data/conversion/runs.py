"""Files of rows sorted by key, a bin of the keys after the other, and behind them what is known.

A run is written once, whole and durable, and is never touched again. Behind its rows it holds all
that a conversion needs to go on from there: so the runs are its journal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numcodecs import Blosc, blosc
from numpy.typing import NDArray

from streammach.data.conversion.buffer import Ids, RowBuffer
from streammach.data.conversion.tally import Packed, State
from streammach.data.conversion.threads import in_order
from streammach.data.store.arrays import is_sealed, sealed
from streammach.errors import StoreError
from streammach.files.reading import disk_error, regular
from streammach.files.writing import Writer
from streammach.rows.canonical import copy_rows
from streammach.rows.label_lists import LabelLists
from streammach.rows.texts import Texts

AHEAD = 32  # bins that are being compressed
BIN_BITS = 10
BINS = 1 << BIN_BITS
# Columns of the index.
OFFSET, SIZE, ROWS, VALUES, META_SIZE, FEATURES_SIZE, VALUES_SIZE, BYTES, TAG_BYTES = range(9)
LABELS, TAGS_SIZE, CLASSES_SIZE = range(9, 12)
INDEX_COLUMNS = 12
META = (
    "lengths", "classes", "importance", "lengths of tags", "keys, low half", "keys, high half",
    "numbers, low half", "numbers, high half", "lengths of lists",
)  # fmt: skip
NO_LISTS = LabelLists(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
FOOTER = struct.Struct("<QQ")  # where the state starts, its bytes


def write_run(path: Path, rows: RowBuffer, ids: Ids, state: State, *, pool: Executor) -> State:
    """Write the rows of a buffer, sorted by key; the file is durable afterwards."""
    keys = rows.keys[: rows.n_rows]
    order = np.argsort(keys, kind="stable")
    edges = np.arange(1, BINS, dtype=np.uint64) << np.uint64(64 - BIN_BITS)
    cuts = np.concatenate([[0], np.searchsorted(keys[order], edges), [rows.n_rows]])
    index = np.zeros((BINS, INDEX_COLUMNS), np.int64)
    bodies = (partial(_encoded, rows, ids, order[a:b]) for a, b in pairwise(cuts))
    with Writer(path) as out:
        for b, (body, facts) in enumerate(in_order(pool, bodies, AHEAD)):
            index[b] = out.size, *facts
            out.write(body)
        state = msgspec.structs.replace(state, index=Packed.of(index.ravel()))
        document = sealed(msgspec.msgpack.encode(state))
        start = out.size
        out.write(document)
        out.write(sealed(FOOTER.pack(start, len(document))))
        out.commit()
    return state


def _encoded(rows: RowBuffer, ids: Ids, chosen: NDArray[np.int64]) -> tuple[bytes, tuple[int, ...]]:
    """Return the bytes of a bin that holds the chosen rows, and its line of the index."""
    if not len(chosen):
        return b"", (0,) * (INDEX_COLUMNS - 1)
    lengths = rows.starts[chosen + 1] - rows.starts[chosen]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    features, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], rows.values.dtype)
    copy_rows(
        chosen, rows.starts, rows.groups, rows.features, rows.values, ids.ids, ids.bases, indptr,
        features, values,
    )  # fmt: skip
    tags = Texts.of([b""] * len(chosen)) if rows.tags is None else rows.tags.take(chosen)
    lists = NO_LISTS if rows.lists is None else rows.lists.take(chosen)
    lengths_of_lists = np.ones(len(chosen), np.int32) if lists is NO_LISTS else lists.lengths
    n_labels = int(lengths_of_lists.sum())
    assert lists.weights is not None
    meta = np.stack([
        lengths.astype(np.int32), rows.classes[chosen], rows.importance[chosen].view(np.int32),
        np.diff(tags.offsets).astype(np.int32),
        *_halves(rows.keys[chosen]), *_halves(rows.numbers[chosen]),
        lengths_of_lists.astype(np.int32),
    ])  # fmt: skip
    parts = [
        _packed(part) for part in (meta, features, values, tags.data, lists.classes, lists.weights)
    ]
    body = sealed(b"".join(parts))
    return body, (
        len(body), len(chosen), len(features), *map(len, parts[:3]), int(not rows.wide),
        len(tags.data), n_labels, *map(len, parts[3:5]),
    )  # fmt: skip


def _halves(words: NDArray[Any]) -> NDArray[np.int32]:
    """Return the low and the high halves of words of eight bytes: int32 (2, n)."""
    return np.ascontiguousarray(words).view(np.int32).reshape(-1, 2).T


def _whole(halves: NDArray[np.int32], dtype: type[np.generic]) -> NDArray[Any]:
    """Return the words that :func:`_halves` was given."""
    return np.ascontiguousarray(halves.T).view(dtype).reshape(-1)


def _packed(values: NDArray[Any]) -> bytes:
    if not values.size:
        return b""
    mode = Blosc.BITSHUFFLE if values.dtype.itemsize == 1 else Blosc.SHUFFLE
    return bytes(Blosc("lz4", 1, mode).encode(values))


@dataclass(frozen=True)
class Run:
    """A run that was written.

    Attributes
    ----------
    path : Path
        Its file.
    index : int64 (bins, 12)
        Where its bins are.
    """

    path: Path
    index: NDArray[np.int64]

    def read_into(self, rows: RowBuffer, first: int, end: int) -> None:
        """Append bins ``first:end`` to a buffer with room, or raise StoreError or DiskError."""
        start = int(self.index[first, OFFSET])
        stop = int(self.index[end - 1, OFFSET] + self.index[end - 1, SIZE])
        data = memoryview(_read(self.path, start, stop - start))
        for line in self.index[first:end]:
            at = int(line[OFFSET]) - start
            if line[ROWS]:
                self._decode(data[at : at + int(line[SIZE])], line, rows)

    def _decode(self, body: memoryview, line: NDArray[np.int64], rows: RowBuffer) -> None:
        if not is_sealed(bytes(body)):
            raise _damaged(self.path)
        meta = np.empty((len(META), int(line[ROWS])), np.int32)
        a, b, c, d, e = np.cumsum(
            line[[META_SIZE, FEATURES_SIZE, VALUES_SIZE, TAGS_SIZE, CLASSES_SIZE]]
        ).tolist()
        blosc.decompress(body[:a], meta)
        lengths, classes, importance, tag_lengths = meta[:4]
        lists = self._lists(meta, line, body[d:e], body[e:]) if rows.listed else None
        where, values = rows.more(
            int(line[ROWS]), int(line[VALUES]), int(line[TAG_BYTES]),
            0 if lists is None else lists.n_labels,
        )  # fmt: skip
        rows.starts[where.start + 1 : where.stop + 1] = values.start + np.cumsum(
            lengths, dtype=np.int64
        )
        rows.classes[where] = classes
        rows.importance[where], rows.groups[where] = importance.view(np.float32), 0
        rows.keys[where], rows.numbers[where] = (
            _whole(meta[4:6], np.uint64),
            _whole(meta[6:8], np.int64),
        )
        if line[TAG_BYTES]:
            tags = np.empty(int(line[TAG_BYTES]), np.uint8)
            blosc.decompress(body[c:d], tags)
            rows.add_tags(where, tag_lengths, tags)
        if lists is not None:
            rows.add_lists(where, lists)
        if not line[VALUES]:
            return
        blosc.decompress(body[a:b], rows.features[values])
        if line[BYTES] and rows.wide:
            small = np.empty(int(line[VALUES]), np.uint8)
            blosc.decompress(body[b:c], small)
            rows.values[values] = small
        else:
            blosc.decompress(body[b:c], rows.values[values])

    def _lists(
        self, meta: NDArray[np.int32], line: NDArray[np.int64], classes: memoryview,
        weights: memoryview,
    ) -> LabelLists:  # fmt: skip
        """Return the labels of a bin's rows; where none are written, each has its class or none."""
        starts = np.concatenate([[0], np.cumsum(meta[8], dtype=np.int64)])
        if not line[CLASSES_SIZE]:
            return LabelLists(starts, meta[1][: starts[-1]])
        n_labels = int(line[LABELS])
        found, own = np.empty(n_labels, np.int32), np.empty(n_labels, np.float32)
        blosc.decompress(classes, found)
        blosc.decompress(weights, own)
        return LabelLists(starts, found, own)


def read_run(path: Path) -> State:
    """Return what a run holds behind its rows, or raise StoreError or DiskError."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise disk_error(error, path) from error
    footer = _read(path, size - FOOTER.size - 4, FOOTER.size + 4)
    if not is_sealed(footer):
        raise _damaged(path)
    start, length = FOOTER.unpack(footer[:-4])
    document = _read(path, start, length)
    if not is_sealed(document):
        raise _damaged(path)
    return msgspec.msgpack.decode(document[:-4], type=State)


def run_of(path: Path, state: State) -> Run:
    """Return a run with its index."""
    return Run(path, state.index.array().reshape(BINS, INDEX_COLUMNS))


def bins_that_fit(
    runs: Sequence[Run], first: int, fits: Callable[[int, int, int, int], bool]
) -> Iterator[tuple[int, int]]:
    """Yield ranges of bins from `first` on while ``fits(rows, values, tag bytes, labels)``."""
    columns = [ROWS, VALUES, TAG_BYTES, LABELS]
    held_by: NDArray[np.int64] = np.sum([run.index[:, columns] for run in runs], axis=0)
    while first < BINS:
        end, held = first + 1, held_by[first]
        while end < BINS and fits(*(held + held_by[end]).tolist()):
            held = held + held_by[end]
            end += 1
        yield first, end
        first = end


def _read(path: Path, start: int, size: int) -> bytes:
    try:
        with open(path, "rb", buffering=0, opener=regular) as file:
            file.seek(max(start, 0))
            data = b""
            while len(data) < size and (more := file.read(size - len(data))):
                data += more
    except OSError as error:
        raise disk_error(error, path) from error
    if len(data) != size:
        raise _damaged(path)
    return data


def _damaged(path: Path) -> StoreError:
    return StoreError(
        "a file of the conversion is damaged",
        path=path,
        hint="Remove its folder and convert again.",
    )
