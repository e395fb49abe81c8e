"""Weights of features and pairs, learnt from counted rows on top of weights by group."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import STEP
from streammach.counts.learning import (
    GroupWeights,
    LearntScores,
    RowLists,
    compare_rows,
    learn_rows,
    weigh,
)
from streammach.counts.rivals import (
    SCAN_PAIRS,
    PairScratch,
    ShortLists,
    listed_candidates,
    scanned_candidates,
)
from streammach.counts.table import CountTable
from streammach.rows.block import RowBlock
from streammach.threads import Workers, pieces_of

CANDIDATES = 40  # classes that a row is compared with, its own among them
PAIR_RATE, FEATURE_RATE = np.float32(0.03), np.float32(0.05)
PAIR_PRIOR, FEATURE_PRIOR = 0.1, 1.0  # sums of squares before the first step
BATCH_ROWS, BATCH_VALUES = 256, 1 << 14  # that are compared with the same weights
THREAD_CLASS_BYTES = 9  # of scratch


class PairLearner:
    """Learns one weight a feature and one a counted pair.

    Softmax over a row's candidates, one Adagrad step a row: ``theta_fi`` and ``delta_f`` join the
    score of class i for every counted pair of the row, which is scored as if it had not been
    counted, and whose step counts as often as the row. Rows whose class is not among the candidates
    teach nothing; where rows have lists of labels, the target of each among the candidates is 1.
    The rows of a batch are compared with the same weights, and their steps are taken in the order
    of the rows: bytes depend on the rows and their batches, never on the number of threads.
    """

    def __init__(
        self, table: CountTable, weights: GroupWeights, *, scan: bool, threads: int
    ) -> None:
        self._table, self._weights, w = table, weights, weigh(table, weights)
        self._short = None if scan else ShortLists.of(w)
        self._m = min(CANDIDATES, w.n_classes)
        self._theta, self._theta_sum = (np.empty(table.n_pairs, np.float32) for _ in range(2))
        self._delta, self._delta_sum = (np.empty(table.n_features, np.float32) for _ in range(2))
        self._scores = LearntScores(
            w.gains, w.wide_of, w.wide, w.penalty, w.base, w.log_values,
            weights.slope[weights.group], weights.match[weights.group], np.float32(weights.prior),
            self._theta, self._delta,
        )  # fmt: skip
        self.begin()
        self._workers = Workers(threads, "pairs")
        self._local = threading.local()

    @staticmethod
    def footprint(n_classes: int, longest_row: int, threads: int) -> int:
        """Return the bytes of scratch, without those of the table and of its weights."""
        batch = CANDIDATES * (4 * max(BATCH_VALUES, longest_row) + 8 * BATCH_ROWS)
        return batch + threads * THREAD_CLASS_BYTES * n_classes

    def __enter__(self) -> PairLearner:
        """Return the learner."""
        return self

    def __exit__(self, *error: object) -> Literal[False]:
        """Stop the threads."""
        self._workers.close()
        return False

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
        for batch in _batches(block):
            self._learn(batch)

    def weights(self) -> GroupWeights:
        """Return the weights with what was learnt so far; they share its memory."""
        return replace(self._weights, learnt=1.0, theta=self._theta, delta=self._delta)

    def _learn(self, block: RowBlock) -> None:
        """Compare the rows of a batch with their candidates, then take their steps."""
        candidates = np.empty((block.n_rows, self._m), np.int32)
        place = np.empty((block.nnz, self._m), np.int32)
        residuals = np.empty((block.n_rows, self._m), np.float32)
        n_own, rows = np.empty(block.n_rows, np.int32), _as_lists(block)

        def compare(first: int, last: int) -> None:
            self._find(rows, candidates, n_own, first, last)
            compare_rows(
                rows, candidates, n_own, first, last, self._table.pairs, self._scores, STEP,
                self._scratch().slot, place, residuals,
            )  # fmt: skip

        step = partial(
            learn_rows, block.indptr, block.features, self._table.starts, place, residuals,
            self._theta, self._theta_sum, self._delta, self._delta_sum, PAIR_RATE, FEATURE_RATE,
        )  # fmt: skip
        threads = self._workers.n_threads
        self._workers.each(compare, pieces_of(block.n_rows, threads))
        self._workers.each(step, [(part, threads) for part in range(threads)])

    def _find(
        self, rows: RowLists, candidates: NDArray[np.int32], n_own: NDArray[np.int32], first: int,
        last: int,
    ) -> None:  # fmt: skip
        """Write the candidates of some rows, and how many are the rows' own classes."""
        made, pairs, scratch = self._scores, self._table.pairs, self._scratch()
        if self._short is None:
            scanned_candidates(rows, pairs, made, scratch, candidates, n_own, first, last)
        else:
            listed_candidates(
                rows, pairs, made, self._short, scratch, candidates, n_own, first, last
            )

    def _scratch(self) -> PairScratch:
        if not hasattr(self._local, "scratch"):
            self._local.scratch = PairScratch.of(len(self._scores.base))
        found: PairScratch = self._local.scratch
        return found


def _as_lists(block: RowBlock) -> RowLists:
    lists = block.lists
    return RowLists(block.indptr, block.features, block.weights, lists.starts, lists.classes)


def scan_pays(mean_pairs: float) -> bool:
    """Return whether all pairs of a row may be summed, of so many in the mean."""
    return mean_pairs <= SCAN_PAIRS


def _batches(block: RowBlock) -> Iterator[RowBlock]:
    """Yield the rows in pieces of bounded rows and values, of a row at least."""
    first = 0
    while first < block.n_rows:
        values = int(block.indptr[first]) + BATCH_VALUES
        fits = int(np.searchsorted(block.indptr, values, "right")) - 1
        last = max(first + 1, min(fits, first + BATCH_ROWS, block.n_rows))
        yield block.part(first, last)
        first = last
