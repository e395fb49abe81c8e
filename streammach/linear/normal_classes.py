"""A linear discriminant of dense rows: classes as normal distributions of the same shape.

Where that is so, it needs fewer rows than any other way. It is a scorer of a map without kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.linear.kernel_map import LINEAR, KernelMap, KernelWeights
from streammach.rows.dense import product

FOLDS = 5  # by which rows are scored that were not learnt from
PRIOR_ROWS = 0.3  # rows of the mean of all that a class has beside its own
SHRUNK = 1e-3  # share of the mean variance that is added to each column's


def fit_discriminant(
    own: KernelMap, x: NDArray[np.float32], classes: NDArray[Any], weights: NDArray[np.float32],
    n_classes: int,
) -> KernelWeights:  # fmt: skip
    """Return the discriminant of rows float32 (n, d), whose classes are int (n,).

    With means m_c, the covariance W within classes and shares p_c of the rows, a class scores
    ``m_c W^-1 x - m_c W^-1 m_c / 2 + ln p_c`` for a level row x.
    """
    level, w = own.level(x).astype(np.float64), weights.astype(np.float64)
    d, totals = level.shape[1], np.bincount(classes, w, n_classes)
    means = np.stack([np.bincount(classes, w * column, n_classes) for column in level.T], axis=1)
    middle = np.average(level, axis=0, weights=w)
    means = (means + PRIOR_ROWS * middle) / (totals + PRIOR_ROWS)[:, None]
    off = (level - means[classes]) * np.sqrt(w / w.sum())[:, None]
    within = product(off.T, off)
    within.flat[:: d + 1] += SHRUNK * np.trace(within) / d + 1e-9
    found = np.linalg.solve(within, means.T)
    share = np.log((totals + PRIOR_ROWS) / (totals.sum() + PRIOR_ROWS * n_classes))
    bias = share - 0.5 * (means * found.T).sum(axis=1)
    scale = np.sqrt(d) / LINEAR  # of level columns in mapped rows
    flat = own.at_bandwidth(1.0, n_centres=0)
    return KernelWeights(flat, (found * scale).astype(np.float32), bias.astype(np.float32))


def score_by_folds(
    own: KernelMap, x: NDArray[np.float32], classes: NDArray[Any], weights: NDArray[np.float32],
    n_classes: int,
) -> NDArray[np.float32]:  # fmt: skip
    """Return what rows score by the discriminant of other folds: float32 (n, K)."""
    out, fold = np.empty((len(x), n_classes), np.float32), np.arange(len(x)) % FOLDS
    for i in range(min(FOLDS, len(x))):
        rest = fold != i if len(x) > 1 else fold == i
        some = fit_discriminant(own, x[rest], classes[rest], weights[rest], n_classes)
        out[fold == i] = some.scores(x[fold == i])
    return out
