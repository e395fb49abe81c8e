"""Ways to rank classes: by the hashed models, or by counts and hashed models together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.ranked import Ranked
from streammach.counts.scores import CountScorer, Hashed
from streammach.rows.block import RowBlock
from streammach.rows.transforms import transformed
from streammach.spec.types import Estimator, Transform

LOGS_BYTES = 16 << 20  # of bucket logarithms held at once

# Rows before their transform and k in; class ids int64 (n, k) and scores float32 (n, k) out.
Ranking = Callable[[RowBlock, int], tuple[NDArray[np.int64], NDArray[np.float32]]]


def by_hashes(backend: Ranked, estimator: Estimator, transform: Transform) -> Ranking:
    """Return the ranking of an estimator."""
    return lambda rows, k: backend.topk(transformed(rows, transform), k, estimator)


def by_counts(backend: Ranked, scorer: CountScorer, transform: Transform) -> Ranking:
    """Return the ranking by counts and hashed models together, exact over all classes."""
    flat = backend.codes.reshape(-1)

    def rank(rows: RowBlock, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        k = min(k, backend.spec.n_classes)
        ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        for start, part, hashed in _parts(backend, flat, rows, transform):
            stop = start + part.n_rows
            beside = None if backend.spec.unhashed else hashed
            ids[start:stop], scores[start:stop] = scorer.topk(part, k, beside)
        return ids, scores

    return rank


def hashed_means(
    backend: Ranked, rows: RowBlock, candidates: NDArray[np.int32], transform: Transform
) -> NDArray[np.float32]:
    """Return ``(1/R) sum_r ln P_r[h_r(i)]`` of candidates: float32 (n, m).

    Parameters
    ----------
    backend : Ranked
        Holds the hashed models.
    rows : RowBlock
        n rows before their transform.
    candidates : int32 (n, m)
        Class ids.
    transform : str
        The model's transform.
    """
    out = np.empty(candidates.shape, np.float32)
    for start, part, hashed in _parts(backend, backend.codes.reshape(-1), rows, transform):
        stop = start + part.n_rows
        out[start:stop] = hashed.means(candidates[start:stop])
    return out


def _parts(
    backend: Ranked, codes: NDArray[Any], rows: RowBlock, transform: Transform
) -> Iterator[tuple[int, RowBlock, Hashed]]:
    """Yield rows in parts with what the hashed models say of them, in bounded memory."""
    spec = backend.spec
    step = max(1, LOGS_BYTES // (4 * max(spec.n_columns, 1)))
    for start in range(0, rows.n_rows, step):
        part = rows.part(start, min(start + step, rows.n_rows))
        logs = backend.outputs(transformed(part, transform), logarithms=True)
        yield (
            start,
            part,
            Hashed(logs, codes, spec.n_buckets, spec.n_repetitions),
        )
