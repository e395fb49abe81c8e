"""Weights of features and pairs, learnt from counted rows on top of weights by group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streammach.counts.learning import GroupWeights
from streammach.counts.lessons import compare_rows, learn_rows
from streammach.counts.rivals import NOTHING, Learner, RowRivals
from streammach.counts.table import CountTable
from streammach.rows.block import RowBlock
from streammach.threads import pieces_of

PAIR_RATE, FEATURE_RATE = np.float32(0.03), np.float32(0.05)
PAIR_PRIOR, FEATURE_PRIOR = 0.1, 1.0  # sums of squares before the first step
CANDIDATES = 40  # classes that a row is compared with, its own among them
BATCH_ROWS, BATCH_VALUES = 256, 1 << 14  # that are compared with the same weights
TOGETHER = 4  # batches whose candidates are found at once, since nothing learnt is asked for


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
        self._rivals = RowRivals(
            table, replace(weights, learnt=0.0, theta=NOTHING, delta=NOTHING), most=CANDIDATES,
            threads=threads, theta=self._theta, delta=self._delta,
        )  # fmt: skip
        self._place = np.empty((0, self._rivals.m), np.int32)

    @staticmethod
    def footprint(n_classes: int, n_wide: int, longest_row: int, threads: int, *, nnz: int) -> int:
        """Return the bytes of scratch, without those of the table and of its weights."""
        values = min(TOGETHER * max(BATCH_VALUES, longest_row), nnz)
        batches = 4 * CANDIDATES * values + (8 * CANDIDATES + 16) * TOGETHER * BATCH_ROWS
        return batches + RowRivals.footprint(n_classes, n_wide, CANDIDATES, threads)

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
        batches = list(_batches(block))
        for at in range(0, len(batches), TOGETHER):
            some = batches[at : at + TOGETHER]
            first = some[0][0]
            self._learn(block.part(first, some[-1][1]), [(a - first, b - first) for a, b in some])

    def weights(self) -> GroupWeights:
        """Return the weights with what was learnt so far; they share its memory."""
        return replace(self._weights, learnt=1.0, theta=self._theta, delta=self._delta)

    def _learn(self, block: RowBlock, batches: list[tuple[int, int]]) -> None:
        """Find the candidates of rows; compare those of each batch, then take their steps."""
        workers = self._rivals.workers
        if len(self._place) < block.nnz:
            self._place = np.empty((block.nnz, self._rivals.m), np.int32)
        place = self._place[: block.nnz]
        rows, _, residuals, sizes = self._rivals.of(block, place)

        def compare(first: int, last: int) -> None:
            compare_rows(rows, first, last, self._rivals.scores, place, residuals, sizes)

        for a, b in batches:
            pieces = pieces_of(b - a, workers.n_threads)
            workers.each(compare, [(a + i, a + j) for i, j in pieces])
            step = partial(
                learn_rows, block.indptr[a : b + 1], block.features, self._table.starts, place,
                residuals[a:b], self._theta, self._theta_sum, self._delta, self._delta_sum,
                PAIR_RATE, FEATURE_RATE,
            )  # fmt: skip
            workers.each(step, [(part, workers.n_threads) for part in range(workers.n_threads)])


def _batches(block: RowBlock) -> Iterator[tuple[int, int]]:
    """Yield ranges of bounded rows and values, of a row at least."""
    first = 0
    while first < block.n_rows:
        values = int(block.indptr[first]) + BATCH_VALUES
        fits = int(np.searchsorted(block.indptr, values, "right")) - 1
        last = max(first + 1, min(fits, first + BATCH_ROWS, block.n_rows))
        yield first, last
        first = last
