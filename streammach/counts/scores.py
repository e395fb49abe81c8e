"""Scores of classes by counts, alone or beside the hashed models; exact top-k."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streammach.counts.bounded import ALL_CLASSES, BoundRoom, best_of_rows
from streammach.counts.class_scores import UNHASHED, HashedScores, ScoreLists, score_some
from streammach.counts.neighbour_search import NeighbourSearch
from streammach.rows.arrays import SORTED_CELLS, best_first, find_repeated, many
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists
from streammach.rows.packed import Counts
from streammach.system.threads import Workers, pieces_of

MANY_ROWS = 1 << 14
PIECES_A_THREAD = 4  # some rows take much longer than others
Best = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids and scores


class CountScorer:
    """Finds the best classes of rows.

    Labels of neighbours gain, and no score falls by that: the best of all are among the best
    without neighbours and the labels of these.
    """

    def __init__(self, weights: Counts, threads: int) -> None:
        self.weights, near = weights, weights.near
        self.neighbours = None if near is None else NeighbourSearch(near, weights.n_classes)
        self._workers = Workers(threads, "counts")
        self._scratch = threading.local()

    @property
    def most_rows(self) -> int:
        """How many rows have their listed classes scored together, at most."""
        return MANY_ROWS if self.neighbours is None else self.neighbours.most_rows

    @cached_property
    def _lists(self) -> ScoreLists:
        return ScoreLists.of(self.weights)

    @staticmethod
    def footprint(
        n_classes: int, n_wide: int, n_repetitions: int, threads: int, n_near: int = 0
    ) -> int:
        """Return the bytes of tables, with so many features in `wide`, and of scratch.

        `n_near` training rows stand beside counts.
        """
        tables = ScoreLists.footprint(n_classes, n_wide)
        if n_near:
            tables += NeighbourSearch.footprint(n_near, n_classes, threads)
        return tables + threads * BoundRoom.footprint(n_classes, n_repetitions)

    def topk(self, rows: RowBlock, k: int, hashed: HashedScores | None = None) -> Best:
        """Return ids int64 and scores float32 (n, min(k, K)) of the best of each row, exactly."""
        k, n = min(k, self.weights.n_classes), rows.n_rows
        best = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
        if many(k, self.weights.n_classes):
            self._sort_all(rows, hashed, best)
        elif n > 1:
            self.each(n, lambda a, b: self.rank(rows.indptr, rows.features, a, b, hashed, best))
        elif n:
            self.rank(rows.indptr, rows.features, 0, 1, hashed, best)
        return best if self.neighbours is None else self._join_neighbours(best, rows, hashed)

    def score_listed(
        self, rows: RowBlock, lists: CandidateLists, hashed: HashedScores | None = None
    ) -> NDArray[np.float32]:
        """Return the scores of the listed classes of rows, where they stand: float32 (m,)."""
        scores = self._score_counts(rows, lists, hashed)
        if self.neighbours is not None:
            near, gains = self.neighbours.gains(rows.indptr, rows.features, self.each)
            at = lists.places(near.rows, near.classes)
            scores[at[at >= 0]] += gains[at >= 0]
        return scores

    def _score_counts(
        self, rows: RowBlock, some: CandidateLists, hashed: HashedScores | None
    ) -> NDArray[np.float32]:
        """Return the scores of listed classes without neighbours."""
        lists, own = self._lists, self._hashed_scores(hashed)
        scores = np.empty(len(some.classes), np.float32)
        longest = int(np.diff(rows.indptr).max(initial=0))

        def piece(first: int, last: int) -> None:
            scratch = np.zeros(self.weights.n_classes, np.int32), np.empty(longest, np.int64)
            score_some(rows.indptr, rows.features, first, last, lists, own, some, *scratch, scores)

        self.each(rows.n_rows, piece)
        return scores

    def _sort_all(self, rows: RowBlock, hashed: HashedScores | None, best: Best) -> None:
        """Write the best of rows where so many are asked for that all are scored and sorted."""
        every, (ids, scores) = np.arange(self.weights.n_classes), best
        step = max(1, SORTED_CELLS // len(every))
        for start in range(0, rows.n_rows, step):
            some = slice(start, min(start + step, rows.n_rows))
            part, n = rows.part(some.start, some.stop), some.stop - some.start
            own = CandidateLists.repeat(n, every, every).spread()
            said = None if hashed is None else hashed._replace(logs=hashed.logs[some])
            s = self._score_counts(part, own, said).reshape(n, -1)
            s = np.where(np.isnan(s), np.float32(-np.inf), s)
            ids[some], scores[some] = best_first(np.where(s > -np.inf, every, -1), s, ids.shape[1])

    def _join_neighbours(self, best: Best, rows: RowBlock, hashed: HashedScores | None) -> Best:
        """Return the best of rows with what the labels of their neighbours gain."""
        assert self.neighbours is not None, "there are neighbours"
        out = best[0].copy(), best[1].copy()
        step = self.neighbours.most_rows
        for start in range(0, rows.n_rows, step):
            part = slice(start, min(start + step, rows.n_rows))
            own = rows.part(part.start, part.stop)
            lists, gains = self.neighbours.gains(own.indptr, own.features, self.each)
            longest = int((lists.last - lists.first).max(initial=0))
            if not longest:
                continue
            said = None if hashed is None else hashed._replace(logs=hashed.logs[part])
            gains += self._score_counts(own, lists, said)
            at = lists.first[:, None] + np.arange(longest)
            there = at < lists.last[:, None]
            at = np.where(there, at, 0)
            labels = np.where(there, lists.labels[at].astype(np.int64), -1)
            ids = np.concatenate([best[0][part], labels], axis=1)
            ids, scores = best_once(ids, np.concatenate([best[1][part], gains[at]], axis=1))
            k = best[0].shape[1]
            out[0][part], out[1][part] = ids[:, :k], scores[:, :k]
        return out

    def rank(
        self, indptr: NDArray[np.int64], features: NDArray[np.int32], first: int, last: int,
        hashed: HashedScores | None, best: Best,
    ) -> None:  # fmt: skip
        """Write the best classes of rows ``first:last``, on this thread."""
        ids, scores = best
        lists, own, ends = self._lists, self._hashed_scores(hashed), indptr[first : last + 1]
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

    def _hashed_scores(self, hashed: HashedScores | None) -> HashedScores:
        """Return what the hashed models say, with their weight."""
        if hashed is None:
            return UNHASHED
        return hashed._replace(weight=np.float32(self.weights.hashed / hashed.n_repetitions))

    def _room(self, n_repetitions: int, k: int, longest: int) -> BoundRoom:
        made_for = getattr(self._scratch, "made_for", (-1, 0, 0))
        if made_for[:2] != (n_repetitions, k) or made_for[2] < longest:
            self._scratch.made_for = n_repetitions, k, longest
            self._scratch.room = BoundRoom.of(self.weights, n_repetitions, k, longest)
        room: BoundRoom = self._scratch.room
        return room


def best_once(ids: NDArray[np.int64], scores: NDArray[np.float32]) -> Best:
    """Return ids (n, m) by falling scores, each where it is best, and then -1."""
    scores = np.where(ids >= 0, scores, -np.inf).astype(np.float32)
    ids, scores = best_first(ids, scores, ids.shape[1])
    again = find_repeated(ids)
    order = np.argsort(again | (ids < 0), axis=1, kind="stable")
    ids, scores = np.where(again, -1, ids), np.where(again, np.float32(-np.inf), scores)
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
