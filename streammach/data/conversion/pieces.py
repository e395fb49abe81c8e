"""Reads pieces of a source as rows, in one of several threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streammach.data.source import AnyPiece, PieceRows, RowReader, Source
from streammach.rows.canonical import merge_repeats
from streammach.rows.shared import LocalNames

TOO_LARGE = "the values of a feature add up to more than float32 holds"


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
