"""What scores classes: hashed models, counts with them, linear classifiers, and what is added.

Of rankings of lists that held-out rows cannot tell apart, rare labels profit most by the one in
which ``ln n_i``, of the rows of a label, weighs least: how much of it is let go is its tilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import CodedClasses, join_lists, score_listed
from streammach.backends.protocol import Ranked
from streammach.counts.class_scores import HashedScores
from streammach.counts.scores import CountScorer, best_once
from streammach.linear.late import BEST, LateLabels, rank_again
from streammach.linear.scorer import Scorer
from streammach.linear.weights import LinearScorer
from streammach.model.model import Model
from streammach.options.estimators import BLEND, ESTIMATORS
from streammach.options.types import Estimator, Ranker, Transform
from streammach.rows.arrays import best_first
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists, offer_listed
from streammach.rows.transforms import transform_block
from streammach.system.errors import DataError

LOGS_BYTES = 16 << 20  # of bucket logarithms held at once
LISTED = 1 << 18  # listed classes that are scored at once
LISTED_BYTES = 32 * LISTED  # of these: class, label, row, place and scores
LEAST_ROWS = 0.5  # of a class that no training row has
FREQUENCY_BYTES = 24  # of a class: its score by frequency and its place, and what makes them
TILTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)  # taken from the weight of ln n_i

Top = tuple[NDArray[np.int64], NDArray[np.float32]]  # class ids (n, k) and scores, best first
Ranking = Callable[[RowBlock, int], Top]  # of rows before their transform, and k
Scores = NDArray[np.float32]
Run = Callable[[Callable[[int, int], None], int], None]  # calls it with ranges of n, on threads


def _on_this_thread(work: Callable[[int, int], None], n: int) -> None:
    work(0, n)


@dataclass(frozen=True)
class ClassScorer:
    """Ranks the classes of rows before their transform, exactly: all, or some of each row."""

    topk: Ranking  # by the scores of all classes
    # Ranks the labels of listed classes; the id is -1 where a row has no further one.
    best_of_lists: Callable[[RowBlock, int, CandidateLists], Top]

    def __call__(self, rows: RowBlock, k: int) -> Top:
        """Return the k best of all classes."""
        return self.topk(rows, k)


def rank_lists(
    rows: RowBlock, k: int, lists: CandidateLists, *,
    score: Callable[[RowBlock, CandidateLists], Scores],
    finish: Callable[[RowBlock, Scores], Scores] = lambda rows, scores: scores,
    most_rows: int = LISTED, run: Run = _on_this_thread,
) -> Top:  # fmt: skip
    """Return the k best labels of the classes that are listed for each row, and their scores.

    `score` returns float32 (m,), by which the classes of `most_rows` rows or fewer are ranked;
    `finish` makes scores of that. Labels are ranked on threads by `run`.
    """
    ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
    for some in lists.cut(LISTED, most_rows):
        whole = some == slice(0, rows.n_rows)
        part = rows if whole else rows.part(some.start, some.stop)
        own = (lists if whole else lists.part(some.start, some.stop)).spread()
        best, where = scores[some], ids[some]
        run(partial(offer_listed, score(part, own), own, best, where), part.n_rows)
        best[:] = finish(part, best)
    refuse_rows(rows, np.flatnonzero((lists.last > lists.first) & (ids[:, 0] < 0)))
    return ids, np.where(ids < 0, np.float32(0), scores)


def refuse_rows(rows: RowBlock, wrong: NDArray[np.int64]) -> None:
    """Raise DataError for the first of some places of rows whose scores are no numbers."""
    # Weights and values that are finite may have sums that are not: no class is the best then.
    if len(wrong):
        row = int(wrong[0])
        number = row if rows.numbers is None else int(rows.numbers[row])
        raise DataError(
            f"the scores of row {number:,} (counted from 0) are no numbers: its values or the "
            "model's weights are too large",
            hint="Scale the values as they were for the training.",
        )


def by_hashes(
    backend: Ranked, estimator: Estimator, transform: Transform, run: Run = _on_this_thread
) -> ClassScorer:
    """Return what ranks by an estimator; `run` shares rows with lists among threads."""
    kind, spec = ESTIMATORS[estimator], backend.spec

    def topk(rows: RowBlock, k: int) -> Top:
        return backend.topk(transform_block(rows, transform), k, estimator)

    def score(rows: RowBlock, lists: CandidateLists) -> Scores:
        p = backend.outputs(transform_block(rows, transform), logarithms=kind.logarithms)
        if kind.join is not None:
            return join_lists(p, backend.codes, kind, lists)
        shape = spec.n_repetitions, spec.n_buckets, kind.branch
        model = CodedClasses(backend.codes.reshape(-1), *shape)
        scores = np.empty(len(lists.classes), np.float32)

        def write(first: int, last: int) -> None:
            v = np.empty(spec.n_repetitions, np.float32)
            score_listed(p, model, lists, first, last, v, scores)

        run(write, len(p))
        return scores

    def finish(rows: RowBlock, scores: Scores) -> Scores:
        return backend.finish_scores(transform_block(rows, transform), kind, scores)

    most = rows_at_once(spec.n_columns)
    best = partial(rank_lists, score=score, finish=finish, most_rows=most, run=run)
    return ClassScorer(topk, best)


def by_counts(
    backend: Ranked | None, scorer: CountScorer, transform: Transform = "raw"
) -> ClassScorer:
    """Return what ranks by counts and hashed models together, or by counts alone."""
    most, run = scorer.most_rows, lambda work, n: scorer.each(n, work)
    if backend is None or backend.spec.unhashed:
        best = partial(rank_lists, score=scorer.score_listed, most_rows=most, run=run)
        return ClassScorer(scorer.topk, best)
    hashes = _Hashes(backend, transform)

    def topk(rows: RowBlock, k: int) -> Top:
        if rows.n_rows <= hashes.most:
            return scorer.topk(rows, k, hashes.of(rows))
        parts = [scorer.topk(part, k, hashed) for _, part, hashed in hashes.parts(rows)]
        ids, scores = (np.concatenate(own) for own in zip(*parts, strict=True))
        return ids, scores

    def score(rows: RowBlock, lists: CandidateLists) -> Scores:
        return scorer.score_listed(rows, lists, hashes.of(rows))

    most = min(most, hashes.most)
    return ClassScorer(topk, partial(rank_lists, score=score, most_rows=most, run=run))


def by_linear(scorer: Scorer) -> ClassScorer:
    """Return what ranks by linear classifiers; all classes are scored."""

    def topk(rows: RowBlock, k: int) -> Top:
        scores = scorer.scores(rows)
        return best_first(np.broadcast_to(np.arange(scores.shape[1]), scores.shape), scores, k)

    def score(rows: RowBlock, lists: CandidateLists) -> Scores:
        scores: Scores = scorer.scores(rows)[lists.rows, lists.classes]
        return scores

    return ClassScorer(topk, partial(rank_lists, score=score))


def by_classifiers(base: ClassScorer, late: LateLabels, scorer: LinearScorer) -> ClassScorer:
    """Return what ranks by the sum of scores and of what `scorer`, classifiers, adds.

    Of a row the first :data:`streammach.linear.late.BEST` classes have the sum; others keep their
    scores, but for what these are above the lowest sum.
    """

    def topk(rows: RowBlock, k: int) -> Top:
        ids, sums = rank_again(rows, base.topk(rows, max(k, BEST)), scorer, late.weight)
        return ids[:, :k], sums[:, :k]

    def best_of_lists(rows: RowBlock, k: int, lists: CandidateLists) -> Top:
        ids, sums = topk(rows, BEST)
        n, m = ids.shape
        at = lists.places(np.repeat(np.arange(n), m), ids.reshape(-1)).reshape(n, m)
        labels = np.where(at >= 0, np.append(lists.labels, -1)[at], -1)
        others, scores = base.best_of_lists(rows, k + m, lists)
        scores = np.minimum(scores, sums[:, -1:])  # a label has its best one
        both = np.concatenate([labels, others], axis=1).astype(np.int64)
        ids, scores = best_once(both, np.concatenate([sums, scores], axis=1))
        return ids[:, :k], np.where(ids < 0, np.float32(0), scores)[:, :k]

    return ClassScorer(topk, best_of_lists)


def knows_frequencies(model: Model) -> bool:
    """Return whether a model ranks rows without features by :func:`frequency_scores`."""
    unknown = model.label_counts is None and model.counts is None
    return not (model.dense or unknown or model.linear is not None)


def frequency_scores(model: Model, ranker: Ranker) -> NDArray[np.float32]:
    """Return the scores of all classes for a row without features: float32 (K,).

    Weights say little of such a row, so that classes go by their shares of the training rows. Where
    scores are logarithms they are logarithms by the scale of the calibration: probabilities differ
    as the shares do. Of a model of rows with one label the shares of their values stand for those
    of the rows.
    """
    if model.label_counts is not None:
        rows, total = model.label_counts.astype(np.float64), float(model.n_rows)
    else:
        assert model.counts is not None, "one of both is known"
        rows = np.exp(model.counts.log_values.astype(np.float64))
        total = float(rows.sum())
    shares = np.maximum(rows, LEAST_ROWS) / max(total, 1.0)
    if ranker == BLEND or ESTIMATORS[ranker].logarithms:
        shares = np.log(shares) / model.calibration.beta
    return shares.astype(np.float32)


def by_frequency(base: ClassScorer, model: Model, ranker: Ranker) -> ClassScorer:
    """Return what ranks as `base`, and rows without features by :func:`frequency_scores`."""
    if not knows_frequencies(model):
        return base

    @cache
    def score_all() -> tuple[Scores, NDArray[np.int64]]:
        every = frequency_scores(model, ranker)
        return every, np.argsort(-every, kind="stable")

    def topk(rows: RowBlock, k: int) -> Top:
        (ids, scores), empty = base.topk(rows, k), rows.empty
        if len(empty):
            every, order = score_all()
            ids[empty], scores[empty] = order[:k], every[order[:k]]
        return ids, scores

    def best_of_lists(rows: RowBlock, k: int, lists: CandidateLists) -> Top:
        (ids, scores), empty = base.best_of_lists(rows, k, lists), rows.empty
        if len(empty):
            own = lists._replace(first=lists.first[empty], last=lists.last[empty])
            ids[empty], scores[empty] = rank_lists(
                rows.take(empty), k, own, score=lambda _, some: score_all()[0][some.classes]
            )
        return ids, scores

    return ClassScorer(topk, best_of_lists)


def rows_at_once(n_columns: int) -> int:
    """Return of how many rows the logarithms of all buckets are held at once."""
    return max(1, LOGS_BYTES // (4 * max(n_columns, 1)))


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

    def of(self, rows: RowBlock) -> HashedScores:
        """Return what they say of rows, `most` of them or fewer."""
        logs = self._backend.outputs(transform_block(rows, self._transform), logarithms=True)
        spec = self._backend.spec
        return HashedScores(logs, self._codes, spec.n_buckets, spec.n_repetitions)

    def parts(self, rows: RowBlock) -> Iterator[tuple[slice, RowBlock, HashedScores]]:
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
        if is_worse(found[tilt], found[best], errors):
            break
    if best_alone:
        return best, float(found[best].mean())
    alike = [tilt for tilt, one in found.items() if not is_worse(one, found[best], errors)]
    return max(alike), float(found[best].mean())


def is_worse(one: NDArray[np.float64], best: NDArray[np.float64], errors: float) -> bool:
    """Return whether rows' scores are worse in the mean by more than so many standard errors."""
    lost = best - one
    return bool(lost.mean() > errors * lost.std() / max(len(lost), 1) ** 0.5)
