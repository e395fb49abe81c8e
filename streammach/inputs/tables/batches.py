"""A table that comes in batches, of Arrow or of Python's values, cut into pieces of some size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammach.inputs.identity import ChangedError
from streammach.inputs.source import START, LargePiece, Piece, Place
from streammach.inputs.tables.arrow_rows import ArrowRows, arrow
from streammach.inputs.tables.cells import TableRows
from streammach.inputs.tables.head import HEAD_ROWS
from streammach.inputs.tables.large import of_row, row_sizes
from streammach.inputs.tables.table_source import Table
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.layouts import ends

PIECE_BYTES = 1 << 20  # of the cells of a piece, about
MOST_ROWS = 1 << 14  # of a piece


@dataclass(kw_only=True)
class BatchPiece(Piece):
    """Some rows of a table, and the number of the first one."""

    rows: TableRows
    first_row: int


class BatchTable(Table):
    """A table whose rows come in batches."""

    @abstractmethod
    def batches(
        self, columns: Collection[str] | None, *, head: bool = False
    ) -> Iterator[tuple[Any, int]]:
        """Yield record batches, or rows that are pieces already, and the bytes read by then.

        All columns without `columns`. Of a `head` the first rows are looked at, to learn what
        columns are.
        """

    def first_rows(self) -> Iterator[TableRows]:
        for batch, _ in self.batches(None, head=True):
            if isinstance(batch, TableRows):
                yield batch
                continue
            # a large row is looked at only where its batch has no other
            every = list(slices(batch))
            for part, _ in [one for one in every if one[1] <= 2 * PIECE_BYTES] or every[:1]:
                for first in range(0, part.num_rows, HEAD_ROWS):
                    yield ArrowRows(part.slice(first, HEAD_ROWS))

    def pieces(self, begin: Place = START) -> Iterator[BatchPiece]:
        """Yield the rows in their order, in pieces of about a megabyte."""
        first = 0
        with self.errors():
            for batch, n_read in join_small_batches(self.batches(self.recipe.names)):
                for rows, size in cut_batch(batch):
                    end = first + rows.n_rows
                    if first < begin.at < end:
                        raise ChangedError("what was read before is not there", path=self.path)
                    if first >= begin.at:
                        large = self.large_piece(rows, size)
                        yield BatchPiece(
                            rows=rows, first_row=first, end=Place(end), n_read=n_read, large=large
                        )
                    first = end

    def large_piece(self, rows: Any, size: int) -> LargePiece | None:
        """Return what rows of so many bytes take, where these are more than usual."""
        return of_row(rows, self.recipe) if size > 2 * PIECE_BYTES else None


def cut_batch(batch: Any) -> Iterator[tuple[TableRows, int]]:
    """Yield the rows of a batch in pieces, with their bytes; 0 of those that are not of Arrow."""
    if isinstance(batch, TableRows):
        yield batch, 0
    else:
        yield from ((ArrowRows(part), size) for part, size in slices(batch))


def slices(batch: Any) -> Iterator[tuple[Any, int]]:
    """Yield a record batch in slices of about a megabyte or one larger row, with their bytes."""
    before, rows = ends(row_sizes(batch)), np.arange(batch.num_rows + 1)
    for first, stop in ranges_that_fit((before, PIECE_BYTES), (rows, MOST_ROWS)):
        yield batch.slice(first, stop - first), int(before[stop] - before[first])


def join_small_batches(batches: Iterable[tuple[Any, int]]) -> Iterator[tuple[Any, int]]:
    """Yield small record batches joined into some of about a megabyte, with what was read."""
    small: list[Any] = []
    n_bytes = read = 0
    for batch, n_read in batches:
        rows = isinstance(batch, TableRows)
        size = PIECE_BYTES if rows else batch.nbytes
        if n_bytes + size >= PIECE_BYTES or (small and not small[0].schema.equals(batch.schema)):
            yield from ((some, read) for some in _combine(small))
            small, n_bytes = [], 0
        if rows:
            yield batch, n_read
        else:
            small.append(batch)
            n_bytes += size
        read = n_read
        del batch  # the next one is decoded
    yield from ((some, read) for some in _combine(small))


def _combine(batches: list[Any]) -> list[Any]:
    if len(batches) < 2:
        return batches
    joined: list[Any] = arrow().Table.from_batches(batches).combine_chunks().to_batches()
    return joined
