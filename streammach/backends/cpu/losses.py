"""Losses on the CPU beside a softmax of one label a row: of lists of labels, and the joint loss.

The joint loss is what each repetition learns from the classes that all of them rank highest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streammach.backends.cpu.kernels import RowLosses, RowTargets, exponentials
from streammach.backends.rowmath import exp, log_sigmoid, residual, sigmoid
from streammach.system.jit import Array, kernel


class TargetLists(NamedTuple):
    """The labels of each row, and what each has of the target."""

    starts: Array  # int64 (n + 1,)
    classes: Array  # int32 (m,)
    shares: Array  # float32 (m,)


class RankedClasses(NamedTuple):
    """The best classes of each row, and the sums of their logarithms."""

    ids: Array  # int64 (n, k)
    scores: Array  # float32 (n, k)


@kernel()
def list_residuals(
    lists: TargetLists, targets: RowTargets, out: RowLosses, first: int, last: int
) -> None:
    """Turn logits into residuals, where the target of a row is a distribution over its labels.

    It is :func:`streammach.backends.cpu.kernels.residuals` for several labels. A row's loss is the
    sum of the cross-entropies of its labels times their shares.

    Parameters
    ----------
    lists, targets, out, first, last : TargetLists, RowTargets, RowLosses, int, int
        The labels and targets of rows, their logits, and which of them.
    """
    starts, classes, shares = lists.starts, lists.classes, lists.shares
    codes, importance, smoothing, n_buckets = targets
    for i in range(first, last):
        whole = np.float32(0)
        for p in range(starts[i], starts[i + 1]):
            whole += shares[p]
        for r in range(codes.shape[1]):
            v, own = out.z[i, r * n_buckets : (r + 1) * n_buckets], np.float32(0)
            for p in range(starts[i], starts[i + 1]):
                own += shares[p] * v[np.int64(codes[classes[p], r])]
            top, total = exponentials(v)
            log_total = np.float32(math.log(total)) + top
            out.losses[i, r] = importance[i] * (whole * log_total - own)
            inverse, square = np.float32(1) / total, np.float32(0)
            scale = importance[i] * whole
            for c in range(n_buckets):
                v[c] = scale * residual(v[c] * inverse, False, smoothing, n_buckets)
            for p in range(starts[i], starts[i + 1]):
                t = np.int64(codes[classes[p], r])
                v[t] -= importance[i] * shares[p] * (np.float32(1) - smoothing)
            for c in range(n_buckets):
                square += v[c] * v[c]
            out.norms[i, r] = square


@kernel(allocates=True)
def logistic_residuals(
    lists: TargetLists, targets: RowTargets, out: RowLosses, first: int, last: int
) -> None:
    """Do as :func:`list_residuals` where each bucket has a sigmoid of its own.

    A bucket's target is the sum of the shares of the row's labels in it, at most 1; `smoothing` of
    it is spread over all buckets. Its loss is the binary cross-entropy.

    Parameters
    ----------
    lists, targets, out, first, last : TargetLists, RowTargets, RowLosses, int, int
        Those of :func:`list_residuals`.
    """
    starts, classes, shares = lists.starts, lists.classes, lists.shares
    codes, importance, smoothing, n_buckets = targets
    target = np.zeros(n_buckets, np.float32)
    one = np.float32(1)
    for i in range(first, last):
        whole = np.float32(0)
        for p in range(starts[i], starts[i + 1]):
            whole += shares[p]
        spread = smoothing * min(whole / np.float32(n_buckets), one)
        for r in range(codes.shape[1]):
            v = out.z[i, r * n_buckets : (r + 1) * n_buckets]
            for p in range(starts[i], starts[i + 1]):
                t = np.int64(codes[classes[p], r])
                target[t] = min(target[t] + shares[p], one)
            loss, square = np.float32(0), np.float32(0)
            for c in range(n_buckets):
                x, wanted = v[c], (one - smoothing) * target[c] + spread
                loss += -log_sigmoid(x) + (one - wanted) * x
                g = importance[i] * (sigmoid(x) - wanted)
                v[c] = g
                square += g * g
            out.losses[i, r], out.norms[i, r] = importance[i] * loss, square
            for p in range(starts[i], starts[i + 1]):
                target[np.int64(codes[classes[p], r])] = 0


@kernel()
def sigmoids(first: int, last: int, logarithms: bool, z: Array) -> None:
    """Turn logits into the sigmoid of each or its logarithm, in place: `z` float32 (n, C)."""
    for i in range(first, last):
        row = z[i]
        if logarithms:
            for c in range(row.shape[0]):
                row[c] = log_sigmoid(row[c])
        else:
            for c in range(row.shape[0]):
                row[c] = sigmoid(row[c])


@kernel(allocates=True)
def joint_residuals(
    labels: Array, best: RankedClasses, targets: RowTargets, out: RowLosses
) -> None:
    """Turn logarithms of bucket probabilities into residuals of the joint loss, in place.

    With the classes that rank highest and the row's own as C, ``s_i = (1/R) sum_r ln P_r[h_r(i)]``
    and p their softmax over C, the loss of a row is ``-R ln p_y``. Its derivative by a logit of
    repetition r and bucket b is the sum of ``p_i - t_i`` over the classes of C in that bucket; what
    the bucket softmax adds cancels, since these sum to 0.

    Parameters
    ----------
    labels, best, targets : int32 (n,), RankedClasses, RowTargets
        The rows' own classes and the best; `smoothing` is the share of the target t that is spread
        evenly over C.
    out : RowLosses
        Logarithms instead of logits; the loss of every repetition is ``-ln p_y``.
    """
    codes, importance, smoothing, n_buckets = targets
    ids, scores, z = best.ids, best.scores, out.z
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
        out.losses[i, :] = scale * (np.float32(math.log(total)) - (right - top))
        row[:] = 0
        for c in range(count):
            g = scale * residual(p[c] / total, c == own, smoothing, count)
            for r in range(n_repetitions):
                row[r * n_buckets + np.int64(codes[classes[c], r])] += g
        for r in range(n_repetitions):
            square = np.float32(0)
            for c in range(r * n_buckets, (r + 1) * n_buckets):
                square += row[c] * row[c]
            out.norms[i, r] = square


@kernel(allocates=True)
def joint_list_residuals(
    lists: TargetLists, best: RankedClasses, targets: RowTargets, rest: Array, out: RowLosses
) -> None:
    """Do as :func:`joint_residuals` for rows with several labels, which are all in C.

    A row's loss is the sum of those of its labels times their shares, whose sum is W; the
    derivative is the sum of ``W p_i - t_i``. Each label is in C, since these sum to 0 only then.

    Parameters
    ----------
    lists, best, targets : TargetLists, RankedClasses, RowTargets
        The labels of rows, and what :func:`joint_residuals` takes.
    rest, out : float32 (m,), RowLosses
        Room for each label: its part of the softmax, below 0 where it is among the best.
    """
    starts, labels, shares = lists.starts, lists.classes, lists.shares
    codes, importance, smoothing, n_buckets = targets
    ids, scores, z = best.ids, best.scores, out.z
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
        out.losses[i, :] = scale * (whole * np.float32(math.log(total)) - right)
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
            out.norms[i, r] = square
