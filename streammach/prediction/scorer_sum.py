"""The sum of a model's scorers: the best labels of rows, and what else is asked of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.backends.protocol import Backend
from streammach.counts.scores import CountScorer
from streammach.linear.late import BEST
from streammach.linear.scorer import open_scorer
from streammach.linear.weights import LinearScorer
from streammach.model.calibration import CANDIDATES, class_probabilities, label_probabilities
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.options.estimators import BLEND
from streammach.options.model_spec import ModelSpec
from streammach.options.option_fields import add_attributes, attribute
from streammach.options.reported import Reported
from streammach.options.types import Ranker
from streammach.prediction import ranking
from streammach.prediction.allowed import Allowed, KnownLabels, bytes_of
from streammach.prediction.explain import LINES, WORK_BYTES, Explainer, reason_type
from streammach.prediction.ranking import ClassScorer, Top
from streammach.prediction.room import CELL_BYTES, Task
from streammach.rows.block import RowBlock
from streammach.rows.texts import Texts
from streammach.rows.transforms import transform_block
from streammach.system.errors import UsageError
from streammach.system.threads import Workers, pieces_of

PIECES_A_THREAD = 4  # of rows whose lists of classes are scored
BUCKET_BYTES = 20  # of a bucket's probability: of ranked, sorted and written rows, and work


class BestLabels(NamedTuple):
    """The best labels of n rows by class id, best first; -1 where there is no further one."""

    ids: NDArray[np.int64]  # int64 (n, k)
    scores: NDArray[Any]  # float32 (n, k): by the estimator
    p: NDArray[np.float64] | None = None  # float64 (n, k): probabilities, where asked for
    left: NDArray[np.float64] | None = None  # float64 (n,): that of a class that is not ranked
    reasons: NDArray[Any] | None = None  # (n, k): why, as :func:`reason_type` says
    buckets: NDArray[np.float32] | None = None  # float32 (n, R*B): those of hashed models

    @property
    def values(self) -> NDArray[np.float32]:
        """Probabilities, or scores where these are not asked for: float32 (n, k)."""
        values: NDArray[np.float32] = self.scores
        return values if self.p is None else self.p.astype(np.float32)


@add_attributes
@dataclass(frozen=True, repr=False)
class Predictions(Reported):
    """The best classes of some rows."""

    rows: NDArray[np.int64] = attribute("Number of each row in the input, from 0: int64 (n,).")
    ids: NDArray[np.int64] = attribute("Class ids, best first: int64 (n, k).")
    scores: NDArray[np.float32] = attribute("Their scores by the estimator: float32 (n, k).")
    tags: Texts | None = attribute("The tag of each row; None where no row has one.", None)
    reasons: NDArray[Any] | None = attribute(
        "Why each has its score, where that is asked for: (n, k) as `reason_type` says.", None
    )
    buckets: NDArray[np.float32] | None = attribute(
        "Their bucket probabilities, where these are asked for: float32 (n, R*B).", None
    )

    def _line(self) -> str:
        n, k = self.ids.shape
        return f"{n:,} rows, {k:,} classes each"


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """What is wanted of each row."""

    task: ClassVar[Task] = "predict"
    k: int  # most classes a row
    threshold: float | None = None  # the least probability of a label that is given
    probabilities: bool = False  # whether probabilities stand in place of scores
    # labels that may be said alone, or may not be said; None without such a limit
    only: tuple[Any, ...] | None = None
    never: tuple[Any, ...] | None = None
    explain: int = 0  # features that raise a score, and that lower it, which are given at most
    n_columns: int = 0  # R*B of the bucket probabilities that are given; 0 without these

    @property
    def some_labels(self) -> bool:
        """Whether only some of the labels may be said."""
        return (self.only, self.never) != (None, None)

    @property
    def calibrated(self) -> bool:
        """Whether the ranking that is calibrated is used."""
        return self.probabilities or self.threshold is not None

    def cells(self, allowed: Allowed | None = None) -> int:
        """Return cells of a row: classes that are ranked, two for what adds to a score of each."""
        ranked = self.k if allowed is None else allowed.n_to_rank(self.k)
        ranked = max(ranked, CANDIDATES) if self.calibrated else ranked
        explained = 2 * self.k * (2 * self.explain + len(LINES)) * (self.explain > 0)
        return ranked + explained + -(-BUCKET_BYTES * self.n_columns // CELL_BYTES)

    def beside(self, n_classes: int) -> dict[str, int]:
        """Return the memory that explaining and files of labels take, by name."""
        del n_classes
        files = bytes_of((*(self.only or ()), *(self.never or ())))
        found = {"explanations": WORK_BYTES * bool(self.explain), "files of labels": files}
        return {name: n_bytes for name, n_bytes in found.items() if n_bytes}

    def record_type(self, k: int) -> np.dtype[Any]:
        """Return how a row is held with the bytes of its tag, while rows are put in order."""
        best: list[Any] = [("ids", "i4", (k,)), ("scores", "f4", (k,))]
        best += [("reasons", reason_type(self.explain), (k,))] * (self.explain > 0)
        best += [("buckets", "f4", (self.n_columns,))] * (self.n_columns > 0)
        return np.dtype([("rows", "i8"), ("tag", "i4"), *best])


class ScorerSum:
    """Adds up what a model's scorers say of rows, on one thread at a time that calls it."""

    def __init__(self, model: Model, backend: Backend, named: Ranker | None, threads: int) -> None:
        self.known = KnownLabels(model)
        self._model, self._backend, self._named = model, backend, named
        self._workers = Workers(threads, "labels")
        self._counts = None if model.counts is None else CountScorer(model.counts, threads)
        self._linear = None if model.linear is None else open_scorer(model.linear, threads)
        self._late = None if model.late is None else LinearScorer(model.late, threads)
        self._scorers: dict[Ranker, ClassScorer] = {}
        self._explainers: dict[Ranker, Explainer] = {}

    def topk(
        self, rows: RowBlock, k: int, estimator: Ranker | None = None, *,
        probabilities: bool = False, threshold: float | None = None, allowed: Allowed | None = None,
        explain: int = 0, buckets: bool = False,
    ) -> BestLabels:  # fmt: skip
        """Return the k best labels of rows, exactly, or raise UsageError or DataError.

        A label has the probability that it has among all labels, whichever are allowed. With a
        threshold labels that are less probable are left out. `explain` features each way say why;
        `buckets` adds their probabilities.
        """
        k, calibrated = self.most(k, allowed), probabilities or threshold is not None
        if calibrated:
            self.check_calibrated(estimator, threshold)
            best = self._probable(rows, k, allowed)
        else:
            scorer, allowed = self.scorer(estimator), allowed or self.known.usual
            top = scorer.topk(rows, k) if allowed is None else allowed.best(rows, k, scorer)
            best = BestLabels(*top)
        if threshold is not None and best.p is not None:
            likely = best.values >= threshold
            best = best._replace(ids=np.where(likely, best.ids, -1), p=np.where(likely, best.p, 0))
        if explain:
            why = self.reasons(rows, best.ids, explain, calibrated=calibrated)
            best = best._replace(reasons=why)
        return best._replace(buckets=self.bucket_probabilities(rows)) if buckets else best

    def predict(
        self, block: RowBlock, request: PredictionRequest, allowed: Allowed | None
    ) -> Predictions:
        """Return what is asked of rows of an input."""
        best = self.topk(
            block, request.k, probabilities=request.probabilities, threshold=request.threshold,
            allowed=allowed, explain=request.explain, buckets=request.n_columns > 0,
        )  # fmt: skip
        assert block.numbers is not None, "it is read with them"
        return Predictions(
            block.numbers, best.ids, best.values, block.tags, best.reasons, best.buckets
        )

    def bucket_probabilities(self, rows: RowBlock) -> NDArray[np.float32]:
        """Return those of hashed models: float32 (n, R*B), or raise UsageError without these."""
        check_hashed(self._model.spec)
        rows = transform_block(rows, self._model.training.transform)
        return self._backend.outputs(rows, logarithms=False)

    def most(self, k: int, allowed: Allowed | None = None) -> int:
        """Return how many labels there are of k, or raise UsageError for less than one."""
        if type(k) is not int:  # a query has no time for more
            check_options({"k": "int"}, {"k": k})
        if k < 1:
            raise UsageError(f"k is {k}: 1 or more labels are asked for")
        allowed = allowed or self.known.usual
        return min(k, self._model.spec.n_classes if allowed is None else allowed.n_labels)

    def n_to_rank(self, k: int, allowed: Allowed | None, *, calibrated: bool) -> int:
        """Return how many classes of a row are ranked for its k best labels."""
        allowed = allowed or self.known.usual
        best = k if allowed is None else allowed.n_to_rank(k)
        best = best if self._model.late is None else max(best, BEST)
        return max(best, CANDIDATES) if calibrated else best

    def check_calibrated(self, estimator: Ranker | None, threshold: float | None) -> None:
        """Raise UsageError if labels ranked so have no probabilities, or for such a threshold."""
        named, calibrated = estimator or self._named, self._model.calibrated_ranking
        if named not in (None, calibrated):
            raise UsageError(
                f"probabilities are those of the ranking {calibrated}, not of {named}: --estimator",
                hint=f"Leave it out, or name {calibrated}.",
            )
        if threshold is not None:
            check_options({"threshold": "float"}, {"threshold": threshold})
            if not 0 <= threshold <= 1:
                raise UsageError(f"{threshold} is no share from 0 to 1: --threshold")

    def _probable(self, rows: RowBlock, k: int, allowed: Allowed | None) -> BestLabels:
        """Return the k best labels by the calibrated ranking, with their probabilities.

        Classes are ranked once, as many as any of these asks for.
        """
        model, usual, n = self._model, self.known.usual, max(k, CANDIDATES)
        every = self.scorer(model.calibrated_ranking)
        asked = [n, *(one.n_to_rank(m) for one, m in ((usual, n), (allowed, k)) if one is not None)]
        top = every.topk(rows, max(asked))
        again = replace(every, topk=lambda _, k: (top[0][:, :k], top[1][:, :k]))
        ids, scores = again.topk(rows, n) if usual is None else usual.best(rows, n, again)
        own, own_scores = (ids, scores) if allowed is None else allowed.best(rows, k, again)
        own, own_scores, left = own[:, :k], own_scores[:, :k], None
        if model.listed:
            p = label_probabilities(own_scores, model.calibration, top[1][:, :CANDIDATES])
        else:
            p, left = class_probabilities(scores, model.n_labels, model.calibration)
            if allowed is not None:  # the same labels come first among the best of all
                n = min(CANDIDATES, ids.shape[1])
                first, packed = allowed.pack_best(ids[:, :n], p[:, :n], own.shape[1])
                p = np.where(first >= 0, packed, left[:, None])
        return BestLabels(own, own_scores, np.where(own >= 0, p[:, : own.shape[1]], 0), left)

    def scorer(self, name: Ranker | None = None) -> ClassScorer:
        """Return what scores classes by an estimator, or by the usual one."""
        name = name or self._named or self._model.estimator
        if name not in self._scorers:
            model, late, base = self._model, self._late, self._base_scorer(name)
            if model.late is not None and late is not None and name == model.calibrated_ranking:
                base = ranking.by_classifiers(base, model.late, late)
            self._scorers[name] = ranking.by_frequency(base, model, name)
        return self._scorers[name]

    def _base_scorer(self, name: Ranker) -> ClassScorer:
        """Return what scores by hashed models, by linear classifiers, or with counts."""
        transform = self._model.training.transform
        if name != BLEND:
            base = ranking.by_hashes(self._backend, name, transform, self._each)
        elif self._linear is not None:
            base = ranking.by_linear(self._linear)
        else:
            assert self._counts is not None, "a model without counts has no blend"
            base = ranking.by_counts(self._backend, self._counts, transform)

        def topk(rows: RowBlock, k: int) -> Top:
            ids, scores = base.topk(rows, k)
            if ids.min(initial=0) < 0 or np.isnan(scores).any():
                ranking.refuse_rows(rows, np.nonzero((ids < 0) | np.isnan(scores))[0])
            return ids, scores

        return replace(base, topk=topk)

    def _each(self, work: Callable[[int, int], None], n: int) -> None:
        threads = self._workers.n_threads
        self._workers.each(work, pieces_of(n, threads, a_thread=PIECES_A_THREAD))

    def reasons(
        self, rows: RowBlock, ids: NDArray[np.int64], n: int, *, calibrated: bool = False
    ) -> NDArray[Any]:
        """Return what n features each way add to the scores of classes: :class:`Explainer`."""
        return self.explainer(self._model.calibrated_ranking if calibrated else None).reasons(
            rows, ids, n
        )

    def explainer(self, name: Ranker | None = None) -> Explainer:
        """Return what explains scores by an estimator, or by the usual one."""
        name = name or self._named or self._model.estimator
        if name not in self._explainers:
            self._explainers[name] = Explainer(self._model, name, self.scorer(name))
        return self._explainers[name]

    def close(self) -> None:
        """Stop the threads."""
        for one in (self._workers, self._counts, self._linear, self._late):
            if one is not None:
                one.close()


def check_hashed(spec: ModelSpec) -> ModelSpec:
    """Return the shape of a model, or raise UsageError where it has no hashed models."""
    if spec.unhashed:
        hint = "Train one with --linear off --buckets N --repetitions N."
        what = "the model has no hashed models, and so no buckets: --buckets"
        raise UsageError(what, hint=hint)
    return spec
