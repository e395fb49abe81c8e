"""The joint loss on the CPU: what each repetition learns from the classes that all rank highest."""

from __future__ import annotations

import math

import numpy as np

from streammach.backends.rowmath import exp, residual
from streammach.jit import Array, Number, kernel


@kernel()
def joint_residuals(
    codes: Array,
    labels: Array,
    importance: Array,
    ids: Array,
    scores: Array,
    smoothing: Number,
    n_buckets: int,
    z: Array,
    losses: Array,
    norms: Array,
) -> None:
    """Turn logarithms of bucket probabilities into residuals of the joint loss, in place.

    With the classes that rank highest and the row's own as C, ``s_i = (1/R) sum_r ln P_r[h_r(i)]``
    and p their softmax over C, the loss of a row is ``-R ln p_y``. Its derivative by a logit of
    repetition r and bucket b is the sum of ``p_i - t_i`` over the classes of C in that bucket; what
    the bucket softmax adds cancels, since these sum to 0.

    Parameters
    ----------
    codes : unsigned (K, R)
        Bucket of each class in each repetition.
    labels, importance : int32 (n,), float32 (n,)
        Classes and weights of the rows.
    ids, scores : int64 (n, k), float32 (n, k)
        The best classes of each row, and the sums of their logarithms.
    smoothing : float32
        Share of the target t that is spread evenly over C.
    n_buckets : int
        B.
    z : float32 (n, R * B)
        Logarithms of probabilities; receives the derivative of each row's loss times its weight.
    losses, norms : float32 (n, R)
        Receive ``-ln p_y`` times the weight, for every repetition, and the sum of squares of z's B
        columns.
    """
    n_repetitions, n_best = codes.shape[1], ids.shape[1]
    share = np.float32(1) / np.float32(n_repetitions)
    p, classes = np.empty(n_best + 1, np.float32), np.empty(n_best + 1, np.int64)
    for i in range(labels.shape[0]):
        row, scale = z[i], importance[i]
        own, count = n_best, n_best
        for c in range(n_best):
            classes[c], p[c] = ids[i, c], scores[i, c] * share
            if ids[i, c] == labels[i]:
                own = c
        if own == n_best:
            count, total = n_best + 1, np.float32(0)
            for r in range(n_repetitions):
                total += row[r * n_buckets + np.int64(codes[labels[i], r])]
            classes[own], p[own] = labels[i], total * share
        top, total, right = p[0], np.float32(0), p[own]  # the own class is never above the best
        for c in range(count):
            p[c] = exp(p[c] - top)
            total += p[c]
        losses[i, :] = scale * (np.float32(math.log(total)) - (right - top))
        row[:] = 0
        for c in range(count):
            g = scale * residual(p[c] / total, c == own, smoothing, count)
            for r in range(n_repetitions):
                row[r * n_buckets + np.int64(codes[classes[c], r])] += g
        for r in range(n_repetitions):
            square = np.float32(0)
            for c in range(r * n_buckets, (r + 1) * n_buckets):
                square += row[c] * row[c]
            norms[i, r] = square
