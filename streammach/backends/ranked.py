"""The best classes by an estimator: by a device's kernels, or in NumPy where these have none."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.spec.estimators import ESTIMATORS, EstimatorKind
from streammach.spec.model import ModelSpec
from streammach.spec.types import Estimator

CLASSES, ROWS = 4096, 64  # that are scored in NumPy at once


class Ranked(Protocol):
    """A backend that finds the best classes by estimators which its kernels have a branch for."""

    spec: ModelSpec
    codes: NDArray[Any]
    logistic: bool

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        ...

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Write the best classes int64 (n, k) of rows, and what they were ranked by float32."""
        ...

    def topk(
        self, rows: RowBlock, k: int, estimator: Estimator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best classes of each row and their scores, best first.

        Parameters
        ----------
        rows : RowBlock
            n rows with transformed float32 values.
        k : int
            How many; all K classes if there are fewer.
        estimator : str
            A name in :data:`streammach.spec.estimators.ESTIMATORS`.

        Returns
        -------
        ids : int64 (n, min(k, K))
            Class ids, best first.
        scores : float32 (n, min(k, K))
            What the estimator gives for them.
        """
        kind, shape = ESTIMATORS[estimator], (rows.n_rows, min(k, self.spec.n_classes))
        ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        rank = self.rank if kind.join is None else self._rank_plainly
        rank(rows, kind, scores, ids)
        totals = self._totals(rows) if self.logistic and kind.unbiased else np.float32(1)
        return ids, kind.finished(scores, self.spec, totals)

    def _totals(self, rows: RowBlock) -> NDArray[np.float32]:
        """Return the mean over repetitions of the sum of a row's probabilities: float32 (n, 1)."""
        out = np.empty((rows.n_rows, 1), np.float32)
        for start in range(0, rows.n_rows, ROWS):
            stop = min(start + ROWS, rows.n_rows)
            p = self.outputs(rows.part(start, stop), logarithms=False)
            out[start:stop] = p.sum(axis=1, keepdims=True) / self.spec.n_repetitions
        return out

    def _rank_plainly(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Do the same in NumPy: every class is scored."""
        assert kind.join is not None
        first = np.arange(self.spec.n_repetitions) * self.spec.n_buckets
        for start in range(0, rows.n_rows, ROWS):
            some = rows.part(start, min(start + ROWS, rows.n_rows))
            for i, p in enumerate(self.outputs(some, logarithms=kind.logarithms), start):
                parts = range(0, self.spec.n_classes, CLASSES)
                found = [kind.join(p[first + self.codes[a : a + CLASSES]]) for a in parts]
                values = np.concatenate(found)
                ids[i] = np.argsort(-values, kind="stable")[: ids.shape[1]]
                scores[i] = values[ids[i]]
