"""Joins partitions that were read apart: their names, what they counted, their bad rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import HEADING
from streammach.data.conversion.buffer import Ids
from streammach.data.conversion.intake import NAME_BYTES, ORDER_BYTES, Counts
from streammach.data.conversion.partition import LISTED
from streammach.data.conversion.ranking import Known, Ranked
from streammach.data.conversion.runs import Run, read_run, run_of
from streammach.data.conversion.tally import Packed, Tally
from streammach.errors import StoreError
from streammach.files.reading import disk_error
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary

NO_COUNTS = np.zeros(0, np.int64)


@dataclass
class Joined:
    """What several partitions hold together.

    Attributes
    ----------
    known : Known
        The names that ids must agree with.
    vocabulary : Vocabulary
        All names.
    tally : Tally
        What was read.
    counts : (int64 (K,), int64 (d,))
        How often each label and each feature occurs.
    classes, features : list of int32 arrays
        The vocabulary's ids of the names of each partition.
    runs : list of Run
        All runs in their order; the group of one is the number of its partition.
    """

    known: Known
    vocabulary: Vocabulary
    tally: Tally = field(default_factory=Tally)
    counts: Counts = (NO_COUNTS, NO_COUNTS)
    classes: list[NDArray[np.int32]] = field(default_factory=list)
    features: list[NDArray[np.int32]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @classmethod
    def of(cls, known: Known) -> Joined:
        """Return that of no partition."""
        return cls(known, known.vocabulary())

    def add(self, folder: Path, source: Path) -> None:
        """Take in a partition that was read, after those before it.

        Parameters
        ----------
        folder : Path
            Its runs.
        source : Path
            Its first source, for errors.

        Raises
        ------
        DataError
            If its columns are not those of the sources before.
        StoreError, DiskError
            If a run is damaged or cannot be read.
        """
        paths = sorted(folder.glob("run-*"))
        if not paths:
            raise StoreError("runs of the conversion are gone", path=folder)
        group, before, tally = len(self.classes), sum(self.tally.source_lengths), Tally()
        counts, words = (NO_COUNTS, NO_COUNTS), self.vocabulary
        classes = [np.arange(self.known.n_labels, dtype=np.int32)]
        features = [np.arange(self.known.n_features, dtype=np.int32)]
        for path in paths:
            state = read_run(path)
            classes.append(words.added("labels", _names(state.labels)))
            features.append(words.added("features", _names(state.features)))
            counts = _added(counts, (state.label_counts.array(), state.feature_counts.array()))
            run, tally = run_of(path, state), state.tally
            self.runs.append(Run(path, run.index, group, before))
        self.classes.append(np.concatenate(classes))
        self.features.append(np.concatenate(features))
        self.counts = (
            _spread(self.counts[0], counts[0], self.classes[-1], words.n_labels),
            _spread(self.counts[1], counts[1], self.features[-1], words.n_features),
        )
        self.tally = joined_tally(self.tally, tally, source)

    @property
    def n_bytes(self) -> int:
        """Bytes that it takes."""
        ids = sum(array.nbytes for array in (*self.classes, *self.features))
        n = self.vocabulary.n_labels + self.vocabulary.n_features
        names = (NAME_BYTES + ORDER_BYTES) * n  # its tables stay while they are put into order
        return self.vocabulary.n_bytes + names + ids + sum(run.index.nbytes for run in self.runs)

    def ids(self, labels: Ranked, features: Ranked) -> tuple[Ids, Ids]:
        """Return the final ids of each partition's labels and features."""
        own = Ids.of([labels.rank[ids] for ids in self.classes])
        if self.known.features is None:
            return own, Ids.of([features.rank[ids] for ids in self.features])
        return own, Ids(features.rank, np.zeros(len(self.features), np.int64))


def _names(kept: tuple[Packed, Packed]) -> Names:
    """Return the names that a run added to those before it in its partition."""
    return Names(kept[0].array(), kept[1].array(), "")


def _added(some: Counts, more: Counts) -> Counts:
    """Return the sums of counts, of which either may have fewer names."""
    sums = []
    for old, new in zip(some, more, strict=True):
        both = np.zeros(max(len(old), len(new)), np.int64)
        both[: len(old)] = old
        both[: len(new)] += new
        sums.append(both)
    return sums[0], sums[1]


def _spread(
    held: NDArray[np.int64], counts: NDArray[np.int64], ids: NDArray[np.int32], n: int
) -> NDArray[np.int64]:
    """Return counts of `n` names with those of a partition, whose names have these ids."""
    out = np.zeros(n, np.int64)
    out[: len(held)] = held
    out[ids[: len(counts)]] += counts  # no id is there twice
    return out


def joined_tally(some: Tally, more: Tally, path: Path) -> Tally:
    """Return what was read of sources, and of others after them.

    Parameters
    ----------
    some, more : Tally
        Both, each of sources that were read to their ends.
    path : Path
        The first of the others.

    Raises
    ------
    DataError
        If columns without names are more or fewer.
    """
    both = Tally(
        source=some.source + more.source, finished=some.finished + more.finished,
        source_lengths=some.source_lengths + more.source_lengths,
        n_columns=some.n_columns, column_names=some.column_names,
        rows=some.rows + more.rows, nnz=some.nnz + more.nnz,
        longest=max(some.longest, more.longest), duplicates=some.duplicates + more.duplicates,
        integers=some.integers and more.integers, largest=max(some.largest, more.largest),
        weighted=some.weighted or more.weighted, left=some.left + more.left,
        tagged=some.tagged or more.tagged, listed=some.listed or more.listed,
        labels=some.labels + more.labels, label_weights=some.label_weights or more.label_weights,
        unknown_values=some.unknown_values + more.unknown_values,
        reasons=dict(Counter(some.reasons) + Counter(more.reasons)),
    )  # fmt: skip
    if more.n_columns != -1:
        both.meet_columns(more.n_columns, more.column_names, path)
    return both


def left_out(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of partitions' lists of bad rows, in their order.

    Parameters
    ----------
    folders : sequence of Path
        The partitions' folders.

    Raises
    ------
    DiskError
        If a list cannot be read.
    """
    for path in (folder / LISTED for folder in folders):
        if not path.exists():
            continue
        try:
            with open(path, encoding="utf-8", newline="\n") as file:
                yield from (line for line in file if line != HEADING)
        except OSError as error:
            raise disk_error(error, path) from error
