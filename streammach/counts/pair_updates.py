"""What a batch of counted rows teaches: how each is compared with its rivals, and the steps.

A row is scored as if it had not been counted: its own counts are taken off its classes, and a pair
that only it made neither scores nor learns for them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streammach.counts.bounded import BoundRoom
from streammach.counts.count_kernels import NOWHERE, CountedPairs, find_pair, find_places, pair_gain
from streammach.rows.arrays import offer
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import take_turn, wait_for

SOME_ROWS = 64  # whose candidates are found at once
FAR = np.float32(8)  # nats below the best class: what is there is no candidate
TURN_ROWS = 8  # that are compared in a turn
# Places of a batch's counts of turns, each in a cache line of its own: of rows that were begun, of
# rows that are done, and the same of parts of the features.
ROWS, DONE, PARTS, LEARNT, TURNS = 0, 8, 16, 24, 32


class RowLists(NamedTuple):
    """Rows as kernels learn from them."""

    indptr: Array  # int64 (n + 1,)
    features: Array  # int32 (nnz,)
    weights: Array  # float32 (n,): what each counts
    label_starts: Array  # int64 (n + 1,)
    labels: Array  # int32 (l,): the classes of each


class LearntScores(NamedTuple):
    """What scores are made of while weights of pairs are learnt."""

    pairs: CountedPairs
    penalty: Array  # float32 (d,): by group
    slope: Array  # slope, match: float32 (d,), and float32: the weights that made the gains
    match: Array
    prior: Any
    theta: Array  # theta, delta: float32 (Z,), (d,): what was learnt so far
    delta: Array


class PairSteps(NamedTuple):
    """What is learnt, and how."""

    starts: Array  # int64 (d + 1,): the table's
    theta: Array  # theta, theta_sum: float32 (Z,): weights, and sums of their squared gradients
    theta_sum: Array
    delta: Array  # delta, delta_sum: float32 (d,)
    delta_sum: Array
    pair_rate: Number  # float32
    feature_rate: Number
    parts: int  # of the features: a thread takes the steps of one


class PairUpdateScratch(NamedTuple):
    """A thread's scratch."""

    bound: BoundRoom
    slot: Array  # uint8 (K,), zeros before and after
    tops: Array  # float32 (SOME_ROWS, m)
    best: Array  # int64 (SOME_ROWS, m)


@kernel(fastmath=False)
def propose_rows(
    rows: RowLists, first: int, last: int, scores: LearntScores, tops: Array, best: Array,
    rivals: Array, residuals: Array, sizes: Array,
) -> None:  # fmt: skip
    """Find the candidates of rows ``first:last``, each row left out: nothing learnt is read.

    They are the m best classes by weights by group that are not FAR below the best one.

    Parameters
    ----------
    rows, first, last : RowLists, int, int
        The rows; which of them.
    scores : LearntScores
        What scores are made of.
    tops, best : float32 (l, m), int64 (l, m)
        At ``i % l``, the best of the classes that are not the row's own.
    rivals : int32 (n, m)
        Receives the candidates, the row's own classes first; the rest is not written.
    residuals : float32 (n, m)
        Receives their scores by weights by group, then zeros; zeros for a row that teaches nothing,
        one whose classes are no candidates.
    sizes : int64 (n, 2)
        Receives how many candidates are the row's own, and how many there are.
    """
    for i in range(first, last):
        residuals[i], sizes[i] = 0, 0
        row, weight = rows.features[rows.indptr[i] : rows.indptr[i + 1]], rows.weights[i]
        own = rows.labels[rows.label_starts[i] : rows.label_starts[i + 1]]
        if own.shape[0] == 0:
            continue
        top, ids = tops[i % tops.shape[0]], best[i % tops.shape[0]]
        for c in own:
            score = score_without(row, weight, c, scores)
            offer(score, c, top, ids)
        sizes[i, 0], sizes[i, 1] = own_first(top, ids, own, residuals[i], rivals[i])
        if sizes[i, 0] == 0:
            residuals[i] = 0


@kernel(fastmath=False)
def place_rows(
    rows: RowLists, first: int, last: int, pairs: CountedPairs, slot: Array, rivals: Array,
    sizes: Array, place: Array,
) -> None:  # fmt: skip
    """Find where the pairs of rows ``first:last`` and of their candidates lie.

    Parameters
    ----------
    rows, first, last, pairs, slot : RowLists, int, int, CountedPairs, uint8 (K,)
        The rows; which of them; the table; scratch, zeros before and after.
    rivals, sizes : int32 (n, m), int64 (n, 2)
        What :func:`propose_rows` found.
    place : int32 (nnz, m)
        Receives the number of each pair within its feature's list; -1 where it is not counted.
    """
    for i in range(first, last):
        if sizes[i, 0] > 0:
            a, b = rows.indptr[i], rows.indptr[i + 1]
            find_places(rows.features[a:b], rivals[i], sizes[i, 1], pairs, slot, place[a:b])


@kernel()
def share_updates(
    edges: Array, rows: RowLists, scores: LearntScores, place: Array, residuals: Array,
    sizes: Array, steps: PairSteps, turns: Array,
) -> None:  # fmt: skip
    """Do a thread's share of lessons: a batch's rows, its features' steps, then the next batch.

    Parameters
    ----------
    edges : int64 (batches + 1,)
        The batches' first rows, and the end of the last one.
    rows, scores, place, residuals, sizes : RowLists, LearntScores, arrays
        See :func:`compare_rows`.
    steps, turns : PairSteps, int64 (batches * TURNS,)
        What takes steps; zeros before the first thread comes.
    """
    for batch in range(edges.shape[0] - 1):
        a, b, at = edges[batch], edges[batch + 1], TURNS * batch
        first = a + take_turn(turns, at + ROWS) * TURN_ROWS
        while first < b:
            last = min(first + TURN_ROWS, b)
            compare_rows(rows, first, last, scores, place, residuals, sizes)
            take_turn(turns, at + DONE)
            first = a + take_turn(turns, at + ROWS) * TURN_ROWS
        wait_for(turns, at + DONE, -(-(b - a) // TURN_ROWS))
        part = take_turn(turns, at + PARTS)
        while part < steps.parts:
            learn_rows(rows.indptr[a : b + 1], rows.features, place, residuals[a:b], steps, part)
            take_turn(turns, at + LEARNT)
            part = take_turn(turns, at + PARTS)
        wait_for(turns, at + LEARNT, steps.parts)


@kernel(fastmath=False, inner=True)
def compare_rows(
    rows: RowLists, first: int, last: int, scores: LearntScores, place: Array, residuals: Array,
    sizes: Array,
) -> None:  # fmt: skip
    """Write ``w (p - target)`` over the candidates of rows ``first:last``, each row left out.

    A row counts w; its class, the first candidate, is the target.

    Parameters
    ----------
    rows, first, last, scores : RowLists, int, int, LearntScores
        As of :func:`propose_rows`.
    place, residuals, sizes : int32 (nnz, m), float32 (n, m), int64 (n, 2)
        What that and :func:`place_rows` found; `residuals` receives the result.
    """
    for i in range(first, last):
        if sizes[i, 0] > 0:
            a, b, weight = rows.indptr[i], rows.indptr[i + 1], rows.weights[i]
            s = residuals[i, : sizes[i, 1]]
            add_learnt_weights(rows.features[a:b], weight, place[a:b], scores, s)
            set_residuals(s, weight)


@kernel(fastmath=False, inner=True)
def score_without(row: Array, weight: Number, c: int, scores: LearntScores) -> Any:
    """Return the score of a class for a row that is left out; -inf where it has no other row."""
    pairs = scores.pairs
    if pairs.class_rows[c] <= weight:
        return np.float32(-np.inf)
    rest, gained = np.float32(0), np.float32(0)
    for f in row:
        rest += scores.penalty[f]
        z = find_pair(pairs, f, c)
        if z != NOWHERE and pairs.counts[z] > weight:
            gained += pair_gain(pairs.counts[z] - weight, scores.slope[f], scores.match[f])
    alike = np.float32(math.log(max(pairs.class_rows[c] - weight, 0.5)))
    values = max(pairs.class_values[c] - weight * row.shape[0], 0.5)
    return gained + scores.prior * alike - rest * np.float32(math.log(values))


@kernel(inline=True)
def own_first(tops: Array, best: Array, own: Array, s: Array, rivals: Array) -> Any:
    """Write candidates and their scores, the row's own classes first; return how many each are."""
    n, n_own, least = np.int64(0), np.int64(0), tops[0] - FAR  # no literals: see n_candidates
    for wanted in (True, False):
        for j in range(best.shape[0]):
            if tops[j] >= least and is_one(best[j], own) == wanted:
                rivals[n], s[n] = best[j], tops[j]
                n, n_own = n + 1, n_own + wanted
    return n_own, n


@kernel(inline=True)
def is_one(c: int, own: Array) -> Any:
    """Return whether a class is one of some."""
    found = False
    for one in own:
        found = found | (c == one)
    return found


@kernel(inline=True)
def add_learnt_weights(
    row: Array, weight: Number, found: Array, scores: LearntScores, s: Array
) -> None:
    """Add what was learnt of candidates to their scores; pairs without other rows become -1."""
    counts = scores.pairs.counts
    for j in range(row.shape[0]):
        first, delta = scores.pairs.starts[row[j]], scores.delta[row[j]]
        for k in range(s.shape[0]):
            if found[j, k] >= 0:
                z = first + found[j, k]
                others = counts[z] - weight if k == 0 else np.float32(counts[z])
                if others > 0:
                    s[k] += (scores.theta[z] + delta) * min(np.float32(others), np.float32(1))
                else:
                    found[j, k] = -1


@kernel(inline=True)
def set_residuals(s: Array, weight: Number) -> None:
    """Turn scores into ``w (p - target)`` in place; the first is the target."""
    high, total = s[0], np.float32(0)
    for k in range(1, s.shape[0]):
        high = max(high, s[k])
    for k in range(s.shape[0]):
        s[k] = math.exp(s[k] - high)
        total += s[k]
    for k in range(s.shape[0]):
        s[k] = s[k] / total
    s[0] -= np.float32(1)
    for k in range(s.shape[0]):
        s[k] *= weight


@kernel(inline=True, inner=True)
def learn_rows(
    indptr: Array, features: Array, place: Array, residuals: Array, steps: PairSteps, part: int
) -> None:
    """Take one Adagrad step a row for the weights of pairs and features, row after row.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    place, residuals : int32 (nnz, m), float32 (n, m)
        Those of :func:`compare_rows`.
    steps, part : PairSteps, int
        The features f with ``f % parts == part`` take their steps.
    """
    theta, theta_sum, delta, delta_sum = steps.theta, steps.theta_sum, steps.delta, steps.delta_sum
    for i in range(residuals.shape[0]):
        if residuals[i, 0] == 0:
            continue
        n = residuals.shape[1]
        while residuals[i, n - 1] == 0:
            n -= 1
        for p in range(indptr[i], indptr[i + 1]):
            f = features[p]
            if f % steps.parts != part:
                continue
            g = np.float32(0)
            for k in range(n):
                if place[p, k] >= 0:
                    z, r = steps.starts[f] + place[p, k], residuals[i, k]
                    g += r
                    theta_sum[z] += r * r
                    theta[z] -= steps.pair_rate * r / math.sqrt(theta_sum[z])
            delta_sum[f] += g * g
            delta[f] -= steps.feature_rate * g / math.sqrt(delta_sum[f])
