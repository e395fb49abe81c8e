"""How much of an input is held at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.jit import keep_compiled
from streammach.rows.block import RowBlock
from streammach.spec.ledger import Line, bytes_in


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much of an input is held at a time, and what all comes to."""

    # rows, values: most rows and values of a block, but for a row that has more values alone. Where
    # rows have lists of labels, these count as values
    rows: int
    values: int
    # bytes of predictions that are brought into the order of their source at a time
    sorted_bytes: int
    lines: tuple[Line, ...]  # what is taken, by name
    kind: tuple[object, ...] = ()  # what decides which kernels are called

    def done(self) -> None:
        """Say that the work was done: its kernels are kept from now on."""
        keep_compiled(*self.kind)

    @property
    def projected_bytes(self) -> int:
        """All of it."""
        return bytes_in(self.lines, "host")

    def ranges(self, indptr: NDArray[np.int64]) -> Iterator[slice]:
        """Yield ranges of rows that may be held, of row pointers int64 (n + 1,) from 0."""
        start, n_rows = 0, len(indptr) - 1
        while start < n_rows:
            fits = int(indptr.searchsorted(indptr[start] + self.values, "right")) - 1
            stop = min(max(fits, start + 1), start + self.rows, n_rows)
            yield slice(start, stop)
            start = stop

    def cut(self, block: RowBlock) -> Iterator[RowBlock]:
        """Yield the rows of a block in parts that may be held."""
        ends = block.indptr if block.labels is None else block.indptr + block.labels.starts
        for rows in self.ranges(ends):
            yield block if rows == slice(0, block.n_rows) else block.part(rows.start, rows.stop)
