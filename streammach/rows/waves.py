"""Cosines of random projections as further columns of dense rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.dense import Basis, expanded, product


@dataclass(frozen=True)
class Waves:
    """Dense rows with D more columns: ``x' = [x, a cos(x Q + q)]``.

    The features may be brought to a basis as well; Q is applied to plain rows all the same, so
    that a change of basis is within it.
    """

    # float32 (d + 2, D): Q, q as the row after it, and a as the last one
    projection: NDArray[np.float32]
    basis: Basis | None = None  # what the first d columns are brought to

    @property
    def n_more(self) -> int:
        """D, the columns that rows have beyond their features."""
        return int(self.projection.shape[1])

    @property
    def whitens(self) -> bool:
        """Whether weights have to be turned into those for plain rows."""
        return self.basis is not None

    @property
    def plain(self) -> Waves:
        """What rows are brought to when weights are those for plain rows."""
        return Waves(self.projection)

    def apply(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write rows `x` float32 (n, d) with their cosines to `out` (n, d + D)."""
        d = x.shape[1]
        if self.basis is None:
            out[:, :d] = x
        else:
            out[:, :d] = product(x, self.basis.rotation)
            out[:, :d] -= self.basis.shift
        more = out[:, d:]
        more[:] = product(x, self.projection[:-2])
        more += self.projection[-2]
        np.cos(more, out=more)
        more *= self.projection[-1]

    def unwhiten_weights(self, weights: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
        """Turn weights (d + D, C) and bias (C,) for whitened rows into those for plain ones."""
        if self.basis is not None:
            self.basis.unwhiten_weights(weights[: -self.n_more], bias)


def laid_out(rows: RowBlock, width: int, waves: Waves | None) -> NDArray[np.float32]:
    """Return rows as a dense matrix float32 (n, width), with the columns that `waves` gives."""
    if waves is None:
        return expanded(rows, width)
    out = np.empty((rows.n_rows, width), np.float32)
    waves.apply(expanded(rows, width - waves.n_more), out)
    return out


RowMap = Basis | Waves  # what dense rows are brought to before they are multiplied with weights
