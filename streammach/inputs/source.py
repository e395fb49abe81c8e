"""What a source of rows offers: pieces in a fixed order, and readers that turn them into rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRow, BadRows
from streammach.inputs.identity import (
    FileState,
    Fingerprint,
    check_unchanged,
    content_crc,
    name_of,
    state_of,
)
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary
from streammach.system.files.reading import sha256

NamedLabels = dict[tuple[bytes, bytes], None]  # labels with their names, in the order of rows
TEXT_PIECE_BYTES = 24 << 20  # of a piece of text with the rows in it


class Place(msgspec.Struct, frozen=True):
    """How far a source was read."""

    at: int = 0  # a byte of the decompressed text, or a row of the matrix
    crc: int = 0  # the crc32c of the text or the rows before it


START = Place()


class ReadingBytes(NamedTuple):
    """Bytes that reading a source takes: for each piece on its way, and for all of it."""

    piece: int
    whole: int


class LargePiece(NamedTuple):
    """What a piece that is larger than usual may take: bytes, values, bytes of their names."""

    n_bytes: int
    n_values: int
    name_bytes: int


@dataclass(kw_only=True)
class Piece:
    """A part of a source, not read into rows yet."""

    end: Place  # the place behind it
    n_read: int = 0  # bytes of the file read so far
    large: LargePiece | None = None  # what it takes where it is larger than usual


P = TypeVar("P", bound=Piece)


@dataclass
class PieceRows:
    """The rows of a piece."""

    # those that can be taken, numbered from the first row of the piece on; valid until the piece is
    # given back
    block: RowBlock
    # the others, in their order; a reader that stops at the first one has read no further
    bad: list[BadRow] = field(default_factory=list)
    n_lines: int = 0  # lines of text in the piece
    unknown_values: int = 0  # left out because the vocabulary does not have their feature
    # int64 (n,) or None: how many of each row; None where the reader does not say
    unknown: NDArray[np.int64] | None = None
    # int64 (m, 2): where rows of importance 0 start and end, which are left out: of a training, and
    # of what looks at labels. Other rows are placed as if they were not there
    left: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    # what their labels are called, where it is said
    named_labels: NamedLabels = field(default_factory=dict)

    def places(self) -> NDArray[np.int64]:
        """Return the places of the rows as if those that are left out were not there."""
        assert self.block.places is not None
        before = np.concatenate([[0], np.cumsum(self.left[:, 1] - self.left[:, 0])])
        skipped: NDArray[np.int64] = before[np.searchsorted(self.left[:, 0], self.block.places)]
        return self.block.places - skipped


class RowReader(ABC, Generic[P]):
    """Turns pieces into rows; one thread at a time may use it."""

    @abstractmethod
    def read(self, piece: P) -> PieceRows:
        """Return the rows of a piece, or raise DataError or DiskError."""

    def bad_row(self, piece: P, place: int, reason: str) -> BadRow:
        """Return a row of a piece, by its place in the source, as one that is bad."""
        del piece
        return BadRow(reason=reason, line=place)


@dataclass(frozen=True)
class MatrixColumns:
    """How many columns a matrix has, and their names if these are not their numbers."""

    n_columns: int
    names: Names | None

    @property
    def digest(self) -> str:
        """What tells their names and order from others; empty without names."""
        if self.names is None:
            return ""
        return sha256([self.names.offsets.tobytes(), self.names.data.tobytes()])


class Source(ABC, Generic[P]):
    """Something that yields rows in a fixed order."""

    path: Path  # the file or folder
    form: str  # its format
    note: str = ""  # what was guessed beside the format
    columns: MatrixColumns | None = None  # of a matrix, known with its first piece; None for text

    @property
    def n_bytes(self) -> int:
        """Bytes of the files; 0 where that is not known."""
        return sum(state.n_bytes for state in self.states())

    def reading_bytes(self) -> ReadingBytes:
        """Return what reading it takes, rows that were read aside, or DataError or DiskError."""
        return ReadingBytes(TEXT_PIECE_BYTES, 0)

    def files(self) -> list[Path]:
        """Return the files that the rows are in; none for a pipe."""
        return [self.path]

    def states(self) -> list[FileState]:
        """Return what these files are now, or raise DiskError."""
        return [state_of(path) for path in self.files()]

    def column_names(self) -> Names | None:
        """Return the names of a matrix's columns; None where they have none, or for text."""
        return None if self.columns is None else self.columns.names

    def content(self) -> str:
        """Return the crc32c of the files' bytes, 8 hexadecimal digits, or raise DiskError."""
        return content_crc(self.files())

    def fingerprint(self) -> Fingerprint:
        """Return what identifies the content, when all pieces were taken, or raise DiskError."""
        return Fingerprint(
            name=name_of(self.path.name), format=self.form, bytes=self.n_bytes,
            crc32c=self.content(),
        )  # fmt: skip

    @abstractmethod
    def pieces(self, begin: Place = START) -> Iterator[P]:
        """Yield the pieces in their order.

        Parameters
        ----------
        begin : Place
            Where to start: the end of an earlier piece.

        Raises
        ------
        ChangedError
            If what is before that place is not what was there.
        DataError
            If the file is damaged.
        DiskError
            If it cannot be read.
        """

    @abstractmethod
    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> RowReader[P]:
        """Return something that reads pieces.

        Parameters
        ----------
        vocabulary : Vocabulary
            Gives the ids; takes in new names where it may.
        label_needed : bool
            Whether a row without a label is bad.
        strict : bool
            Whether to stop at the first bad row of a piece.
        """

    def give_back(self, piece: P) -> None:
        """Say that a piece and the rows read from it are needed no more."""
        del piece

    def take_over(self, other: Source[Any]) -> None:
        """Use what another source, whose pieces were all taken, holds to read into."""
        del other

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Refuse a source that promised another number of rows than it held."""
        del n_rows, n_bad, n_lines

    def blocks(
        self, vocabulary: Vocabulary, bad_rows: BadRows, *, label_needed: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Generator[RowBlock]:  # fmt: skip
        """Yield the rows in their order, or raise DataError or DiskError."""
        # A block is valid until the next one. Values are float32; places are bytes of the
        # decompressed text or rows of the matrix. Rows that are left out have their number, too;
        # lines without a row do not.
        reader = self.reader(vocabulary, label_needed=label_needed, strict=not bad_rows.skip)
        states = self.states()
        rows = lines = n_bad = 0
        for piece in self.pieces():
            part = reader.read(piece)
            bad_rows.take(part.bad, self.path, lines)
            bad_rows.unknown_values += part.unknown_values
            before = rows + n_bad
            rows, lines = rows + part.block.n_rows, lines + part.n_lines
            n_bad += len(part.bad) + len(part.left)
            if progress is not None:
                progress(piece.n_read)
            if part.block.n_rows:
                yield part.block.add_to_numbers(before)
            self.give_back(piece)
        self.check_end(rows, n_bad, lines)
        check_unchanged(states, self.files())
