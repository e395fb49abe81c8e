"""From scores to probabilities: of the classes of a row together, or of each label on its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.model.calibration import Calibration

CANDIDATES = 32
LARGEST, HUGE = float(np.finfo(np.float32).max), 1e300  # of scores, and once they are scaled
TINY = float(np.finfo(np.float64).tiny)
LEAST_OTHERS = 0.5  # of what other classes have before a line is applied that they keep


def class_probabilities(
    scores: NDArray[np.float32], n_classes: int, calibration: Calibration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probabilities of a row's best classes, and of each other class.

    They do not depend on how many best classes are asked for: those after the 32 best have that of
    all others. No class has a larger one than a class with a better score, and those of all K
    classes of a row add up to 1.

    `scores` is float32 (n, m). Returns `probabilities` float64 (n, m), `others` float64 (n,).
    """
    z = bases(scores[:, :CANDIDATES], calibration)
    n_others = n_classes - z.shape[1]
    q = np.exp(softmax_logs(z, n_others, calibration.beta, calibration.other))
    p, left = q[:, : z.shape[1]], q[:, z.shape[1] :].sum(axis=1)
    if calibration.stated:
        p, left = _corrected(p, left, calibration)
    if n_others:
        p, left = _levelled(p, left, n_others)
    found = np.repeat(left[:, None], scores.shape[1], axis=1)
    found[:, : p.shape[1]] = p
    return found, left


def _corrected(
    q: NDArray[np.float64], others: NDArray[np.float64], calibration: Calibration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the line makes of the best classes of rows, and what is left for others."""
    p = np.interp(q, *calibration.line)
    total = p.sum(axis=1)
    if not others.any():
        return p / total[:, None], others
    left = np.maximum(1 - total, LEAST_OTHERS * others)
    return p * np.minimum(1.0, (1 - left) / total)[:, None], left


def bases(scores: NDArray[np.float32], calibration: Calibration) -> NDArray[np.float64]:
    """Return what of scores (n, m) is multiplied with beta: float64 (n, m)."""
    z = above_others(scores) if calibration.stated else scores.astype(np.float64)
    return np.clip(z, -LARGEST, LARGEST)


def softmax_logs(
    z: NDArray[np.float64], n_others: int, beta: float, other: float
) -> NDArray[np.float64]:
    """Return ln q of classes and, in a last column, of all others together, if there are any.

    `z` is float64 (n, m).
    """
    z = np.clip(beta * z, -HUGE, HUGE)
    if n_others:
        z = np.column_stack([z, np.full(len(z), other)])
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


def own_logs(
    scores: NDArray[np.float32], right: NDArray[np.bool_], n_classes: int, calibration: Calibration
) -> NDArray[np.float64]:
    """Return ln p of the labels of rows, -708 at the least: float64 (n,).

    `scores` and `right` are float32 (n, m), bool (n, m).
    """
    p, others = class_probabilities(scores, n_classes, calibration)
    own = np.where(right.any(axis=1), (p * right).sum(axis=1), others)
    logs: NDArray[np.float64] = np.log(np.maximum(own, TINY))
    return logs


def above_others(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how far scores (n, m), best first, are above the median of a row's best candidates."""
    # Scores of counts are not comparable from row to row: they grow with the features of a row.
    own = scores.astype(np.float64)
    n = np.isfinite(own[:, :CANDIDATES]).sum(axis=1)  # others are last
    pair = np.stack([np.maximum(n - 1, 0) // 2, n // 2], axis=1)
    pair = np.minimum(pair, own.shape[1] - 1)
    middle = np.where(n > 0, np.take_along_axis(own, pair, axis=1).mean(axis=1), 0.0)
    found: NDArray[np.float64] = own - middle[:, None]
    return found


def label_probabilities(
    scores: NDArray[np.float32], calibration: Calibration
) -> NDArray[np.float64]:
    """Return the probability of each label on its own: float64 (n, m).

    `scores` is float32 (n, m).
    """
    if calibration == Calibration():
        return np.exp(np.minimum(scores.astype(np.float64), 0.0))
    z = calibration.beta * above_others(scores) + calibration.other
    import scipy.special  # of lists of labels alone: it takes its time to load

    found: NDArray[np.float64] = scipy.special.expit(z)
    return found
