"""How much of the frequency of labels a ranking of lists lets go.

Of rankings that held-out rows cannot tell apart, rare labels profit most by the one in which ``ln
n_i``, of the rows of a label, weighs least.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from streammach.figures import Reached

TILTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # taken from the weight of ln n_i


def largest_tilt(reached: Callable[[float], Reached], n_rows: float) -> float:
    """Return the largest tilt whose score is within a standard error of the best.

    Larger ones are tried until one is worse by more than two.
    """
    scores: dict[float, float] = {}
    noise = 0.0
    for tilt in TILTS:
        found = reached(tilt)
        scores[tilt] = found.selection_score
        best = max(scores.values())
        if scores[tilt] == best:
            noise = math.sqrt(found.accuracy * (1 - found.accuracy) / max(n_rows, 1))
        if scores[tilt] < best - 2 * noise:
            break
    return max(tilt for tilt, score in scores.items() if score >= best - noise)
