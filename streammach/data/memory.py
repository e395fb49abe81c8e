"""Rows in memory as a data set: by the steps of a conversion, held or written into a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from streammach.data.class_weights import ClassWeights, weighed
from streammach.data.conversion.buffer import LABEL_BYTES as BUFFER_LABEL_BYTES
from streammach.data.conversion.buffer import LIST_BYTES as BUFFER_LIST_BYTES
from streammach.data.conversion.buffer import RowBuffer
from streammach.data.conversion.build import Build
from streammach.data.conversion.folder import ConversionFolder
from streammach.data.conversion.intake import NAME_BYTES
from streammach.data.conversion.ranking import Known
from streammach.data.conversion.request import ConversionRequest
from streammach.data.conversion.shuffle import AHEAD, PIECE_ROWS, PIECE_VALUES
from streammach.data.given import Given
from streammach.data.given_labels import GivenLabels
from streammach.data.identity import Fingerprint
from streammach.data.matrix import Dense, Matrix, MatrixPiece, OpenMatrix, Sparse
from streammach.data.matrix_source import MatrixReader, MatrixSource
from streammach.data.source import Part
from streammach.data.source_options import SourceOptions
from streammach.data.store import held
from streammach.data.store.dataset import Dataset
from streammach.data.store.held import PLACE, HeldDataset
from streammach.errors import BudgetError
from streammach.jit import CODE_BYTES
from streammach.machine import advised, cores, give_back, memory_limit, size_text
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Recipe

SMALL = 1 << 20  # values that one thread takes in
COPIED_BYTES = 40  # of a value of a piece, and of a row, while they are brought into order
FIXED_BYTES = 8 << 20  # of tables of names, and of what calls leave behind


class GivenSource(MatrixSource):
    """Rows that were given in memory, as a source.

    `weights` is float32 (n,) or None.
    """

    form = "memory"

    def __init__(
        self, rows: Given, labels: GivenLabels, weights: NDArray[np.float32] | None
    ) -> None:
        super().__init__(PLACE)
        self._rows, self._labels, self._weights = rows, labels, weights

    @property
    def n_bytes(self) -> int:
        """Bytes of the matrix."""
        return self._rows.n_bytes

    def files(self) -> list[Path]:
        """Return none."""
        return []

    def content(self) -> str:
        """Return nothing: what was given is not read again."""
        return ""

    def fingerprint(self) -> Fingerprint:
        """Return that these are rows in memory."""
        return Fingerprint(name=str(PLACE), format=self.form, bytes=self.n_bytes, crc32c="")

    @property
    def matrix(self) -> Matrix:
        """The rows as what is read in pieces."""
        m = self._rows.matrix
        if not self._rows.sparse:
            return Dense(lambda a, b: m[a:b], m.shape)
        sizes = (len(m.indices), len(m.data))
        read = (lambda a, b: m.indices[a:b]), (lambda a, b: m.data[a:b])
        return Sparse(m.indptr, *read, sizes, m.shape, PLACE)

    @contextmanager
    def opened(self) -> Iterator[OpenMatrix]:
        """Give the matrix."""
        yield OpenMatrix(
            self.matrix, self._labels.labels, self._rows.names, spaced=self._rows.spaced
        )

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> MatrixReader:
        """Return something that reads pieces."""
        reader = WeightedReader(PLACE, vocabulary, label_needed=label_needed, strict=strict)
        reader.weights = self._weights
        return reader


class WeightedReader(MatrixReader):
    """Gives rows their importance, beside what any rows of a matrix get."""

    weights: NDArray[np.float32] | None = None

    def read(self, piece: MatrixPiece) -> Part:
        """Return the rows of a piece."""
        part = super().read(piece)
        if self.weights is not None:
            assert part.block.places is not None
            part.block = replace(part.block, importance=self.weights[part.block.places])
        return part


@dataclass(frozen=True)
class Labelled:
    """Rows in memory with their labels, and how they become a data set."""

    rows: Given  # the rows
    labels: GivenLabels  # their labels
    # float32 (n,) or None: the importance of each row; None where all are 1
    weights: NDArray[np.float32] | None = None
    seed: int = 0  # decides the order of the rows
    # labels and features that have ids already; by falling frequency otherwise
    known: Known | None = None
    threads: int = 0  # threads that work; 0 for all cores
    recipe: Recipe | None = None  # how rows of a table became these
    # what rows count for by their class; see :func:`streammach.data.class_weights.weighed`
    class_weights: ClassWeights | None = None
    libraries_bytes: int = 0  # the memory of libraries that the rows came by
    small: int = SMALL  # values up to which one thread takes them in
    skip: bool = False  # whether rows that cannot be read are left out

    @property
    def source(self) -> GivenSource:
        """The rows as a source."""
        return GivenSource(self.rows, self.labels, self.weights)

    def _request(self, **more: Any) -> ConversionRequest:
        return ConversionRequest(
            options=[SourceOptions(recipe=self.recipe)], seed=self.seed, known=self.known,
            on_bad_row="skip" if self.skip else "error",
            n_threads=1 if self.rows.nnz <= self.small else self.threads or cores(), **more,
        )  # fmt: skip

    @property
    def _buffer_bytes(self) -> int:
        """Bytes that the rows take before they are in their order."""
        n_labels = self.labels.n_labels
        n_bytes = RowBuffer(0, wide=True).bytes_of(self.rows.n_rows, self.rows.nnz)
        lists = BUFFER_LIST_BYTES * self.rows.n_rows + BUFFER_LABEL_BYTES * n_labels
        return n_bytes + (lists if n_labels else 0)

    @property
    def code_bytes(self) -> int:
        """The memory of code before any row."""
        return CODE_BYTES + self.libraries_bytes

    @property
    def intake_bytes(self) -> int:
        """The memory that :meth:`held` takes at most, what it returns included."""
        n, nnz, n_labels = self.rows.n_rows, self.rows.nnz, self.labels.n_labels
        rows = held.ROW_BYTES * n + (held.FEATURE_BYTES + 4) * nnz
        rows += (held.LIST_BYTES * n + held.LABEL_BYTES * n_labels) if n_labels else 0
        threads = self._request().n_threads
        pieces = (2 * threads + 1) * self.source.matrix.held.piece
        copied = min(nnz, PIECE_VALUES) + min(n, PIECE_ROWS)
        copies = (AHEAD + 1 + threads) * COPIED_BYTES * copied
        names = NAME_BYTES * (min(self.rows.n_columns, nnz) + (n_labels or n))
        return FIXED_BYTES + names + self._buffer_bytes + max(pieces, rows + copies)

    def weighed(self, dataset: Dataset) -> Dataset:
        """Return the rows as they count by their class, or raise UsageError or DataError."""
        return dataset if self.class_weights is None else weighed(dataset, self.class_weights)

    def held(self) -> HeldDataset:
        """Return the rows in their order, in memory, or raise DataError."""
        request = self._request(held_bytes=self._buffer_bytes)
        made = Build([self.source], ConversionFolder(PLACE), request).run(resume=False).held
        assert made is not None, "rows that were held"
        made.intake_bytes, made.libraries_bytes = self.intake_bytes, self.libraries_bytes
        give_back()  # rows that were on their way
        return made

    def stored(self, folder: Path, memory: int) -> Dataset:
        """Write the rows into a store in a folder; return it, opened."""
        now = psutil.Process().memory_info().rss
        most = min(now + max(memory - self.code_bytes, 0), memory_limit().n_bytes)
        rows = ConversionFolder(folder / "rows")
        rows.prepare(b"{}")
        try:
            Build([self.source], rows, self._request(memory=most)).run(resume=False)
        except BudgetError as error:
            enough = self.code_bytes + self.intake_bytes
            raise BudgetError(
                f"the rows do not fit {size_text(memory)}, nor does writing them into a store",
                path="memory",
                hint=f"More than {advised(enough)} hold them; a model takes more.",
            ) from error
        give_back()
        dataset = Dataset.open(rows.store)
        dataset.libraries_bytes = self.libraries_bytes
        return dataset
