"""How scores become probabilities: stored with a model, applied to scores, fitted on rows.

Of the classes of a row together, or of each label on its own where rows have lists of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

STATED, RIGHT = "calibration_stated", "calibration_right"
ENDS = (0.0, 1.0)
CANDIDATES = 32
LARGEST, HUGE = float(np.finfo(np.float32).max), 1e300  # of scores, and once they are scaled
TINY = float(np.finfo(np.float64).tiny)
LEAST_OTHERS = 0.5  # of what other classes have before a line is applied that they keep
LEAST_ROWS = 1000  # that a line is fitted on
OWN_SHARE = 0.01  # of what was stated, in a line
STEPS = 400  # of the search for two numbers, at most
# Returns class ids int64 (n, k) and scores float32 (n, k) of rows, best first.
Ranking = Callable[[RowBlock, int], tuple[NDArray[np.int64], NDArray[np.float32]]]


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities.

    S is the score of a class by counts and hashed models together, or where there are no counts the
    mean logarithm of the hashed models; M is the median score of the row's 32 best candidates. Then
    ``q_i = e^(beta (S_i - M)) / (sum_j e^(beta (S_j - M)) + e^other)`` over these candidates j,
    and ``p_i`` is the line through `stated` and `right` at ``q_i``. The other classes share
    evenly what is left of 1, and at least a half of what ``e^other`` gives them: the ``p_i`` of a
    row are scaled down for it. With 32 classes or fewer there are none, ``e^other`` is left out,
    and ``p_i`` are scaled to 1.
    No class gets less than one with a lower score: the last candidates share with all others then.

    Without `stated` and `right` M is 0 and ``p_i = q_i``. Where rows
    have lists of labels, a label has ``p_i = 1 / (1 + e^-(beta (S_i - M) + other))`` on its own.
    """

    beta: float = 1.0  # beta, other: of the equation
    other: float = -30.0
    # stated, right: points of a line that rises from (0, 0) to (1, 1), as float32; none where it
    # was not fitted
    stated: tuple[float, ...] = ()
    right: tuple[float, ...] = ()

    @classmethod
    def of(cls, beta: float, other: float, arrays: dict[str, NDArray[Any]]) -> Calibration:
        """Return what a model's document and its arrays by name hold, or raise ValueError."""
        if STATED not in arrays:
            return cls(beta, other)
        points = [np.asarray(arrays[name], np.float64) for name in (STATED, RIGHT)]
        for values in points:
            if (values[[0, -1]] != ENDS).any() if len(values) > 1 else True:
                raise ValueError("the line of the calibration does not rise from 0 to 1")
        if len(points[0]) != len(points[1]) or not all((np.diff(v) > 0).all() for v in points):
            raise ValueError("the line of the calibration does not rise")
        return cls(beta, other, *(tuple(values.tolist()) for values in points))

    def with_added(self, n_before: int, n_classes: int) -> Calibration:
        """Return what holds when a model of rows with one label has more classes.

        Of 32 classes or fewer e^other was not fitted: all others together have what the median
        candidate has then.
        """
        if self == Calibration() or not n_before <= CANDIDATES < n_classes:
            return self
        lined = self if self.stated else replace(STRAIGHT, beta=self.beta)
        return replace(lined, other=0.0)

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Arrays by their names in a model's file; none where there is no line."""
        points = {STATED: self.stated, RIGHT: self.right}
        return {name: np.array(v, np.float32) for name, v in points.items() if v}

    @cached_property
    def line(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The points of the line."""
        return np.array(self.stated), np.array(self.right)


def class_probabilities(
    scores: NDArray[np.float32], n_classes: int, calibration: Calibration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probabilities of a row's best classes, and of each other class.

    They do not depend on m, of scores float32 (n, m): classes after the 32 best have that of all
    others. No class has a larger one than a class with a better score, and those of all K classes
    of a row add up to 1. Returns float64 (n, m) and (n,).
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


def above_others(
    scores: NDArray[np.float32], best: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """Return how far scores (n, m) are above the median of a row's best candidates.

    Those are the first of `best` (n, k), or of the scores, best first.
    """
    # Scores of counts are not comparable from row to row: they grow with the features of a row.
    own = (scores if best is None else best).astype(np.float64)
    n = np.isfinite(own[:, :CANDIDATES]).sum(axis=1)  # others are last
    pair = np.stack([np.maximum(n - 1, 0) // 2, n // 2], axis=1)
    pair = np.minimum(pair, own.shape[1] - 1)
    middle = np.where(n > 0, np.take_along_axis(own, pair, axis=1).mean(axis=1), 0.0)
    found: NDArray[np.float64] = scores.astype(np.float64) - middle[:, None]
    return found


def label_probabilities(
    scores: NDArray[np.float32], calibration: Calibration, best: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """Return the probability of each label on its own: float64 (n, m).

    `scores` is float32 (n, m), `best` those of a row's best labels where they are others.
    """
    if calibration == Calibration():
        return np.exp(np.minimum(scores.astype(np.float64), 0.0))
    z = calibration.beta * above_others(scores, best) + calibration.other
    import scipy.special  # of lists of labels alone: it takes its time to load

    found: NDArray[np.float64] = scipy.special.expit(z)
    return found


STRAIGHT = Calibration(stated=(0.0, 1.0), right=(0.0, 1.0))


def fit_calibration(rows: RowBlock, ranking: Ranking, n_classes: int) -> Calibration:
    """Return the map from scores to probabilities that was fitted on held-out rows.

    Its two numbers have the smallest log loss. A line through points corrects what they say, where
    rows are enough and those that it was not fitted on say that it is better.
    """
    if rows.labels is not None:
        return fit_label_calibration(rows, rows.labels, ranking)
    known = np.flatnonzero(rows.classes >= 0)
    weights = None if rows.importance is None else rows.weights[known].astype(np.float64)
    if not len(known) or (weights is not None and not weights.any()):  # classes may weigh nothing
        return Calibration()
    ids, scores = ranking(rows, CANDIDATES)
    scores, right = scores[known], ids[known] == rows.classes[known][:, None]
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

    best = _least(loss, np.array([0.5, 3.0]))
    return replace(map_, beta=float(np.exp(best[0])), other=float(best[1]))


def _least(
    loss: Callable[[NDArray[np.float64]], float], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the two numbers with the smallest loss, searched from others on."""
    import scipy.optimize  # of fitting alone: it takes its time to load

    best: NDArray[np.float64] = scipy.optimize.minimize(
        loss, start, method="Nelder-Mead", options={"maxiter": STEPS}
    ).x
    return best


def fit_line(
    scores: NDArray[np.float32], right: NDArray[np.bool_], n_classes: int, fitted: Calibration,
    weights: NDArray[np.float64] | None = None,
) -> Calibration:  # fmt: skip
    """Return a calibration with a line, pooled over all places, from stated to what is right.

    The line goes through the means of the blocks of an isotonic regression, and a hundredth of it
    is the straight one, so that it always rises.

    `scores` and `right` are float32 (n, 32), bool (n, 32), `weights` is float64 (n,).
    """
    import scipy.optimize  # as above

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
    best = _least(loss, start)
    beta = float(np.exp(best[0])) / spread
    return Calibration(beta, float(best[1]) - beta * middle)
