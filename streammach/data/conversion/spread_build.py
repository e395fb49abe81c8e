"""The steps of a conversion by several processes: read apart, join, write apart, put together."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.conversion.buffer import Ids
from streammach.data.conversion.build import (
    READ,
    SORT,
    WRITE,
    Build,
    Made,
    block_rows,
    label_type,
    value_type,
)
from streammach.data.conversion.job import MAX_IDENTITY
from streammach.data.conversion.joining import Joined, left_out
from streammach.data.conversion.partition import Partition, PartitionRead, read_partition
from streammach.data.conversion.ranges import (
    CLASSES,
    FEATURES,
    INDEX,
    Parts,
    Range,
    range_of,
    write_range,
)
from streammach.data.conversion.ranking import Ranked
from streammach.data.conversion.runs import BINS, totals
from streammach.data.conversion.shuffle import Ranks, Shuffle
from streammach.data.conversion.spread import Spread, divided
from streammach.data.conversion.tally import Tally
from streammach.data.conversion.threads import InTurn
from streammach.data.source_options import SourceOptions
from streammach.data.store.writer import StoreWriter
from streammach.data.tables.opening import tables_of
from streammach.data.tables.reader import Met
from streammach.errors import BudgetError, DiskError, StoreError, StreammachError, clean
from streammach.files.folders import make_folder, remove_folder
from streammach.files.reading import read_small
from streammach.files.urls import absolute
from streammach.files.writing import write_atomic
from streammach.rows.names import Names
from streammach.rows.trained import TrainedColumns

RANGE_VALUES = 1 << 23  # of a range of the store, at least
EVEN_RANGES = 4  # or as many as these, with a quarter of the values each: workers end together
MAX_RANGES = 256
LEAST_BINS = 64
ROOM_OF_BYTE = 8  # of rows, for a byte of a source
BIN_SHARE = 16  # a bin takes no more of the memory than one of so many parts
NO_IDS = np.zeros(0, np.int32)
NO_RANKS = Ranks(NO_IDS, Ids(NO_IDS, np.zeros(1, np.int64)), 0)


class Division(msgspec.Struct, frozen=True, kw_only=True):
    """How the work is divided.

    ``partitions`` are ranges of sources, ``bins`` how many bins of the keys runs tell apart.
    """

    partitions: list[tuple[int, int]]
    bins: int


class SpreadBuild(Build):
    """Makes a store of sources in a job's folder, by processes that share its storage."""

    def run(self, *, resume: bool) -> Made:
        """Make the store; see :meth:`Build.run`."""
        spread = self._settings.spread
        assert spread is not None, "without processes the work is done here"
        try:
            joined = self._joined(spread, self._division(spread, resume=resume))
            self._check_rows(joined.tally)
            with ThreadPoolExecutor(self._settings.n_threads, "convert") as pool:
                return self._written(spread, joined, pool)
        except BudgetError as error:
            self._hint_at_ngrams(error)
            raise
        finally:
            self._bad_rows.close()

    def _division(self, spread: Spread, *, resume: bool) -> Division:
        """Return how the work is divided: as that of a conversion that is gone on with was."""
        path, n = self._job.division, len(self._sources)
        if resume:
            with suppress(DiskError, msgspec.DecodeError, msgspec.ValidationError):
                known = msgspec.json.decode(read_small(path, MAX_IDENTITY), type=Division)
                if [i for one in known.partitions for i in range(*one)] == list(range(n)):
                    return known
            remove_folder(self._job.runs)
            make_folder(self._job.runs)
        sizes = [source.n_bytes for source in self._sources]
        # More partitions would have more names to join, which one process does.
        division = Division(
            partitions=divided(sizes, min(n, spread.n_workers)),
            bins=_bins(sum(sizes), self._memory.n_bytes),
        )
        write_atomic(path, msgspec.json.encode(division))
        return division

    def _joined(self, spread: Spread, division: Division) -> Joined:
        """Read all partitions, and join what they found, each as soon as those before are."""
        partitions = division.partitions
        tasks = [self._partition(spread, division, k) for k in range(len(partitions))]
        sizes = [sum(s.n_bytes for s in self._sources[a:b]) for a, b in partitions]
        told, joined, done = self._told(READ), Joined.of(self._known), set[int]()
        told(0, sum(sizes))

        def join(k: int) -> None:
            joined.add(Path(tasks[k].folder), self._sources[partitions[k][0]].path)
            self._memory.room(joined.n_bytes, joined.n_bytes)

        with InTurn(join) as joining:

            def tell(k: int) -> None:
                done.add(k)
                told(sum(sizes[k] for k in done), sum(sizes))
                joining.ready(k)

            outcomes = spread.run(read_partition, tasks, tell)
        folders = [Path(task.folder) for task in tasks[: len(outcomes)]]
        self._bad_rows.take_listed(left_out(folders), self._given)
        found = [one for one in outcomes if not isinstance(one, StreammachError)]
        if isinstance(outcomes[-1], StreammachError):
            raise self._as_given(outcomes[-1])
        self._bad_rows.saved()
        self._take_words(found)
        self._bad_rows.reasons = Counter(joined.tally.reasons)
        self._bad_rows.unknown_values = joined.tally.unknown_values
        return joined

    def _partition(self, spread: Spread, division: Division, number: int) -> Partition:
        """Return a partition as a process is sent it."""
        settings, (first, stop) = self._settings, division.partitions[number]
        return Partition(
            folder=os.path.abspath(self._job.runs / f"partition-{number:05}"),
            paths=[os.path.abspath(source.path) for source in self._sources[first:stop]],
            options=[_absolute(options) for options in settings.options[first:stop]],
            first=first, like=None if settings.like is None else absolute(settings.like),
            skip=self._bad_rows.skip, max_bad=settings.max_bad, seed=settings.seed,
            bins=division.bins, memory=settings.memory, shares=spread.shares,
        )  # fmt: skip

    @property
    def _given(self) -> dict[str, Path]:
        """The sources as the user named them, by their absolute paths as messages show them."""
        return {clean(os.path.abspath(s.path), 300): s.path for s in self._sources}

    def _as_given(self, error: StreammachError) -> StreammachError:
        """Return an error with the name that the user gave a source."""
        if error.path in self._given:
            error.path = clean(self._given[error.path], 300)
        return error

    def _said(self, message: str) -> str:
        """Return a message with the names that the user gave sources."""
        for name, path in self._given.items():
            message = message.replace(name, clean(path, 300))
        return message

    def _take_words(self, found: Sequence[PartitionRead]) -> None:
        """Warn of what readers warned of, and take in what was met in tables."""
        for message in (message for one in found for message in one.warnings):
            warnings.warn(self._said(message), stacklevel=5)
        tables = [table for one in found for table in one.met]
        for table, (rows, missing) in zip(tables_of(self._sources), tables, strict=True):
            table.met = Met(rows, Counter(missing))

    def _written(self, spread: Spread, joined: Joined, pool: ThreadPoolExecutor) -> Made:
        """Let all ranges of the store be written, and put them together."""
        self._told(SORT)(0, 0)
        tally = joined.tally
        labels, features = self._ranked(self._names(joined.vocabulary), joined.counts)
        parts = self._parts(spread, joined, labels, features)
        by_bin = totals(joined.runs)
        del joined
        ranges = list(self._ranges(parts, by_bin))
        shuffle = Shuffle(NO_RANKS, block_rows(tally), pool, None)  # it adds up what others did
        remove_folder(self._job.store)
        writer = StoreWriter(
            self._job.store, value_type(tally), tagged=tally.tagged, pool=pool,
            weighted=tally.weighted, labels=label_type(tally),
        )  # fmt: skip
        try:
            self._put_together(spread, ranges, by_bin[:, 0], writer, shuffle)
            root = self._finished(writer, tally, shuffle, (labels, features))
        finally:
            writer.release()
        write_atomic(self._job.written)  # it is over once the store has its name
        return Made(root, self._memory.n_bytes * spread.shares)

    def _put_together(
        self, spread: Spread, ranges: Sequence[Range], rows: NDArray[np.int64],
        writer: StoreWriter, shuffle: Shuffle,
    ) -> None:  # fmt: skip
        """Let all ranges be written, and take each in once those before are: `rows` is (bins,)."""
        told, done, total = self._told(WRITE), 0, int(rows.sum())
        told(0, total)

        def take_in(k: int) -> None:
            state, path = range_of(ranges[k]), Path(ranges[k].path)
            if state is None:
                raise StoreError("a file of the conversion is gone or damaged", path=path)
            writer.take_in(path, state.segments)
            shuffle.take(state.written)

        with InTurn(take_in) as taking:

            def tell(k: int) -> None:
                nonlocal done
                done += int(rows[ranges[k].first : ranges[k].stop].sum())
                told(done, total)
                taking.ready(k)

            outcomes = spread.run(write_range, ranges, tell)
        if isinstance(outcomes[-1], StreammachError):
            raise outcomes[-1]

    def _parts(self, spread: Spread, joined: Joined, labels: Ranked, features: Ranked) -> Parts:
        """Write what processes need of all partitions; return what they are sent of it."""
        classes, ids = joined.ids(labels, features)
        folder, tally, weights = self._job.joined, joined.tally, label_type(joined.tally)
        make_folder(folder)
        index = np.concatenate([run.index for run in joined.runs])
        for name, array in ((INDEX, index), (CLASSES, classes.ids), (FEATURES, ids.ids)):
            write_atomic(folder / name, array.tobytes())
        return Parts(
            folder=os.path.abspath(folder),
            runs=[(os.path.abspath(run.path), run.group, run.before) for run in joined.runs],
            classes=classes.bases.tolist(), features=ids.bases.tolist(),
            n_classes=len(labels.names), n_features=len(features.names),
            values=np.dtype(value_type(tally)).name, weighted=tally.weighted, tagged=tally.tagged,
            labels=None if weights is None else np.dtype(weights).name,
            block_rows=block_rows(tally), memory=self._settings.memory, shares=spread.shares,
        )  # fmt: skip

    def _ranges(self, parts: Parts, by_bin: NDArray[np.int64]) -> Iterator[Range]:
        """Yield ranges of bins with about as many values each: `by_bin` is int64 (bins, 4).

        They are few, since each costs about 75 ms beside its values.
        """
        make_folder(self._job.ranges)
        n_values = int(by_bin[:, 1].sum())
        even = min(EVEN_RANGES * n_values // RANGE_VALUES, EVEN_RANGES)
        n = min(max(n_values // RANGE_VALUES, even, 1), MAX_RANGES)
        before = np.concatenate([np.zeros((1, 4), np.int64), np.cumsum(by_bin, axis=0)])
        for first, stop in divided(by_bin[:, 1].tolist(), n):
            rows, values, tag_bytes, labels = before[first].tolist()
            yield Range(
                path=os.path.abspath(self._job.ranges / f"range-{first:05}-{stop:05}"),
                parts=parts, first=first, stop=stop,
                starts={
                    "X/indptr": rows + 1, "X/indices": values, "X/data": values, "y": rows,
                    "row": rows, "weight": rows, "tag/offsets": rows + 1, "tag/bytes": tag_bytes,
                    "y/indptr": rows + 1, "y/indices": labels, "y/data": labels,
                },
            )  # fmt: skip

    def _columns(self, tally: Tally, features: Names) -> TrainedColumns:
        """Return what is remembered of the columns; those of the first matrix are read."""
        if tally.n_columns >= 1 and self._known.features is None:
            first = self._sources[0]
            for piece in first.pieces():
                first.give_back(piece)
                break
        return super()._columns(tally, features)


def _bins(n_bytes: int, memory: int) -> int:
    """Return how many bins of the keys are told apart: fewer cost less, but are read as a whole."""
    wanted = BIN_SHARE * ROOM_OF_BYTE * n_bytes // memory
    return min(max(1 << int(wanted).bit_length(), LEAST_BINS), BINS)


def _absolute(options: SourceOptions) -> SourceOptions:
    """Return options that mean the same in any folder."""
    if options.labels is None:
        return options
    return replace(options, labels=Path(os.path.abspath(options.labels)))
