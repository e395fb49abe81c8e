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

from streammach.model.thresholds import Curve, curves_of
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

STATED, RIGHT = "calibration_stated", "calibration_right"
ENDS = (0.0, 1.0)
CANDIDATES = 32
LARGEST, HUGE = float(np.finfo(np.float32).max), 1e300  # of scores, and once they are scaled
TINY = float(np.finfo(np.float64).tiny)
LEAST_OTHERS = 0.5  # of what other classes have before a line is applied that they keep
LEAST_ROWS = 1000  # that a line is fitted on
# Information, sum of p (1 - p), of a point of a line of lists: what is right is known to 0.08.
LEAST_INFORMATION = 40.0
LEAST_SPREAD = 0.01  # of a row's terms, as a share of that of its scores
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

    Without `stated` and `right` M is 0 and ``p_i = q_i``. Where rows have lists of labels, a label
    has ``q_i = 1 / (1 + e^-(beta (S_i - M) + lead (S_1 - M) + level M + other))`` on its own, S_1
    the best score of the row, and ``p_i`` is what the line says of it, or ``q_i`` without one.
    """

    beta: float = 1.0  # beta, other: of the equation
    other: float = -30.0
    # stated, right: points of a line that rises from (0, 0) to (1, 1), as float32; none where it
    # was not fitted
    stated: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    lead: float = 0.0  # lead, level: of the second equation
    level: float = 0.0
    curves: tuple[Curve, ...] = ()  # what held-out rows reach: all labels, then each of some

    def with_line(self, arrays: dict[str, NDArray[Any]]) -> Calibration:
        """Return it with the line that a model's arrays by name hold, or raise ValueError."""
        if STATED not in arrays:
            return self
        points = [np.asarray(arrays[name], np.float64) for name in (STATED, RIGHT)]
        for values in points:
            if (values[[0, -1]] != ENDS).any() if len(values) > 1 else True:
                raise ValueError("the line of the calibration does not rise from 0 to 1")
        if len(points[0]) != len(points[1]) or not all((np.diff(v) > 0).all() for v in points):
            raise ValueError("the line of the calibration does not rise")
        stated, right = (tuple(values.tolist()) for values in points)
        return replace(self, stated=stated, right=right)

    def with_more_classes(self, n_before: int, n_classes: int) -> Calibration:
        """Return what holds when a model of rows with one label has more classes.

        Of 32 classes or fewer e^other was not fitted: all others together have what the median
        candidate has then.
        """
        if self == Calibration() or not n_before <= CANDIDATES < n_classes:
            return self
        lined = self if self.stated else replace(self, stated=ENDS, right=ENDS)
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
        p, left = _correct(p, left, calibration)
    if n_others:
        p, left = _spread_evenly(p, left, n_others)
    found = np.repeat(left[:, None], scores.shape[1], axis=1)
    found[:, : p.shape[1]] = p
    return found, left


def _correct(
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
    z = scores.astype(np.float64)
    z -= middles(z) if calibration.stated else 0.0
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


def _spread_evenly(
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


def middles(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each row's best candidates, of scores (n, k), best first: (n, 1)."""
    # Scores of counts are not comparable from row to row: they grow with the features of a row.
    n = np.isfinite(scores[:, :CANDIDATES]).sum(axis=1)  # others are last
    pair = np.stack([np.maximum(n - 1, 0) // 2, n // 2], axis=1)
    pair = np.minimum(pair, scores.shape[1] - 1)
    found: NDArray[np.float64] = np.take_along_axis(scores, pair, axis=1).mean(axis=1)
    return np.where(n > 0, found, 0.0)[:, None]


def label_terms(
    scores: NDArray[np.float32], best: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return S - M, S_1 - M and M of scores (n, m): float64 (n, m), (n, 1), (n, 1).

    `best` is float32 (n, k): the scores of each row's best labels.
    """
    # With a classifier a label, scores tell rows apart as well: those of two rows compare.
    own = best.astype(np.float64)
    middle = middles(own)
    first = np.where(np.isfinite(own[:, :1]), own[:, :1], middle)
    return scores.astype(np.float64) - middle, first - middle, middle


def label_probabilities(
    scores: NDArray[np.float32], calibration: Calibration, best: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """Return the probability of each label on its own: float64 (n, m).

    `scores` is float32 (n, m), `best` those of a row's best labels where they are others.
    """
    if calibration == Calibration():
        return np.exp(np.minimum(scores.astype(np.float64), 0.0))
    above, lead, level = label_terms(scores, scores if best is None else best)
    z = calibration.beta * above + calibration.other
    z += calibration.lead * lead + calibration.level * level
    import scipy.special  # of lists of labels alone: it takes its time to load

    found: NDArray[np.float64] = scipy.special.expit(z)
    return np.interp(found, *calibration.line) if calibration.stated else found


STRAIGHT = Calibration(stated=ENDS, right=ENDS)


def fit_calibration(rows: RowBlock, ranking: Ranking, n_classes: int) -> Calibration:
    """Return the map from scores to probabilities that was fitted on held-out rows.

    Its two numbers have the smallest log loss. A line through points corrects what they say, where
    rows are enough and those that it was not fitted on say that it is better.
    """
    if rows.labels is not None:
        return fit_label_calibration(rows, rows.labels, ranking)
    known = np.flatnonzero(rows.classes >= 0)
    weights = rows.weights[known].astype(np.float64)
    if not weights.any():  # there are none, or they weigh nothing
        return Calibration()
    ids, scores = ranking(rows, CANDIDATES)
    right = ids[known] == rows.classes[known][:, None]
    fitted = _fit_scale(scores[known], right, n_classes, weights)
    halves, losses = [np.arange(i, len(known), 2) for i in range(2)], np.zeros(2)
    for one, other in (halves, halves[::-1]) if len(known) >= LEAST_ROWS else ():
        lined = fit_line(scores[known[one]], right[one], n_classes, fitted, weights[one])
        for i, map_ in enumerate((fitted, lined)):
            logs = own_logs(scores[known[other]], right[other], n_classes, map_)
            losses[i] -= (logs * weights[other]).sum()
    if losses[1] < losses[0]:
        fitted = fit_line(scores[known], right, n_classes, fitted, weights)
    p, _ = class_probabilities(scores, n_classes, fitted)
    return replace(fitted, curves=curves_of(rows, ids[:, :1], p[:, :1]))


def _fit_scale(
    scores: NDArray[np.float32], right: NDArray[np.bool_], n_classes: int,
    weights: NDArray[np.float64],
) -> Calibration:  # fmt: skip
    """Return a calibration with the two numbers of the smallest log loss and a straight line."""
    import scipy.optimize  # of fitting alone: it takes its time to load

    n_others = n_classes - scores.shape[1]
    map_ = STRAIGHT if n_others else Calibration()  # which needs none, since nothing is left over
    z = bases(scores, map_)
    place = np.where(right.any(axis=1), right.argmax(axis=1), -1)  # the last column: all others

    def loss(x: NDArray[np.float64]) -> float:
        logs = softmax_logs(z, n_others, float(np.exp(x[0])), float(x[1]))
        return float(np.average(-logs[np.arange(len(logs)), place], weights=weights))

    best = scipy.optimize.minimize(
        loss, np.array([0.5, 3.0]), method="Nelder-Mead", options={"maxiter": STEPS}
    ).x
    return replace(map_, beta=float(np.exp(best[0])), other=float(best[1]))


def fit_line(
    scores: NDArray[np.float32], right: NDArray[np.bool_], n_classes: int, fitted: Calibration,
    weights: NDArray[np.float64],
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
    w = np.broadcast_to(weights[:, None], stated.shape)
    return _with_line(fitted, values, where.reshape(-1), right.reshape(-1), w.reshape(-1))


def _with_line(
    fitted: Calibration, x: NDArray[np.floating[Any]], where: NDArray[np.int64],
    right: NDArray[np.bool_], weights: NDArray[np.float64],
) -> Calibration:  # fmt: skip
    """Return a calibration with a rising line through what is right at places x, which rise (k,).

    `where` int64 (n,) are the places of what is `right` bool (n,), `weights` float64 (n,).
    """
    import scipy.optimize  # as above

    n = np.maximum(np.bincount(where, weights, len(x)), 1e-300)
    y = np.bincount(where, right * weights, len(x)) / n
    blocks = scipy.optimize.isotonic_regression(y, weights=n).blocks[:-1]
    total = np.add.reduceat(n, blocks)
    x = np.add.reduceat(x * n, blocks) / total
    y = np.add.reduceat(y * n, blocks) / total
    y += OWN_SHARE * (x - y)
    points = [(0.0, 0.0)]
    for point in zip(x.astype(np.float32).tolist(), y.astype(np.float32).tolist(), strict=True):
        if points[-1][0] < point[0] < 1 and points[-1][1] < point[1] < 1:
            points.append(point)
    points.append((1.0, 1.0))
    return replace(fitted, stated=tuple(x for x, _ in points), right=tuple(y for _, y in points))


def fit_label_calibration(rows: RowBlock, labels: LabelLists, ranking: Ranking) -> Calibration:
    """Return the map from scores to probabilities of labels of held-out rows with lists of them.

    Its numbers have the smallest logistic loss over the best candidates of each row (Platt
    scaling); a line corrects what they say.
    """
    if not rows.n_rows:
        return Calibration(1.0, 0.0)
    ids, scores = ranking(rows, CANDIDATES)
    usable = np.isfinite(scores) & (rows.weights > 0)[:, None]
    y, n = labels.match(ids)[usable], usable.sum(axis=1)
    if not len(y):
        return Calibration(1.0, 0.0)
    w = rows.weights.astype(np.float64).repeat(n)
    terms = [np.broadcast_to(term, scores.shape)[usable] for term in label_terms(scores, scores)]
    fitted = _least_logistic(terms, y, w)
    p = label_probabilities(scores, fitted)[usable]
    fitted = _with_label_line(fitted, p, y, w * (len(w) / w.sum()))
    p = np.where(usable, label_probabilities(scores, fitted), 0)
    return replace(fitted, curves=curves_of(rows, ids, p))


def _least_logistic(
    terms: list[NDArray[np.float64]], y: NDArray[np.bool_], weights: NDArray[np.float64]
) -> Calibration:
    """Return the calibration with the smallest logistic loss, by its three terms float64 (n,).

    Its numbers are pulled a little to where the search starts.
    """
    import scipy.optimize  # as above

    means, spreads = (np.array([f(x) for x in terms]) for f in (np.mean, np.std))
    spreads = np.maximum(spreads, [1e-6, *[max(LEAST_SPREAD * spreads[0], 1e-6)] * 2])
    a, b, c = ((x - m) / s for x, m, s in zip(terms, means, spreads, strict=True))
    start = np.array([0.0, 0.0, 0.0, -1.0])

    def loss(v: NDArray[np.float64]) -> float:
        z = np.exp(v[0]) * a + v[1] * b + v[2] * c + v[3]
        pull = float(((v - start) ** 2).sum()) / float(weights.sum())
        return float(np.average(np.logaddexp(0, z) - y * z, weights=weights)) + pull

    best = scipy.optimize.minimize(loss, start, method="BFGS").x
    found = np.array([np.exp(best[0]), best[1], best[2]]) / spreads
    beta, lead, level = found.tolist()
    other = float(best[3]) - float((found * means).sum())
    return Calibration(beta, other, lead=lead, level=level)


def _with_label_line(
    fitted: Calibration, p: NDArray[np.float64], right: NDArray[np.bool_],
    weights: NDArray[np.float64],
) -> Calibration:  # fmt: skip
    """Return a calibration with a line for probabilities of labels (n,), but where they are few."""
    order = np.argsort(p, kind="stable")
    p, right, weights = p[order], right[order], weights[order]
    information = np.cumsum(weights * p * (1 - p))
    n = int(information[-1] / LEAST_INFORMATION)
    if n < 2:
        return fitted
    where = np.minimum(information * (n / information[-1]), n - 1).astype(np.int64)
    _, where = np.unique(where, return_inverse=True)
    x = np.bincount(where, p * weights) / np.maximum(np.bincount(where, weights), 1e-300)
    return _with_line(fitted, x, where, right, weights)
