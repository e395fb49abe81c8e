"""What each row adds to figures of a ranking: so two rankings of the same rows are told apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.model.calibration import (
    TINY,
    Calibration,
    fit_calibration,
    label_probabilities,
    own_logs,
)
from streammach.prediction.set_metrics import MOST
from streammach.rows.block import RowBlock, evenly

SCALED_ROWS = 900  # by which scores become probabilities: two numbers, and too few for a line


def figures_of_rows(rows: RowBlock, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what rows add to accuracy and macro recall, of lists to P@1, P@5 and PSP@5: (m, n).

    `ids` int64 (n, 5) are the first of a ranking. Labels of lists weigh 1 / propensity.
    """
    gained, w = rows.lists.gained(ids[:, :MOST]), rows.weights.astype(np.float64)
    hits = gained > 0
    if rows.labels is not None:
        possible = max(float(np.average(rows.labels.most_gained(MOST), weights=w)), TINY)
        return np.stack([hits[:, 0], hits.mean(axis=1), gained.sum(axis=1) / possible])
    known = rows.classes >= 0
    of_class = np.bincount(rows.classes[known], w[known])
    n_there, share = max(int(np.count_nonzero(of_class)), 1), np.zeros(len(w))
    share[known] = w.sum() / n_there / np.maximum(of_class[rows.classes[known]], TINY)
    return np.stack([hits[:, 0], hits[:, 0] * share])


def logs_of_rows(
    rows: RowBlock, ids: NDArray[np.int64], scores: NDArray[np.float32], n_classes: int
) -> NDArray[np.float64]:
    """Return ln p of what is right of each row, by the scores of its 32 best classes: float64 (n,).

    Labels of lists are right or wrong one by one; others than the best are as these at the least.
    """
    some = evenly(rows.n_rows, min(rows.n_rows, SCALED_ROWS))
    scale = fit_calibration(rows.take(some), lambda _, k: (ids[some], scores[some]), n_classes)
    if rows.labels is None:
        logs = own_logs(scores, ids == rows.classes[:, None], n_classes, scale)
        return np.where(rows.classes >= 0, logs, 0.0)
    right, said = rows.labels.matched(ids), np.isfinite(scores)
    return _of_lists(rows.labels.lengths, right, said, np.where(said, scores, 0), scale)


def _of_lists(
    n_labels: NDArray[np.int64], right: NDArray[np.bool_], said: NDArray[np.bool_],
    scores: NDArray[np.float32], scale: Calibration,
) -> NDArray[np.float64]:  # fmt: skip
    p = np.clip(label_probabilities(scores, scale), TINY, 1 - 1e-12)
    each = np.where(said, np.log(np.where(right, p, 1 - p)), 0.0)
    least = np.log(np.where(said, p, 1.0).min(axis=1))
    found: NDArray[np.float64] = each.sum(axis=1) + (n_labels - right.sum(axis=1)) * least
    return found
