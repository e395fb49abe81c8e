"""A store as a source: the old rows of a store that extends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streammach.inputs.source import (
    START,
    MatrixColumns,
    Piece,
    PieceRows,
    Place,
    ReadingBytes,
    RowReader,
    Source,
)
from streammach.rows.columns import Columns
from streammach.rows.vocabulary import Vocabulary
from streammach.store.dataset import Dataset

VALUE_BYTES, ROW_BYTES, NAME_COPIES = 20, 80, 4  # of a piece, and of what is looked up


@dataclass(kw_only=True)
class StorePiece(Piece):
    """Rows ``start:stop`` of a store."""

    start: int
    stop: int


class StoreSource(Source[StorePiece]):
    """The rows of a store in its order, which are numbered by their places there."""

    form = "store"

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.path = dataset, dataset.path
        self.columns = _columns(dataset)

    @property
    def n_bytes(self) -> int:
        return self.dataset.stored_bytes

    def files(self) -> list[Path]:
        """Return its root document, which has the digest of all; none of a store at a URL."""
        root = self.path / "zarr.json"
        return [root] if root.is_file() else []

    def content(self) -> str:
        """Return the first digits of the store's digest."""
        return self.dataset.digest[:8]

    def reading_bytes(self) -> ReadingBytes:
        facts = self.dataset.facts
        piece = VALUE_BYTES * facts.max_block_nnz + ROW_BYTES * facts.block_rows
        return ReadingBytes(piece, NAME_COPIES * facts.names_bytes)

    def pieces(self, begin: Place = START) -> Iterator[StorePiece]:
        n_bytes = self.n_bytes
        for start, stop in self.dataset.block_ranges():
            if start >= begin.at:
                n_read = n_bytes * stop // self.dataset.n_rows
                yield StorePiece(start=start, stop=stop, n_read=n_read, end=Place(stop))

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> StoreReader:
        del label_needed, strict  # its rows were read once
        return StoreReader(self.dataset, vocabulary)


class StoreReader(RowReader[StorePiece]):
    """Gives rows of a store the ids of a vocabulary, which takes in all names of the store."""

    def __init__(self, dataset: Dataset, vocabulary: Vocabulary) -> None:
        self._dataset, labels = dataset, dataset.labels
        self._features = Columns.of_features(dataset.features, vocabulary)
        self._vocabulary, self._names = vocabulary, labels
        self._labels = np.zeros(0, np.int32)

    def read(self, piece: StorePiece) -> PieceRows:
        rows = self._dataset.rows(piece.start, piece.stop)
        _, tags = self._dataset.origins(piece.start, piece.stop)
        n_labels = len(self._names)
        if len(self._labels) < n_labels or self._vocabulary.n_labels < n_labels:  # it began anew
            self._labels = self._vocabulary.whole_ids("labels", self._names, add=True)
        lists, n = rows.labels, np.arange(rows.n_rows)
        block = replace(
            rows, features=self._features.ids(self._vocabulary, rows.features.astype(np.int64)),
            values=rows.values.astype(np.float32), importance=rows.weights,
            classes=self._labels[rows.classes], places=piece.start + n, numbers=n, tags=tags,
        )  # fmt: skip
        if lists is not None:
            block = block.with_labels(lists.rename(self._labels))
        return PieceRows(block)


def _columns(dataset: Dataset) -> MatrixColumns | None:
    """Return the columns of the matrix that the rows came from, None where some are not known."""
    n, positions = dataset.columns.n_columns, dataset.columns.positions
    if positions is None or not n:
        return MatrixColumns(n, None) if n else None
    owners = np.full(n, -1, np.int64)
    owners[positions[positions >= 0]] = np.flatnonzero(positions >= 0)
    if (owners < 0).any():
        return None
    return MatrixColumns(n, dataset.features.take(owners))


@contextmanager
def open_extended(path: Any) -> Iterator[list[Source[Any]]]:
    """Yield the store that is extended as a source, or nothing where none is."""
    if path is None:
        yield []
        return
    with Dataset.open(path) as dataset:
        yield [StoreSource(dataset)]
