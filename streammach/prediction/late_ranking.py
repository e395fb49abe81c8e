"""Rankings in which classifiers score the best classes of a row again."""

from __future__ import annotations

import numpy as np

from streammach.counts.scores import best_once
from streammach.linear.late import BEST, LateLabels, rank_again
from streammach.linear.weights import LinearScorer
from streammach.prediction.ranking import CandidateRanking, Ranking, Top
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists


class LateRanking:
    """Makes of rankings those by the sum of their scores and of what classifiers add.

    Of a row the first :data:`streammach.linear.late.BEST` classes have the sum; others keep their
    scores, but for what these are above the lowest sum.
    """

    def __init__(self, late: LateLabels, threads: int) -> None:
        self._late, self._scorer = late, LinearScorer(late.classifiers, threads)

    def all_classes(self, ranking: Ranking) -> Ranking:
        """Return the ranking of all classes."""

        def rank(rows: RowBlock, k: int) -> Top:
            top = ranking(rows, max(k, BEST))
            ids, scores = rank_again(rows, top, self._scorer, self._late.weight)
            return ids[:, :k], scores[:, :k]

        return rank

    def some_classes(self, every: Ranking, some: CandidateRanking) -> CandidateRanking:
        """Return the ranking of listed classes; `every` is that of all of them, by the sum."""

        def rank(rows: RowBlock, k: int, lists: CandidateLists) -> Top:
            ids, sums = every(rows, BEST)
            n, m = ids.shape
            at = lists.places(np.repeat(np.arange(n), m), ids.reshape(-1)).reshape(n, m)
            labels = np.where(at >= 0, np.append(lists.labels, -1)[at], -1)
            others, scores = some(rows, k + m, lists)
            scores = np.minimum(scores, sums[:, -1:])  # a label has its best one
            both = np.concatenate([labels, others], axis=1).astype(np.int64)
            ids, scores = best_once(both, np.concatenate([sums, scores], axis=1))
            return ids[:, :k], scores[:, :k]

        return rank

    def close(self) -> None:
        """Stop the threads."""
        self._scorer.close()
