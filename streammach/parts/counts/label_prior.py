"""How much less labels weigh by their rows once the ranking is whole, where rows have lists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.parts.counts.neighbour_fit import CANDIDATES, WeightFit, judging_rows
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import Ranking, largest_discount
from streammach.prediction.selection_metrics import measure_ids, score_rows

# What is tried for the weight of ln n_i, beside what the fit took. Below 0 frequent labels gain:
# those are among a row's candidates, as rare labels that would gain are not. No more than two
# steps: the weights were fitted on the rows that judge.
BACK = (-0.1, -0.05, 0.0)
ERRORS = 1.0  # of the mean difference of the same rows, by which a tilt is worse


def fit_label_prior(
    training: Training, ranking: Ranking, log_rows: NDArray[np.float32]
) -> WeightFit | None:
    """Return how much of a fit's tilt held-out rows give back, None if nothing.

    A fit takes its tilt from two rankings, each of the weights that half of the rows want. With
    the weights that all want, and with similar training rows, frequent labels may come first more
    often. `log_rows` are ln n_i of the K classes, float32.
    """
    rows = None if training.known is not None else judging_rows(training)
    if rows is None:
        return None

    def fit_discount() -> WeightFit:
        ids, scores = ranking(rows, CANDIDATES)
        logs, first = log_rows[ids], dict[float, NDArray[np.int64]]()

        def score_discount(tilt: float) -> NDArray[np.float64]:
            order = np.argsort(-(scores - np.float32(tilt) * logs), axis=1, kind="stable")
            first[tilt] = np.take_along_axis(ids, order[:, :MOST], axis=1)
            return score_rows(rows, first[tilt])

        best_alone = rows.lists.weights is not None
        tilt, _ = largest_discount(score_discount, best_alone=best_alone, tilts=BACK, errors=ERRORS)
        score_discount(0.0)
        return WeightFit(-tilt, *(measure_ids(rows, first[one]) for one in (tilt, 0.0)))

    found = training.findings.once("tilt", WeightFit, fit_discount)
    return found if found.weight else None
