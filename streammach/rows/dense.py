"""Dense rows: laid out whole in pieces, in other coordinates, and with cosines as more columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import csr_array, ranges_that_fit
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

MAX_FEATURES = 8192  # whose covariance is worked with: it has d x d entries
PIECE_BYTES = 32_000_000  # of rows that are worked on at once
COLUMNS = 1024  # whose weights are turned at once


def parts(rows: RowBlock, row_bytes: int) -> Iterator[RowBlock]:
    """Yield rows in parts whose arrays with so many bytes a row, or a label, stay small."""
    step = max(1, PIECE_BYTES // row_bytes)
    limits = [(np.arange(rows.n_rows + 1), step)]
    limits += [] if rows.labels is None else [(rows.labels.starts, step)]
    yield from (rows.part(*one) for one in ranges_that_fit(*limits))


def piece_bytes(n_features: int, n_rows: int, labels: tuple[int, int] = (0, 0)) -> int:
    """Return the most bytes of a part of float32 rows, or of as many as it has labels."""
    in_all, of_a_row = labels
    return max(min(PIECE_BYTES, 4 * n_features * max(n_rows, in_all)), 4 * n_features * of_a_row)


def expand_rows(rows: RowBlock, n_features: int) -> NDArray[np.float32]:
    """Return rows as a dense matrix: float32 (n, d)."""
    x = np.zeros((rows.n_rows, n_features), np.float32)
    step = max(1, PIECE_BYTES // (64 * n_features))  # numbers of rows and features take 16 bytes
    for start in range(0, rows.n_rows, step):
        some = rows.part(start, min(start + step, rows.n_rows))
        x[np.repeat(start + np.arange(some.n_rows), np.diff(some.indptr)), some.features] = (
            some.values
        )
    return x


@dataclass(frozen=True)
class LabelSums:
    """The sums of rows by label, each with the share that the label has of its row."""

    classes: NDArray[np.int32]  # int32 (c,): the classes that there are
    which: NDArray[np.int64]  # int64 (m,): the place of each label among them
    shares: NDArray[np.float64]  # float64 (m,): its share
    weights: NDArray[np.float64]  # float64 (m,): what its row counts
    sums: NDArray[np.float32]  # float32 (c, d): the sums of rows times shares and weights

    @classmethod
    def of(
        cls, x: NDArray[np.float32], labels: LabelLists, weights: NDArray[np.float32] | None
    ) -> LabelSums:
        """Return them for rows float32 (n, d), and what each counts."""
        shares = labels.shares
        own = np.ones(len(shares)) if weights is None else weights[labels.rows].astype(np.float64)
        classes, which = np.unique(labels.classes, return_inverse=True)
        pairs = csr_array(
            ((shares * own).astype(np.float32), (which, labels.rows)), shape=(len(classes), len(x))
        )
        return cls(classes, which, shares, own, pairs @ x)

    @property
    def rows(self) -> NDArray[np.float64]:
        """How many rows each class has, by their shares: float64 (c,)."""
        shares = self.shares * self.weights
        return np.bincount(self.which, shares, len(self.classes)).astype(np.float64)

    @property
    def squares(self) -> NDArray[np.float64]:
        """The sums of the squared shares: float64 (c,)."""
        shares = self.shares**2 * self.weights
        return np.bincount(self.which, shares, len(self.classes)).astype(np.float64)


def product(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the matrix product of two arrays, as ``a @ b``, in `out` if it is given."""
    # BLAS kernels may take in what happens to lie beside their operands, and leave that out of
    # the result: with some of those bits the flag of an invalid operation is set although every
    # number is right (OpenBLAS 0.3.31, sgemv, wrong by less than 3e-7 with finite operands). So the
    # flag says nothing. Numbers that are not finite are found in losses and weights.
    with np.errstate(invalid="ignore", over="ignore"):
        found: NDArray[Any] = np.matmul(a, b, out=out)
    return found


def squares(x: NDArray[np.float32], weights: NDArray[np.float32] | None) -> NDArray[Any]:
    """Return the sum of ``w x x^T`` over rows float32 (n, d): float32 (d, d)."""
    roots = x if weights is None else x * np.sqrt(weights)[:, None]
    return product(roots.T, roots)


@dataclass(frozen=True)
class RowMap:
    """What dense rows are brought to before weights: ``x' = [x P - m P, a cos(x Q + q)]``.

    Without `rotation` the first columns are x; without `projection` there are no more. Q is applied
    to plain rows in any case, so that a change of basis is within it.
    """

    rotation: NDArray[np.float32] | None = None  # float32 (d, d): P, which whitens rows
    shift: NDArray[np.float32] | None = None  # float32 (d,): `m P`
    # float32 (d + 2, D): Q, q as the row after it, and a as the last one
    projection: NDArray[np.float32] | None = None

    @property
    def n_more(self) -> int:
        """D, the columns that rows have beyond their features."""
        return 0 if self.projection is None else int(self.projection.shape[1])

    @property
    def plain(self) -> RowMap | None:
        """What rows are brought to when weights are those for plain rows."""
        return None if self.projection is None else RowMap(projection=self.projection)

    def apply(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write what rows `x` float32 (n, d) become to `out` (n, d + D)."""
        own, more = np.split(out, [x.shape[1]], axis=1)
        if self.rotation is None or self.shift is None:
            own[:] = x
        else:
            product(x, self.rotation, out=own)
            own -= self.shift
        if self.projection is not None:
            more[:] = product(x, self.projection[:-2])
            more += self.projection[-2]
            np.cos(more, out=more)
            more *= self.projection[-1]

    def unwhiten_weights(self, weights: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
        """Turn weights (d + D, C) and bias (C,) for whitened rows into those for plain ones."""
        if self.rotation is None or self.shift is None:
            return
        weights = weights[: len(self.shift)]
        bias -= product(self.shift, weights)
        for first in range(0, len(bias), COLUMNS):
            some = weights[:, first : first + COLUMNS]
            some[:] = product(self.rotation, some)


def laid_out(rows: RowBlock, width: int, waves: RowMap | None) -> NDArray[np.float32]:
    """Return rows as a dense matrix float32 (n, width), with the columns that `waves` gives."""
    if waves is None:
        return expand_rows(rows, width)
    out = np.empty((rows.n_rows, width), np.float32)
    waves.apply(expand_rows(rows, width - waves.n_more), out)
    return out
