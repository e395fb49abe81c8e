"""Scores rows by linear classifiers, of sparse rows or of mapped dense ones."""

from __future__ import annotations

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.linear.kernel_map import KernelWeights
from streammach.linear.weights import LinearScorer, LinearWeights
from streammach.rows.block import RowBlock
from streammach.rows.dense import expand_rows

Linear = LinearWeights | KernelWeights


class KernelScorer:
    """Scores dense rows, on this thread: their sums have the same bits for any number of others."""

    def __init__(self, weights: KernelWeights) -> None:
        self._weights = weights

    def scores(self, rows: RowBlock) -> NDArray[np.float32]:
        """Return the scores of all classes: float32 (n, K)."""
        x = expand_rows(rows, len(self._weights.map.knots))
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            return self._weights.scores(x)

    def close(self) -> None:
        """Do nothing: no thread waits."""


Scorer = LinearScorer | KernelScorer


def open_scorer(linear: Linear, threads: int) -> Scorer:
    """Return what scores rows by classifiers."""
    if isinstance(linear, KernelWeights):
        return KernelScorer(linear)
    return LinearScorer(linear, threads)
