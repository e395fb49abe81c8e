"""From scores to probabilities: of the classes of a row together, or of each label on its own."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from streammach.model.document import Calibration
from streammach.prediction.ranking import Ranking
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

CANDIDATES = 32


def log_probabilities(
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
    classes: NDArray[np.int32],
    *,
    n_classes: int,
    calibration: Calibration,
) -> NDArray[np.float64]:
    """Return ln p of each row's label.

    Parameters
    ----------
    ids, scores : int64 (n, m), float32 (n, m)
        The m best classes and their scores by the ranking that was calibrated.
    classes : int32 (n,)
        Class ids, none unknown.
    n_classes : int
        K.
    calibration : Calibration
        The map; see its text for the equation.

    Returns
    -------
    float64 (n,)
        Natural logarithms.
    """
    z = calibration.beta * scores.astype(np.float64)
    rest = n_classes - ids.shape[1]
    if rest > 0:
        z = np.column_stack([z, np.full(len(z), calibration.other)])
    top = z.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(z - top).sum(axis=1))
    found = ids == classes[:, None]
    place = np.where(found.any(axis=1), found.argmax(axis=1), z.shape[1] - 1)
    own = z[np.arange(len(z)), place] - total
    logs: NDArray[np.float64] = np.where(found.any(axis=1), own, own - np.log(max(rest, 1)))
    return logs


def fit_calibration(rows: RowBlock, ranking: Ranking, n_classes: int) -> Calibration:
    """Return the map from scores to probabilities with the smallest log loss on held-out rows."""
    if rows.labels is not None:
        return fit_label_calibration(rows, rows.labels, ranking)
    known = np.flatnonzero(rows.classes >= 0)
    if not len(known):
        return Calibration()
    ids, scores = ranking(rows, CANDIDATES)
    ids, scores, classes = ids[known], scores[known], rows.classes[known]

    def loss(x: NDArray[np.float64]) -> float:
        map_ = Calibration(float(np.exp(x[0])), float(x[1]))
        logs = log_probabilities(ids, scores, classes, n_classes=n_classes, calibration=map_)
        return float(-logs.mean())

    start = np.array([0.5, -4.0])
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400})
    return Calibration(float(np.exp(best.x[0])), float(best.x[1]))


def above_others(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how far scores (n, m) are above the median of their row's best candidates."""
    # Scores of counts are not comparable from row to row: they grow with the features of a row.
    finite = np.where(np.isfinite(scores), scores, np.nan)[:, :CANDIDATES].astype(np.float64)
    some = np.isfinite(finite).any(axis=1)
    middle = np.zeros(len(scores))
    middle[some] = np.nanmedian(finite[some], axis=1)
    found: NDArray[np.float64] = scores.astype(np.float64) - middle[:, None]
    return found


def label_probabilities(
    scores: NDArray[np.float32], calibration: Calibration
) -> NDArray[np.float64]:
    """Return the probability of each label on its own: float64 (n, m).

    Parameters
    ----------
    scores : float32 (n, m)
        The m best scores of each row, best first; m is at least 32, or K.
    calibration : Calibration
        The map; see its text for the equation.
    """
    z = calibration.beta * above_others(scores) + calibration.other
    found: NDArray[np.float64] = scipy.special.expit(z)
    return found


def fit_label_calibration(rows: RowBlock, labels: LabelLists, ranking: Ranking) -> Calibration:
    """Return the map from scores to probabilities of labels of held-out rows with lists of them."""
    # It has the smallest logistic loss over the best candidates of each row (Platt scaling), and is
    # pulled a little to where the search starts.
    if not rows.n_rows:
        return Calibration(1.0, 0.0)
    ids, scores = ranking(rows, CANDIDATES)
    right, usable = labels.matched(ids), np.isfinite(scores)
    x, y = above_others(scores)[usable], right[usable]
    if not len(x):
        return Calibration(1.0, 0.0)
    middle, spread = float(x.mean()), max(float(x.std()), 1e-6)

    def loss(w: NDArray[np.float64]) -> float:
        z = np.exp(w[0]) * (x - middle) / spread + w[1]
        pull = float(((w - start) ** 2).sum()) / len(x)
        return float((np.logaddexp(0, z) - y * z).mean()) + pull

    start = np.array([0.0, -1.0])
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400})
    beta = float(np.exp(best.x[0])) / spread
    return Calibration(beta, float(best.x[1]) - beta * middle)
