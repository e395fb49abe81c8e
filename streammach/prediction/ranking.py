"""Ways to rank classes: by the hashed models, or by counts and hashed models together.

Of rankings of lists that held-out rows cannot tell apart, rare labels profit most by the one in
which ``ln n_i``, of the rows of a label, weighs least: how much of it is let go is its tilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import CodedClasses, decode_some, join_some
from streammach.backends.protocol import Ranked
from streammach.counts.scores import CountScorer, HashedBlock, best_once
from streammach.linear.late import BEST, LateLabels, rank_again
from streammach.linear.scorer import Scorer
from streammach.linear.weights import LinearScorer
from streammach.rows.arrays import best_first
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists, offer_listed
from streammach.rows.transforms import transform_block
from streammach.spec.estimators import ESTIMATORS
from streammach.spec.types import Estimator, Transform

LOGS_BYTES = 16 << 20  # of bucket logarithms held at once
TILTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)  # taken from the weight of ln n_i

Top = tuple[NDArray[np.int64], NDArray[np.float32]]  # class ids (n, k) and scores, best first
Ranking = Callable[[RowBlock, int], Top]  # of rows before their transform, and k
Run = Callable[[Callable[[int, int], None], int], None]  # calls it with ranges of n, on threads


class ListRanking(Protocol):
    """Ranks all classes of rows, or those that are listed for each of them, exactly.

    Of lists the labels are ranked that their classes have; the id is -1 where there are no more.
    """

    def __call__(self, rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
        """Return the k best of rows before their transform."""


def _on_this_thread(work: Callable[[int, int], None], n: int) -> None:
    work(0, n)


def by_hashes(
    backend: Ranked, estimator: Estimator, transform: Transform, run: Run = _on_this_thread
) -> ListRanking:
    """Return the ranking of an estimator; `run` shares rows with lists among threads."""
    kind, spec = ESTIMATORS[estimator], backend.spec
    step = rows_at_once(spec.n_columns)

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

    def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
        rows = transform_block(rows, transform)
        if lists is None:
            return backend.topk(rows, k, estimator)
        ids, scores = _empty(rows.n_rows, k)
        for start in range(0, rows.n_rows, step):
            some = slice(start, min(start + step, rows.n_rows))
            part = rows.part(some.start, some.stop)
            write(part, lists.part(some.start, some.stop), scores[some], ids[some])
        return ids, backend.finish_scores(rows, kind, scores)

    return rank


def by_counts(
    backend: Ranked | None, scorer: CountScorer, transform: Transform = "raw"
) -> ListRanking:
    """Return the ranking by counts and hashed models together, or by counts alone."""
    hashes = None
    if backend is not None and not backend.spec.unhashed:
        hashes = _Hashes(backend, transform)

    def best(
        rows: RowBlock, k: int, lists: CandidateLists | None, hashed: HashedBlock | None = None
    ) -> Top:
        if lists is None:
            return scorer.topk(rows, k, hashed)
        return scorer.best_of(rows, k, lists, hashed)

    def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
        if hashes is None:
            return best(rows, k, lists)
        if rows.n_rows <= hashes.most:
            return best(rows, k, lists, hashes.of(rows))
        ids, scores = _empty(rows.n_rows, min(k, scorer.weights.n_classes) if lists is None else k)
        for some, part, hashed in hashes.parts(rows):
            own = None if lists is None else lists.part(some.start, some.stop)
            ids[some], scores[some] = best(part, k, own, hashed)
        return ids, scores

    return rank


def by_linear(scorer: Scorer) -> ListRanking:
    """Return the ranking of linear classifiers; all classes are scored."""

    def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
        scores = scorer.scores(rows)
        if lists is None:
            return best_first(np.broadcast_to(np.arange(scores.shape[1]), scores.shape), scores, k)
        ids, best = _empty(rows.n_rows, k)
        offer_listed(scores, lists, best, ids)
        return ids, best

    return rank


def by_classifiers(ranking: ListRanking, late: LateLabels, scorer: LinearScorer) -> ListRanking:
    """Return a ranking by the sum of its scores and of what `scorer`, classifiers, adds.

    Of a row the first :data:`streammach.linear.late.BEST` classes have the sum; others keep their
    scores, but for what these are above the lowest sum.
    """

    def rank(rows: RowBlock, k: int, lists: CandidateLists | None = None) -> Top:
        most = BEST if lists is not None else max(k, BEST)
        ids, sums = rank_again(rows, ranking(rows, most), scorer, late.weight)
        if lists is None:
            return ids[:, :k], sums[:, :k]
        n, m = ids.shape
        at = lists.places(np.repeat(np.arange(n), m), ids.reshape(-1)).reshape(n, m)
        labels = np.where(at >= 0, np.append(lists.labels, -1)[at], -1)
        others, scores = ranking(rows, k + m, lists)
        scores = np.minimum(scores, sums[:, -1:])  # a label has its best one
        both = np.concatenate([labels, others], axis=1).astype(np.int64)
        ids, scores = best_once(both, np.concatenate([sums, scores], axis=1))
        return ids[:, :k], np.where(ids < 0, np.float32(0), scores)[:, :k]

    return rank


def rows_at_once(n_columns: int) -> int:
    """Return of how many rows the logarithms of all buckets are held at once."""
    return max(1, LOGS_BYTES // (4 * max(n_columns, 1)))


def _empty(n: int, k: int) -> Top:
    return np.empty((n, k), np.int64), np.empty((n, k), np.float32)


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
        self.most = rows_at_once(backend.spec.n_columns)

    def of(self, rows: RowBlock) -> HashedBlock:
        """Return what they say of rows, `most` of them or fewer."""
        logs = self._backend.outputs(transform_block(rows, self._transform), logarithms=True)
        spec = self._backend.spec
        return HashedBlock(logs, self._codes, spec.n_buckets, spec.n_repetitions)

    def parts(self, rows: RowBlock) -> Iterator[tuple[slice, RowBlock, HashedBlock]]:
        """Yield rows in parts, where these stand, and what is said of them."""
        for start in range(0, rows.n_rows, self.most):
            some = slice(start, min(start + self.most, rows.n_rows))
            part = rows.part(some.start, some.stop)
            yield some, part, self.of(part)


def largest_discount(
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
