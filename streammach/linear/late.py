"""Classifiers of labels that score the best classes of a row again, beside what ranked them.

Each is learnt from the rows that have the label, and from those for which a finished model takes
it: what it confuses is what they tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streammach.linear.learner import WriteExamples
from streammach.linear.weights import LinearScorer, LinearWeights
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.layouts import ends
from streammach.system.jit import Array, kernel

NEGATIVES = 40  # classes that a row is taken for; 100 are no better
BEST = 32  # classes of a row that are scored again; of 100 those that are far away come too high


@dataclass(frozen=True, kw_only=True)
class LateLabels(LinearWeights):
    """Classifiers, and what they weigh beside the scores of a model."""

    weight: float

    def parts(
        self, features: NDArray[np.int64], ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what a row's features (m,) add to classes (k,), and biases: (m, k), (k,)."""
        parts, before = self.terms(features, np.ones(len(features)), ids)
        return self.weight * parts, self.weight * before

    def with_classes(self, n: int) -> LateLabels:
        """Return them with n more classes, which have no weights, and the usual bias."""
        more = np.full(n, np.median(self.bias), np.float32)
        empty = np.append(self.empty, np.zeros(n, np.float32))
        return replace(self, bias=np.concatenate([self.bias, more]), empty=empty)


Top = tuple[NDArray[np.int64], NDArray[np.float32]]  # class ids (n, k) and scores, best first


def rank_again(rows: RowBlock, top: Top, scorer: LinearScorer, weight: float) -> Top:
    """Return ranked classes, the first :data:`BEST` by the sum, others behind them as they were."""
    ids, scores = top[0].copy(), top[1].copy()
    some = slice(0, min(BEST, ids.shape[1]))
    sums = scores[:, some] + np.float32(weight) * scorer.scores(rows, ids[:, some])
    order = np.argsort(-sums, axis=1, kind="stable")
    ids[:, some] = np.take_along_axis(ids[:, some], order, axis=1)
    scores[:, some] = np.take_along_axis(sums, order, axis=1)
    lowest = scores[:, some.stop - 1 : some.stop]
    scores[:, some.stop :] = np.minimum(scores[:, some.stop :], lowest)
    return ids, scores


def examples_of(labels: LabelLists, best: NDArray[np.int32], k: int) -> tuple[WriteExamples, int]:
    """Return the examples of K classes, and the most of one: rows with it, or that it is best of.

    `best` is int32 (n, m), of the rows that have these lists of labels.
    """
    counts, found = np.zeros(k, np.int64), np.zeros(0, np.int32)
    fill_examples(labels.starts, labels.classes, best, 0, counts, found)
    starts = ends(counts)
    found = np.empty(starts[-1], np.int32)
    fill_examples(labels.starts, labels.classes, best, 0, starts[:-1].copy(), found)

    def write(c: int, out: NDArray[np.int32]) -> int:
        own = found[starts[c] : starts[c + 1]]
        out[: len(own)] = own
        return len(own)

    return write, int(counts.max(initial=0))


@kernel()
def fill_examples(
    starts: Array, labels: Array, best: Array, first: int, at: Array, out: Array
) -> None:
    """Append each row to the examples of its classes, and of those that it is taken for.

    Parameters
    ----------
    starts, labels : int64 (n + 1,), int32 (m,)
        The classes of each row; -1 for one that is not known.
    best : int32 (n, m)
        Classes that a model takes a row for, then -1; its own are passed over.
    first, at : int, int64 (k,)
        The first of k classes whose examples are wanted; where the next one of each goes, which
        rises.
    out : int32 (e,)
        Receives twice the row, plus 1 for a class of its own; where it is empty they are counted.
    """
    k, wanted = at.shape[0], out.shape[0] > 0
    for i in range(best.shape[0]):
        for p in range(starts[i], starts[i + 1]):
            c = labels[p] - first
            if 0 <= c < k:
                if wanted:
                    out[at[c]] = 2 * i + 1
                at[c] += 1
        for j in range(best.shape[1]):
            if best[i, j] < 0:
                break
            c = best[i, j] - first
            if 0 <= c < k:
                own = False
                for p in range(starts[i], starts[i + 1]):
                    own |= labels[p] == best[i, j]
                if not own:
                    if wanted:
                        out[at[c]] = 2 * i
                    at[c] += 1
