"""Ways to rank classes: by the hashed models, or by counts and hashed models together; labels.

Of rankings of lists that held-out rows cannot tell apart, rare labels profit most by the one in
which ``ln n_i``, of the rows of a label, weighs least: how much of it is let go is its tilt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streammach.backends.base import Backend
from streammach.backends.ranked import Ranked
from streammach.counts.scores import CountScorer, Hashed
from streammach.data.given_labels import label_values
from streammach.errors import DataError, UsageError
from streammach.figures import Reached
from streammach.model.model import Model
from streammach.prediction.calibrate import CANDIDATES, class_probabilities, label_probabilities
from streammach.rows.block import RowBlock
from streammach.rows.transforms import transformed
from streammach.spec.types import Estimator, Ranker, Transform

LOGS_BYTES = 16 << 20  # of bucket logarithms held at once
FEW_IDS = 256  # whose labels are looked up one by one
TILTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # taken from the weight of ln n_i

# Rows before their transform and k in; class ids int64 (n, k) and scores float32 (n, k) out.
Ranking = Callable[[RowBlock, int], tuple[NDArray[np.int64], NDArray[np.float32]]]


def by_hashes(backend: Ranked, estimator: Estimator, transform: Transform) -> Ranking:
    """Return the ranking of an estimator."""
    return lambda rows, k: backend.topk(transformed(rows, transform), k, estimator)


def by_counts(backend: Ranked, scorer: CountScorer, transform: Transform) -> Ranking:
    """Return the ranking by counts and hashed models together, exact over all classes."""
    hashes = None if backend.spec.unhashed else _Hashes(backend, transform)

    def rank(rows: RowBlock, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
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


def largest_tilt(reached: Callable[[float], Reached], n_rows: float) -> float:
    """Return the largest tilt whose score is within a standard error of the best.

    Larger ones are tried until one is worse by more than two.
    """
    scores: dict[float, float] = {}
    noise = 0.0
    for tilt in TILTS:
        found = reached(tilt)
        scores[tilt] = found.selection_score
        best = max(scores.values())
        if scores[tilt] == best:
            noise = math.sqrt(found.accuracy * (1 - found.accuracy) / max(n_rows, 1))
        if scores[tilt] < best - 2 * noise:
            break
    return max(tilt for tilt, score in scores.items() if score >= best - noise)


class Ranks:
    """Ranks the classes of rows."""

    def __init__(
        self, model: Model, asked: str | None, backend: Backend, scorer: CountScorer | None
    ) -> None:
        self.model = model  # the model
        self.estimator: Ranker = asked or model.estimator  # how classes are ranked
        self._asked, self._backend, self._scorer = asked, backend, scorer
        self._rankings: dict[Ranker, Ranking] = {}

    def topk_ids(
        self, block: RowBlock, k: int, estimator: Ranker | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids of each row and their scores, best first, or raise DataError.

        Returns `ids` int64 (n, min(k, K)), `scores` float32 (n, min(k, K)).
        """
        ids, scores = self._ranking(estimator or self.estimator)(block, k)
        # Weights and values that are finite may have sums that are not: no class is the best then.
        if ids.min(initial=0) < 0 or np.isnan(scores).any():
            wrong = np.flatnonzero((ids < 0).any(axis=1) | np.isnan(scores).any(axis=1))
            row = int(wrong[0]) if block.numbers is None else int(block.numbers[wrong[0]])
            raise DataError(
                f"the scores of row {row:,} (counted from 0) are no numbers: its values or the "
                "model's weights are too large",
                hint="Scale the values as they were for the training.",
            )
        return ids, scores

    def _ranking(self, name: Ranker) -> Ranking:
        """Return a way to rank, which is kept."""
        if name not in self._rankings:
            transform = self.model.training.transform
            if name == "blend":
                assert self._scorer is not None
                self._rankings[name] = by_counts(self._backend, self._scorer, transform)
            else:
                self._rankings[name] = by_hashes(self._backend, name, transform)
        return self._rankings[name]

    def ranking(self, *, threshold: float | None, probabilities: bool) -> Ranking:
        """Return how rows are ranked for :meth:`stream`, which says what is raised."""
        if threshold is not None and not self.model.listed:
            raise UsageError("rows have one label each: --threshold")
        if probabilities:
            self._check_calibrated()
        if threshold is not None:
            return partial(self.likely_ids, threshold=threshold)
        return self._probable_ids if probabilities else self.topk_ids

    def likely_ids(
        self, block: RowBlock, k: int, threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the labels of each row with at least a probability, the likeliest first.

        Each label has a probability of its own (:class:`streammach.model.document.Calibration`);
        those of a row need not add up to 1.

        Returns `ids` int64 (n, min(k, K)), `probabilities` float32 (n, min(k, K)).
        """
        ids, p = self._probable_ids(block, k)
        likely = p >= threshold
        return np.where(likely, ids, -1), np.where(likely, p, np.float32(0))

    def most(self, k: int) -> int:
        """Return how many classes there are of k, or raise UsageError for less than one."""
        if k < 1:
            raise UsageError(f"k is {k}: 1 or more labels are asked for")
        return min(k, self.model.spec.n_classes)

    def labels(self, ids: NDArray[np.int64], kind: str = "") -> NDArray[Any]:
        """Return the labels of class ids, in the type of the training data, or in another kind."""
        if kind:
            some, places = np.unique(ids, return_inverse=True)
            own = label_values(self.model.labels.raws(some), kind, self.model.labels.kind)
            return own[places].reshape(ids.shape)
        # Of the id -1 it is the empty string, in an array of objects.
        names, few = self.model.labels, ids.size <= FEW_IDS
        unique, where = (ids.reshape(-1), ...) if few else np.unique(ids, return_inverse=True)
        there = unique >= 0
        whole = names.kind == "integer" and there.all()
        found = np.full(len(unique), 0 if whole else "", np.int64 if whole else object)
        found[there] = names.values(unique[there])
        return found[where].reshape(ids.shape)

    def _check_calibrated(self, estimator: Ranker | None = None) -> None:
        """Refuse probabilities of a ranking that was asked for and is not the calibrated one."""
        asked, known = estimator or self._asked, self.model.calibrated
        if asked not in (None, known):
            raise UsageError(
                f"probabilities are those of the ranking {known}, not of {asked}: --estimator",
                hint=f"Leave it out, or name {known}.",
            )

    def _probable_ids(
        self, block: RowBlock, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids by the calibrated ranking and their probabilities."""
        model = self.model
        ids, scores = self.topk_ids(block, max(k, CANDIDATES), model.calibrated)
        if model.listed:
            p = label_probabilities(scores, model.calibration)
        else:
            p, _ = class_probabilities(scores, model.spec.n_classes, model.calibration)
        return ids[:, :k], p[:, :k].astype(np.float32)

    def close(self) -> None:
        """Stop the threads."""
        self._backend.close()
        if self._scorer is not None:
            self._scorer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
