"""Scores of classes by counts, alone or beside the hashed models; exact top-k."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.bounded import (
    ALL_CLASSES,
    BLOCK,
    UNHASHED,
    BoundedRow,
    BoundRoom,
    HashedScores,
    ScoreLists,
    add_list,
    best_of_rows,
    score,
)
from streammach.counts.count_kernels import STEP
from streammach.jit import Array, kernel
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists, offer_label
from streammach.rows.packed import Counts
from streammach.simd import LANES, PERMUTES, WIDEST, in_blocks, table_width
from streammach.threads import Workers, pieces_of

PIECES_A_THREAD = 4  # some rows take much longer than others
Best = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids and scores


def width_of(n_buckets: int, codes: NDArray[Any]) -> int:
    """Return the bytes of a model's table of deficits; 0 where none can be looked up."""
    can = PERMUTES and codes.dtype == np.uint8 and n_buckets <= WIDEST
    return table_width(n_buckets) if can else 0


@dataclass(frozen=True)
class Hashed:
    """What hashed models say of some rows."""

    logs: NDArray[np.float32]  # float32 (n, R*B): logarithms of the bucket probabilities
    # uint8 or uint16 or int32 (K*R,): bucket of each class in each repetition
    codes: NDArray[np.unsignedinteger]
    n_buckets: int  # n_buckets, n_repetitions: B and R
    n_repetitions: int

    def means(self, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return ``(1/R) sum_r ln P_r[h_r(i)]`` of candidates int32 (n, m): float32 (n, m)."""
        out = np.zeros(candidates.shape, np.float32)
        codes = self.codes.reshape(-1, self.n_repetitions)
        for r in range(self.n_repetitions):
            buckets = codes[candidates, r].astype(np.int64) + r * self.n_buckets
            out += np.take_along_axis(self.logs, buckets, axis=1)
        return out / np.float32(self.n_repetitions)


class CountScorer:
    """Finds the best classes of rows."""

    def __init__(self, weights: Counts, threads: int) -> None:
        self.weights = weights
        self._workers = Workers(threads, "counts")
        self._scratch = threading.local()
        self._blocks: tuple[Any, NDArray[np.uint8], int] | None = None  # of the last codes

    @cached_property
    def _lists(self) -> ScoreLists:
        return ScoreLists.of(self.weights)

    @staticmethod
    def footprint(n_classes: int, n_wide: int, n_repetitions: int, threads: int) -> int:
        """Return the bytes of a scorer's tables, with so many features in `wide`, and scratch."""
        tables = ScoreLists.footprint(n_classes, n_wide)
        tables += -(-n_classes // BLOCK) * BLOCK * n_repetitions  # codes in blocks
        return tables + threads * BoundRoom.footprint(n_classes, n_repetitions)

    def topk(self, rows: RowBlock, k: int, hashed: Hashed | None = None) -> Best:
        """Return ids int64 and scores float32 (n, min(k, K)) of the best of each row, exactly."""
        k, n = min(k, self.weights.n_classes), rows.n_rows
        best = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
        if n > 1:
            self.each(n, lambda a, b: self.rank(rows.indptr, rows.features, a, b, hashed, best))
        elif n:
            self.rank(rows.indptr, rows.features, 0, 1, hashed, best)
        return best

    def best_of(
        self, rows: RowBlock, k: int, some: CandidateLists, hashed: Hashed | None = None
    ) -> Best:
        """Return the k best labels among the listed classes of each row; -1 for no more."""
        best = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        lists, own = self._lists, self._hashed(hashed)
        longest = int(np.diff(rows.indptr).max(initial=0))

        def piece(first: int, last: int) -> None:
            units, columns = np.zeros(self.weights.n_classes, np.int32), np.empty(longest, np.int64)
            best_of_some(
                rows.indptr, rows.features, first, last, lists, own, some, units, columns,
                best[1], best[0],
            )  # fmt: skip

        self.each(rows.n_rows, piece)
        return best

    def rank(
        self, indptr: NDArray[np.int64], features: NDArray[np.int32], first: int, last: int,
        hashed: Hashed | None, best: Best,
    ) -> None:  # fmt: skip
        """Write the best classes of rows ``first:last``, on this thread."""
        ids, scores = best
        lists, own, ends = self._lists, self._hashed(hashed), indptr[first : last + 1]
        longest = ends[1] - ends[0] if last == first + 1 else np.diff(ends).max()
        room = self._room(own.n_repetitions, scores.shape[1], int(longest))
        of = indptr, features
        while True:
            first = best_of_rows(*of, first, last, ALL_CLASSES, lists, own, room, scores, ids)
            if first == last:
                return
            wider, after = room._replace(units=room.units.astype(np.int32)), first + 1
            first = best_of_rows(*of, first, after, ALL_CLASSES, lists, own, wider, scores, ids)

    def each(self, n: int, work: Callable[[int, int], None]) -> None:
        """Call `work` with ranges of rows, on all threads."""
        threads = self._workers.n_threads
        self._workers.each(work, pieces_of(n, threads, a_thread=PIECES_A_THREAD))

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()

    def _hashed(self, hashed: Hashed | None) -> HashedScores:
        """Return what the hashed models say, and their codes in blocks where these are of use."""
        if hashed is None:
            return UNHASHED
        n, codes = hashed.n_repetitions, hashed.codes
        if self._blocks is None or self._blocks[0] is not codes:
            width = width_of(hashed.n_buckets, codes)
            some = [codes.reshape(-1, n)] if width else []
            blocks = -(-len(codes) // (n * LANES)) if width else 0
            self._blocks = codes, in_blocks(some, blocks, n), width
        weight = np.float32(self.weights.hashed / n)
        return HashedScores(hashed.logs, codes, hashed.n_buckets, n, weight, *self._blocks[1:])

    def _room(self, n_repetitions: int, k: int, longest: int) -> BoundRoom:
        made_for = getattr(self._scratch, "made_for", (-1, 0, 0))
        if made_for[:2] != (n_repetitions, k) or made_for[2] < longest:
            self._scratch.made_for = n_repetitions, k, longest
            self._scratch.room = BoundRoom.of(self.weights, n_repetitions, k, longest)
        room: BoundRoom = self._scratch.room
        return room


@kernel(fastmath=False)
def best_of_some(
    indptr: Array, features: Array, first: int, last: int, lists: ScoreLists,
    hashed: HashedScores, some: CandidateLists, units: Array, columns: Array, scores: Array,
    ids: Array,
) -> None:  # fmt: skip
    """Write the best of the listed classes of rows ``first:last``, as `best_of_rows` does.

    Parameters
    ----------
    indptr, features, first, last : int64 (n + 1,), int32 (nnz,), int, int
        The rows, and which of them.
    lists, hashed, some : ScoreLists, HashedScores, CandidateLists
        What scores are made of; which classes.
    units, columns : int32 (K,), int64 (m,)
        Scratch: zeros before and after; for the features of the longest row.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best labels, best first; -1 where there are no more.
    """
    step, none = np.float32(max(lists.unit, 1)) * STEP, np.float32(0)
    for i in range(first, last):
        rest, n_wide = np.float32(0), 0
        for z in range(indptr[i], indptr[i + 1]):
            f = features[z]
            rest += lists.penalty[f]
            if lists.wide_of[f] >= 0:
                columns[n_wide] = lists.wide_of[f]
                n_wide += 1
            else:
                add_list(lists, f, units)
        logs = hashed.logs[i if hashed.n_repetitions > 0 else 0]
        row = BoundedRow(columns[:n_wide], rest, none, step, logs)
        best, where = scores[i], ids[i]
        best[:], where[:] = -np.inf, -1
        for z in range(some.first[i], some.last[i]):
            c = np.int64(some.classes[z])
            offer_label(score(row, c, lists, hashed, units), some.labels[z], best, where)
        units[:] = 0
