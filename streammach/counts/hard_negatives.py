"""The classes that counted rows are taken for, from which weights of pairs are learnt."""

from __future__ import annotations

import threading
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streammach.counts.bounded import BoundRoom, SoughtClasses, best_of_rows
from streammach.counts.class_scores import UNHASHED, ScoreLists
from streammach.counts.learning import weigh
from streammach.counts.pair_updates import (
    FAR,
    SOME_ROWS,
    LearntScores,
    PairUpdateScratch,
    RowLists,
    place_rows,
    propose_rows,
)
from streammach.counts.table import CountTable, GroupWeights
from streammach.rows.block import RowBlock
from streammach.system.threads import Workers, pieces_of

PIECES_A_THREAD = 8  # some rows take much longer than others
NOTHING = np.zeros(0, np.float32)


# Rows and their candidates; see :func:`streammach.counts.pair_updates.propose_rows`: rivals int32
# (n, m), residuals float32 (n, m), sizes int64 (n, 2).
Proposal = tuple[RowLists, NDArray[np.int32], NDArray[np.float32], NDArray[np.int64]]


class HardNegatives:
    """Finds the candidates of counted rows, `most` each, by weights by group.

    A row is left out of the counts, and its own classes are some of the candidates.
    """

    def __init__(
        self, table: CountTable, weights: GroupWeights, *, most: int, threads: int,
        theta: NDArray[np.float32] = NOTHING, delta: NDArray[np.float32] = NOTHING,
    ) -> None:  # fmt: skip
        self.workers = Workers(threads, "pairs")
        self._counts = w = weigh(table, weights, self.workers)
        self.m = min(most, w.n_classes)
        self.scores = LearntScores(
            table.pairs, w.penalty, weights.slope[weights.group],
            weights.match[weights.group], np.float32(weights.prior), theta, delta,
        )  # fmt: skip
        self._lists = ScoreLists.of(w)
        self._local = threading.local()

    @staticmethod
    def footprint(n_classes: int, n_wide: int, most: int, threads: int) -> int:
        """Return the bytes of scratch, without those of the table and of its weights."""
        room = n_classes + BoundRoom.footprint(n_classes, 0) + 12 * SOME_ROWS * most
        return ScoreLists.footprint(n_classes, n_wide) + threads * room

    def of(self, block: RowBlock, place: NDArray[np.int32] | None = None) -> Proposal:
        """Return the candidates of rows; `place` int32 (nnz, m) receives where their pairs are."""
        n, lists, longest = block.n_rows, block.lists, int(np.diff(block.indptr).max(initial=0))
        rows = RowLists(block.indptr, block.features, block.weights, lists.starts, lists.classes)
        rivals, residuals = np.empty((n, self.m), np.int32), np.empty((n, self.m), np.float32)
        sizes, sought = np.empty((n, 2), np.int64), SoughtClasses(*rows[3:], FAR)

        def piece(first: int, last: int) -> None:
            room, scores, lists = self._room(longest), self.scores, self._lists
            best = room.tops, room.best
            for a in range(first, last, SOME_ROWS):
                b = min(a + SOME_ROWS, last)
                best_of_rows(*rows[:2], a, b, sought, lists, UNHASHED, room.bound, *best)
                propose_rows(rows, a, b, scores, *best, rivals, residuals, sizes)
            if place is not None:
                place_rows(rows, first, last, scores.pairs, room.slot, rivals, sizes, place)

        self.workers.each(piece, pieces_of(n, self.workers.n_threads, a_thread=PIECES_A_THREAD))
        return rows, rivals, residuals, sizes

    def _room(self, longest: int) -> PairUpdateScratch:
        """Return this thread's scratch for rows that are not longer."""
        room: PairUpdateScratch | None = getattr(self._local, "room", None)
        if room is None or len(room.bound.columns) < longest:
            bound, m = BoundRoom.of(self._counts, 0, self.m, longest), self.m
            slot = np.zeros(self._counts.n_classes, np.uint8)
            tops, best = (np.empty((SOME_ROWS, m), kind) for kind in (np.float32, np.int64))
            room = PairUpdateScratch(bound, slot, tops, best)
            self._local.room = room
        return room


class Learner:
    """What learns weights of pairs from counted rows; a ``with`` block stops its threads."""

    _rivals: HardNegatives

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._rivals.workers.close()
