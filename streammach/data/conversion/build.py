"""The steps of a conversion: read, number, write, commit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import psutil

from streammach.data.bad_rows import BadRows
from streammach.data.conversion.buffer import Ids, RowBuffer, fit_bytes
from streammach.data.conversion.intake import Counts, Intake
from streammach.data.conversion.job import Exactly, Job, Memory
from streammach.data.conversion.ranking import Known, Ranked
from streammach.data.conversion.request import decided
from streammach.data.conversion.shuffle import Ranks, Shuffle
from streammach.data.conversion.tally import Tally
from streammach.data.source import Source
from streammach.data.source_options import SourceOptions
from streammach.data.store.dataset import MAX_BLOCK_ROWS
from streammach.data.store.held import HeldDataset, HeldWriter
from streammach.data.store.root import Root, RootFacts, SourceFacts
from streammach.data.store.writer import RowsWriter, StoreWriter
from streammach.errors import BudgetError, DataError, clean
from streammach.files.reading import check_free
from streammach.jit import compiler_bytes, keep_compiled
from streammach.progress import Told
from streammach.rows.columns import trained_columns
from streammach.rows.names import Names
from streammach.rows.spellings import spelled_differently
from streammach.rows.trained import NO_COLUMNS, TrainedColumns
from streammach.rows.vocabulary import Vocabulary

READ, SORT, WRITE, NAMES = "read", "sort", "write", "names"
UNITS = {READ: "bytes", WRITE: "rows"}  # what is counted in a stage
STAGES = {READ: 10.0, SORT: 1.0, WRITE: 6.0, NAMES: 0.3}  # their times beside one another
BLOCK_VALUES = 1 << 20  # of a block, the unit in which rows are read
STORE_BYTES_PER_VALUE = 6
RUN_SHARE = 0.6  # of the memory left for rows: compressed ones are read beside them


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a conversion is made with."""

    options: list[SourceOptions]  # how each source is read
    # like, on_bad_row, max_bad, seed, memory, progress: as for
    # :func:`streammach.data.convert.convert`
    like: str | os.PathLike[str] | None
    on_bad_row: str
    max_bad: int | None
    seed: int
    memory: str | int | float | None
    n_threads: int  # threads that parse and compress
    progress: Told | None
    # the names and ids that rows get, where they are not those of a store
    known: Known | None = None
    # the memory that rows take before they are in their order, where they stay in memory: then none
    # are put aside, and no file is written. 0 for a store
    held_bytes: int = 0


@dataclass(frozen=True)
class Made:
    """What a conversion made: what the root says, the memory it had, the rows if they are held."""

    root: Root
    memory: int
    held: HeldDataset | None = None


class Build:
    """Makes a store of sources in a job's folder; the job's `store` is whole afterwards."""

    def __init__(self, sources: list[Source[Any]], job: Job, settings: Settings) -> None:
        self._sources = sources
        self._job = job
        self._settings = settings
        self._kind = kind_of(sources, settings.like is not None, settings.n_threads)
        if settings.held_bytes:
            self._memory: Memory = Exactly.of_rows(settings.held_bytes, settings.n_threads)
        else:
            self._memory = Memory.of(
                settings.memory,
                [source.held() for source in sources],
                settings.n_threads, compiler_bytes(*self._kind),
            )  # fmt: skip
        self._known = Known.of(settings.like) if settings.known is None else settings.known
        self._bad_rows = BadRows(
            skip=settings.on_bad_row == "skip", most=settings.max_bad,
            listed=None if settings.held_bytes else job.listed,
        )  # fmt: skip
        # what decides the store beside sources and seed
        self.asked = decided(settings.options, settings.on_bad_row, self._known.digest)

    def run(self, *, resume: bool) -> Made:
        """Make the store, or raise ChangedError, DataError, BudgetError or DiskError."""
        n_threads = self._settings.n_threads
        try:
            with ThreadPoolExecutor(n_threads, "convert") as pool:
                intake = Intake(
                    self._sources, self._known.vocabulary(), self._bad_rows,
                    folder=self._job.runs, seed=self._settings.seed, memory=self._memory,
                    pool=pool, n_threads=n_threads,
                )  # fmt: skip
                if resume:
                    intake.resume()
                told = self._told(READ)
                told(0, 0)
                intake.read(told)
                self._check_rows(intake.tally)
                return self._write(intake, pool)
        except BudgetError as error:
            self._hint_at_ngrams(error)
            raise
        finally:
            self._bad_rows.close()

    def _hint_at_ngrams(self, error: BudgetError) -> None:
        """Say that there may be fewer features, where words of a text have many."""
        recipe = self._settings.options[0].recipe
        if recipe is not None and recipe.texts and (recipe.ngrams > 1 or recipe.chars):
            error.hint = f"{error.hint or ''} Or have fewer features: --ngrams 1.".strip()

    def _told(self, stage: str) -> Callable[[int, int], None]:
        progress = self._settings.progress or (lambda stage, done, total: None)
        return lambda done, total: progress(stage, done, total)

    def _check_rows(self, tally: Tally) -> None:
        place = clean(self._sources[0].path, 300)
        if tally.rows == 0 and tally.left:
            raise DataError("all rows have importance 0: nothing can be learnt", path=place)
        if tally.rows == 0:
            raise DataError("no row could be read", path=place)
        if tally.listed and not tally.labels:
            raise DataError("no row has a label", path=place)
        if tally.nnz == 0:
            like = self._settings.like
            what = "no row has a feature" + (f" that {clean(like)} knows" if like else "")
            raise DataError(what, path=place)

    def _write(self, intake: Intake, pool: ThreadPoolExecutor) -> Made:
        """Give labels and features their ids, and write all that a store holds."""
        self._told(SORT)(0, 0)
        if intake.runs:
            intake.put_aside()
            intake.rows = RowBuffer(0)  # its memory is free
        tally, runs, rows = intake.tally, intake.runs, intake.rows
        known = [] if runs else intake.groups()
        names, counts = self._names(intake.vocabulary), intake.counts()
        intake.forget()  # the tables go before names are put into order
        labels, features = self._ranked(names, counts)
        groups = [features.rank[ids] for ids in known] if known else [features.rank]
        del known
        told = self._told(WRITE)
        shuffle = Shuffle(
            Ranks(labels.rank, Ids.of(groups), len(features.names)), block_rows(tally), pool,
            lambda done: told(done, tally.rows),
        )  # fmt: skip
        if runs:
            shuffle.load(self._job.written)
        elif not self._settings.held_bytes:
            check_free(self._job.folder, tally.nnz * STORE_BYTES_PER_VALUE, "the store")
        writer = self._writer(tally, shuffle, pool)
        try:
            if runs:
                assert isinstance(writer, StoreWriter), "rows that are held are not put aside"
                wide = value_type(tally) == np.float32
                room = self._room_beside(labels, features, wide=wide)
                if tally.listed:
                    room.list_labels()
                shuffle.write_runs(runs, room, writer, self._job.written)
            else:
                shuffle.write(rows, writer)
            root = self._finished(writer, tally, shuffle, (labels, features))
            held = writer.dataset(root) if isinstance(writer, HeldWriter) else None
            return Made(root, self._memory.n_bytes, held)
        finally:
            writer.release()

    def _finished(
        self, writer: RowsWriter, tally: Tally, shuffle: Shuffle, ranked: tuple[Ranked, Ranked]
    ) -> Root:
        """Write all but the rows, which are there; return what the root says."""
        labels, features = ranked
        self._told(NAMES)(0, 0)
        writer.add_names("labels", labels.names, labels.counts)
        writer.add_names("features", features.names, features.counts)
        columns = self._columns(tally, features.names)
        writer.add_columns(columns)
        root = writer.finish(self._facts(tally, shuffle, labels, features, columns))
        keep_compiled(*self._kind)
        return root

    def _writer(
        self, tally: Tally, shuffle: Shuffle, pool: ThreadPoolExecutor
    ) -> StoreWriter | HeldWriter:
        """Return what takes the rows in their final order: a store's files, or memory."""
        types = value_type(tally)
        content: dict[str, Any] = {"weighted": tally.weighted, "labels": label_type(tally)}
        if self._settings.held_bytes:
            return HeldWriter(
                types, n_rows=tally.rows, nnz=tally.nnz, n_labels=tally.labels, **content
            )
        return StoreWriter(
            self._job.store, types, tagged=tally.tagged, pool=pool,
            state=shuffle.written.arrays or None, **content,
        )  # fmt: skip

    def _names(self, vocabulary: Vocabulary) -> tuple[Names, Names]:
        """Return labels and features by their provisional ids."""
        return vocabulary.label_names(), self._known.features or vocabulary.feature_names()

    def _ranked(self, names: tuple[Names, Names], counts: Counts) -> tuple[Ranked, Ranked]:
        """Return labels and features by their final ids; warn of numbers spelled in two ways."""
        labels = self._known.ranked_labels(names[0], counts[0])
        features = self._known.ranked_features(names[1], counts[1])
        recipe = self._settings.options[0].recipe
        words = () if recipe is None else recipe.word_spaces
        _warn_of_spellings("labels", "classes", labels.names)
        _warn_of_spellings("features", "features", features.names, words)
        return labels, features

    def _facts(
        self,
        tally: Tally,
        shuffle: Shuffle,
        labels: Ranked,
        features: Ranked,
        columns: TrainedColumns,
    ) -> RootFacts:
        """Return what the root says of the content."""
        known = self._known.n_labels if self._known.labels is not None else len(labels.names)
        return RootFacts(
            rows=tally.rows, classes=len(labels.names), features=len(features.names),
            nnz=tally.nnz, max_row_nnz=tally.longest, labels=shuffle.n_labels,
            pairs=min(shuffle.n_pairs, tally.nnz * max(1, shuffle.written.longest_list)),
            max_row_labels=shuffle.written.longest_list, max_block_labels=shuffle.max_block_labels,
            block_rows=shuffle.block_rows, max_block_nnz=shuffle.max_block_nnz,
            columns=columns.n_columns, seed=self._settings.seed, options=self.asked,
            recipe=self._settings.options[0].recipe,
            source=[
                SourceFacts(**msgspec.structs.asdict(facts), rows=n)
                for facts, n in zip(tally.finished, tally.source_lengths, strict=True)
            ],
            skipped=dict(sorted(self._bad_rows.reasons.items())),
            counts={
                "duplicates": tally.duplicates,
                "unknown_values": self._bad_rows.unknown_values,
                "unseen_label_rows": int(labels.counts[known:].sum()),
                **({"weightless_rows": tally.left} if tally.left else {}),
            },
        )  # fmt: skip

    def _columns(self, tally: Tally, features: Names) -> TrainedColumns:
        """Return what is remembered of the columns: of the store that gave the ids, if one did."""
        if self._known.features is not None:
            return self._known.columns
        if tally.n_columns < 1:
            return NO_COLUMNS
        names = self._sources[0].column_names()
        return trained_columns(features, tally.n_columns, names)

    def _room_beside(self, labels: Ranked, features: Ranked, *, wide: bool) -> RowBuffer:
        """Return a buffer for rows of runs, in the memory that is free now."""
        names = sum(r.names.n_bytes + r.counts.nbytes + r.rank.nbytes for r in (labels, features))
        held = psutil.Process().memory_info().rss
        free = min(self._memory.room(names, names), self._memory.n_bytes - held)
        return RowBuffer(int(RUN_SHARE * free), wide=wide)


def kind_of(
    sources: Sequence[Source[Any]], like: bool, n_threads: int
) -> tuple[str, list[str], bool, bool]:
    """Return what decides which kernels a conversion calls."""
    return "convert", sorted({source.form for source in sources}), like, n_threads > 1


def value_type(tally: Tally) -> type[np.generic]:
    """Return the type of the values of a store."""
    return np.uint8 if fit_bytes(tally.integers, tally.largest) else np.float32


def block_rows(tally: Tally) -> int:
    """Return the rows of a block of a store."""
    return min(max(1, BLOCK_VALUES * tally.rows // tally.nnz), MAX_BLOCK_ROWS)


def label_type(tally: Tally) -> type[np.generic] | None:
    """Return the type of the weights of labels, None where a row has one label."""
    if not tally.listed:
        return None
    return np.float32 if tally.label_weights else np.uint8


def _warn_of_spellings(what: str, become: str, names: Names, aside: Sequence[str] = ()) -> None:
    found = spelled_differently(names, aside)
    if found is not None:
        n, (one, other) = found
        warnings.warn(
            f"{n:,} {'numbers are' if n > 1 else 'number is'} spelled in several ways among the "
            f"{what}, such as '{clean(one, 40)}' and '{clean(other, 40)}': these are different "
            f"{become}",
            stacklevel=5,
        )
