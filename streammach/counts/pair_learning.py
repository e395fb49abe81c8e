"""Weights of features and pairs, learnt from counted rows on top of weights by group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streammach.counts.hard_negatives import NOTHING, HardNegatives, Learner
from streammach.counts.pair_updates import TURNS, PairSteps, share_updates
from streammach.counts.table import CountTable, GroupWeights
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import RowBlock

PAIR_RATE, FEATURE_RATE = np.float32(0.03), np.float32(0.05)
PAIR_PRIOR, FEATURE_PRIOR = 0.1, 1.0  # sums of squares before the first step
CANDIDATES = 40  # classes that a row is compared with, its own among them
BATCH_ROWS, BATCH_VALUES = 256, 1 << 14  # that are compared with the same weights
# Batches, and their values, whose candidates are found at once, since nothing learnt is asked for:
# 11 MB.
TOGETHER, TOGETHER_VALUES = 8, 63_000


class PairLearner(Learner):
    """Learns one weight a feature and one a counted pair, from those of `weights` or from zero.

    Softmax over a row's candidates, one Adagrad step a row: ``theta_fi`` and ``delta_f`` join the
    score of class i for every counted pair of the row, which is scored as if it had not been
    counted, and whose step counts as often as the row. Rows whose class is not among the candidates
    teach nothing. The rows of a batch are compared with the same weights, and their steps are taken
    in the order of the rows: bytes depend on the rows and their batches, never on the number of
    threads.
    """

    def __init__(self, table: CountTable, weights: GroupWeights, *, threads: int) -> None:
        self._table, self._weights = table, weights
        self._theta, self._delta = weights.theta, weights.delta  # written over: it goes on
        self._theta_sum = np.full(table.n_pairs, PAIR_PRIOR, np.float32)
        self._delta_sum = np.full(table.n_features, FEATURE_PRIOR, np.float32)
        if not weights.theta.size:
            self._theta = np.zeros(table.n_pairs, np.float32)
            self._delta = np.zeros(table.n_features, np.float32)
        self._rivals = HardNegatives(
            table, replace(weights, learnt=0.0, theta=NOTHING, delta=NOTHING), most=CANDIDATES,
            threads=threads, theta=self._theta, delta=self._delta,
        )  # fmt: skip
        self._place = np.empty((0, self._rivals.m), np.int32)

    @staticmethod
    def footprint(n_classes: int, n_wide: int, longest_row: int, threads: int, *, nnz: int) -> int:
        """Return the bytes of scratch, without those of the table and of its weights."""
        values = min(max(TOGETHER_VALUES, longest_row), nnz)
        batches = 4 * CANDIDATES * values + (8 * CANDIDATES + 16) * TOGETHER * BATCH_ROWS
        return batches + HardNegatives.footprint(n_classes, n_wide, CANDIDATES, threads)

    def begin(self) -> None:
        """Forget what was learnt."""
        for array, start in (
            (self._theta, 0), (self._delta, 0), (self._theta_sum, PAIR_PRIOR),
            (self._delta_sum, FEATURE_PRIOR),
        ):  # fmt: skip
            array[:] = start

    def state(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays of what was learnt: with other values in them it goes on from these."""
        return {
            "theta": self._theta, "delta": self._delta, "theta_sum": self._theta_sum,
            "delta_sum": self._delta_sum,
        }  # fmt: skip

    def learn(self, block: RowBlock) -> None:
        """Learn from counted rows, in their order."""
        limits = (block.indptr, BATCH_VALUES), (np.arange(block.n_rows + 1), BATCH_ROWS)
        edges = np.array([0, *(end for _, end in ranges_that_fit(*limits))])
        together = (block.indptr[edges], TOGETHER_VALUES), (np.arange(len(edges)), TOGETHER)
        for first, last in ranges_that_fit(*together):
            own = edges[first : last + 1]
            self._learn(block.part(own[0], own[-1]), own - own[0])

    def weights(self) -> GroupWeights:
        """Return the weights with what was learnt so far; they share its memory."""
        return replace(self._weights, learnt=1.0, theta=self._theta, delta=self._delta)

    def _learn(self, block: RowBlock, edges: NDArray[np.int64]) -> None:
        """Find the candidates of rows; compare those of each batch, then take their steps."""
        workers, n = self._rivals.workers, self._rivals.workers.n_threads
        if len(self._place) < block.nnz:
            self._place = np.empty((block.nnz, self._rivals.m), np.int32)
        place = self._place[: block.nnz]
        rows, _, residuals, sizes = self._rivals.of(block, place)
        steps = PairSteps(
            self._table.starts, self._theta, self._theta_sum, self._delta, self._delta_sum,
            PAIR_RATE, FEATURE_RATE, n,
        )  # fmt: skip
        turns, scores = np.zeros(TURNS * (len(edges) - 1), np.int64), self._rivals.scores

        def share(first: int, last: int) -> None:
            share_updates(edges, rows, scores, place, residuals, sizes, steps, turns)

        workers.each(share, [(i, i + 1) for i in range(n)])
