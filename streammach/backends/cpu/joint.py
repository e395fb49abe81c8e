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


@kernel()
def joint_list_residuals(
    codes: Array,
    starts: Array,
    labels: Array,
    shares: Array,
    importance: Array,
    ids: Array,
    scores: Array,
    smoothing: Number,
    n_buckets: int,
    rest: Array,
    z: Array,
    losses: Array,
    norms: Array,
) -> None:
    """Do as :func:`joint_residuals` for rows with several labels, all of which are in C.

    A row's loss is the sum of those of its labels times their shares, whose sum is W; the
    derivative is the sum of ``W p_i - t_i``. Each label is in C, since these sum to 0 only then.

    Parameters
    ----------
    codes : unsigned (K, R)
        Bucket of each class in each repetition.
    starts, labels, shares : int64 (n + 1,), int32 (m,), float32 (m,)
        The labels of each row, and what each has of the target.
    importance, ids, scores, smoothing, n_buckets : arrays and numbers
        Those of :func:`joint_residuals`.
    rest : float32 (m,)
        Room for each label: its part of the softmax, below 0 where it is among the best.
    z, losses, norms : float32 (n, R * B), float32 (n, R), float32 (n, R)
        Those of :func:`joint_residuals`.
    """
    n_repetitions, n_best = codes.shape[1], ids.shape[1]
    share, keep = np.float32(1) / np.float32(n_repetitions), np.float32(1) - smoothing
    p, target = np.empty(n_best, np.float32), np.empty(n_best, np.float32)
    for i in range(importance.shape[0]):
        row, scale, top = z[i], importance[i], scores[i, 0] * share
        count, whole, total, right = n_best, np.float32(0), np.float32(0), np.float32(0)
        for c in range(n_best):
            p[c], target[c] = exp(scores[i, c] * share - top), 0
            total += p[c]
        for j in range(starts[i], starts[i + 1]):
            own, score = -1, np.float32(0)
            for c in range(n_best):
                if ids[i, c] == labels[j]:
                    own, score = c, scores[i, c] * share
            if own >= 0:
                target[own], rest[j] = shares[j], -1
            else:
                for r in range(n_repetitions):
                    score += row[r * n_buckets + np.int64(codes[labels[j], r])]
                score = min(score * share, top)
                rest[j] = exp(score - top)
                total += rest[j]
                count += 1
            whole += shares[j]
            right += shares[j] * (score - top)
        losses[i, :] = scale * (whole * np.float32(math.log(total)) - right)
        row[:] = 0
        for c in range(n_best):
            g = whole * residual(p[c] / total, False, smoothing, count) - keep * target[c]
            for r in range(n_repetitions):
                row[r * n_buckets + np.int64(codes[ids[i, c], r])] += scale * g
        for j in range(starts[i], starts[i + 1]):
            if rest[j] < 0:
                continue
            g = whole * residual(rest[j] / total, False, smoothing, count) - keep * shares[j]
            for r in range(n_repetitions):
                row[r * n_buckets + np.int64(codes[labels[j], r])] += scale * g
        for r in range(n_repetitions):
            square = np.float32(0)
            for c in range(r * n_buckets, (r + 1) * n_buckets):
                square += row[c] * row[c]
            norms[i, r] = square
