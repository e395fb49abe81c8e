"""Spills: rows sorted by key in a file, a bin of the keys after the other, then what is known.

A spill is written once, whole and durable, and is never touched again. Behind its rows it holds all
that a conversion needs to go on from there: so the spills are its journal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from streammach.conversion.buffer import Ids, KeyOrder, RowBuffer
from streammach.inputs.identity import Fingerprint
from streammach.inputs.source import START, NamedLabels, PieceRows, Place
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.texts import Texts
from streammach.store.stored_arrays import add_checksum, compress_values, is_sealed
from streammach.system.errors import DataError, StoreError
from streammach.system.files.reading import disk_errors, regular
from streammach.system.files.writing import Writer
from streammach.system.threads import Workers, map_in_order

AHEAD = 32  # bins that are being compressed
BIN_BITS = 10
BINS = 1 << BIN_BITS
# Columns of the index: where a bin starts, its bytes, and what is in it.
OFFSET, SIZE, ROWS, VALUES, TAG_BYTES, LABELS = range(6)
INDEX_COLUMNS = 6
MOST_NAMES, PAIR_BYTES = 1 << 21, 320  # of labels; of a label with its name, and their text twice
# Arrays of a block, and lists of arrays, as they stand in a bin.
ARRAYS = ("indptr", "features", "values", "classes", "importance", "numbers")
LISTS = {"tags": Texts, "labels": LabelLists}
FOOTER = struct.Struct("<QQ")  # where the state starts, its bytes


class Packed(msgspec.Struct, frozen=True):
    """A one-dimensional array: its type and its bytes, compressed."""

    dtype: str
    data: bytes

    @classmethod
    def of(cls, values: NDArray[Any], level: int = 5) -> Packed:
        """Return the compressed array."""
        return cls(values.dtype.str, compress_values(values, level) if len(values) else b"")

    def array(self) -> NDArray[Any]:
        """Return the array."""
        data = bytes(blosc.decompress(self.data)) if self.data else b""
        return np.frombuffer(data, self.dtype)


class Tally(msgspec.Struct, kw_only=True):
    """What was read so far, of all sources, as spills keep it.

    ``source`` is the number of the source that is being read, ``place``, ``lines``, ``source_rows``
    and ``source_bad`` how far that is, ``left_bytes`` what rows of importance 0 take of it;
    ``left`` of these were left out of all sources and count as bad ones; ``finished`` holds the
    fingerprints of those before it, ``source_lengths`` the rows of these, bad ones too.
    ``n_columns`` and ``column_names`` tell the columns of all sources so far: -1 before the first
    one, 0 where they are not the same.
    ``listed`` says whether some rows have lists of labels, ``label_weights`` whether these weigh.
    ``named_labels`` are labels with their names, ``name_bytes`` what these take in memory.
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
    named_labels: NamedLabels = msgspec.field(default_factory=dict)
    name_bytes: int = 0

    def meet_columns(self, n_columns: int, names: str, path: Path) -> None:
        """Compare the columns of a source with those before."""
        if not n_columns:
            self.n_columns = 0
        elif self.n_columns == -1:
            self.n_columns, self.column_names = n_columns, names
        elif (self.n_columns, self.column_names) != (n_columns, names):
            if self.n_columns > 0 and not names and not self.column_names:
                what = f"the matrix has {n_columns:,} columns, the one before {self.n_columns:,}"
                hint = "Columns without names are told by their places."
                raise DataError(what, path=path, hint=hint)
            self.n_columns = 0

    def take(self, part: PieceRows, end: Place) -> None:
        """Count the rows of a piece that ends there."""
        block, n_left = part.block, len(part.left)
        self.place = end
        self.lines += part.n_lines
        self.source_rows += block.n_rows
        self.source_bad += len(part.bad) + n_left
        self.left += n_left
        self.left_bytes += int(np.diff(part.left).sum())
        self.rows += block.n_rows
        self.nnz += block.nnz
        self.weighted |= block.importance is not None and bool((block.importance != 1).any())
        self.tagged |= block.tags is not None
        new = [pair for pair in part.named_labels if pair not in self.named_labels]
        self.named_labels.update(dict.fromkeys(new))
        self.name_bytes += sum(PAIR_BYTES + 2 * (len(label) + len(name)) for label, name in new)
        if len(self.named_labels) > MOST_NAMES:
            hint = "Name a column in which each label has few names."
            raise DataError(f"labels have over {MOST_NAMES:,} names: --label-names", hint=hint)
        if block.labels is not None:
            weights = block.labels.weights
            self.listed, self.labels = True, self.labels + block.labels.n_labels
            self.label_weights |= weights is not None and bool((weights != 1).any())

    def end_source(self, content: Fingerprint) -> None:
        """Turn to the next source."""
        self.finished.append(content)
        self.source_lengths.append(self.source_rows + self.source_bad)
        self.source, self.place, self.lines = self.source + 1, START, 0
        self.source_rows = self.source_bad = self.left_bytes = 0


class SpillState(msgspec.Struct, frozen=True, kw_only=True):
    """What a spill holds behind its rows: the tally at its end, and what it added to the rest."""

    tally: Tally  # with the names of labels that are new
    index: Packed = Packed("", b"")  # known when the rows are written
    added: dict[str, tuple[Packed, Packed, Packed]]  # offsets and bytes of names, counts of all


def write_spill(
    path: Path, rows: RowBuffer, ids: Ids, state: SpillState, workers: Workers
) -> Spill:
    """Write the rows of a buffer, sorted by key; the file is durable afterwards."""
    index, order = np.zeros((BINS, INDEX_COLUMNS), np.int64), KeyOrder(rows, BIN_BITS)

    def encode(b: int) -> tuple[bytes, tuple[int, ...]]:
        return _encode_bin(rows, ids, order.rows(b, b + 1))

    with Writer(path) as out:
        with closing(map_in_order(workers, encode, range(BINS), AHEAD)) as bins:
            for b, (body, facts) in enumerate(bins):
                index[b] = out.size, *facts
                out.write(body)
        state = msgspec.structs.replace(state, index=Packed.of(index.ravel()))
        document = add_checksum(msgspec.msgpack.encode(state))
        start = out.size
        out.write(document)
        out.write(add_checksum(FOOTER.pack(start, len(document))))
        out.commit()
    return Spill(path, index)


def _encode_bin(
    rows: RowBuffer, ids: Ids, chosen: NDArray[np.int64]
) -> tuple[bytes, tuple[int, ...]]:
    """Return the bytes of a bin that holds the chosen rows, and its line of the index."""
    if not len(chosen):
        return b"", (0,) * (INDEX_COLUMNS - 1)
    block = rows.copy(chosen, ids)
    arrays = {"keys": rows.keys[chosen], **{name: getattr(block, name) for name in ARRAYS}}
    for lists in LISTS:
        own = getattr(block, lists)
        arrays |= {} if own is None else {f"{lists}.{name}": x for name, x in vars(own).items()}
    parts = {name: Packed.of(array, 1) for name, array in arrays.items() if array is not None}
    body = add_checksum(msgspec.msgpack.encode(parts))
    n_tags = 0 if block.tags is None else block.tags.text_bytes
    return body, (len(body), len(chosen), block.nnz, n_tags, block.lists.n_labels)


@dataclass(frozen=True)
class Spill:
    """A spill that was written."""

    path: Path
    index: NDArray[np.int64]  # int64 (bins, 6): where its bins are

    def decode(self, line: NDArray[np.int64]) -> tuple[RowBlock, NDArray[np.uint64]]:
        """Return the rows of a bin, by its line of the index, and their keys: uint64 (n,)."""
        body = _read(self.path, int(line[OFFSET]), int(line[SIZE]))
        if not is_sealed(body):
            raise _damage_error(self.path)
        parts = msgspec.msgpack.decode(memoryview(body)[:-4], type=dict[str, Packed])
        arrays = {name: part.array() for name, part in parts.items()}
        fields: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        for name, kind in LISTS.items():
            own = {n.removeprefix(f"{name}."): x for n, x in arrays.items() if n.startswith(name)}
            fields[name] = kind(**own) if own else None
        return RowBlock(**fields), arrays["keys"]


def read_spills(
    spills: Sequence[Spill], first: int, end: int, rows: RowBuffer, workers: Workers
) -> None:
    """Append bins ``first:end`` to a buffer with room, or raise StoreError or DiskError."""
    bins = ((s, line) for s in spills for line in s.index[first:end] if line[ROWS])

    def decode(one: tuple[Spill, NDArray[np.int64]]) -> tuple[RowBlock, NDArray[np.uint64]]:
        return one[0].decode(one[1])

    with closing(map_in_order(workers, decode, bins, AHEAD)) as blocks:
        for block, keys in blocks:
            rows.add(block, keys, 0)


def read_spill(path: Path) -> tuple[Spill, SpillState]:
    """Return a spill and what it holds behind its rows, or raise StoreError or DiskError."""
    with disk_errors(path):
        size = path.stat().st_size
    footer = _read(path, size - FOOTER.size - 4, FOOTER.size + 4)
    if not is_sealed(footer):
        raise _damage_error(path)
    start, length = FOOTER.unpack(footer[:-4])
    document = _read(path, start, length)
    if not is_sealed(document):
        raise _damage_error(path)
    state = msgspec.msgpack.decode(document[:-4], type=SpillState)
    return Spill(path, state.index.array().reshape(BINS, INDEX_COLUMNS)), state


def _read(path: Path, start: int, size: int) -> bytes:
    with disk_errors(path), open(path, "rb", opener=regular) as file:
        file.seek(max(start, 0))
        data = file.read(size)
    if len(data) != size:
        raise _damage_error(path)
    return data


def _damage_error(path: Path) -> StoreError:
    hint = "Remove its folder and convert again."
    return StoreError("a file of the conversion is damaged", path=path, hint=hint)
