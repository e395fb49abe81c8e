"""How much of the frequency of labels held-out rows let go."""

import math

from streammach.figures import Reached
from streammach.prediction.tilt import TILTS, largest_tilt


def test_the_largest_tilt_within_half_a_standard_error_of_the_best_is_taken():
    n, best = 400, 0.4
    error = 0.5 * math.sqrt(best * (1 - best) / n)
    scores = dict.fromkeys(TILTS, 0.1)
    scores |= {0.0: best - 3 * error, 0.1: best, 0.2: best - 0.5 * error, 0.3: best - 0.9 * error}
    scores |= {0.5: best - 1.1 * error}
    assert largest_tilt([Reached(scores[t], 0.0) for t in TILTS], n) == 0.3
    assert largest_tilt([Reached(scores[t], 0.0) for t in TILTS], 100 * n) == 0.1
    assert largest_tilt([Reached(0.0, 0.0)] * len(TILTS), 0) == TILTS[-1]
