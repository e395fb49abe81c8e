"""How much of the frequency of labels held-out rows let go."""

import math

from streammach.figures import Reached
from streammach.prediction.ranking import TILTS, largest_tilt


def test_the_largest_tilt_within_a_standard_error_of_the_best_is_taken():
    n, best, asked = 400, 0.4, []
    error = math.sqrt(best * (1 - best) / n)
    scores = dict.fromkeys(TILTS, 0.1)
    scores |= {0.0: best - 1.6 * error, 0.1: best, 0.2: best - 0.4 * error}
    scores |= {0.3: best - 0.8 * error, 0.5: best - 1.2 * error, 0.7: best - 3 * error}

    def reached(tilt):
        asked.append(tilt)
        return Reached(scores[tilt], 0.0)

    assert largest_tilt(reached, n) == 0.3
    assert asked == list(TILTS[:6])
    assert largest_tilt(reached, 100 * n) == 0.1
    assert asked[6:] == list(TILTS[:3])
    assert largest_tilt(lambda tilt: Reached(0.0, 0.0), 0) == TILTS[-1]
