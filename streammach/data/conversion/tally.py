"""What a conversion has read so far, as its runs keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numcodecs import Blosc, blosc
from numpy.typing import NDArray

from streammach.data.identity import Fingerprint
from streammach.data.source import START, Place
from streammach.errors import DataError
from streammach.rows.label_lists import LabelLists


class Packed(msgspec.Struct, frozen=True):
    """A one-dimensional array: its type and its bytes, compressed."""

    dtype: str
    data: bytes

    @classmethod
    def of(cls, values: NDArray[Any]) -> Packed:
        """Return the compressed array."""
        codec = Blosc("lz4", 5, Blosc.SHUFFLE)
        return cls(values.dtype.str, bytes(codec.encode(values)) if len(values) else b"")

    def array(self) -> NDArray[Any]:
        """Return the array."""
        data = bytes(blosc.decompress(self.data)) if self.data else b""
        return np.frombuffer(data, self.dtype)


class Tally(msgspec.Struct, kw_only=True):
    """What was read so far, of all sources.

    ``source`` is the number of the source that is being read, ``place``, ``lines``, ``source_rows``
    and ``source_bad`` how far that is, ``left_bytes`` what rows of importance 0 take of it, of
    which ``left`` were left out of all sources and count as bad ones; ``finished`` holds the
    fingerprints of those before it, ``source_lengths`` the rows of these, bad ones too.
    ``n_columns`` and ``column_names`` tell the columns of all sources so far: -1 before the first
    one, 0 where they are not the same.
    ``listed`` says whether some rows have lists of labels, ``label_weights`` whether these weigh.
    ``integers`` says whether all values are integers of 0 or more, ``largest`` the largest of them.
    """

    source: int = 0
    place: Place = START
    lines: int = 0
    source_rows: int = 0
    source_bad: int = 0
    finished: list[Fingerprint] = msgspec.field(default_factory=list)
    source_lengths: list[int] = msgspec.field(default_factory=list)
    n_columns: int = -1
    column_names: str = ""
    rows: int = 0
    nnz: int = 0
    longest: int = 0
    duplicates: int = 0
    integers: bool = True
    largest: float = 0.0
    weighted: bool = False
    left: int = 0
    left_bytes: int = 0
    tagged: bool = False
    listed: bool = False
    labels: int = 0
    label_weights: bool = False
    unknown_values: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    listed_bytes: int = 0

    def meet_columns(self, n_columns: int, names: str, path: Path) -> None:
        """Compare the columns of a source with those before."""
        if not n_columns:
            self.n_columns = 0
        elif self.n_columns == -1:
            self.n_columns, self.column_names = n_columns, names
        elif (self.n_columns, self.column_names) != (n_columns, names):
            if self.n_columns > 0 and not names and not self.column_names:
                raise DataError(
                    f"the matrix has {n_columns:,} columns, the one before {self.n_columns:,}",
                    path=path,
                    hint="Columns without names are told by their places.",
                )
            self.n_columns = 0

    def take_lists(self, lists: LabelLists) -> None:
        """Take in that some rows have lists of labels."""
        self.listed, self.labels = True, self.labels + lists.n_labels
        weights = lists.weights
        self.label_weights |= weights is not None and bool((weights != 1).any())


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a run holds behind its rows: the tally at its end, and what it added to the rest."""

    tally: Tally
    index: Packed = Packed("", b"")  # known when the rows are written
    label_counts: Packed
    feature_counts: Packed
    labels: tuple[Packed, Packed]
    features: tuple[Packed, Packed]
