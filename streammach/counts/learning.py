"""Weights learnt on top of counts: by feature group, by feature, by pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.counts import kernels, learning_kernels
from streammach.counts.scores import CountScorer, CountWeights
from streammach.counts.table import CountTable
from streammach.rows.block import RowBlock

CANDIDATES = 40  # classes that a row learns from
PAIR_RATE, FEATURE_RATE = np.float32(0.03), np.float32(0.05)
PAIR_PRIOR, FEATURE_PRIOR = 0.1, 1.0  # sums of squares before the first step
WIDE_SHARE = 8  # lists of fewer classes than this part of all are faster as lists
Found = tuple[NDArray[np.int32], NDArray[np.float32]]
LEARN_ROWS = 4096  # rows whose candidates are found at once


@dataclass(frozen=True)
class GroupWeights:
    """Weights by group of features; see :func:`weigh` for the score.

    Attributes
    ----------
    group : int32 (d,)
        Group of each feature, 0..G-1.
    slope, match, penalty : float32 (G,)
        Of ln n, of being counted, of the logarithm of the class's values.
    prior : float
        Of the logarithm of the class's rows.
    learnt : float
        Of the feature and pair weights.
    hashed : float
        Of the hashed models' mean logarithm, 0 or more.
    """

    group: NDArray[np.int32]
    slope: NDArray[np.float32]
    match: NDArray[np.float32]
    penalty: NDArray[np.float32]
    prior: float
    learnt: float
    hashed: float

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return len(self.slope)


@dataclass(frozen=True)
class PairWeights:
    """One weight a pair and one a feature; both empty where nothing was learnt.

    Attributes
    ----------
    theta : float32 (Z,)
        Of each pair.
    delta : float32 (d,)
        Of each feature.
    """

    theta: NDArray[np.float32]
    delta: NDArray[np.float32]

    @classmethod
    def nothing(cls) -> PairWeights:
        """Return no weights."""
        return cls(np.zeros(0, np.float32), np.zeros(0, np.float32))


def class_logarithms(table: CountTable) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the logarithms of each class's rows and of their values: float32 (K,) each."""
    rows = np.log(np.maximum(table.class_rows, 0.5)).astype(np.float32)
    values = np.log(np.maximum(table.class_values, 0.5)).astype(np.float32)
    return rows, values


def weigh(
    table: CountTable, weights: GroupWeights, learnt: PairWeights, gains: NDArray[np.int16]
) -> CountWeights:
    """Return what scores are made of.

    With g the group of feature f, ``score_i = prior ln n_i + sum_f [ slope_g ln n_fi + match_g +
    learnt (theta_fi + delta_f) if (f, i) was counted, - penalty_g ln N_i ]``: n_i rows of class i,
    n_fi of them with feature f, N_i features that they hold in all.

    Parameters
    ----------
    table : CountTable
        The counts.
    weights : GroupWeights
        Weights by group.
    learnt : PairWeights
        Feature and pair weights.
    gains : int16 (Z,)
        Written, and part of the result.
    """
    rows, values = class_logarithms(table)
    slope, match = weights.slope[weights.group], weights.match[weights.group]
    share = np.float32(weights.learnt)
    kernels.pair_gains(
        table.starts, table.counts, slope, match, share, learnt.theta, learnt.delta, gains
    )
    wide_of, wide = _widened(table, gains)
    return CountWeights(
        table.starts, table.classes, gains, wide_of, wide, weights.penalty[weights.group],
        np.float32(weights.prior) * rows, values, weights.hashed,
    )  # fmt: skip


def _widened(
    table: CountTable, gains: NDArray[np.int16]
) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """Return the features whose gains are spread over all classes, and these gains.

    Those with the longest lists, from an eighth of the classes on, in a byte a pair altogether.
    """
    lengths, n_classes = np.diff(table.starts), len(table.class_rows)
    order = np.argsort(-lengths, kind="stable")[: table.n_pairs // (2 * n_classes)]
    features = np.sort(order[lengths[order] >= n_classes / WIDE_SHARE])
    wide = np.empty((len(features), n_classes), np.int16)
    kernels.spread_lists(features, table.starts, table.classes, gains, wide)
    wide_of = np.full(table.n_features, -1, np.int32)
    wide_of[features] = np.arange(len(features))
    return wide_of, wide


def evidence(
    table: CountTable,
    rows: RowBlock,
    candidates: NDArray[np.int32],
    group: NDArray[np.int32],
    learnt: PairWeights,
    each: Callable[[int, Callable[[int, int], None]], None],
) -> NDArray[np.float32]:
    """Return what the counts say of candidates: float32 (n, m, 2 G + 1).

    Sums of ln n by group, numbers of counted pairs by group, and the sum of learnt weights.

    Parameters
    ----------
    table : CountTable
        The counts.
    rows : RowBlock
        n rows.
    candidates : int32 (n, m)
        Class ids.
    group : int32 (d,)
        Group of each feature.
    learnt : PairWeights
        Feature and pair weights.
    each : callable
        Calls a function with ranges of rows, on all threads.
    """
    n_groups = int(group.max()) + 1
    out = np.zeros((*candidates.shape, 2 * n_groups + 1), np.float32)

    def piece(first: int, last: int) -> None:
        learning_kernels.add_evidence(
            rows.indptr, rows.features, candidates, table.starts, table.classes, table.counts,
            group, learnt.theta, learnt.delta, first, last, out,
        )  # fmt: skip

    each(rows.n_rows, piece)
    return out


def learn(
    table: CountTable,
    weights: GroupWeights,
    scorer: CountScorer,
    blocks: Iterable[RowBlock],
    longest_row: int,
) -> PairWeights:
    """Learn feature and pair weights from counted rows, each scored as if it had not been counted.

    Candidates of one block are found on all threads, then the block is learnt from row by row; so
    the result depends on the order of the rows and on nothing else.

    Parameters
    ----------
    table : CountTable
        The counts.
    weights : GroupWeights
        The weights by group that `scorer` uses.
    scorer : CountScorer
        Scores by these weights alone.
    blocks : iterable of RowBlock
        The rows.
    longest_row : int
        Most values of a row.
    """
    m = min(CANDIDATES, len(table.class_rows))
    learnt = PairWeights(
        np.zeros(table.n_pairs, np.float32), np.zeros(table.n_features, np.float32)
    )
    theta_sum = np.full(table.n_pairs, PAIR_PRIOR, np.float32)
    delta_sum = np.full(table.n_features, FEATURE_PRIOR, np.float32)
    place = np.empty((m, longest_row), np.int64)
    for block, ids, scores in _ahead(blocks, lambda b: _left_out(table, weights, scorer, b, m)):
        learning_kernels.learn_rows(
            block.indptr, block.features, block.classes, ids, scores, table.starts, table.classes,
            table.counts, learnt.theta, theta_sum, learnt.delta, delta_sum, PAIR_RATE,
            FEATURE_RATE, place,
        )  # fmt: skip
    return learnt


def _ahead(blocks: Iterable[RowBlock], find: Callable[[RowBlock], Found]) -> Iterator[
    tuple[RowBlock, NDArray[np.int32], NDArray[np.float32]]
]:  # fmt: skip
    """Yield blocks with their candidates, which are found while the block before is used."""
    before: tuple[RowBlock, Future[Found]] | None = None
    with ThreadPoolExecutor(1, "candidates") as finder:
        for block in itertools.chain(blocks, [None]):
            coming = None if block is None else (block, finder.submit(find, block))
            if before is not None:
                yield before[0], *before[1].result()
            before = coming


def _left_out(
    table: CountTable, weights: GroupWeights, scorer: CountScorer, block: RowBlock, m: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the m best classes of rows that are not counted while they are scored."""
    w = scorer.weights
    slope, match = weights.slope[weights.group], weights.match[weights.group]
    ids = np.empty((block.n_rows, m), np.int32)
    scores = np.empty((block.n_rows, m), np.float32)

    def piece(first: int, last: int) -> None:
        learning_kernels.left_out_candidates(
            block.indptr, block.features, block.classes, first, last, w.starts, w.classes,
            table.counts, w.gains, w.wide_of, w.wide, w.penalty, w.base, w.log_values, slope,
            match, np.float32(weights.prior), table.class_rows, table.class_values,
            *scorer.scratch(), scores, ids,
        )  # fmt: skip

    scorer.each(block.n_rows, piece)
    return ids, scores
