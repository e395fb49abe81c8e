"""Weights learnt on top of counts: by feature group, by feature, by pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from streammach.counts import kernels, learning_kernels
from streammach.counts.scores import CountScorer
from streammach.counts.table import CountTable
from streammach.rows.block import RowBlock
from streammach.rows.pairs import CountWeights, places

CANDIDATES = 40  # classes that a row learns from
PAIR_RATE, FEATURE_RATE = np.float32(0.03), np.float32(0.05)
PAIR_PRIOR, FEATURE_PRIOR = 0.1, 1.0  # sums of squares before the first step
WIDE_SHARE = 8  # lists of fewer classes than this part of all are faster as lists
Found = tuple[NDArray[np.int32], NDArray[np.float32]]  # classes and scores
LEARN_ROWS = 4096  # rows whose candidates are found at once


@dataclass(frozen=True, kw_only=True)
class GroupWeights:
    """Weights by group of features, by feature and by pair; see :func:`weigh` for the score.

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
    theta, delta : float32 (Z,), (d,)
        Of each pair and of each feature; both empty where nothing was learnt.
    """

    group: NDArray[np.int32]
    slope: NDArray[np.float32]
    match: NDArray[np.float32]
    penalty: NDArray[np.float32]
    prior: float
    learnt: float
    hashed: float
    theta: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    delta: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return len(self.slope)


def class_logarithms(table: CountTable) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the logarithms of each class's rows and of their values: float32 (K,) each."""
    rows = np.log(np.maximum(table.class_rows, 0.5)).astype(np.float32)
    values = np.log(np.maximum(table.class_values, 0.5)).astype(np.float32)
    return rows, values


def weigh(table: CountTable, weights: GroupWeights) -> CountWeights:
    """Return what scores are made of; its gains are those of the table, which are written anew.

    With g the group of feature f, ``score_i = prior ln n_i + sum_f [ slope_g ln n_fi + match_g +
    learnt (theta_fi + delta_f) if (f, i) was counted, - penalty_g ln N_i ]``: n_i rows of class i,
    n_fi of them with feature f, N_i features that they hold in all.

    Parameters
    ----------
    table : CountTable
        The counts.
    weights : GroupWeights
        The weights.
    """
    rows, values = class_logarithms(table)
    slope, match = weights.slope[weights.group], weights.match[weights.group]
    kernels.pair_gains(
        table.starts, table.counts, slope, match, np.float32(weights.learnt), weights.theta,
        weights.delta, table.gains,
    )  # fmt: skip
    wide_of, wide = _widened(table)
    return CountWeights(
        starts=table.starts, classes=table.classes, gains=table.gains, wide_of=wide_of, wide=wide,
        penalty=weights.penalty[weights.group], base=np.float32(weights.prior) * rows,
        log_values=values, hashed=weights.hashed,
    )  # fmt: skip


def _widened(table: CountTable) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """Return the features whose gains are spread over all classes, and these gains.

    Those with the longest lists, from an eighth of the classes on, in a byte a pair altogether.
    """
    lengths, n_classes = np.diff(table.starts), len(table.class_rows)
    order = np.argsort(-lengths, kind="stable")[: table.n_pairs // (2 * n_classes)]
    features = np.sort(order[lengths[order] >= n_classes / WIDE_SHARE])
    wide = np.empty((len(features), n_classes), np.int16)
    kernels.spread_lists(features, table.starts, table.classes, table.gains, wide)
    return places(features, table.n_features), wide


def evidence(
    table: CountTable,
    rows: RowBlock,
    candidates: NDArray[np.int32],
    *,
    weights: GroupWeights,
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
    weights : GroupWeights
        Groups of features, and what was learnt.
    each : callable
        Calls a function with ranges of rows, on all threads.
    """
    out = np.zeros((*candidates.shape, 2 * weights.n_groups + 1), np.float32)

    def piece(first: int, last: int) -> None:
        learning_kernels.add_evidence(
            rows.indptr, rows.features, candidates, table.starts, table.classes, table.counts,
            weights.group, weights.theta, weights.delta, first, last, out,
        )  # fmt: skip

    each(rows.n_rows, piece)
    return out


def learn(
    table: CountTable,
    weights: GroupWeights,
    scorer: CountScorer,
    blocks: Iterable[RowBlock],
    *,
    longest_row: int,
) -> GroupWeights:
    """Return the weights with those of features and pairs, which are learnt from counted rows.

    Each row is scored as if it had not been counted. Candidates of one block are found on all
    threads, then the block is learnt from row by row; so the result depends on the order of the
    rows and on nothing else.

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
    theta, delta = np.zeros(table.n_pairs, np.float32), np.zeros(table.n_features, np.float32)
    theta_sum = np.full(table.n_pairs, PAIR_PRIOR, np.float32)
    delta_sum = np.full(table.n_features, FEATURE_PRIOR, np.float32)
    place = np.empty((m, longest_row), np.int64)
    for block, best in _ahead(blocks, lambda b: _left_out(table, weights, scorer, b, m)):
        learning_kernels.learn_rows(
            block.indptr, block.features, block.classes, *best, table.starts, table.classes,
            table.counts, theta, theta_sum, delta, delta_sum, PAIR_RATE, FEATURE_RATE, place,
        )  # fmt: skip
    return replace(weights, learnt=1.0, theta=theta, delta=delta)


def _ahead(
    blocks: Iterable[RowBlock], find: Callable[[RowBlock], Found]
) -> Iterator[tuple[RowBlock, Found]]:
    """Yield blocks with their candidates, which are found while the block before is used."""
    before: tuple[RowBlock, Future[Found]] | None = None
    with ThreadPoolExecutor(1, "candidates") as finder:
        for block in itertools.chain(blocks, [None]):
            coming = None if block is None else (block, finder.submit(find, block))
            if before is not None:
                yield before[0], before[1].result()
            before = coming


def _left_out(
    table: CountTable, weights: GroupWeights, scorer: CountScorer, block: RowBlock, m: int
) -> Found:
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
