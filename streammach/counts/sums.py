"""The sums of a row's counts over its features, for all classes."""

from __future__ import annotations

import numpy as np

from streammach.counts.kernels import STEP
from streammach.jit import Array, kernel

WIDE_PIECE = 4096  # classes whose sums stay in the first cache


@kernel(fastmath=False)
def sum_row(
    row: Array, starts: Array, classes: Array, gains: Array, wide_of: Array, wide: Array,
    penalty: Array, base: Array, log_values: Array, units: Array, total: Array,
) -> None:  # fmt: skip
    """Write the score of every class for the features of a row.

    ``total_i = base_i - (sum_f penalty_f) log_values_i + (sum over counted (f, i) of gains) /
    UNITS``.

    Parameters
    ----------
    row : int32 (m,)
        The row's features.
    starts, classes, gains, wide_of, wide, penalty, base, log_values : arrays
        Those of :class:`streammach.rows.pairs.CountWeights`.
    units : int32 (K,)
        Scratch.
    total : float32 (K,)
        Receives the scores.
    """
    # Gains are integers, so their sum does not depend on its order: first the features whose gains
    # stand in `wide`, a piece of the classes at a time, then the lists of the others.
    add_wide(row, wide_of, wide, units)
    for f in row:
        if wide_of[f] < 0:
            for z in range(starts[f], starts[f + 1]):
                units[np.uint32(classes[z])] += gains[z]  # unsigned: no test for negative indices
    add_up(row, penalty, base, log_values, units, total)


@kernel(inline=True)
def add_wide(row: Array, wide_of: Array, wide: Array, units: Array) -> None:
    """Write the gains of a row's features that stand in `wide`: `units` int32 (K,)."""
    for first in range(0, units.shape[0], WIDE_PIECE):
        piece = units[first : first + WIDE_PIECE]
        piece[:] = 0
        for f in row:
            if wide_of[f] >= 0:
                add_piece(wide[wide_of[f], first : first + WIDE_PIECE], piece)


@kernel(inline=True, fastmath=False)
def add_up(
    row: Array, penalty: Array, base: Array, log_values: Array, units: Array, total: Array
) -> None:
    """Write the scores that the gains in `units` int32 (K,) make: `total` float32 (K,)."""
    rest = np.float32(0)
    for f in row:
        rest += penalty[f]
    for c in range(total.shape[0]):
        total[c] = base[c] - rest * log_values[c] + units[c] * STEP


@kernel(inline=True)
def add_piece(gains: Array, piece: Array) -> None:
    """Add gains int16 to `piece` int32."""
    for c in range(piece.shape[0]):
        piece[c] += gains[c]
