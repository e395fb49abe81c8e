"""An estimate of how many distinct (feature, class) pairs some rows hold, in 16 KB.

HyperLogLog (Flajolet et al., 2007) with 2^14 registers and 64-bit hashes: a standard error of 0.8%.
The result depends neither on the order of the rows nor on how they are cut into blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.system.jit import Array, kernel
from streammach.system.simd import trailing_zeros

BITS = 14
REGISTERS = 1 << BITS
ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
SMALL = 2.5 * REGISTERS  # below this many, empty registers tell more


@kernel(inline=True)
def add_pair(feature: int, own: int, registers: Array) -> None:
    """Add a pair of a feature and a class to `registers` uint8 (2^14,)."""
    x = (np.uint64(feature) << np.uint64(32)) | np.uint64(own)
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    register = np.int64(x & np.uint64(REGISTERS - 1))
    zeros: Any = np.int64(trailing_zeros(x >> np.uint64(BITS)))
    rank = min(zeros, 64 - BITS) + 1
    registers[register] = max(registers[register], rank)


@kernel()
def add_pairs(
    indptr: Array, features: Array, starts: Array, classes: Array, registers: Array
) -> None:
    """Add all pairs of a row's features and labels to `registers` uint8 (2^14,)."""
    for i in range(starts.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            for q in range(starts[i], starts[i + 1]):
                add_pair(features[p], classes[q], registers)


class PairSketch:
    """Counts distinct pairs of a feature and a class, approximately."""

    def __init__(self) -> None:
        self.registers = np.zeros(REGISTERS, np.uint8)  # uint8 (2^14,): all that it knows

    def add(self, rows: RowBlock) -> None:
        """Add the pairs of rows."""
        lists = rows.lists
        add_pairs(rows.indptr, rows.features, lists.starts, lists.classes, self.registers)

    def merge(self, registers: NDArray[np.uint8]) -> None:
        """Take in what another sketch knows: uint8 (2^14,)."""
        np.maximum(self.registers, registers, out=self.registers)

    def estimate(self) -> int:
        """Return about how many distinct pairs were added."""
        ranks = np.bincount(self.registers, minlength=66)
        guess = ALPHA * REGISTERS**2 / float((ranks * 0.5 ** np.arange(len(ranks))).sum())
        if guess <= SMALL and ranks[0]:
            guess = REGISTERS * float(np.log(REGISTERS / ranks[0]))
        return round(guess)
