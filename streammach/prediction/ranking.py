"""Ways to rank classes: by the hashed models, or by counts and hashed models together.

Of rankings of lists that held-out rows cannot tell apart, rare labels profit most by the one in
which ``ln n_i``, of the rows of a label, weighs least: how much of it is let go is its tilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import CodedClasses, decode_some, join_some
from streammach.backends.protocol import Ranked
from streammach.counts.scores import CountScorer, Hashed
from streammach.linear.scorer import Scorer
from streammach.rows.arrays import best_first
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists, offer_listed
from streammach.rows.transforms import transformed
from streammach.spec.estimators import ESTIMATORS
from streammach.spec.types import Estimator, Transform

LOGS_BYTES = 16 << 20  # of bucket logarithms held at once
TILTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)  # taken from the weight of ln n_i

Top = tuple[NDArray[np.int64], NDArray[np.float32]]  # class ids (n, k) and scores, best first
Ranking = Callable[[RowBlock, int], Top]  # of rows before their transform, and k
# The same of some classes alone; the id is -1 where there are no more.
CandidateRanking = Callable[[RowBlock, int, CandidateLists], Top]
Run = Callable[[Callable[[int, int], None], int], None]  # calls it with ranges of n, on threads


def by_hashes(backend: Ranked, estimator: Estimator, transform: Transform) -> Ranking:
    """Return the ranking of an estimator."""
    return lambda rows, k: backend.topk(transformed(rows, transform), k, estimator)


def by_counts(backend: Ranked, scorer: CountScorer, transform: Transform) -> Ranking:
    """Return the ranking by counts and hashed models together, exact over all classes."""
    hashes = None if backend.spec.unhashed else _Hashes(backend, transform)

    def rank(rows: RowBlock, k: int) -> Top:
        if hashes is None:
            return scorer.topk(rows, k)
        if rows.n_rows <= hashes.most:
            return scorer.topk(rows, k, hashes.of(rows))
        k = min(k, backend.spec.n_classes)
        ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        for some, part, hashed in hashes.parts(rows):
            ids[some], scores[some] = scorer.topk(part, k, hashed)
        return ids, scores

    return rank


def by_linear(scorer: Scorer) -> Ranking:
    """Return the ranking of linear classifiers; all classes are scored."""

    def rank(rows: RowBlock, k: int) -> Top:
        scores = scorer.scores(rows)
        return best_first(np.broadcast_to(np.arange(scores.shape[1]), scores.shape), scores, k)

    return rank


def candidates_by_linear(scorer: Scorer) -> CandidateRanking:
    """Return the ranking of listed classes by linear classifiers."""

    def rank(rows: RowBlock, k: int, lists: CandidateLists) -> Top:
        ids, best = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        offer_listed(scorer.scores(rows), lists, best, ids)
        return ids, best

    return rank


def candidates_by_hashes(
    backend: Ranked, estimator: Estimator, transform: Transform, run: Run
) -> CandidateRanking:
    """Return the ranking of listed classes by an estimator; `run` shares rows among threads."""
    kind, spec = ESTIMATORS[estimator], backend.spec
    step = max(1, LOGS_BYTES // (4 * max(spec.n_columns, 1)))

    def write(rows: RowBlock, lists: CandidateLists, scores: Any, ids: Any) -> None:
        p = backend.outputs(rows, logarithms=kind.logarithms)
        if kind.join is not None:
            join_some(p, backend.codes, kind, lists, scores, ids)
            return
        shape = spec.n_repetitions, spec.n_buckets, kind.branch
        model = CodedClasses(backend.codes.reshape(-1), *shape)

        def piece(first: int, last: int) -> None:
            v = np.empty(spec.n_repetitions, np.float32)
            decode_some(p, model, lists, first, last, v, scores, ids)

        run(piece, len(p))

    def rank(rows: RowBlock, k: int, lists: CandidateLists) -> Top:
        ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        rows = transformed(rows, transform)
        for start in range(0, rows.n_rows, step):
            some = slice(start, min(start + step, rows.n_rows))
            part = rows.part(some.start, some.stop)
            write(part, lists.part(some.start, some.stop), scores[some], ids[some])
        return ids, backend.finished(rows, kind, scores)

    return rank


def candidates_by_counts(
    backend: Ranked, scorer: CountScorer, transform: Transform
) -> CandidateRanking:
    """Return the ranking of listed classes by counts and hashed models together."""
    hashes = None if backend.spec.unhashed else _Hashes(backend, transform)

    def rank(rows: RowBlock, k: int, lists: CandidateLists) -> Top:
        if hashes is None:
            return scorer.best_of(rows, k, lists)
        ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        for some, part, hashed in hashes.parts(rows):
            own = lists.part(some.start, some.stop)
            ids[some], scores[some] = scorer.best_of(part, k, own, hashed)
        return ids, scores

    return rank


def hashed_means(
    backend: Ranked, rows: RowBlock, candidates: NDArray[np.int32], transform: Transform
) -> NDArray[np.float32]:
    """Return ``(1/R) sum_r ln P_r[h_r(i)]`` of candidates: float32 (n, m).

    `candidates` is int32 (n, m).
    """
    out = np.empty(candidates.shape, np.float32)
    for some, _, hashed in _Hashes(backend, transform).parts(rows):
        out[some] = hashed.means(candidates[some])
    return out


class _Hashes:
    """What hashed models say of rows, in bounded memory."""

    def __init__(self, backend: Ranked, transform: Transform) -> None:
        self._backend, self._transform = backend, transform
        self._codes = backend.codes.reshape(-1)
        # rows whose logarithms are held at once
        self.most = max(1, LOGS_BYTES // (4 * max(backend.spec.n_columns, 1)))

    def of(self, rows: RowBlock) -> Hashed:
        """Return what they say of rows, `most` of them or fewer."""
        logs = self._backend.outputs(transformed(rows, self._transform), logarithms=True)
        spec = self._backend.spec
        return Hashed(logs, self._codes, spec.n_buckets, spec.n_repetitions)

    def parts(self, rows: RowBlock) -> Iterator[tuple[slice, RowBlock, Hashed]]:
        """Yield rows in parts, where these stand, and what is said of them."""
        for start in range(0, rows.n_rows, self.most):
            some = slice(start, min(start + self.most, rows.n_rows))
            part = rows.part(some.start, some.stop)
            yield some, part, self.of(part)


def largest_tilt(
    scores: Callable[[float], NDArray[np.float64]],
    *,
    best_alone: bool,
    tilts: Sequence[float] = (),
    errors: float = 2.0,
) -> tuple[float, float]:
    """Return the largest tilt that rows cannot tell from the best, and the best mean score.

    `scores` gives those of the same rows, float64 (n,), for a tilt. Of a row they differ little, so
    a tilt is worse if the mean difference is more than some of its standard errors.
    """
    found: dict[float, NDArray[np.float64]] = {}
    for tilt in tilts or TILTS:
        found[tilt] = scores(tilt)
        best = max(found, key=lambda one: float(found[one].mean()))
        if _is_worse(found[tilt], found[best], errors):
            break
    if best_alone:
        return best, float(found[best].mean())
    alike = [tilt for tilt, one in found.items() if not _is_worse(one, found[best], errors)]
    return max(alike), float(found[best].mean())


def _is_worse(one: NDArray[np.float64], best: NDArray[np.float64], errors: float) -> bool:
    lost = best - one
    return bool(lost.mean() > errors * lost.std() / max(len(lost), 1) ** 0.5)
