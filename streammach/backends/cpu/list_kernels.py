"""Residuals of rows with lists of labels on the CPU: of a softmax, and of a sigmoid a bucket."""

from __future__ import annotations

import math

import numpy as np

from streammach.backends.cpu.kernels import exponentials
from streammach.backends.rowmath import log_sigmoid, residual, sigmoid
from streammach.jit import Array, Number, kernel


@kernel()
def list_residuals(
    codes: Array,
    starts: Array,
    classes: Array,
    shares: Array,
    importance: Array,
    smoothing: Number,
    first: int,
    last: int,
    n_buckets: int,
    n_repetitions: int,
    z: Array,
    losses: Array,
    norms: Array,
) -> None:
    """Turn logits into residuals, where the target of a row is a distribution over its labels.

    It is :func:`streammach.backends.cpu.kernels.residuals` for several labels. A row's loss is the
    sum of the cross-entropies of its labels times their shares.

    Parameters
    ----------
    codes : unsigned (K, R)
        Bucket of each class in each model.
    starts, classes, shares : int64 (n + 1,), int32 (m,), float32 (m,)
        The labels of each row, and what each has of the target.
    importance, smoothing, first, last, n_buckets, n_repetitions : float32 (n,) and numbers
        Those of ``residuals``.
    z, losses, norms : float32 (n, C), float32 (n, R), float32 (n, R)
        Those of ``residuals``.
    """
    for i in range(first, last):
        whole = np.float32(0)
        for p in range(starts[i], starts[i + 1]):
            whole += shares[p]
        for r in range(n_repetitions):
            v, own = z[i, r * n_buckets : (r + 1) * n_buckets], np.float32(0)
            for p in range(starts[i], starts[i + 1]):
                own += shares[p] * v[np.int64(codes[classes[p], r])]
            top, total = exponentials(v)
            log_total = np.float32(math.log(total)) + top
            losses[i, r] = importance[i] * (whole * log_total - own)
            inverse, square = np.float32(1) / total, np.float32(0)
            scale = importance[i] * whole
            for c in range(n_buckets):
                v[c] = scale * residual(v[c] * inverse, False, smoothing, n_buckets)
            for p in range(starts[i], starts[i + 1]):
                t = np.int64(codes[classes[p], r])
                v[t] -= importance[i] * shares[p] * (np.float32(1) - smoothing)
            for c in range(n_buckets):
                square += v[c] * v[c]
            norms[i, r] = square


@kernel()
def logistic_residuals(
    codes: Array,
    starts: Array,
    classes: Array,
    shares: Array,
    importance: Array,
    smoothing: Number,
    first: int,
    last: int,
    n_buckets: int,
    n_repetitions: int,
    z: Array,
    losses: Array,
    norms: Array,
) -> None:
    """Do as :func:`list_residuals` where each bucket has a sigmoid of its own.

    A bucket's target is the sum of the shares of the row's labels in it, at most 1; `smoothing` of
    it is spread over all buckets. Its loss is the binary cross-entropy.

    Parameters
    ----------
    codes, starts, classes, shares : unsigned (K, R), int64 (n + 1,), int32 (m,), float32 (m,)
        Those of :func:`list_residuals`.
    importance, smoothing, first, last, n_buckets, n_repetitions : float32 (n,) and numbers
        Those of ``residuals``.
    z, losses, norms : float32 (n, C), float32 (n, R), float32 (n, R)
        Those of ``residuals``.
    """
    target = np.zeros(n_buckets, np.float32)
    one = np.float32(1)
    for i in range(first, last):
        whole = np.float32(0)
        for p in range(starts[i], starts[i + 1]):
            whole += shares[p]
        spread = smoothing * min(whole / np.float32(n_buckets), one)
        for r in range(n_repetitions):
            v = z[i, r * n_buckets : (r + 1) * n_buckets]
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
            losses[i, r], norms[i, r] = importance[i] * loss, square
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
