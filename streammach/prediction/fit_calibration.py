"""Fits how scores become probabilities, on rows that were held out of the training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from streammach.model.calibration import Calibration
from streammach.prediction.calibrate import (
    CANDIDATES,
    above_others,
    bases,
    own_logs,
    softmax_logs,
)
from streammach.prediction.ranking import Ranking
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

STRAIGHT = Calibration(stated=(0.0, 1.0), right=(0.0, 1.0))
LEAST_ROWS = 1000  # that a line is fitted on
OWN_SHARE = 0.01  # of what was stated, in a line


def fit_calibration(rows: RowBlock, ranking: Ranking, n_classes: int) -> Calibration:
    """Return the map from scores to probabilities that was fitted on held-out rows.

    Its two numbers have the smallest log loss. A line through points corrects what they say, where
    rows are enough and those that it was not fitted on say that it is better.
    """
    if rows.labels is not None:
        return fit_label_calibration(rows, rows.labels, ranking)
    known = np.flatnonzero(rows.classes >= 0)
    if not len(known):
        return Calibration()
    ids, scores = ranking(rows, CANDIDATES)
    scores, right = scores[known], ids[known] == rows.classes[known][:, None]
    weights = None if rows.importance is None else rows.weights[known].astype(np.float64)
    fitted = _fit_scale(scores, right, n_classes, weights)
    if len(known) < LEAST_ROWS:
        return fitted
    halves = [np.arange(i, len(known), 2) for i in range(2)]
    losses = np.zeros(2)
    for one, other in (halves, halves[::-1]):
        own, others = (None if weights is None else weights[half] for half in (one, other))
        lined = fit_line(scores[one], right[one], n_classes, fitted, own)
        for i, map_ in enumerate((fitted, lined)):
            logs = own_logs(scores[other], right[other], n_classes, map_)
            losses[i] -= (logs if others is None else logs * others).sum()
    better = losses[1] < losses[0]
    return fit_line(scores, right, n_classes, fitted, weights) if better else fitted


def _fit_scale(
    scores: NDArray[np.float32], right: NDArray[np.bool_], n_classes: int,
    weights: NDArray[np.float64] | None,
) -> Calibration:  # fmt: skip
    """Return a calibration with the two numbers of the smallest log loss and a straight line."""
    n_others = n_classes - scores.shape[1]
    map_ = STRAIGHT if n_others else Calibration()  # which needs none, since nothing is left over
    z = bases(scores, map_)
    place = np.where(right.any(axis=1), right.argmax(axis=1), -1)  # the last column: all others

    def loss(x: NDArray[np.float64]) -> float:
        logs = softmax_logs(z, n_others, float(np.exp(x[0])), float(x[1]))
        return float(np.average(-logs[np.arange(len(logs)), place], weights=weights))

    start = np.array([0.5, 3.0])
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400})
    return replace(map_, beta=float(np.exp(best.x[0])), other=float(best.x[1]))


def fit_line(
    scores: NDArray[np.float32], right: NDArray[np.bool_], n_classes: int, fitted: Calibration,
    weights: NDArray[np.float64] | None = None,
) -> Calibration:  # fmt: skip
    """Return a calibration with a line, pooled over all places, from stated to what is right.

    The line goes through the means of the blocks of an isotonic regression, and a hundredth of it
    is the straight one, so that it always rises.

    `scores` and `right` are float32 (n, 32), bool (n, 32), `weights` is float64 (n,).
    """
    map_ = replace(fitted, stated=STRAIGHT.stated, right=STRAIGHT.right)
    z, n_others = bases(scores, map_), n_classes - scores.shape[1]
    stated = np.exp(softmax_logs(z, n_others, fitted.beta, fitted.other))[:, : z.shape[1]]
    values, where = np.unique(stated.astype(np.float32), return_inverse=True)
    w = np.broadcast_to(1.0 if weights is None else weights[:, None], stated.shape)
    n = np.maximum(np.bincount(where.reshape(-1), w.reshape(-1)), 1e-300)
    y = np.bincount(where.reshape(-1), (right * w).reshape(-1)) / n
    blocks = scipy.optimize.isotonic_regression(y, weights=n).blocks[:-1]
    weights = np.add.reduceat(n, blocks)
    x = np.add.reduceat(values * n, blocks) / weights
    y = np.add.reduceat(y * n, blocks) / weights
    y += OWN_SHARE * (x - y)
    points = [(0.0, 0.0)]
    for point in zip(x.astype(np.float32).tolist(), y.astype(np.float32).tolist(), strict=True):
        if points[-1][0] < point[0] < 1 and points[-1][1] < point[1] < 1:
            points.append(point)
    points.append((1.0, 1.0))
    return replace(fitted, stated=tuple(x for x, _ in points), right=tuple(y for _, y in points))


def fit_label_calibration(rows: RowBlock, labels: LabelLists, ranking: Ranking) -> Calibration:
    """Return the map from scores to probabilities of labels of held-out rows with lists of them."""
    # It has the smallest logistic loss over the best candidates of each row (Platt scaling), and is
    # pulled a little to where the search starts.
    if not rows.n_rows:
        return Calibration(1.0, 0.0)
    ids, scores = ranking(rows, CANDIDATES)
    right, usable = labels.matched(ids), np.isfinite(scores)
    x, y = above_others(scores)[usable], right[usable]
    weights = None if rows.importance is None else rows.weights.repeat(usable.sum(axis=1))
    if not len(x):
        return Calibration(1.0, 0.0)
    total = len(x) if weights is None else max(float(weights.sum()), 1e-30)
    middle, spread = float(x.mean()), max(float(x.std()), 1e-6)

    def loss(w: NDArray[np.float64]) -> float:
        z = np.exp(w[0]) * (x - middle) / spread + w[1]
        pull = float(((w - start) ** 2).sum()) / total
        return float(np.average(np.logaddexp(0, z) - y * z, weights=weights)) + pull

    start = np.array([0.0, -1.0])
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400})
    beta = float(np.exp(best.x[0])) / spread
    return Calibration(beta, float(best.x[1]) - beta * middle)
