"""How much of the frequency of labels a ranking of lists lets go.

Of rankings that held-out rows cannot tell apart, rare labels profit most by the one in which ``ln
n_i``, of the rows of a label, weighs least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from streammach.figures import FREE, Reached

TILTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # taken from the weight of ln n_i


def largest_tilt(reached: Sequence[Reached], n_rows: int) -> float:
    """Return the largest tilt whose score is within half a standard error of the best.

    Parameters
    ----------
    reached : sequence of Reached
        What rankings with each of :data:`TILTS` reach on held-out rows.
    n_rows : int
        How many rows these are.
    """
    best = max(reached, key=lambda one: one.selection_score)
    noise = FREE * math.sqrt(best.accuracy * (1 - best.accuracy) / max(n_rows, 1))
    enough = best.selection_score - noise
    return max(t for t, one in zip(TILTS, reached, strict=True) if one.selection_score >= enough)
