"""The steps of a conversion: read, number, write, commit."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np

from streammach.conversion.buffer import Ids, RowBuffer, fit_bytes
from streammach.conversion.folder import ConversionFolder, ConversionMemory
from streammach.conversion.intake import Intake
from streammach.conversion.request import ConversionRequest, KnownNames, RankedNames, decisions_of
from streammach.conversion.shuffle import Shuffle
from streammach.conversion.spills import Tally
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.identity import PLACE
from streammach.inputs.label_names import LabelNames
from streammach.inputs.source import Source
from streammach.rows.columns import trained_columns
from streammach.rows.names import NO_COLUMNS, Names, TrainedColumns
from streammach.store.dataset import Dataset
from streammach.store.root import Root, RootFacts, StoredSource
from streammach.store.row_totals import block_rows
from streammach.store.writer import MemoryWriter, RowsWriter, StoreWriter
from streammach.system.errors import BudgetError, DataError, clean
from streammach.system.files.reading import check_free
from streammach.system.jit import compiler_bytes, remember_compiled_work
from streammach.system.linux import resident_bytes
from streammach.system.threads import Workers

READ, SORT, WRITE, NAMES = "read", "sort", "write", "names"
UNITS = {READ: "bytes", WRITE: "rows"}  # what is counted in a stage
STAGES = {READ: 10.0, SORT: 1.0, WRITE: 6.0, NAMES: 0.3}  # their times beside one another
STORE_BYTES_PER_VALUE = 6
WHOLE_NUMBER = re.compile(rb"([+-]?\d{1,18})(?:\.0*)?")
SPILL_SHARE = 0.6  # of the memory left for rows: compressed ones are read beside them


@dataclass(frozen=True)
class ConversionOutcome:
    """What a conversion made: what the root says, the memory it had, its rows if in memory."""

    root: Root
    memory: int
    in_memory: Dataset | None = None
    single_row_features: int = 0  # features of one row that were met


class Build:
    """Makes a store of sources in a folder, whose `store` is whole afterwards."""

    def __init__(
        self, sources: list[Source[Any]], folder: ConversionFolder, request: ConversionRequest
    ) -> None:
        self._sources, self._folder, self._request = sources, folder, request
        asked = self._asked = request.asked
        self._kind = kind_of(sources, asked.like is not None, request.n_threads)
        n, room = request.n_threads, request.memory_bytes
        if room:
            self._memory = ConversionMemory(room, room, 0, n, rows_known=True)
        else:
            self._memory = ConversionMemory.of(
                asked.memory, [s.reading_bytes() for s in sources], n, compiler_bytes(*self._kind)
            )
        self._known = request.known or KnownNames.of(asked.like, asked.extend)
        self._bad_rows = BadRows(
            skip=asked.bad_rows.on_bad_row == "skip", most=asked.bad_rows.max_bad,
            listed=None if room else folder.listed,
        )  # fmt: skip
        # what decides the store beside sources and seed
        digest, grows = self._known.digest, self._known.grows
        self.decided = decisions_of(
            request.options, asked.bad_rows.on_bad_row, "" if grows else digest, asked.min_rows,
            digest if grows else None,
        )  # fmt: skip

    def run(self, *, resume: bool) -> ConversionOutcome:
        """Make the store, or raise ChangedError, DataError, BudgetError or DiskError."""
        request = self._request
        try:
            with closing(Workers(request.n_threads, "convert")) as workers:
                report = partial(request.progress, READ)
                intake = Intake(
                    self._sources, self._known.vocabulary(), self._bad_rows,
                    folder=self._folder.runs, seed=self._asked.seed, memory=self._memory,
                    workers=workers, progress=report,
                )  # fmt: skip
                if resume:
                    intake.resume()
                report(0, 0)
                intake.read()
                self._check_rows(intake.tally)
                return self._write(intake, workers)
        except BudgetError as error:
            recipe = request.options[0].recipe
            if recipe is not None and recipe.texts and (recipe.ngrams > 1 or recipe.chars):
                error.hint = f"{error.hint or ''} Or have fewer features: --ngrams 1.".strip()
            raise
        finally:
            self._bad_rows.close()

    def _check_rows(self, tally: Tally) -> None:
        wrong, like = "", self._asked.like
        if tally.rows == 0:
            left = "all rows have importance 0: nothing can be learnt"
            none = "no row could be read" if self._bad_rows.total else _holding_none(self._sources)
            wrong = left if tally.left else none
        elif tally.listed and not tally.labels:
            wrong = "no row has a label"
        elif tally.nnz == 0:
            wrong = "no row has a feature" + (f" that {clean(like)} knows" if like else "")
        if wrong:
            raise DataError(wrong, path=self._sources[0].path)

    def _write(self, intake: Intake, workers: Workers) -> ConversionOutcome:
        """Give labels and features their ids, and write all that a store holds."""
        self._request.progress(SORT, 0, 0)
        if intake.spills:
            intake.spill()
            intake.rows = RowBuffer(0)  # its memory is free
        tally, spills, rows = intake.tally, intake.spills, intake.rows
        groups = [] if spills else intake.groups()
        words, counts = intake.vocabulary, intake.counts()
        fixed = self._known.features if self._known.fixed else None
        names = words.label_names(), fixed or words.feature_names()
        del words
        intake.forget()  # the tables go before names are put into order
        labels = RankedNames.of(names[0], counts[0], self._known.labels)
        features = self._known.ranked_features(names[1], counts[1])
        once, n_met = int(np.count_nonzero(features.counts == 1)), len(features.names)
        features = self._frequent(features)
        _warn_of_spellings(labels.names)
        groups = [features.rank[ids] for ids in groups] or [features.rank]
        shuffle = Shuffle(
            labels.rank, Ids.of(groups), (n_met, len(features.names)),
            workers, lambda done: self._request.progress(WRITE, done, tally.rows),
        )  # fmt: skip
        if not spills and not self._request.memory_bytes:
            check_free(self._folder.folder, tally.nnz * STORE_BYTES_PER_VALUE, "the store")
        writer = self._writer(tally, int(features.counts.sum()))
        try:
            if spills:
                room = self._room_beside(labels, features, tally)
                shuffle.write_spills(spills, room, writer)
            else:
                shuffle.write(rows, writer)
            root = self._finish(writer, tally, shuffle, labels, features)
            dataset = None
            if isinstance(writer, MemoryWriter):
                dataset = Dataset(PLACE, root, *writer.content(root))
            return ConversionOutcome(root, self._memory.n_bytes, dataset, once)
        finally:
            writer.release()

    def _frequent(self, features: RankedNames) -> RankedNames:
        """Return the features that occur in enough rows, or raise DataError."""
        least = self._asked.min_rows
        if least == 1:
            return features
        old = self._known.features if self._known.grows else None
        frequent = features.frequent(least, 0 if old is None else len(old))
        if not len(frequent.names):
            place = clean(self._sources[0].path, 300)
            raise DataError(f"no feature occurs in {least:,} rows: --min-rows {least}", path=place)
        return frequent

    def _writer(self, tally: Tally, nnz: int) -> StoreWriter | MemoryWriter:
        types, labels = value_type(tally), None
        if tally.listed:
            labels = np.float32 if tally.label_weights else np.uint8
        content: dict[str, Any] = {
            "block_rows": block_rows(tally.rows, nnz), "weighted": tally.weighted, "labels": labels
        }  # fmt: skip
        if self._request.memory_bytes:
            return MemoryWriter(
                types, n_rows=tally.rows, nnz=tally.nnz, n_labels=tally.labels, **content
            )
        return StoreWriter(self._folder.store, types, tagged=tally.tagged, **content)

    def _room_beside(self, labels: RankedNames, features: RankedNames, tally: Tally) -> RowBuffer:
        names = sum(r.names.n_bytes + r.counts.nbytes + r.rank.nbytes for r in (labels, features))
        free = min(self._memory.room(names, names), self._memory.n_bytes - resident_bytes())
        wide = value_type(tally) == np.float32
        return RowBuffer(int(SPILL_SHARE * free), wide=wide, listed=tally.listed)

    def _finish(
        self, writer: RowsWriter, tally: Tally, shuffle: Shuffle, labels: RankedNames,
        features: RankedNames,
    ) -> Root:  # fmt: skip
        """Write all but the rows, which are there; return what the root says."""
        self._request.progress(NAMES, 0, 0)
        writer.add_names("labels", labels.names, labels.counts)
        writer.add_names("features", features.names, features.counts)
        columns = self._columns(tally, features.names)
        writer.add_columns(columns)
        if named_labels := self._known.named_labels | tally.named_labels:
            names = LabelNames(*(Names.of(pair[i] for pair in named_labels) for i in (0, 1)))
            own = names.by_class(labels.names.labels_of(names.labels))
            writer.add_names("names", own.texts, own.classes, "class")
        new, old = dict[str, int](), self._known
        known = len(labels.names if old.labels is None or old.grows else old.labels)
        if old.grows and old.labels is not None and old.features is not None:
            new = {
                "new_rows": tally.rows - tally.source_lengths[0],
                "new_classes": len(labels.names) - len(old.labels),
                "new_features": len(features.names) - len(old.features),
            }
        root = writer.finish(RootFacts(
            **writer.totals.facts(), classes=len(labels.names), features=len(features.names),
            columns=columns.n_columns, seed=self._asked.seed, options=self.decided,
            recipe=self._request.options[0].recipe,
            source=[
                StoredSource(**msgspec.structs.asdict(facts), rows=n)
                for facts, n in zip(tally.finished, tally.source_lengths, strict=True)
            ],
            skipped=dict(sorted(self._bad_rows.reasons.items())),
            counts={
                "duplicates": tally.duplicates,
                "unknown_values": self._bad_rows.unknown_values,
                "unseen_label_rows": int(labels.counts[known:].sum()),
                **({"weightless_rows": tally.left} if tally.left else {}), **new,
                **shuffle.left_out,
            },
        ))  # fmt: skip
        remember_compiled_work(*self._kind)
        return root

    def _columns(self, tally: Tally, features: Names) -> TrainedColumns:
        """Return what is remembered of the columns: of the store that gave the ids, if one did."""
        if self._known.fixed:
            return self._known.columns
        if tally.n_columns < 1:
            return NO_COLUMNS
        return trained_columns(features, tally.n_columns, self._sources[0].column_names())


def _holding_none(sources: Sequence[Source[Any]]) -> str:
    n = len(sources)
    return "it holds no rows" if n == 1 else f"none of {n:,} sources holds a row; the first one"


def _warn_of_spellings(labels: Names) -> None:
    """Warn of labels that are one whole number in several spellings: ``1``, ``01``, ``1.0``."""
    heads = labels.data[labels.offsets[:-1][np.diff(labels.offsets) > 0]]
    if labels.kind == "integer" or not np.isin(heads, list(b"+-0123456789")).any():
        return  # each is written in the usual way, or none is a number
    spellings: dict[int, list[str]] = {}
    for i in range(len(labels)):
        raw = labels.raw(i)
        if number := WHOLE_NUMBER.fullmatch(raw):
            spellings.setdefault(int(number[1]), []).append(raw.decode())
    several = [names for names in spellings.values() if len(names) > 1]
    if several:
        n, (one, other, *_) = len(several), several[0]
        warnings.warn(
            f"{n:,} {'numbers are' if n > 1 else 'number is'} spelled in several ways among the "
            f"labels, such as '{one}' and '{other}': these are different classes",
            stacklevel=6,
        )


def kind_of(
    sources: Sequence[Source[Any]], like: bool, n_threads: int
) -> tuple[str, list[str], bool, bool]:
    """Return what decides which kernels a conversion calls."""
    return "convert", sorted({source.form for source in sources}), like, n_threads > 1


def value_type(tally: Tally) -> type[np.generic]:
    """Return the type of the values of a store."""
    return np.uint8 if fit_bytes(tally.integers, tally.largest) else np.float32
