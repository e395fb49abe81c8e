"""Linear discriminant analysis of dense rows: weights in closed form from sums over the rows.

One pass over the rows gives the sums of each class and one covariance; from these follow the
weights of a linear classifier that needs no steps. A row with a list of labels counts under each
with its share, 1/n of n labels that weigh alike. A row of importance w counts as w rows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import scipy  # its modules load when they are used
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.dense import LabelSums, RowMap, laid_out, parts, piece_bytes, product, squares
from streammach.system.jit import Array, kernel

SOLVED = 1024  # classes whose weights are solved for at once
ROUNDED = 1e-7  # of the sum of squares of a row: more than what rounding of sums leaves
RIDGE = 1e-4  # of the mean variance, added to every feature's


def footprint(n_features: int, n_rows: int, labels: tuple[int, int] = (0, 0)) -> int:
    """Return the bytes of a discriminant of so many rows and its use, sums and weights aside."""
    square = n_features * n_features
    piece = piece_bytes(n_features, n_rows, labels)
    return square * (8 + 8 + 4) + 16 * SOLVED * n_features + 4 * piece


class Discriminant:
    """Linear discriminant analysis from sums that rows are added to."""

    def __init__(self, sums: NDArray[np.float32], waves: RowMap | None = None) -> None:
        sums[:] = 0
        self._sums, self._waves = sums, waves
        self._squares = np.zeros((sums.shape[1], sums.shape[1]))
        self._rows = np.zeros(len(sums))
        self._squared_shares = np.zeros(len(sums))

    def add(self, rows: RowBlock) -> None:
        """Add rows with known classes, after their transform; those without a label add nothing."""
        d = self._sums.shape[1]
        for part in parts(rows, 4 * d):
            x = laid_out(part, d, self._waves)
            if part.labels is not None:
                x[part.labels.lengths == 0] = 0
            w = part.importance
            self._squares += squares(x, w)
            found = LabelSums.of(x, part.lists, w)
            self._sums[found.classes] += found.sums
            self._rows[found.classes] += found.rows
            self._squared_shares[found.classes] += found.squares

    def solve(
        self, prior_rows: float, out: NDArray[np.float32], *, centred: bool = False
    ) -> NDArray[np.float32]:
        """Write the weights, and return the bias.

        With the class means ``m_i = (s_i + a m) / (n_i + a)`` and the covariance C within classes,
        ``w_i = C^-1 m_i`` and ``b_i = ln n_i - m_i . w_i / 2``.

        `out` is float32 (d, K). Returns float32 (K,).
        """
        mean = self._sums.sum(axis=0, dtype=np.float64) / self._rows.sum()
        factor = self._factor()
        bias = np.log(np.maximum(self._rows, 0.5))
        prior = max(prior_rows, 1e-6)  # a class without rows has the mean of all
        for first in range(0, len(self._rows), SOLVED):
            some = slice(first, first + SOLVED)
            rows = self._rows[some, None]
            means = (self._sums[some] + prior * mean) / (rows + prior)
            if centred:
                means -= mean
            found = scipy.linalg.cho_solve(factor, means.T, check_finite=False)
            if centred:  # (m_i - m) C^-1 (m_i + m) is the difference of the two squares
                means += 2 * mean
            out[:, some] = found
            bias[some] -= 0.5 * np.einsum("id,di->i", means, found)
        if centred:
            bias -= np.log(self._rows.sum())
        return bias.astype(np.float32)

    def _factor(self) -> Any:
        # Where rows of a class are equal, only rounding is there, which may be negative.
        for times in (1, 10, 100, 1_000):
            with suppress(np.linalg.LinAlgError):
                return scipy.linalg.cho_factor(
                    self._covariance(times), overwrite_a=True, check_finite=False
                )
        return scipy.linalg.cho_factor(self._covariance(10_000), check_finite=False)

    def _covariance(self, times: int = 1) -> NDArray[np.float64]:
        within = self._squares.copy()
        for first in range(0, len(self._rows), SOLVED):
            rows = np.maximum(self._rows[first : first + SOLVED, None], 1)
            scaled = self._sums[first : first + SOLVED] / np.sqrt(rows)
            within -= product(scaled.T, scaled)
        present = self._rows > 0  # n - 1 rows of each class are free where no share is below 1
        free = self._rows[present] - self._squared_shares[present] / self._rows[present]
        freedom = max(float(np.maximum(free, 0).sum()), 1.0)
        within /= freedom
        spread = np.trace(within) / len(within)
        size = np.trace(self._squares) / freedom
        ridge = max(RIDGE * spread, ROUNDED * size)  # the second where hardly a feature varies
        within[np.diag_indices_from(within)] += times * ridge + np.finfo(np.float32).tiny
        return within


@kernel()
def label_ranks(starts: Array, classes: Array, scores: Array, out: Array) -> None:
    """Write how many classes are ranked before each label of each row.

    Parameters
    ----------
    starts, classes : int64 (n + 1,), int32 (m,)
        The labels.
    scores : float32 (n, K)
        Of equal ones the first class comes first.
    out : int64 (m,)
        Receives the numbers; K for an unknown label.
    """
    n_classes = scores.shape[1]
    for i in range(starts.shape[0] - 1):
        row = scores[i]
        for p in range(starts[i], starts[i + 1]):
            own, before = classes[p], 0
            if own < 0:
                out[p] = n_classes
                continue
            for c in range(own):
                before += row[c] >= row[own]
            for c in range(own + 1, n_classes):
                before += row[c] > row[own]
            out[p] = before
