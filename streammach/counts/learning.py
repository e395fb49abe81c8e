"""Weights on top of counts, by feature group, by feature and by pair: what scores are made of.

Group weights see each candidate as sums of evidence by group. Feature and pair weights are learnt
from rows that were counted themselves, so each row is scored as if it had not been: its own counts
are taken off its class, and a pair that only it made neither scores nor learns for that class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import CountedPairs, find_places, pair_gains, spread_lists
from streammach.counts.table import CountTable, GroupWeights
from streammach.rows.block import RowBlock
from streammach.rows.pairs import CountWeights, NamePairs, places
from streammach.system.jit import Array, kernel
from streammach.system.threads import Workers, in_pieces

HIDDEN = np.float32(100)  # nats off scores of labels that no row has
WIDE_SHARE = 8  # lists of fewer classes than this part of all are faster as lists


class Evidence(NamedTuple):
    """What the counts say of m candidates of each of n rows."""

    # float32 (C, m): of each row in turn, with the groups that it holds, rising: by group the sum
    # of ln n, by group the number of counted pairs, and the sum of learnt weights
    counted: NDArray[np.float32]
    starts: NDArray[np.int64]  # int64 (n + 1,): where each row begins in them
    groups: NDArray[np.float32]  # float32 (n, G): features of each group that the row holds


def class_logarithms(table: CountTable) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the logarithms of each class's rows and of their values: float32 (K,) each."""
    rows = np.log(np.maximum(table.class_rows, 0.5)).astype(np.float32)
    values = np.log(np.maximum(table.class_values, 0.5)).astype(np.float32)
    return rows, values


def weigh(
    table: CountTable, weights: GroupWeights, workers: Workers | None = None,
    names: NamePairs | None = None,
) -> CountWeights:  # fmt: skip
    """Return what scores are made of; its gains are those of the table, which are written anew.

    With g the group of feature f, ``score_i = prior ln n_i + sum_f [ slope_g ln n_fi + match_g +
    learnt (theta_fi + delta_f) if (f, i) was counted, - penalty_g ln N_i ]``: n_i rows of class i,
    n_fi of them with feature f, N_i features that they hold in all. What names of labels add comes
    on top; without names classes with fewer rows than none, which have nothing else, have 100 less.
    """
    rows, values = class_logarithms(table)
    base = np.float32(weights.prior) * rows - HIDDEN * ((table.class_rows < 0) & (names is None))
    penalty = weights.penalty[weights.group]
    penalty[: table.n_common_features] = 0
    slope, match = weights.slope[weights.group], weights.match[weights.group]

    def piece(first: int, last: int) -> None:
        pair_gains(
            table.starts[first : last + 1], table.counts, slope[first:last], match[first:last],
            np.float32(weights.learnt), weights.theta, weights.delta[first:last], table.gains,
        )  # fmt: skip

    in_pieces(workers, table.n_features, piece, table.starts)
    wide_of, wide = _spread_gains(table, workers)
    found = CountWeights(
        starts=table.starts, classes=table.classes, gains=table.gains, wide_of=wide_of, wide=wide,
        penalty=penalty, base=base.astype(np.float32), log_values=values, hashed=weights.hashed,
    )  # fmt: skip
    return found if names is None else found.with_pairs(names)


def _spread_gains(
    table: CountTable, workers: Workers | None
) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """Return the features whose gains are spread over all classes, and these gains.

    Those with the longest lists, from an eighth of the classes on, in a byte a pair altogether.
    """
    lengths, n_classes = np.diff(table.starts), len(table.class_rows)
    order = np.argsort(-lengths, kind="stable")[: table.n_pairs // (2 * n_classes)]
    features = np.sort(order[lengths[order] >= n_classes / WIDE_SHARE])
    wide = np.empty((len(features), n_classes), np.int16)

    def piece(first: int, last: int) -> None:
        some = slice(first, last)
        spread_lists(features[some], table.starts, table.classes, table.gains, wide[some])

    in_pieces(workers, len(features), piece)
    return places(features, table.n_features), wide


def evidence(
    table: CountTable, rows: RowBlock, candidates: NDArray[np.int32], *, weights: GroupWeights,
    each: Callable[[int, Callable[[int, int], None]], None],
) -> Evidence:  # fmt: skip
    """Return what the counts say of candidates int32 (n, m)."""
    n_rows, m = candidates.shape
    groups = np.zeros((n_rows, weights.n_groups), np.float32)
    own = rows.beyond(table.n_common_features)
    row_of = np.repeat(np.arange(n_rows), np.diff(own.indptr))
    np.add.at(groups, (row_of, weights.group[own.features]), 1)
    starts = np.zeros(n_rows + 1, np.int64)
    np.cumsum(2 * np.count_nonzero(groups, axis=1) + 1, out=starts[1:])
    found = Evidence(np.zeros((starts[-1], m), np.float32), starts, groups)
    longest, pairs = int(np.diff(rows.indptr).max(initial=0)), table.pairs

    def piece(first: int, last: int) -> None:
        slot = np.zeros(len(table.class_rows), np.uint8)
        place = np.empty((longest, m), np.int32)
        column = np.empty(weights.n_groups, np.int64)
        add_evidence(
            rows.indptr, rows.features, candidates, pairs, weights.group, weights.theta,
            weights.delta, first, last, slot, place, column, found,
        )  # fmt: skip

    each(n_rows, piece)
    return found


@kernel()
def add_evidence(
    indptr: Array, features: Array, candidates: Array, pairs: CountedPairs, group: Array,
    theta: Array, delta: Array, first: int, last: int, slot: Array, place: Array, column: Array,
    out: Evidence,
) -> None:  # fmt: skip
    """Add to `out` what the counts say of the candidates of rows ``first:last``.

    Parameters
    ----------
    indptr, features, candidates : int64 (n + 1,), int32 (nnz,), int32 (n, m)
        The rows, and for each different classes, then -1 where there are no more.
    pairs, group : CountedPairs, int32 (d,)
        The table, and the group of each feature.
    theta, delta, first, last : float32 (Z,), (d,), int, int
        Weights of pairs and features, empty where nothing was learnt; which rows.
    slot, place, column : uint8 (K,), int32 (longest row, m), int64 (G,)
        Scratch; `slot` holds zeros before and after.
    out : Evidence
        ``counted`` receives sums of ln n by group, numbers of counted pairs by group, and the sum
        of ``theta + delta_f``; a pair of n < 1 rows is n pairs of one row.
    """
    counts, learnt = pairs.counts, theta.shape[0] > 0
    for i in range(first, last):
        start, n_groups = out.starts[i], (out.starts[i + 1] - out.starts[i]) // 2
        c = start
        for g in range(column.shape[0]):
            if out.groups[i, g] != 0:
                column[g] = c
                c += 1
        row, n = features[indptr[i] : indptr[i + 1]], n_candidates(candidates[i])
        find_places(row, candidates[i], n, pairs, slot, place)
        for j in range(row.shape[0]):
            f = row[j]
            for k in range(n):
                z = pairs.starts[f] + place[j, k]
                if place[j, k] >= 0 and counts[z] > 0:
                    part = min(np.float32(counts[z]), np.float32(1))
                    c = column[group[f]]
                    out.counted[c, k] += np.float32(math.log(max(counts[z], np.float64(1))))
                    out.counted[n_groups + c, k] += part
                    if learnt:
                        out.counted[start + 2 * n_groups, k] += (theta[z] + delta[f]) * part


@kernel(inline=True)
def n_candidates(candidates: Array) -> Any:
    """Return how many classes stand before the first -1."""
    n = np.int64(0)  # no literal, for which what is called would be compiled once more
    while n < candidates.shape[0] and candidates[n] >= 0:
        n += 1
    return n
