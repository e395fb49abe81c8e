"""How often some ids occur: what a block of rows adds to sums that stand for all ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class IdCounts(NamedTuple):
    """How often each of some ids occurs."""

    ids: NDArray[np.int64]  # ids, n: int64 (m,): the ids, rising, and how often each is there
    n: NDArray[np.int64]

    @classmethod
    def of(cls, ids: NDArray[np.integer[Any]]) -> IdCounts:
        """Return the counts of ids (n,), none of them negative."""
        found, n = np.unique(ids, return_counts=True)
        return cls(found.astype(np.int64), n.astype(np.int64))

    def add_to(self, sums: NDArray[np.integer[Any]]) -> None:
        """Add them to the sums of all ids."""
        sums[self.ids] += self.n.astype(sums.dtype)
