"""Converts sources of rows into a store: ids by frequency, rows in a full random order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.data.source_options import SourceOptions
from streammach.data.sources import Source, open_source
from streammach.data.store.dataset import Dataset
from streammach.data.store.writer import StoreWriter
from streammach.data.text import BadRows
from streammach.errors import BudgetError, DataError, UsageError, clean
from streammach.files import check_free, check_output, commit_folder, locked, remove_folder
from streammach.jit import Array, kernel
from streammach.machine import memory_limit, size_text
from streammach.rows.block import RowBlock
from streammach.rows.distinct import PairSketch
from streammach.rows.finish import finish_rows
from streammach.rows.names import Names
from streammach.rows.order import keys
from streammach.rows.vocabulary import Vocabulary, by_frequency, permuted

Progress = Callable[[str, int, int], None]
BLOCK_VALUES = 1 << 20  # of a block, the unit in which rows are read
PEAK_BYTES_PER_VALUE = 14  # 8 held, 4 more while ids are joined, and what is being written
STORE_BYTES_PER_VALUE = 6


@dataclass(frozen=True)
class Conversion:
    """What a conversion made.

    Attributes
    ----------
    path : str
        The store.
    digest : str
        SHA-256 of its manifest.
    n_rows, n_classes, n_features, nnz : int
        Its shape.
    skipped : dict of str to int
        Rows left out, by reason.
    duplicates : int
        Values that were added to another one of the same row and feature.
    unknown_values : int
        Values dropped because the store given by `like` does not have their feature.
    unseen_label_rows : int
        Rows whose label the store given by `like` does not have.
    formats : tuple of str
        The format of each source.
    notes : tuple of str
        What was guessed about sources beside their format.
    """

    path: str
    digest: str
    n_rows: int
    n_classes: int
    n_features: int
    nnz: int
    skipped: dict[str, int]
    duplicates: int
    unknown_values: int
    unseen_label_rows: int
    formats: tuple[str, ...]
    notes: tuple[str, ...]


def convert(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    labels: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    x_path: str | None = None,
    y_path: str | None = None,
    first_label: bool = False,
    like: str | os.PathLike[str] | None = None,
    on_bad_row: str = "error",
    seed: int = 0,
    force: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert text files or matrices into one store.

    The order of the rows, the ids and every byte of the store follow from the sources, their order
    and the seed alone.

    Parameters
    ----------
    sources : path-like or sequence of them
        VW, svmlight or XMC text, plain or gzip; matrices in HDF5, .npz or .npy. Columns of a
        matrix are features named by their numbers, counted from 0.
    out : path-like
        The store to make; it appears only when it is whole.
    format : str, optional
        ``vw``, ``svmlight``, ``xmc``, ``hdf5``, ``npz`` or ``npy``; guessed otherwise.
    labels : path-like or sequence of them
        Files of labels, one for each source: .npy, or text with one label a line.
    x_path, y_path : str, optional
        Where in a file of several arrays rows and labels are; guessed otherwise.
    first_label : bool
        Whether a row of svmlight or XMC text with several labels counts under the first one; such
        rows are bad otherwise.
    like : path-like, optional
        A store whose labels and features are used: for test data. Other features are dropped, rows
        with other labels are kept, both are counted.
    on_bad_row : str
        ``error`` or ``skip``.
    seed : int
        Decides the order of the rows.
    force : bool
        Whether an existing store may be replaced.
    progress : callable, optional
        Called with (stage, done, total).

    Raises
    ------
    UsageError
        If a path or option is wrong.
    DataError
        If a source is malformed, cut short or empty.
    BudgetError
        If the rows do not fit this machine's memory.
    DiskError, LockedError
        If the store cannot be written.
    """
    paths, label_paths = _paths(sources), _paths(labels)
    target = Path(out)
    if on_bad_row not in ("error", "skip"):
        raise UsageError(f"'{clean(on_bad_row)}' is not one of error, skip: --on-bad-row")
    if not paths:
        raise UsageError("no source was named")
    if label_paths and len(label_paths) != len(paths):
        raise UsageError(
            f"{len(label_paths)} files of labels for {len(paths)} sources: --labels",
            hint="Name one for each source, in the same order.",
        )
    if not 0 <= seed < 2**63:
        raise UsageError("the seed is not an integer from 0 to 2^63 - 1: --seed")
    check_output(target, force=force)
    partial = target.with_name(f".{target.name}.partial")
    with locked(target.with_name(f".{target.name}.lock"), clean(target)):
        remove_folder(partial)
        try:
            files: list[Path | None] = [*label_paths] or [None] * len(paths)
            opened = [
                open_source(path, SourceOptions(format, file, x_path, y_path, first_label))
                for path, file in zip(paths, files, strict=True)
            ]
            return _convert(opened, target, partial, like, on_bad_row, seed, progress)
        finally:
            remove_folder(partial)


def _paths(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[Path]:
    return [Path(p) for p in ([given] if isinstance(given, str | os.PathLike) else given)]


def _convert(
    opened: list[Source],
    target: Path,
    partial: Path,
    like: str | os.PathLike[str] | None,
    on_bad_row: str,
    seed: int,
    progress: Progress | None,
) -> Conversion:
    bad_rows = BadRows(skip=on_bad_row == "skip")
    known = _Known.of(like)
    vocabulary = known.vocabulary()
    total = sum(source.n_bytes for source in opened)
    rows = _Collected()
    before = 0
    for number, source in enumerate(opened):
        told = _told(progress, "read", before, total)
        for block in source.blocks(vocabulary, bad_rows, progress=told):
            rows.add(number, block)
        before += source.n_bytes
    if rows.n_rows == 0:
        raise DataError("no row could be read", path=clean(opened[0].path, 300))
    if rows.nnz == 0:
        what = "no row has a feature" + (f" that {clean(like)} knows" if like else "")
        raise DataError(what, path=clean(opened[0].path, 300))
    check_free(target.parent, rows.nnz * STORE_BYTES_PER_VALUE, "the store")
    held = rows.joined()
    label_names, label_rank = known.ranked_labels(vocabulary, held.labels)
    feature_names, feature_rank = known.ranked_features(vocabulary, held.features)
    finished = _finish_rows(held, feature_rank)
    whole = finished.integers and finished.largest <= 255
    weighted = bool(np.any(held.weights != 1))
    writer = StoreWriter(partial, np.uint8 if whole else np.float32, weighted=weighted)
    label_counts = np.zeros(len(label_names), np.int64)
    feature_counts = np.zeros(len(feature_names), np.int64)
    pairs = PairSketch()
    order = np.argsort(keys(seed, held.files, held.places), kind="stable")
    lengths = finished.lengths[order]
    for piece in _pieces(held, order, lengths):
        labels = label_rank[piece.labels]
        label_counts += np.bincount(labels, minlength=len(label_counts))
        feature_counts += np.bincount(piece.features, minlength=len(feature_counts))
        pairs.add(piece.indptr, piece.features, labels)
        writer.append_rows(piece.indptr, piece.features, piece.values, labels, piece.weights)
        if progress is not None:
            progress("write", int(label_counts.sum()), held.n_rows)
    writer.add_names("labels", label_names, label_counts)
    writer.add_names("features", feature_names, feature_counts)
    unseen = int(label_counts[known.n_labels :].sum()) if known.labels is not None else 0
    nnz = int(lengths.sum())
    block_rows = max(1, BLOCK_VALUES * held.n_rows // nnz)
    digest = writer.finish(
        {
            "rows": held.n_rows,
            "classes": len(label_names),
            "features": len(feature_names),
            "nnz": nnz,
            "pairs": min(pairs.estimate(), nnz),
            "max_row_nnz": int(lengths.max()),
            "block_rows": block_rows,
            "max_block_nnz": int(
                np.add.reduceat(lengths, np.arange(0, held.n_rows, block_rows)).max()
            ),
            "seed": seed,
            "options": {"on_bad_row": on_bad_row, "like": known.digest},
            "source": [source.fingerprint for source in opened],
            "skipped": dict(sorted(bad_rows.reasons.items())),
            "counts": {
                "duplicates": finished.duplicates,
                "unknown_values": bad_rows.unknown_values,
                "unseen_label_rows": unseen,
            },
        }
    )
    commit_folder(partial, target)
    return Conversion(
        str(target),
        digest,
        held.n_rows,
        len(label_names),
        len(feature_names),
        nnz,
        dict(bad_rows.reasons),
        finished.duplicates,
        bad_rows.unknown_values,
        unseen,
        tuple(source.form for source in opened),
        tuple(f"{clean(s.path.name)}: {s.note}" for s in opened if s.note),
    )


def _told(
    progress: Progress | None, stage: str, before: int, total: int
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda done: progress(stage, before + done, total)


@dataclass(frozen=True)
class _Known:
    """The labels and features that ids must agree with, if any."""

    labels: Names | None = None
    features: Names | None = None
    digest: str = ""

    @classmethod
    def of(cls, like: str | os.PathLike[str] | None) -> _Known:
        if like is None:
            return cls()
        with Dataset.open(like) as dataset:
            return cls(dataset.labels, dataset.features, dataset.digest)

    @property
    def n_labels(self) -> int:
        return len(self.labels) if self.labels is not None else 0

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.labels, self.features, add_features=self.features is None)

    def ranked_labels(
        self, vocabulary: Vocabulary, labels: NDArray[np.int32]
    ) -> tuple[Names, NDArray[np.int32]]:
        """Return the final list of labels and the final id of each provisional one."""
        names, first = vocabulary.label_names(), self.n_labels
        counts = np.bincount(labels, minlength=len(names)).astype(np.int64)
        new = Names(
            names.offsets[first:] - names.offsets[first], names.data[names.offsets[first] :], ""
        )
        order = np.concatenate(
            [np.arange(first), first + by_frequency(new, counts[first:])]
        ).astype(np.int64)
        return permuted(names, order), _inverse(order)

    def ranked_features(
        self, vocabulary: Vocabulary, features: list[NDArray[np.int32]]
    ) -> tuple[Names, NDArray[np.int32]]:
        """Return the final list of features and the final id of each provisional one."""
        if self.features is not None:
            return self.features, np.arange(len(self.features), dtype=np.int32)
        names = vocabulary.feature_names()
        counts = np.zeros(len(names), np.int64)
        for block in features:
            counts += np.bincount(block, minlength=len(counts))
        order = by_frequency(names, counts)
        return permuted(names, order), _inverse(order)


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int32]:
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


class _Rows:
    """All rows in the order of their sources: values in blocks, the rest joined."""

    def __init__(self, blocks: list[RowBlock], files: NDArray[np.int32]) -> None:
        self.features = [b.features for b in blocks]
        self.values = [b.values for b in blocks]
        self.indptr = [b.indptr for b in blocks]
        self.block_rows = np.cumsum([0] + [b.n_rows for b in blocks])
        self.labels = np.concatenate([b.labels for b in blocks])
        self.weights = np.concatenate([b.weights for b in blocks if b.weights is not None])
        self.places = np.concatenate([b.places for b in blocks if b.places is not None])
        self.files = files
        self.n_rows = len(self.labels)


class _Collected:
    """Copies of the blocks that the sources yield."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.nnz = 0
        self._blocks: list[RowBlock] = []
        self._files: list[NDArray[np.int32]] = []
        self._limit = memory_limit()

    def add(self, number: int, block: RowBlock) -> None:
        assert block.weights is not None
        assert block.places is not None
        self.n_rows += block.n_rows
        self.nnz += block.nnz
        if self.nnz * PEAK_BYTES_PER_VALUE > self._limit.n_bytes:
            raise BudgetError(
                f"the rows so far need {size_text(self.nnz * PEAK_BYTES_PER_VALUE)} of memory, "
                f"{size_text(self._limit.n_bytes)} may be used ({self._limit.source})",
                hint="Nothing was written; use a machine with more memory.",
            )
        self._blocks.append(
            RowBlock(
                block.indptr.copy(),
                block.features.copy(),
                block.values.copy(),
                block.labels.copy(),
                block.weights.copy(),
                block.places.copy(),
            )
        )
        self._files.append(np.full(block.n_rows, number, np.int32))

    def joined(self) -> _Rows:
        return _Rows(self._blocks, np.concatenate(self._files))


@dataclass(frozen=True)
class _Finished:
    """What renumbering the rows found: final length of each, and what the values are."""

    lengths: NDArray[np.int64]
    duplicates: int
    integers: bool
    largest: float


def _finish_rows(rows: _Rows, rank: NDArray[np.int32]) -> _Finished:
    """Give every value its final feature id, in place: rows sorted by id, equal ids added up."""
    longest = max(int(np.diff(indptr).max()) for indptr in rows.indptr)
    order, spare = np.empty(longest, np.int64), np.empty(longest, np.float32)
    lengths = np.empty(rows.n_rows, np.int64)
    facts = np.zeros(2, np.int64)  # values that are no integer of 0 or more, values above 255
    for b, indptr in enumerate(rows.indptr):
        part = lengths[rows.block_rows[b] : rows.block_rows[b + 1]]
        finish_rows(indptr, rows.features[b], rows.values[b], rank, order, spare, part, facts)
    before = sum(int(indptr[-1]) for indptr in rows.indptr)
    duplicates = before - int(lengths.sum())
    return _Finished(lengths, duplicates, facts[0] == 0, 256.0 if facts[1] else 255.0)


def _pieces(
    rows: _Rows, order: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[RowBlock]:
    """Yield the rows in their final order, which has these lengths, in pieces of bounded size."""
    ends = np.cumsum(lengths)
    start = 0
    while start < rows.n_rows:
        first = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, first + BLOCK_VALUES, "right")))
        chosen = order[start:stop]
        indptr = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths[start:stop], out=indptr[1:])
        features = np.empty(int(indptr[-1]), np.int32)
        values = np.empty(int(indptr[-1]), np.float32)
        blocks = np.searchsorted(rows.block_rows, chosen, "right") - 1
        for b in np.unique(blocks):
            here = np.flatnonzero(blocks == b)
            old = rows.indptr[b][chosen[here] - rows.block_rows[b]]
            _copy_rows(here, old, indptr, rows.features[b], rows.values[b], features, values)
        yield RowBlock(indptr, features, values, rows.labels[chosen], rows.weights[chosen])
        start = stop


@kernel()
def _copy_rows(
    rows: Array,
    starts: Array,
    indptr: Array,
    features: Array,
    values: Array,
    out_features: Array,
    out_values: Array,
) -> None:
    """Copy row k, which starts at ``starts[k]``, to its place ``rows[k]`` in the output."""
    for k in range(rows.shape[0]):
        a = indptr[rows[k]]
        for q in range(indptr[rows[k] + 1] - a):
            out_features[a + q] = features[starts[k] + q]
            out_values[a + q] = values[starts[k] + q]
