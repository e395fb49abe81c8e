"""Exact top-k of some classes of each row, whatever device their bucket probabilities come from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import CodedClasses, score
from streammach.jit import Array, kernel
from streammach.rows.candidate_lists import CandidateLists, offer_label
from streammach.spec.estimators import EstimatorKind


@kernel(fastmath=False)
def decode_some(
    p: Array, model: CodedClasses, lists: CandidateLists, first: int, last: int, v: Array,
    scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Score the listed classes of rows ``first:last``, as `decode_one` scores all of them.

    Parameters
    ----------
    p, model : float32 (n, C), CodedClasses
        The rows; the buckets of all classes, class by class.
    lists, first, last, v : CandidateLists, int, int, float32 (R,)
        What is scored; which rows; scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best labels, best first; -1 where there are no more.
    """
    for q in range(first, last):
        best, where = scores[q], ids[q]
        best[:], where[:] = -np.inf, -1
        for z in range(lists.first[q], lists.last[q]):
            at: Any = np.int64(lists.classes[z]) * model.n_repetitions
            offer_label(score(p[q], model, at, 1, v), lists.labels[z], best, where)


def join_some(
    p: NDArray[np.float32], codes: NDArray[np.integer], kind: EstimatorKind, lists: CandidateLists,
    scores: NDArray[np.float32], ids: NDArray[np.int64],
) -> None:  # fmt: skip
    """Do the same by an estimator that no kernel knows: `codes` (K, R) are all buckets."""
    assert kind.join is not None
    columns = np.arange(codes.shape[1]) * (p.shape[1] // codes.shape[1])
    scores[:], ids[:] = -np.inf, -1
    for q in range(len(p)):
        some = slice(lists.first[q], lists.last[q])
        values = kind.join(p[q][columns + codes[lists.classes[some]]])
        order = np.argsort(-values, kind="stable")
        labels = lists.labels[some][order]
        first = np.sort(np.unique(labels, return_index=True)[1])[: ids.shape[1]]
        scores[q, : len(first)], ids[q, : len(first)] = values[order][first], labels[first]
