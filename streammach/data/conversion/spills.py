"""Spills: rows sorted by key in a file, a bin of the keys after the other, then what is known.

A spill is written once, whole and durable, and is never touched again. Behind its rows it holds all
that a conversion needs to go on from there: so the spills are its journal.
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
from streammach.data.identity import Fingerprint
from streammach.data.source import START, Place
from streammach.data.store.arrays import is_sealed, sealed
from streammach.errors import DataError, StoreError
from streammach.files.reading import disk_error, regular
from streammach.files.writing import Writer
from streammach.rows.canonical import copy_rows
from streammach.rows.label_lists import LabelLists
from streammach.rows.texts import Texts
from streammach.threads import in_order

AHEAD = 32  # bins that are being compressed
BIN_BITS = 10
BINS = 1 << BIN_BITS
# Columns of the index: where a bin starts, its bytes, and what is in it.
OFFSET, SIZE, ROWS, VALUES, TAG_BYTES, LABELS = range(6)
INDEX_COLUMNS = 6
NO_LISTS = LabelLists(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
NO_TAGS = Texts.of([])
FOOTER = struct.Struct("<QQ")  # where the state starts, its bytes


class Packed(msgspec.Struct, frozen=True):
    """A one-dimensional array: its type and its bytes, compressed."""

    dtype: str
    data: bytes

    @classmethod
    def of(cls, values: NDArray[Any], level: int = 5) -> Packed:
        """Return the compressed array."""
        mode = Blosc.BITSHUFFLE if values.dtype.itemsize == 1 else Blosc.SHUFFLE
        codec = Blosc("lz4", level, mode)
        return cls(values.dtype.str, bytes(codec.encode(values)) if len(values) else b"")

    def array(self) -> NDArray[Any]:
        """Return the array."""
        data = bytes(blosc.decompress(self.data)) if self.data else b""
        return np.frombuffer(data, self.dtype)


class Tally(msgspec.Struct, kw_only=True):
    """What was read so far, of all sources, as spills keep it.

    ``source`` is the number of the source that is being read, ``place``, ``lines``, ``source_rows``
    and ``source_bad`` how far that is, ``left_bytes`` what rows of importance 0 take of it, of
    which ``left`` were left out of all sources and count as bad ones; ``finished`` holds the
    fingerprints of those before it, ``source_lengths`` the rows of these, bad ones too.
    ``n_columns`` and ``column_names`` tell the columns of all sources so far: -1 before the first
    one, 0 where they are not the same.
    ``listed`` says whether some rows have lists of labels, ``label_weights`` whether these weigh.
    ``integers`` says whether all values are integers of 0 or more, ``largest`` the largest of them.
    """

    source: int = 0
    place: Place = START
    lines: int = 0
    source_rows: int = 0
    source_bad: int = 0
    finished: list[Fingerprint] = msgspec.field(default_factory=list)
    source_lengths: list[int] = msgspec.field(default_factory=list)
    n_columns: int = -1
    column_names: str = ""
    rows: int = 0
    nnz: int = 0
    longest: int = 0
    duplicates: int = 0
    integers: bool = True
    largest: float = 0.0
    weighted: bool = False
    left: int = 0
    left_bytes: int = 0
    tagged: bool = False
    listed: bool = False
    labels: int = 0
    label_weights: bool = False
    unknown_values: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    listed_bytes: int = 0

    def meet_columns(self, n_columns: int, names: str, path: Path) -> None:
        """Compare the columns of a source with those before."""
        if not n_columns:
            self.n_columns = 0
        elif self.n_columns == -1:
            self.n_columns, self.column_names = n_columns, names
        elif (self.n_columns, self.column_names) != (n_columns, names):
            if self.n_columns > 0 and not names and not self.column_names:
                raise DataError(
                    f"the matrix has {n_columns:,} columns, the one before {self.n_columns:,}",
                    path=path,
                    hint="Columns without names are told by their places.",
                )
            self.n_columns = 0

    def take_lists(self, lists: LabelLists) -> None:
        """Take in that some rows have lists of labels."""
        self.listed, self.labels = True, self.labels + lists.n_labels
        weights = lists.weights
        self.label_weights |= weights is not None and bool((weights != 1).any())


class SpillState(msgspec.Struct, frozen=True, kw_only=True):
    """What a spill holds behind its rows: the tally at its end, and what it added to the rest."""

    tally: Tally
    index: Packed = Packed("", b"")  # known when the rows are written
    label_counts: Packed
    feature_counts: Packed
    labels: tuple[Packed, Packed]
    features: tuple[Packed, Packed]


def write_spill(
    path: Path, rows: RowBuffer, ids: Ids, state: SpillState, *, pool: Executor
) -> Spill:
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
    return Spill(path, index)


class _Bin(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Rows of a bin; tags and lists of labels are empty where no row of the spill has any."""

    lengths: Packed
    keys: Packed
    numbers: Packed
    classes: Packed
    importance: Packed
    features: Packed
    values: Packed
    tag_lengths: Packed
    tags: Packed
    list_lengths: Packed
    list_classes: Packed
    list_weights: Packed


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
    tags = NO_TAGS if rows.tags is None else rows.tags.take(chosen)
    lists = NO_LISTS if rows.lists is None else rows.lists.take(chosen)
    n_labels = len(chosen) if rows.lists is None else lists.n_labels
    assert lists.weights is not None
    arrays: dict[str, NDArray[Any]] = {
        "lengths": lengths.astype(np.int32), "keys": rows.keys[chosen],
        "numbers": rows.numbers[chosen], "classes": rows.classes[chosen],
        "importance": rows.importance[chosen], "features": features, "values": values,
        "tag_lengths": np.diff(tags.offsets).astype(np.int32), "tags": tags.data,
        "list_lengths": lists.lengths.astype(np.int32), "list_classes": lists.classes,
        "list_weights": lists.weights,
    }  # fmt: skip
    part = _Bin(**{name: Packed.of(array, 1) for name, array in arrays.items()})
    body = sealed(msgspec.msgpack.encode(part))
    return body, (len(body), len(chosen), len(features), len(tags.data), n_labels)


@dataclass(frozen=True)
class Spill:
    """A spill that was written."""

    path: Path
    index: NDArray[np.int64]  # int64 (bins, 6): where its bins are

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
        part = msgspec.msgpack.decode(body[:-4], type=_Bin)
        n_labels = int(line[LABELS]) if rows.listed else 0
        where, values = rows.more(
            int(line[ROWS]), int(line[VALUES]), int(line[TAG_BYTES]), n_labels
        )
        ends = np.cumsum(part.lengths.array(), dtype=np.int64)
        rows.starts[where.start + 1 : where.stop + 1] = values.start + ends
        rows.groups[where] = 0
        rows.keys[where], rows.numbers[where] = part.keys.array(), part.numbers.array()
        rows.classes[where], rows.importance[where] = part.classes.array(), part.importance.array()
        rows.features[values], rows.values[values] = part.features.array(), part.values.array()
        if line[TAG_BYTES]:
            rows.add_tags(where, part.tag_lengths.array(), part.tags.array())
        if rows.listed:
            lengths, lists = part.list_lengths.array(), part.list_classes.array()
            weights: NDArray[Any] | None = part.list_weights.array()
            if not len(lengths):  # there were no lists yet: each row has its class
                lengths, lists, weights = np.ones(line[ROWS], np.int32), part.classes.array(), None
            starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            rows.add_lists(where, LabelLists(starts, lists, weights))


def read_spill(path: Path) -> tuple[Spill, SpillState]:
    """Return a spill and what it holds behind its rows, or raise StoreError or DiskError."""
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
    state = msgspec.msgpack.decode(document[:-4], type=SpillState)
    return Spill(path, state.index.array().reshape(BINS, INDEX_COLUMNS)), state


def bins_that_fit(
    spills: Sequence[Spill], fits: Callable[[int, int, int, int], bool]
) -> Iterator[tuple[int, int]]:
    """Yield ranges of bins, as wide as ``fits(rows, values, tag bytes, labels)`` lets them be."""
    columns = [ROWS, VALUES, TAG_BYTES, LABELS]
    held_by: NDArray[np.int64] = np.sum([s.index[:, columns] for s in spills], axis=0)
    first = 0
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
