"""Whitening of dense rows: coordinates in which the rows of a class spread alike in all directions.

Where features vary together, steps along them crowd out the directions that tell classes apart.
Training on ``x' = (x - m) P`` instead, with P a power of the covariance within classes, sees all
directions alike. What is learnt there is a model of plain rows: ``W = P W'`` and
``b = b' - m P W'``, of the same size.

A row with a list of labels counts under each with its share, 1/n of n labels that weigh alike; a
row of importance w counts as w rows.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.dense import (
    MAX_FEATURES,
    PIECE_BYTES,
    Basis,
    LabelSums,
    class_sums,
    expanded,
    parts,
    piece_bytes,
    product,
    squares,
)
from streammach.rows.label_lists import LabelLists

POWER = 1.0  # of the standard deviations that are divided by
RIDGE = 1e-3  # of the mean variance, added to every direction's
MIN_ROWS = 4  # a feature, below which directions would be those of chance
TINY = 1e-30
FREEDOM = 8  # degrees of freedom a feature that a covariance within classes rests on


def possible(n_features: int, n_rows: int) -> bool:
    """Return whether so many rows can be whitened."""
    return n_features <= MAX_FEATURES and n_rows >= MIN_ROWS * n_features


def footprint(n_features: int, n_rows: int, labels: tuple[int, int] = (0, 0)) -> int:
    """Return the bytes of finding a basis from so many rows, and of the one before it."""
    square, piece = n_features * n_features, piece_bytes(n_features, n_rows, labels)
    return square * (5 * 8 + 4) + 3 * piece + (16 + 8 * any(labels)) * (piece // n_features)


class Spread:
    """How rows spread, within classes and in all, from rows that are added.

    Classes are compared within pieces of rows, so that no table of their means is needed.
    """

    def __init__(self, n_features: int) -> None:
        self._within = np.zeros((n_features, n_features))
        self._all = np.zeros((n_features, n_features))
        self._sum, self._origin = np.zeros(n_features), np.zeros(n_features, np.float32)
        self._rows, self._n, self._values, self._squares = 0, 0.0, 0.0, 0.0
        self._free = 0.0  # degrees of freedom within classes

    @property
    def n_rows(self) -> int:
        """How many rows were added."""
        return self._rows

    @property
    def enough(self) -> bool:
        """Whether the covariance within classes rests on enough rows."""
        return self._free >= FREEDOM * len(self._sum)

    def add(self, rows: RowBlock) -> None:
        """Add rows with known classes, after their transform."""
        for part in parts(rows, 4 * len(self._sum)):
            w = part.importance
            own = 1.0 if w is None else np.repeat(w, np.diff(part.indptr)).astype(np.float64)
            self._values += part.nnz if w is None else float(np.sum(own))
            self._squares += float((np.square(part.values, dtype=np.float64) * own).sum())
            x = expanded(part, len(self._sum))
            if not self._rows:  # sums of squares lose less around a row's place than around 0
                self._origin = x.mean(axis=0)
            x -= self._origin
            self._rows += len(x)
            self._n += float(part.weights.sum(dtype=np.float64))
            self._sum += (
                x.sum(axis=0, dtype=np.float64) if w is None
                else np.einsum("i,ij->j", w, x, dtype=np.float64)
            )  # fmt: skip
            self._all += squares(x, w)
            if part.labels is not None:
                self._add_lists(x, part.labels, w)
                continue
            _, which, counts, sums = class_sums(x, part.classes, w)
            sums /= np.maximum(counts, TINY)[:, None].astype(np.float32)
            x -= sums[which]
            self._within += squares(x, w)
            self._free += float(np.maximum(counts - 1, 0).sum())

    def _add_lists(
        self, x: NDArray[np.float32], labels: LabelLists, weights: NDArray[np.float32] | None
    ) -> None:
        """Add what pairs of rows and labels spread within classes, each with its share w.

        The mean of a class is that with these weights. Where ``n = sum w``, the sum of squares
        around it rests on ``n - (sum w^2) / n`` degrees of freedom: n - 1 where all w are 1.
        """
        found = LabelSums.of(x, labels, weights)
        means, rows = found.sums, labels.rows
        roots = np.sqrt(found.shares * found.weights).astype(np.float32)
        means /= np.maximum(found.rows, TINY)[:, None].astype(np.float32)
        step = max(1, PIECE_BYTES // (8 * x.shape[1]))
        for first in range(0, len(rows), step):
            some = slice(first, first + step)
            apart = x[rows[some]]
            apart -= means[found.which[some]]
            apart *= roots[some, None]
            self._within += product(apart.T, apart)
        free = found.rows - found.squares / np.maximum(found.rows, TINY)
        self._free += float(np.sum(np.maximum(free, 0)))

    def basis(self) -> Basis:
        """Return the basis in which these rows are white, as large as before.

        ``P = c V (D + ridge)^(-POWER / 2) V^T`` of the covariance ``V D V^T`` within classes, or of
        all rows where too few share a class. c keeps the sum of a row's magnitudes about what it
        was, so that the same rates serve.
        """
        mean = self._sum / self._n
        overall = self._all / self._n - np.outer(mean, mean)
        chosen = self._within / self._free if self.enough else overall.copy()
        ridge = RIDGE * np.trace(chosen) / len(chosen) + np.finfo(np.float32).tiny
        chosen[np.diag_indices_from(chosen)] += ridge
        variances, directions = scipy.linalg.eigh(chosen, overwrite_a=True, check_finite=False)
        scaled = directions * np.maximum(variances, ridge) ** (-POWER / 2)
        rotation = product(scaled, directions.T)
        spread = np.sqrt(
            max(float(np.sum(product(rotation, overall) * rotation)), 1e-30) / len(mean)
        )
        size = np.sqrt(self._values * self._squares) / self._n
        rotation *= size / (len(mean) * spread)
        return Basis(
            rotation.astype(np.float32), product(self._origin + mean, rotation).astype(np.float32)
        )
