"""Metrics of held-out rows that a training chooses by: together, and row by row.

What each row adds tells two rankings of the same rows apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streammach.model import calibration
from streammach.model.calibration import TINY, Calibration, fit_calibration
from streammach.options.figures import HeldOutMetrics
from streammach.prediction.metrics import MOST, label_gains
from streammach.prediction.ranking import Ranking
from streammach.rows.block import RowBlock, evenly
from streammach.store.dataset import Dataset

SCALED_ROWS = 900  # by which scores become probabilities: two numbers, and too few for a line
LEAST = 1e-30  # of a weight that something is divided by


def measure_ids(rows: RowBlock, ids: NDArray[np.int64]) -> HeldOutMetrics:
    """Return the metrics of a ranking of rows that choices go by: its first five ids int64 (n, 5).

    Where rows have lists: precision at 1 and at 5, and PSP@5 if labels have weights.
    """
    return measure_hits(rows, sum_hits(rows.lists.gains_of(ids[:, :MOST]), rows.weights))


def measure_ranking(rows: RowBlock, ranking: Ranking) -> HeldOutMetrics:
    """Return the same of a ranking of rows that are held in memory."""
    return measure_ids(rows, ranking(rows, MOST)[0])


def sum_hits(gained: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return what rows count together whose first class is right, all right ones, their weights.

    `gained` float32 (n, 5) are the weights of the first five, 0 for those that are wrong; `weights`
    float32 (n,) what each row counts.
    """
    w, hits = weights.astype(np.float64), gained > 0
    each = np.stack([hits[:, 0], hits.sum(axis=1), gained.sum(axis=1, dtype=np.float64)])
    sums: NDArray[np.float64] = (each * w).sum(axis=1)
    return sums


def measure_hits(rows: RowBlock, sums: NDArray[np.float64]) -> HeldOutMetrics:
    """Return the metrics of rows by :func:`sum_hits` of them."""
    w, lists = rows.weights.astype(np.float64), rows.labels
    first, five, gained = (sums / max(float(w.sum()), LEAST)).tolist()
    if lists is None:
        return HeldOutMetrics(first, five)
    if lists.weights is None:
        return HeldOutMetrics(first, five / MOST)
    possible = float(np.average(lists.largest_gains(MOST), weights=w)) if w.any() else 1.0
    return HeldOutMetrics(first, five / MOST, min(gained / max(possible, LEAST), 1.0))


def score_rows(rows: RowBlock, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return by how much each row counts in the score that choices of lists go by, float64 (n,).

    `ids` int64 (n, 5) are the first of a ranking. The mean is that of :func:`measure_ids`.
    """
    gained, w = rows.lists.gains_of(ids[:, :MOST]), rows.weights.astype(np.float64)
    each = gained.sum(axis=1, dtype=np.float64)
    if rows.lists.weights is None:
        each = (gained[:, 0] > 0) + each / MOST / 2
    else:
        each /= max(float(np.average(rows.lists.largest_gains(MOST), weights=w)), LEAST)
    scores: NDArray[np.float64] = each * w / w.mean()
    return scores


def weigh_labels(rows: RowBlock, data: Dataset) -> RowBlock:
    """Return rows with lists of labels of a store, which weigh 1 / propensity."""
    lists = rows.lists
    weights = label_gains(lists.classes, data.label_counts, data.n_rows)
    return rows.with_labels(replace(lists, weights=weights.astype(np.float32)))


def measure_each_row(rows: RowBlock, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what rows add to accuracy and macro recall, of lists to P@1, P@5 and PSP@5: (m, n).

    `ids` int64 (n, 5) are the first of a ranking. Labels of lists weigh 1 / propensity.
    """
    gained, w = rows.lists.gains_of(ids[:, :MOST]), rows.weights.astype(np.float64)
    hits = gained > 0
    if rows.labels is not None:
        possible = max(float(np.average(rows.labels.largest_gains(MOST), weights=w)), TINY)
        return np.stack([hits[:, 0], hits.mean(axis=1), gained.sum(axis=1) / possible])
    known = rows.classes >= 0
    of_class = np.bincount(rows.classes[known], w[known])
    n_there, share = max(int(np.count_nonzero(of_class)), 1), np.zeros(len(w))
    share[known] = w.sum() / n_there / np.maximum(of_class[rows.classes[known]], TINY)
    return np.stack([hits[:, 0], hits[:, 0] * share])


def log_each_row(
    rows: RowBlock, ids: NDArray[np.int64], scores: NDArray[np.float32], n_classes: int
) -> NDArray[np.float64]:
    """Return ln p of what is right of each row, by the scores of its 32 best classes: float64 (n,).

    Labels of lists are right or wrong one by one; others than the best are as these at the least.
    """
    some = evenly(rows.n_rows, min(rows.n_rows, SCALED_ROWS))
    scale = fit_calibration(rows.take(some), lambda _, k: (ids[some], scores[some]), n_classes)
    if rows.labels is None:
        logs = calibration.own_logs(scores, ids == rows.classes[:, None], n_classes, scale)
        return np.where(rows.classes >= 0, logs, 0.0)
    right, said = rows.labels.match(ids), np.isfinite(scores)
    return _of_lists(rows.labels.lengths, right, said, np.where(said, scores, 0), scale)


def _of_lists(
    n_labels: NDArray[np.int64], right: NDArray[np.bool_], said: NDArray[np.bool_],
    scores: NDArray[np.float32], scale: Calibration,
) -> NDArray[np.float64]:  # fmt: skip
    p = np.clip(calibration.label_probabilities(scores, scale), TINY, 1 - 1e-12)
    each = np.where(said, np.log(np.where(right, p, 1 - p)), 0.0)
    least = np.log(np.where(said, p, 1.0).min(axis=1))
    found: NDArray[np.float64] = each.sum(axis=1) + (n_labels - right.sum(axis=1)) * least
    return found
