"""Scores of some classes of each row by counts, alone or beside hashed models."""

from __future__ import annotations

import numpy as np

from streammach.counts.bounded import BoundedRow, HashedScores, ScoreLists, add_list, score
from streammach.counts.count_kernels import STEP
from streammach.rows.candidate_lists import CandidateLists
from streammach.system.jit import Array, kernel


@kernel(fastmath=False)
def score_some(
    indptr: Array, features: Array, first: int, last: int, lists: ScoreLists,
    hashed: HashedScores, some: CandidateLists, units: Array, columns: Array, scores: Array,
) -> None:  # fmt: skip
    """Write the scores of the listed classes of rows ``first:last``, where these stand.

    Parameters
    ----------
    indptr, features, first, last : int64 (n + 1,), int32 (nnz,), int, int
        The rows, and which of them.
    lists, hashed, some : ScoreLists, HashedScores, CandidateLists
        What scores are made of; which classes.
    units, columns : int32 (K,), int64 (m,)
        Scratch: zeros before and after; for the features of the longest row.
    scores : float32 (m,)
        Receives them.
    """
    for i in range(first, last):
        row = _add_lists(indptr, features, i, lists, hashed, units, columns)
        for z in range(some.first[i], some.last[i]):
            scores[z] = score(row, np.int64(some.classes[z]), lists, hashed, units)
        units[:] = 0


@kernel(fastmath=False, inline=True)
def _add_lists(
    indptr: Array, features: Array, i: int, lists: ScoreLists, hashed: HashedScores, units: Array,
    columns: Array,
) -> BoundedRow:  # fmt: skip
    """Add the lists of a row's features to `units`; return the rest of its scores."""
    rest, n_wide = np.float32(0), 0
    for z in range(indptr[i], indptr[i + 1]):
        f = features[z]
        rest += lists.penalty[f]
        if lists.wide_of[f] >= 0:
            columns[n_wide] = lists.wide_of[f]
            n_wide += 1
        else:
            add_list(lists, f, units)
    step = np.float32(max(lists.unit, 1)) * STEP
    logs = hashed.logs[i if hashed.n_repetitions > 0 else 0]
    return BoundedRow(columns[:n_wide], rest, np.float32(0), step, logs)
