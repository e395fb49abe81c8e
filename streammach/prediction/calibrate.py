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
LARGEST = float(np.finfo(np.float32).max)


def class_probabilities(
    scores: NDArray[np.float32], n_classes: int, calibration: Calibration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probabilities of a row's best classes, and of each other class.

    They do not depend on how many best classes are asked for: those after the 32 best have that of
    all others. No class has a larger one than a class with a better score, and those of all K
    classes of a row add up to 1.

    Parameters
    ----------
    scores : float32 (n, m)
        Scores of the m best classes of each row, best first, by the ranking that was calibrated; m
        is at least 32, or K.
    n_classes : int
        K.
    calibration : Calibration
        The map; see its text for the equation.

    Returns
    -------
    probabilities : float64 (n, m)
        Of the best classes.
    others : float64 (n,)
        Of each of the K - m other classes.
    """
    best = scores[:, :CANDIDATES]
    n_others = n_classes - best.shape[1]
    p, left = np.exp(_softmax_logs(best, n_others, calibration)), np.zeros(len(best))
    if n_others:
        p, left = _levelled(p[:, :-1], p[:, -1], n_others)
    found = np.repeat(left[:, None], scores.shape[1], axis=1)
    found[:, : p.shape[1]] = p
    return found, left


def _softmax_logs(
    scores: NDArray[np.float32], n_others: int, calibration: Calibration
) -> NDArray[np.float64]:
    """Return ln p of classes and, in a last column, of all others together, if there are any."""
    z = calibration.beta * np.clip(scores.astype(np.float64), -LARGEST, LARGEST)
    if n_others:
        z = np.column_stack([z, np.full(len(z), calibration.other)])
    z -= z.max(axis=1, keepdims=True)
    logs: NDArray[np.float64] = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return logs


def _levelled(
    p: NDArray[np.float64], left: NDArray[np.float64], n_others: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Spread what is left of rows evenly, so that no other class is likelier than a better one.

    Where it would be, the last of the better ones share their probability with it: the fewest that
    are needed.
    """
    m = p.shape[1]
    tails = np.column_stack([np.cumsum(p[:, ::-1], axis=1)[:, ::-1], np.zeros(len(p))])
    levels = (tails + left[:, None]) / (n_others + np.arange(m, -1, -1))
    better = np.column_stack([np.ones(len(p), bool), p >= levels[:, 1:]])
    kept = m - better[:, ::-1].argmax(axis=1)
    level = levels[np.arange(len(p)), kept]
    return np.where(np.arange(m) < kept[:, None], p, level[:, None]), level


def log_probabilities(
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
    classes: NDArray[np.int32],
    *,
    n_classes: int,
    calibration: Calibration,
) -> NDArray[np.float64]:
    """Return ln p of each row's label, -708 at the least.

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
    p, others = class_probabilities(scores, n_classes, calibration)
    found = ids == classes[:, None]
    own = np.where(found.any(axis=1), (p * found).sum(axis=1), others)
    logs: NDArray[np.float64] = np.log(np.maximum(own, np.finfo(np.float64).tiny))
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
    n_others = n_classes - ids.shape[1]
    found = ids == classes[:, None]
    place = np.where(found.any(axis=1), found.argmax(axis=1), -1)  # the last column: all others

    def loss(x: NDArray[np.float64]) -> float:
        logs = _softmax_logs(scores, n_others, Calibration(float(np.exp(x[0])), float(x[1])))
        return float(-logs[np.arange(len(logs)), place].mean())

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
        The map; see its text for the equation. Where there were no rows to fit it on, a score is
        taken for the logarithm of a probability.
    """
    if calibration == Calibration():
        return np.exp(np.minimum(scores.astype(np.float64), 0.0))
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
