"""Exact top-k of counts beside hashed models for sixteen rows at once.

Where classes are no more than :data:`MAX_CLASSES`, the sums over the repetitions of all of them are
made, sixteen rows to a vector, in the order and so with the bits of one row's.
"""

from __future__ import annotations

import numpy as np

from streammach.counts.kernels import first_bound, insert
from streammach.jit import Array, Number, kernel
from streammach.simd import WIDE_LANES, lanes_reaching, trailing_zeros

MAX_CLASSES = 1 << 15  # totals of sixteen rows stay in the cache; of more, most are left out


@kernel(fastmath=False)
def best_of_tile(
    totals: Array, logs: Array, codes: Array, n_buckets: int, n_repetitions: int, weight: Number,
    by_column: Array, seeds: Array, seed_scores: Array, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Write each row's classes with the largest ``total_i + weight * sum_r ln P_r[h_r(i)]``.

    Parameters
    ----------
    totals : float32 (16, K)
        The rows' totals of counts; those of rows that are not there mean nothing.
    logs : float32 (n, C)
        Logarithms of the bucket probabilities of n <= 16 rows.
    codes : unsigned (K * R,)
        Buckets of the classes, class by class.
    n_buckets, n_repetitions, weight : int, int, float32
        B, R, and the weight of the hashed models over R.
    by_column, seeds, seed_scores : float32 (C * 16,), int64 (m,), float32 (m,), m >= k
        Scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the best, best first, ties to the smaller id.
    """
    n, k = scores.shape
    bounds = np.full(WIDE_LANES, np.float32(np.inf))
    by_column[:] = 0
    for q in range(n):
        for c in range(logs.shape[1]):
            by_column[c * WIDE_LANES + q] = logs[q, c]
        bounds[q] = first_bound(
            totals[q], logs[q], codes, n_buckets, n_repetitions, weight, seeds, seed_scores,
            scores[q], ids[q],
        )  # fmt: skip
    scores[:] = -np.inf
    ids[:] = 0
    block = np.zeros(WIDE_LANES * WIDE_LANES, np.float32)
    for first in range(0, totals.shape[1], WIDE_LANES):
        last = min(first + WIDE_LANES, totals.shape[1])
        for q in range(n):
            for i in range(first, last):
                block[(i - first) * WIDE_LANES + q] = totals[q, i]
        for i in range(first, last):
            start = (i - first) * WIDE_LANES
            lanes = lanes_reaching(
                by_column, codes, i * n_repetitions, n_repetitions, n_buckets, block, start, weight,
                bounds,
            )  # fmt: skip
            while lanes:
                lane = np.int64(trailing_zeros(lanes))
                lanes &= lanes - np.uint64(1)
                if block[start + lane] > scores[lane, k - 1]:
                    insert(scores[lane], ids[lane], block[start + lane], i)
                    bounds[lane] = max(bounds[lane], scores[lane, k - 1])
