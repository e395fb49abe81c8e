"""Reads the sources: pieces parsed by several threads, taken in their order, held or put aside."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRows
from streammach.data.conversion.buffer import Ids, RowBuffer, counted, fit_bytes
from streammach.data.conversion.folder import ConversionMemory
from streammach.data.conversion.spills import (
    Packed,
    Spill,
    SpillState,
    Tally,
    read_spill,
    write_spill,
)
from streammach.data.identity import ChangedError, check_unchanged
from streammach.data.source import START, AnyPiece, Large, PieceRows, RowReader, Source
from streammach.errors import BudgetError, StoreError
from streammach.files.reading import check_free
from streammach.files.writing import remove_file
from streammach.machine import size_text
from streammach.rows.arrays import keys
from streammach.rows.canonical import merge_repeats
from streammach.rows.name_table import table_bytes
from streammach.rows.names import Names
from streammach.rows.vocabulary import LocalNames, SharedVocabulary, Vocabulary
from streammach.threads import in_order

ROOM_FOR_BYTE = 40  # of rows, for a byte of a source; more is not even reserved
SMALL_ROOM = 64 << 20
UNLIMITED = 1 << 62
KNOWN_SHARE = 1 / 64  # of the sources, from which on what names will take can be told
MARGIN = 1.25  # of that estimate
NAME_BYTES = 48  # for a name, while rows are put aside: its counts, and itself
ROW_VALUE = 16  # bytes for a value of a large row among those in memory
ORDER_BYTES = 112  # for a name, while names are put into their order, after the tables are gone
TOO_LARGE = "the values of a feature add up to more than float32 holds"

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


class Intake:
    """Takes in the rows of all sources, and puts them aside in runs when they do not fit."""

    def __init__(
        self,
        sources: list[Source[Any]],
        vocabulary: Vocabulary,
        bad_rows: BadRows,
        *,
        folder: Path,
        seed: int,
        memory: ConversionMemory,
        pool: ThreadPoolExecutor,
        n_threads: int,
    ) -> None:
        self._sources, self._bad_rows = sources, bad_rows
        self._shared = SharedVocabulary(vocabulary)
        self._folder, self._seed, self._memory = folder, seed, memory
        self._pool, self._n_threads = pool, n_threads
        self._named = [vocabulary.n_labels, vocabulary.n_features]
        self._n_known = sum(self._named)  # from the start
        self._counts: Counts = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._names = [self._shared.local(alone=n_threads == 1) for _ in range(n_threads)]
        sizes = [source.n_bytes for source in sources]
        *self._before, self._total = itertools.accumulate(sizes, initial=0)  # bytes before each
        known = all(sizes)
        self._most = max(SMALL_ROOM, ROOM_FOR_BYTE * self._total) if known else UNLIMITED
        self._met: list[tuple[float, int]] = []  # names, by the share of the sources that was read
        self._rows_before = 0  # bad ones too, of the sources that were read
        self.spills: list[Spill] = []  # the others
        self.tally = Tally()  # what was read
        self.rows = RowBuffer(0)  # the rows that are in memory

    @property
    def vocabulary(self) -> Vocabulary:
        """All names."""
        return self._shared.whole

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
            for table, (offsets, data) in (("labels", state.labels), ("features", state.features)):
                names = Names(offsets.array(), data.array(), "")
                if not self.vocabulary.take_in(table, names):
                    raise StoreError("its names cannot be told apart", path=path)
            self._add_counts(state.label_counts.array(), state.feature_counts.array())
            self.spills.append(spill)
            self.tally = state.tally
        kept = {spill.path for spill in self.spills}
        for path in set(self._folder.glob("run-*")) - kept:
            remove_file(path)
        self._named = [self.vocabulary.n_labels, self.vocabulary.n_features]
        tally = self.tally
        for source, known in zip(self._sources, tally.finished, strict=False):
            if source.content() != known.crc32c:
                raise ChangedError("it has other content now", path=source.path)
        self._bad_rows.resume(tally.reasons, tally.unknown_values, tally.listed_bytes)

    def read(self, progress: Callable[[int, int], None] | None) -> None:
        """Read all sources; `progress` is told the bytes read and those there are."""
        tally = self.tally
        self._rows_before = sum(tally.source_lengths)
        for number in range(tally.source, len(self._sources)):
            source = self._sources[number]
            source.take_over(self._sources[max(number - 1, 0)])
            states = source.states()
            for place, done in enumerate(self._ahead(source)):
                if place == 0:
                    met = source.columns
                    columns = (0, "") if met is None else (met.n_columns, met.digest)
                    tally.meet_columns(*columns, source.path)
                self._take(source, number, done)
                source.give_back(done.piece)
                if progress is not None:
                    progress(self._before[number] + done.piece.n_read, self._total)
            source.check_end(tally.source_rows, tally.source_bad, tally.lines)
            check_unchanged(states, source.files())
            tally.finished.append(source.fingerprint())
            tally.source_lengths.append(tally.source_rows + tally.source_bad)
            self._rows_before += tally.source_lengths[-1]
            tally.source, tally.place, tally.lines = number + 1, START, 0
            tally.source_rows = tally.source_bad = tally.left_bytes = 0

    def put_aside(self) -> None:
        """Write the rows in memory, if there are any, as a spill, or raise DiskError."""
        tally, rows = self.tally, self.rows
        if not rows.n_rows:
            return
        tally.reasons = dict(self._bad_rows.reasons)
        tally.unknown_values = self._bad_rows.unknown_values
        tally.listed_bytes = self._bad_rows.saved()
        with self._shared.lock:
            labels = self.vocabulary.names_since("labels", self._named[0])
            features = self.vocabulary.names_since("features", self._named[1])
        self._named = [self._named[0] + len(labels), self._named[1] + len(features)]
        counts = self._counted(*self._named)
        state = SpillState(
            tally=tally, label_counts=Packed.of(counts[0]), feature_counts=Packed.of(counts[1]),
            labels=(Packed.of(labels.offsets), Packed.of(labels.data)),
            features=(Packed.of(features.offsets), Packed.of(features.data)),
        )  # fmt: skip
        path, ids = self._spill_path(len(self.spills)), Ids.of(self.groups())
        self.spills.append(write_spill(path, rows, ids, state, pool=self._pool))
        self._add_counts(*counts)
        rows.clear()

    def forget(self) -> None:
        """Give up the tables of names."""
        self._shared = SharedVocabulary(Vocabulary())
        self._names = []

    def groups(self) -> list[NDArray[np.int32]]:
        """Return the vocabulary's ids of the features of each group: int32 arrays."""
        return [names.features for names in self._names]

    def counts(self) -> Counts:
        """Return how often each label and each feature occurs: int64 (K,) and int64 (d,)."""
        self._add_counts(*self._counted(self.vocabulary.n_labels, self.vocabulary.n_features))
        return self._counts

    def _counted(self, n_labels: int, n_features: int) -> Counts:
        """Return how often each label and each feature occurs in the rows in memory."""
        lists = self.rows.lists
        classes = self.rows.classes[: self.rows.n_rows] if lists is None else lists.classes
        ids = Ids.of(self.groups())
        features = counted(self.rows, ids, n_features, self._pool, parts=self._n_threads)
        return np.bincount(classes, minlength=n_labels), features

    def _spill_path(self, number: int) -> Path:
        return self._folder / f"run-{number:06}"

    def _add_counts(self, labels: NDArray[np.int64], features: NDArray[np.int64]) -> None:
        new = labels.copy(), features.copy()
        for wider, narrower in zip(new, self._counts, strict=True):
            wider[: len(narrower)] += narrower
        self._counts = new

    def _take(self, source: Source[Any], number: int, done: Read) -> None:
        """Add the rows of a piece; those in memory are put aside first where it must be."""
        tally, block = self.tally, done.part.block
        if not self.rows.wide and not fit_bytes(done.integers, done.largest):
            self.rows.widen()
        others = self._other_bytes()
        least = self.rows.bytes_of(
            block.n_rows, block.nnz, 0, 0 if block.labels is None else block.labels.n_labels
        )
        room = min(self._memory.room(others, self._in_the_end(done), least), self._most)
        if self.rows.room_for(block) > min(room, self.rows.n_bytes):
            wide = self.rows.wide
            self.put_aside()
            self._check_disk(done)
            if not room * 0.8 <= self.rows.n_bytes <= room:
                self.rows = RowBuffer(room, wide=wide)
        self._bad_rows.take(done.part.bad, source.path, tally.lines)
        self._bad_rows.unknown_values += done.part.unknown_values
        before = self._rows_before + tally.source_rows + tally.source_bad
        places = done.part.places() - tally.left_bytes
        self.rows.add(block.numbered(before), keys(self._seed, number, places), done.group)
        tally.place = done.piece.end
        tally.lines += done.part.n_lines
        tally.source_rows += block.n_rows
        tally.source_bad += len(done.part.bad) + len(done.part.left)
        tally.left += len(done.part.left)
        tally.left_bytes += int(np.diff(done.part.left).sum())
        tally.rows += block.n_rows
        tally.nnz += block.nnz
        tally.longest = max(tally.longest, int(np.diff(block.indptr).max(initial=0)))
        tally.duplicates += done.duplicates
        tally.integers &= done.integers
        tally.largest = max(tally.largest, done.largest)
        assert block.importance is not None
        tally.weighted |= bool((block.importance != 1).any())
        tally.tagged |= block.tags is not None
        if block.labels is not None:
            tally.take_lists(block.labels)

    def _other_bytes(self) -> int:
        """Bytes that names take, now and while they are put into their order."""
        words = self.vocabulary
        tables = [words, *(local.vocabulary for local in self._names)]
        largest = max(t.nbytes for one in tables for t in (one.labels.slots, one.features.slots))
        held = words.n_bytes + sum(local.n_bytes for local in self._names)
        n = words.n_labels + words.n_features
        # A table that grows stands beside one of twice its size.
        return max(held + 2 * largest + NAME_BYTES * n, ORDER_BYTES * n)

    def _in_the_end(self, done: Read) -> int:
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
        found = [
            table_bytes(int(times * table.used[0]), int(times * table.used[1]))
            for table in (words.labels, words.features, *(one.features for one in own))
        ]
        names = int(times * n)
        return max(sum(found) + max(found) + NAME_BYTES * names, ORDER_BYTES * names)

    def _share(self, done: Read) -> float:
        """Return which share of the sources was read, where that is known."""
        read = self._before[self.tally.source] + done.piece.n_read
        return max(read / self._total, 1e-9) if self._total else 1.0

    def _check_disk(self, done: Read) -> None:
        """Refuse to go on if spills and store will not fit the disk."""
        if not self.spills:
            return
        written = sum(spill.path.stat().st_size for spill in self.spills)
        whole = written / self._share(done)
        check_free(self._folder, int(2 * whole - written), "the conversion")

    def _ahead(self, source: Source[Any]) -> Iterator[Read]:
        """Yield a source's pieces in their order; several threads read those that follow."""
        idle: SimpleQueue[PieceReader] = SimpleQueue()
        for group, names in enumerate(self._names):
            idle.put(PieceReader(source, names, group, strict=not self._bad_rows.skip))

        def read(piece: AnyPiece) -> Read:
            reader = idle.get()
            try:
                return reader.read(piece)
            finally:
                idle.put(reader)

        pieces = source.pieces(self.tally.place)
        for alone, some in itertools.groupby(pieces, lambda piece: piece.large is not None):
            if not alone:
                calls = (partial(read, piece) for piece in some)
                yield from in_order(self._pool, calls, self._memory.ahead)
                continue
            for piece in some:
                self._make_room(piece.large)
                yield read(piece)

    def _make_room(self, large: Large) -> None:
        """Make room for a piece that is larger than usual, or refuse it before it is read."""
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
            self.put_aside()
            self.rows = RowBuffer(room, wide=wide)


@dataclass(frozen=True, kw_only=True)
class Read:
    """The rows of a piece, whose features have the ids of a group, and what they are."""

    piece: AnyPiece
    part: PieceRows
    group: int
    duplicates: int
    integers: bool
    largest: float


class PieceReader:
    """Reads pieces of a source in one thread, with tables of names of its own."""

    def __init__(self, source: Source[Any], names: LocalNames, group: int, *, strict: bool) -> None:
        self._names = names
        self._group = group
        self._rows: RowReader = source.reader(names.vocabulary, label_needed=True, strict=strict)

    def read(self, piece: AnyPiece) -> Read:
        """Return the rows of a piece; values of one feature are added up."""
        with self._names.filling():
            part = self._rows.read(piece)
        block, facts = part.block, np.zeros(2, np.int64)
        indptr = np.empty(len(block.indptr), np.int64)
        largest = merge_repeats(block.indptr, block.features, block.values, indptr, facts)
        duplicates, nnz = block.nnz - int(indptr[-1]), int(indptr[-1])
        part.block = replace(
            block, indptr=indptr, features=block.features[:nnz], values=block.values[:nnz]
        )
        if block.labels is None:
            self._names.share(block.classes)
        else:
            self._names.share(block.labels.classes)
            part.block = part.block.with_labels(block.labels)
        if facts[1]:
            places = _leave_out_infinite(part)
            part.bad += [self._rows.bad_row(piece, place, TOO_LARGE) for place in places]
            part.bad.sort(key=lambda row: row.line)
        return Read(
            piece=piece, part=part, group=self._group, duplicates=duplicates,
            integers=not facts[0], largest=float(largest),
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
