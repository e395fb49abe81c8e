"""Compiled loops that learn weights on top of counts.

Group weights see each candidate as sums of evidence by group. Feature and pair weights are learnt
from rows that were counted themselves, so each row is scored as if it had not been: its own counts
are taken off its class, and a pair that only it made neither scores nor learns for that class.
"""

from __future__ import annotations

import math

import numpy as np

from streammach.counts.kernels import pair_gain
from streammach.counts.places import find_places
from streammach.jit import Array, Number, kernel


@kernel()
def add_evidence(
    indptr: Array, features: Array, candidates: Array, starts: Array, classes: Array,
    counts: Array, mark_of: Array, marks: Array, group: Array, theta: Array, delta: Array,
    first: int, last: int, slot: Array, place: Array, out: Array,
) -> None:  # fmt: skip
    """Add to `out` what the counts say of the candidates of rows ``first:last``.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    candidates : int32 (n, m)
        Different classes, then -1 where there are no more.
    starts, classes, counts : int64 (d + 1,), int32 (Z,), int32 or float32 (Z,)
        The table.
    mark_of, marks : int64 (d,), uint32 (w, 2)
        Its :class:`PairPlaces`.
    group : int32 (d,)
        Group of each feature.
    theta, delta : float32 (Z,), (d,)
        Weights of pairs and features; empty where nothing was learnt.
    first, last : int
        Which rows.
    slot, place : uint8 (K,), int32 (longest row, m)
        Scratch; `slot` holds zeros before and after.
    out : float32 (n, m, 2 G + 1)
        Sums of ln n by group, numbers of counted pairs by group, and the sum of
        ``theta + delta_f``; a pair of n < 1 rows is n pairs of one row.
    """
    n_groups = out.shape[2] // 2
    learnt = theta.shape[0] > 0
    for i in range(first, last):
        row, n = features[indptr[i] : indptr[i + 1]], n_candidates(candidates[i])
        find_places(row, candidates[i], n, starts, classes, mark_of, marks, slot, place)
        for j in range(row.shape[0]):
            f = row[j]
            for k in range(n):
                z = starts[f] + place[j, k]
                if place[j, k] >= 0 and counts[z] > 0:
                    part = min(np.float32(counts[z]), np.float32(1))
                    out[i, k, group[f]] += np.float32(math.log(max(counts[z], np.float64(1))))
                    out[i, k, n_groups + group[f]] += part
                    if learnt:
                        out[i, k, 2 * n_groups] += (theta[z] + delta[f]) * part


@kernel(inline=True)
def n_candidates(candidates: Array) -> int:
    """Return how many classes stand before the first -1."""
    n = 0
    while n < candidates.shape[0] and candidates[n] >= 0:
        n += 1
    return n


@kernel(fastmath=False)
def compare_rows(
    indptr: Array, features: Array, weights: Array, candidates: Array, first: int, last: int,
    starts: Array, classes: Array, counts: Array, gains: Array, mark_of: Array, marks: Array,
    penalty: Array, base: Array, log_values: Array, slope: Array, match: Array, prior: Number,
    class_rows: Array, class_values: Array, theta: Array, delta: Array, step: Number, slot: Array,
    n_own: Array, place: Array, residuals: Array,
) -> None:  # fmt: skip
    """Write ``w (n p - target)`` over the candidates of rows ``first:last``, each row left out.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    weights : float32 (n,)
        What each counts, w.
    candidates : int32 (n, m)
        The row's classes, then other ones, then -1; -1 alone for a row that teaches nothing.
    first, last : int
        Which rows.
    starts, classes, counts : int64 (d + 1,), int32 (Z,), int32 or float32 (Z,)
        The table.
    gains : int16 (Z,)
        What each pair adds.
    mark_of, marks : int64 (d,), uint32 (w, 2)
        The :class:`PairPlaces` of the table.
    penalty, base, log_values : float32 (d,), float32 (K,), float32 (K,)
        Those of :class:`CountWeights`.
    slope, match, prior : float32 (d,), float32 (d,), float32
        The weights that made the gains.
    class_rows, class_values : int64 or float64 (K,)
        Rows of each class, and the features that they hold.
    theta, delta : float32 (Z,), (d,)
        What was learnt so far.
    step : float32
        A unit of gains in nats.
    slot : uint8 (K,)
        Scratch; zeros before and after.
    n_own : int32 (n,)
        How many of the candidates are the row's own, n; the target of each is 1.
    place : int32 (nnz, m)
        Receives the number of each pair within its feature's list; -1 where it is not counted.
    residuals : float32 (n, m)
        Receives the result, zeros for a row that teaches nothing.
    """
    s = np.empty(candidates.shape[1], np.float32)
    units, gained = np.empty(candidates.shape[1], np.int32), np.empty_like(s)
    for i in range(first, last):
        residuals[i] = 0
        n, true = n_candidates(candidates[i]), n_own[i]
        if n == 0:
            continue
        row, weight = features[indptr[i] : indptr[i + 1]], weights[i]
        found = place[indptr[i] : indptr[i + 1]]
        find_places(row, candidates[i], n, starts, classes, mark_of, marks, slot, found)
        s[:], units[:], gained[:] = 0, 0, 0
        rest = np.float32(0)
        for j in range(row.shape[0]):
            f = row[j]
            rest += penalty[f]
            for k in range(n):
                z = starts[f] + found[j, k]
                if found[j, k] < 0:
                    continue
                others = counts[z] - weight if k < true else counts[z]
                if others <= 0 if k < true else gains[z] == 0:
                    found[j, k] = -1
                    continue
                s[k] += (theta[z] + delta[f]) * min(np.float32(others), np.float32(1))
                if k < true:
                    gained[k] += pair_gain(others, slope[f], match[f])
                else:
                    units[k] += gains[z]
        for k in range(true):
            c = candidates[i, k]
            values = np.float32(math.log(max(class_values[c] - weight * row.shape[0], 0.5)))
            rows = np.float32(math.log(max(class_rows[c] - weight, 0.5)))
            s[k] += gained[k] + prior * rows - rest * values
        for k in range(true, n):
            c = candidates[i, k]
            s[k] += base[c] - rest * log_values[c] + units[k] * step
        set_residuals(s[:n], true)
        residuals[i, :n] = s[:n] * weight


@kernel()
def learn_rows(
    indptr: Array, features: Array, starts: Array, place: Array, residuals: Array, theta: Array,
    theta_sum: Array, delta: Array, delta_sum: Array, pair_rate: Number, feature_rate: Number,
    part: int, parts: int,
) -> None:  # fmt: skip
    """Take one Adagrad step a row for the weights of pairs and features, row after row.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    starts : int64 (d + 1,)
        The table's.
    place, residuals : int32 (nnz, m), float32 (n, m)
        Those of :func:`compare_rows`.
    theta, theta_sum, delta, delta_sum : float32 (Z,), (Z,), (d,), (d,)
        The weights, and the sums of their squared gradients.
    pair_rate, feature_rate : float32
        The rates.
    part, parts : int
        The features f with ``f % parts == part`` take their steps.
    """
    for i in range(residuals.shape[0]):
        if residuals[i, 0] == 0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            f = features[p]
            if f % parts != part:
                continue
            g = np.float32(0)
            for k in range(residuals.shape[1]):
                if place[p, k] >= 0:
                    z, r = starts[f] + place[p, k], residuals[i, k]
                    g += r
                    theta_sum[z] += r * r
                    theta[z] -= pair_rate * r / math.sqrt(theta_sum[z])
            delta_sum[f] += g * g
            delta[f] -= feature_rate * g / math.sqrt(delta_sum[f])


@kernel(inline=True)
def set_residuals(s: Array, true: int) -> None:
    """Turn scores into ``true p - target`` in place; the target of the first `true` ones is 1."""
    high, total = s.max(), np.float32(0)
    for k in range(s.shape[0]):
        s[k] = math.exp(s[k] - high)
        total += s[k]
    for k in range(s.shape[0]):
        s[k] = s[k] / total * np.float32(true)
    for k in range(true):
        s[k] -= np.float32(1)
