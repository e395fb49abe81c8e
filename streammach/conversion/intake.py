"""Reads the sources: pieces parsed by several threads, taken in their order, kept or spilled."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from msgspec.structs import replace as replace_fields
from numpy.typing import NDArray

from streammach.conversion.buffer import Ids, RowBuffer, count_feature_ids, fit_bytes
from streammach.conversion.folder import ConversionMemory
from streammach.conversion.spills import Packed, Spill, SpillState, Tally, read_spill, write_spill
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.identity import ChangedError, FileState, check_unchanged
from streammach.inputs.source import (
    START,
    LargePiece,
    MatrixColumns,
    Piece,
    PieceRows,
    RowReader,
    Source,
)
from streammach.rows.arrays import keys
from streammach.rows.canonical import merge_repeats
from streammach.rows.name_table import table_bytes
from streammach.rows.names import Names
from streammach.rows.vocabulary import LocalNames, Vocabulary
from streammach.system.errors import BudgetError, StoreError
from streammach.system.files.reading import check_free
from streammach.system.files.writing import remove_file
from streammach.system.forks import ForkSafeLock
from streammach.system.machine import size_text
from streammach.system.threads import Workers, map_in_order

UNLIMITED = 1 << 62  # bytes
ROOM_FOR_BYTE = 40  # of rows, for a byte of a source; more is not even reserved
SMALL_ROOM = 64 << 20
KNOWN_SHARE = 1 / 64  # of the sources, from which on what names will take can be told
MARGIN = 1.25  # of that estimate
NAME_BYTES = 48  # for a name, while rows are put aside: its counts, and itself
ROW_VALUE = 16  # bytes for a value of a large row among those in memory
ORDER_BYTES = 112  # for a name, while names are put into their order, after the tables are gone
TOO_LARGE = "the values of a feature add up to more than float32 holds"

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


class Intake:
    """Takes in the rows of all sources, and spills them into files when they do not fit."""

    def __init__(
        self, sources: list[Source[Any]], vocabulary: Vocabulary, bad_rows: BadRows, *,
        folder: Path, seed: int, memory: ConversionMemory, workers: Workers,
        progress: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self._sources, self._bad_rows = sources, bad_rows
        self.vocabulary = vocabulary  # all names
        self._folder, self._seed, self._memory = folder, seed, memory
        self._workers = workers
        self._progress = progress  # which is told of bytes, and of all
        self._n_known = vocabulary.n_labels + vocabulary.n_features  # from the start
        # labels, features, and labels with names, that spills have
        self._named = [vocabulary.n_labels, vocabulary.n_features, 0]
        self._counts: Counts = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        n = workers.n_threads
        self._lock = ForkSafeLock()  # held while a name is added
        lock = self._lock if n > 1 else None
        self._names = [LocalNames(vocabulary, lock) for _ in range(n)]
        self._parsers: SimpleQueue[_PieceParser] = SimpleQueue()
        for group, names in enumerate(self._names):
            self._parsers.put(_PieceParser(names, group, strict=not bad_rows.skip))
        sizes = [source.n_bytes for source in sources]
        *self._before, self._total = itertools.accumulate(sizes, initial=0)  # bytes before each
        known = all(size or source.files() for size, source in zip(sizes, sources, strict=True))
        self._most = max(SMALL_ROOM, ROOM_FOR_BYTE * self._total) if known else UNLIMITED
        self._met: list[tuple[float, int]] = []  # names, by the share of the sources that was read
        self._rows_before = 0  # bad ones too, of the sources that were read
        self.spills: list[Spill] = []  # the others
        self.tally = Tally()  # what was read
        self.rows = RowBuffer(0)  # the rows that are in memory

    def resume(self) -> None:
        """Go on from the spills that are there.

        One that is damaged, or in which more rows were left out than may be now, is removed, and so
        are those after it.
        """
        while (path := self._spill_path(len(self.spills))).is_file():
            try:
                spill, state = read_spill(path)
            except StoreError:
                break
            if not self._bad_rows.allow(state.tally.reasons):
                break
            counts = list[NDArray[np.int64]]()
            for table, packed in state.added.items():
                offsets, data, count = (one.array() for one in packed)
                if not self.vocabulary.take_in(table, Names(offsets, data, "")):
                    raise StoreError("its names cannot be told apart", path=path)
                counts.append(count)
            self._add_counts(*counts)
            self.spills.append(spill)
            named_labels, self.tally = self.tally.named_labels, state.tally
            self.tally.named_labels = named_labels | self.tally.named_labels
        for path in set(self._folder.glob("run-*")) - {spill.path for spill in self.spills}:
            remove_file(path)
        tally, words = self.tally, self.vocabulary
        self._named = [words.n_labels, words.n_features, len(tally.named_labels)]
        for source, fingerprint in zip(self._sources, tally.finished, strict=False):
            if source.content() != fingerprint.crc32c:
                raise ChangedError("it has other content now", path=source.path)
        self._bad_rows.resume(tally.reasons, tally.unknown_values, tally.listed_bytes)

    def read(self) -> None:
        """Read all sources."""
        self._rows_before = sum(self.tally.source_lengths)
        for alone, some in itertools.groupby(self._pieces(), lambda one: one.large is not None):
            if not alone:
                self._read_pieces(some, self._memory.most_pieces)
                continue
            for one in some:
                self._make_room(one.large)
                self._read_pieces([one], 1)

    def _read_pieces(self, pieces: Iterable[PendingPiece], most: int) -> None:
        """Parse pieces, so many at a time, and take their rows in their order."""
        with closing(map_in_order(self._workers, self._parse, pieces, most)) as parsed:
            for one in parsed:
                if isinstance(one, PendingPiece):
                    self._end_source(one)
                else:
                    self._take(one)
                    one.source.give_back(one.piece)

    def _pieces(self) -> Iterator[PendingPiece]:
        """Yield the pieces of all sources, and behind those of each that it is over."""
        first, begin = self.tally.source, self.tally.place
        for number, source in enumerate(self._sources[first:], first):
            source.take_over(self._sources[max(number - 1, 0)])
            states = source.states()
            for piece in source.pieces(begin):
                yield PendingPiece(number, source, states, piece)
            yield PendingPiece(number, source, states)
            begin = START

    def _parse(self, one: PendingPiece) -> PendingPiece | ParsedPiece:
        """Read a piece into rows, by a parser that no other thread uses."""
        if one.piece is None:
            return one
        parser = self._parsers.get()
        try:
            return parser.read(one.source, one.number, one.piece)
        finally:
            self._parsers.put(parser)

    def spill(self) -> None:
        """Write the rows in memory, if there are any, as a spill, or raise DiskError."""
        tally, rows = self.tally, self.rows
        if not rows.n_rows:
            return
        tally.reasons = dict(self._bad_rows.reasons)
        tally.unknown_values = self._bad_rows.unknown_values
        tally.listed_bytes = self._bad_rows.save()
        with self._lock:  # other threads parse the next pieces meanwhile
            names = self.vocabulary.label_names(), self.vocabulary.feature_names()
        new = [own.part(n, len(own)) for own, n in zip(names, self._named, strict=False)]
        new_names = dict.fromkeys(itertools.islice(tally.named_labels, self._named[2], None))
        self._named = [len(names[0]), len(names[1]), len(tally.named_labels)]
        counts = self._count_ids(*self._named[:2])
        added = {
            table: (Packed.of(own.offsets), Packed.of(own.data), Packed.of(count))
            for table, own, count in zip(("labels", "features"), new, counts, strict=True)
        }
        state = SpillState(tally=replace_fields(tally, named_labels=new_names), added=added)
        path, ids = self._spill_path(len(self.spills)), Ids.of(self.groups())
        self.spills.append(write_spill(path, rows, ids, state, self._workers))
        self._add_counts(*counts)
        rows.clear()

    def forget(self) -> None:
        """Give up the tables of names."""
        self.vocabulary, self._names = Vocabulary(), []
        self._parsers = SimpleQueue()

    def groups(self) -> list[NDArray[np.int32]]:
        """Return the vocabulary's ids of the features of each group: int32 arrays."""
        return [names.features for names in self._names]

    def counts(self) -> Counts:
        """Return how often each label and each feature occurs: int64 (K,) and int64 (d,)."""
        self._add_counts(*self._count_ids(self.vocabulary.n_labels, self.vocabulary.n_features))
        return self._counts

    def _count_ids(self, n_labels: int, n_features: int) -> Counts:
        classes = self.rows.join_facts().lists.classes
        ids = Ids.of(self.groups())
        features = count_feature_ids(self.rows, ids, n_features, self._workers)
        return np.bincount(classes, minlength=n_labels), features

    def _spill_path(self, number: int) -> Path:
        return self._folder / f"run-{number:06}"

    def _add_counts(self, labels: NDArray[np.int64], features: NDArray[np.int64]) -> None:
        new = labels.copy(), features.copy()
        for wider, narrower in zip(new, self._counts, strict=True):
            wider[: len(narrower)] += narrower
        self._counts = new

    def _take(self, one: ParsedPiece) -> None:
        """Count the rows of a piece and add them to those in memory, where there is room for it."""
        tally, block, rows = self.tally, one.part.block, self.rows
        if not rows.wide and not fit_bytes(one.integers, one.largest):
            rows.widen()
        others = self._other_bytes()
        least = rows.bytes_of(
            block.n_rows, block.nnz, 0, 0 if block.labels is None else block.labels.n_labels
        )
        room = min(self._memory.room(others, self._in_the_end(one), least), self._most)
        if rows.n_rows and rows.room_for(block) > min(room, rows.n_bytes):
            self.spill()
        if not rows.n_rows:
            self._check_disk(one)
            if not room * 0.8 <= rows.n_bytes <= room:
                rows = self.rows = RowBuffer(room, wide=rows.wide)
        self._bad_rows.take(one.part.bad, one.source.path, tally.lines)
        self._bad_rows.unknown_values += one.part.unknown_values
        before = self._rows_before + tally.source_rows + tally.source_bad
        places = one.part.places() - tally.left_bytes
        numbered = block.add_to_numbers(before)
        rows.add(numbered, keys(self._seed, one.number, places), one.group)
        tally.take(one.part, one.piece.end)
        tally.duplicates += one.duplicates
        tally.integers &= one.integers
        tally.largest = max(tally.largest, one.largest)
        self._progress(self._before[one.number] + one.piece.n_read, self._total)

    def _end_source(self, one: PendingPiece) -> None:
        """Check a source that was read to its end, and turn to the next one."""
        tally, source = self.tally, one.source
        if tally.source_rows + tally.source_bad:
            columns = source.columns or MatrixColumns(0, None)
            tally.meet_columns(columns.n_columns, columns.digest, source.path)
        source.check_end(tally.source_rows, tally.source_bad, tally.lines)
        check_unchanged(one.states, source.files())
        tally.end_source(source.fingerprint())
        self._rows_before += tally.source_lengths[-1]

    def _other_bytes(self) -> int:
        """Bytes that names take, now and while they are put into their order."""
        words = self.vocabulary
        tables = [words, *(local.vocabulary for local in self._names)]
        largest = max(t.nbytes for one in tables for t in (one.labels.slots, one.features.slots))
        tables_bytes = words.n_bytes + sum(local.n_bytes for local in self._names)
        tables_bytes += self.tally.name_bytes
        n = words.n_labels + words.n_features
        # A table that grows stands beside one of twice its size.
        return max(tables_bytes + 2 * largest + NAME_BYTES * n, ORDER_BYTES * n)

    def _in_the_end(self, done: ParsedPiece) -> int:
        """Bytes that names will take, if new ones come as they came since half of what was read."""
        words, share = self.vocabulary, self._share(done)
        met = words.n_labels + words.n_features - self._n_known
        self._met.append((share, met))
        if share < KNOWN_SHARE:  # too little was read to say anything
            return 0
        half = bisect_right(self._met, share / 2, key=itemgetter(0))
        before, fewer = self._met[max(half - 1, 0)]
        power = 1.0  # of the text: Heaps' law
        if fewer and before < share:
            power = min(1.0, math.log(met / fewer) / math.log(share / before))
        n = met + self._n_known
        times = 1 + (MARGIN / share**power - 1) * met / max(n, 1)
        own = [local.vocabulary for local in self._names if local.vocabulary.add_features]
        sizes = [
            table_bytes(int(times * table.used[0]), int(times * table.used[1]))
            for table in (words.labels, words.features, *(one.features for one in own))
        ]
        names = int(times * n)
        return max(sum(sizes) + max(sizes) + NAME_BYTES * names, ORDER_BYTES * names)

    def _share(self, done: ParsedPiece) -> float:
        read = self._before[self.tally.source] + done.piece.n_read
        return max(read / self._total, 1e-9) if self._total else 1.0

    def _check_disk(self, done: ParsedPiece) -> None:
        """Refuse to go on if spills and store will not fit the disk."""
        if not self.spills:
            return
        written = sum(spill.path.stat().st_size for spill in self.spills)
        whole = written / self._share(done)
        check_free(self._folder, int(2 * whole - written), "the conversion")

    def _make_room(self, large: LargePiece | None) -> None:
        """Make room for a piece that is larger than usual, or refuse it before it is read."""
        assert large is not None, "it is larger than usual"
        self._memory.meet(large.n_bytes)
        names = table_bytes(large.n_values, large.name_bytes)
        names = max((3 + len(self._names)) * names // 2, ORDER_BYTES * large.n_values)
        names += NAME_BYTES * large.n_values
        if not self.vocabulary.add_features:
            names = 0
        others = self._other_bytes() + names
        try:
            room = min(self._memory.room(others, others, ROW_VALUE * large.n_values), self._most)
        except BudgetError as error:
            row = self._rows_before + self.tally.source_rows + self.tally.source_bad
            what = f"a row from row {row:,} on may have {large.n_values:,} features, for which"
            error.message = f"{what} {size_text(self._memory.n_bytes)} are too little"
            raise
        if self.rows.n_bytes > room:
            wide = self.rows.wide
            self.spill()
            self.rows = RowBuffer(room, wide=wide)


@dataclass(frozen=True)
class PendingPiece:
    """A piece of a source with a number; behind its last one none, and what its files were."""

    number: int
    source: Source[Any]
    states: list[FileState]
    piece: Piece | None = None

    @property
    def large(self) -> LargePiece | None:
        """What it takes where it is larger than usual."""
        return None if self.piece is None else self.piece.large


@dataclass(frozen=True, kw_only=True)
class ParsedPiece:
    """The rows of a piece, whose features have the ids of a group, and what they are."""

    number: int
    source: Source[Any]
    piece: Piece
    part: PieceRows
    group: int
    duplicates: int
    integers: bool
    largest: float


class _PieceParser:
    """What one thread at a time reads pieces with: names, whose ids are a group's, and a reader."""

    def __init__(self, names: LocalNames, group: int, *, strict: bool) -> None:
        self._names, self._group, self._strict = names, group, strict
        self._source: Source[Any] | None = None
        self._reader: RowReader[Any] | None = None

    def read(self, source: Source[Any], number: int, piece: Piece) -> ParsedPiece:
        """Return the rows of a piece; values of one feature are added up, what is 0 then is not."""
        if self._reader is None or self._source is not source:
            words, self._source = self._names.vocabulary, source
            self._reader = source.reader(words, label_needed=True, strict=self._strict)
        part = self._reader.read(piece)
        block, facts = part.block, np.zeros(3, np.int64)
        indptr = np.empty(len(block.indptr), np.int64)
        largest = merge_repeats(block.indptr, block.features, block.values, indptr, facts)
        nnz = int(indptr[-1])
        duplicates = block.nnz - nnz - int(facts[2])
        part.block = replace(
            block, indptr=indptr, features=block.features[:nnz], values=block.values[:nnz]
        )
        self._names.share(block.lists.classes)
        if block.labels is not None:
            part.block = part.block.with_labels(block.labels)
        if facts[1]:
            places = _leave_out_infinite(part)
            part.bad += [self._reader.bad_row(piece, place, TOO_LARGE) for place in places]
            part.bad.sort(key=lambda row: row.line)
        return ParsedPiece(
            number=number, source=source, piece=piece, part=part, group=self._group,
            duplicates=duplicates, integers=not facts[0], largest=float(largest),
        )  # fmt: skip


def _leave_out_infinite(part: PieceRows) -> list[int]:
    """Take rows with sums that are not finite out of a part; return their places."""
    block = part.block
    owner = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    bad = np.zeros(block.n_rows, bool)
    bad[owner[~np.isfinite(block.values)]] = True
    part.block = block.take(np.flatnonzero(~bad))
    assert block.places is not None
    places: list[int] = block.places[bad].tolist()
    return places
