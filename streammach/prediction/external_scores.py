"""Figures of scores that another system gives: by the same arithmetic as those of a model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.conversion.memory_labels import to_labels
from streammach.inputs.identity import PLACE
from streammach.inputs.label_arrays import Labels
from streammach.options.annotated import check_options
from streammach.prediction.evaluate import Evaluation, evaluation_of, with_labels
from streammach.prediction.inputs import InputCounts
from streammach.prediction.metric_table import EvaluationRequest, MetricSums
from streammach.prediction.metrics import DEFAULT_A, DEFAULT_B
from streammach.prediction.ranked_rows import ClassFacts, RankedRows
from streammach.prediction.scorer_sum import BestLabels
from streammach.rows.arrays import best_first, is_sparse
from streammach.rows.block import RowBlock
from streammach.rows.names import Label, Names
from streammach.system.errors import DataError, UsageError

CELLS = 1 << 20  # scores that are brought into order at a time
NOTHING = -2  # in the place of a class: it is none, and no unknown label either
GIVEN = "given"  # how classes were ranked


def metrics(
    true: Any, scores: Any, *, labels: Sequence[Label] | None = None, train: Any = None,
    at: Sequence[int] = (), threshold: float = 0.5,
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B), by_class: bool = False,
    confusions: int = 0,
) -> Evaluation:  # fmt: skip
    """Return the figures of scores of any make, as :func:`streammach.evaluate` has them of a model.

    They need no model, so that two systems compare. Scores are taken for no probabilities: log loss
    and calibration errors are NaN.

    Parameters
    ----------
    true : array (n,), n lists, or matrix (n, labels)
        The labels of the rows, as for :func:`streammach.train`.
    scores : array (n, K), sparse matrix, DataFrame, or (labels, scores)
        A score for each row and label: the higher, the likelier. Labels without a value in a sparse
        matrix are not ranked. Or a pair of arrays (n, k): some labels of each row, the empty string
        for none, and their scores.
    labels : sequence, optional
        The labels of the columns; those of a DataFrame, or numbers from 0 otherwise.
    train : array (n,), n lists, or matrix (n, labels), optional
        The labels of the training rows. Without them there is no share of the most frequent class,
        no recall by frequency, and no figure with propensities: NaN.
    at : sequence of int
        Places at which figures of lists are told, beside 1, 3 and 5, of rows with one label too.
    threshold : float
        Score from which on a label is predicted, where rows have lists of labels: 0.5 for
        probabilities, 0 for distances from a plane.
    propensity, by_class, confusions : as there
        They are those of :func:`streammach.evaluate`.

    Raises
    ------
    DataError
        If rows, labels and scores differ in number, a score is NaN, or a row has a label twice.
    """
    check_options(metrics.__annotations__, locals())
    began = time.monotonic()
    request = EvaluationRequest(
        threshold=threshold, propensity=propensity, at=tuple(at), by_class=by_class,
        confusions=confusions,
    )  # fmt: skip
    rankings = _Rankings.of(scores, labels)
    own = rankings.labels_of(true)
    training = None if train is None else rankings.labels_of(train)
    names, counts = _order_labels(rankings, own, training)
    rows = with_labels(_without_features(rankings.scores.shape[0]), own, names)
    listed = any(one is not None and one.lists is not None for one in (own, training))
    facts = ClassFacts(
        names, 0, counts if listed else None, 0 if training is None else len(training)
    )
    sums, ids = MetricSums(facts, request), names.ids_of(Names.of(rankings.names))
    for start, stop, codes, values in rankings.pieces():
        best = np.where(values > -np.inf, ids[codes], NOTHING).astype(np.int64)
        block = rows.part(start, stop)
        sums.add(sums.count(RankedRows(facts, block, best, BestLabels(best, values))))
    done = evaluation_of(sums, InputCounts(), GIVEN, began)
    return _without_training(done) if training is None else done


def _without_features(n: int) -> RowBlock:
    """Return n rows, or raise DataError."""
    if not n:
        raise DataError("there are no rows", path=PLACE)
    none = np.zeros(0, np.int32)
    return RowBlock(
        indptr=np.zeros(n + 1, np.int64), features=none, values=none.astype(np.float32),
        classes=np.full(n, -1, np.int32), numbers=np.arange(n),
    )  # fmt: skip


def _order_labels(
    rankings: _Rankings, own: Labels, training: Labels | None
) -> tuple[Names, NDArray[np.int64]]:
    """Return the names of all labels, frequent ones of training first, and rows with each there."""
    counts: dict[bytes, int] = {}
    if training is not None:
        some, n = np.unique(training.codes, return_counts=True)
        order = np.argsort(-n, kind="stable")
        counts = dict(zip(training.raws(some[order].tolist()), n[order].tolist(), strict=True))
    more = rankings.names
    if training is None and rankings.codes is not None:  # the rest of the labels is not known
        more = [*more, *own.raws(np.unique(own.codes).tolist())]
    counts |= {name: 0 for name in more if name and name not in counts}
    return Names.of(counts), np.array([*counts.values()], np.int64)


def _without_training(done: Evaluation) -> Evaluation:
    """Return figures without those that need the labels of the training."""
    nan, sets = float("nan"), done.sets
    if sets is not None:
        unknown = dict.fromkeys(sets.psp, nan)
        sets = replace(sets, psp=unknown, psndcg=unknown, decile_recall=())
    return replace(done, majority=nan, recall_by_decile=(), sets=sets)


@dataclass(frozen=True)
class _Rankings:
    """Scores of rows, and which label has each."""

    scores: Any  # array or sparse matrix (n, k)
    names: list[bytes]  # names of labels
    codes: NDArray[np.int64] | None  # int64 (n, k): labels of the scores; None: of the columns

    @classmethod
    def of(cls, scores: Any, labels: Sequence[Label] | None) -> _Rankings:
        """Return scores that were given, or raise UsageError or DataError."""
        if isinstance(scores, tuple):
            if len(scores) != 2 or labels is not None:
                raise UsageError("a pair of labels and their scores is expected: scores")
            given, values = np.asarray(scores[0]), np.asarray(scores[1], np.float64)
            if given.ndim != 2 or given.shape != values.shape or not given.shape[1]:
                raise DataError(f"labels have the shape {given.shape}, their scores {values.shape}")
            there = given.astype(object) != ""
            own = to_labels(given[there], strict=False)
            assert own.names is not None, "they are no lists"
            codes = np.full(given.shape, len(own.names))
            codes[there] = own.codes
            return cls(values, [*own.names, b""], codes)
        if labels is None and hasattr(scores, "columns"):
            labels = list(scores.columns)
        matrix = scores.tocsr() if is_sparse(scores) else np.asarray(scores)
        if matrix.ndim != 2 or not matrix.shape[1]:
            raise DataError(f"scores have the shape {matrix.shape}, (rows, labels) is expected")
        n = matrix.shape[1]
        own = to_labels(np.arange(n) if labels is None else labels)
        names = own.raws(own.codes.tolist()) if own.lists is None else []
        if len(names) != n or len({*names}) != n:
            raise UsageError(f"{len({*names}):,} labels for {n:,} columns: labels")
        return cls(matrix, names, None)

    def labels_of(self, labels: Any) -> Labels:
        """Return labels of rows that were given; columns of a matrix are those of the scores."""
        own = to_labels(labels)
        if own.names is None and self.codes is None:
            if own.codes.max(initial=-1) >= len(self.names):
                raise DataError(f"labels have more columns than the {len(self.names):,} of scores")
            own = replace(own, names=self.names)
        return own.choose_form("auto", PLACE, "labels")

    def pieces(self) -> Iterator[tuple[int, int, NDArray[np.int64], NDArray[Any]]]:
        """Yield rows ``start:stop`` with their labels and scores, best first, -inf without one."""
        n, k = self.scores.shape
        step, columns = max(1, CELLS // max(k, 1)), np.arange(k)
        for start in range(0, n, step):
            stop = min(start + step, n)
            values, codes = self.scores[start:stop], np.broadcast_to(columns, (stop - start, k))
            if is_sparse(values):
                some, values = values.tocoo(), np.full(values.shape, -np.inf)
                some.sum_duplicates()
                values[some.row, some.col] = some.data
            if self.codes is not None:
                codes = self.codes[start:stop]
            values = np.where([not name for name in self.names], -np.inf, 0)[codes] + values
            if np.isnan(values).any():
                raise DataError("a score is NaN", path=PLACE)
            own = np.sort(np.where(values > -np.inf, codes, -1 - columns), axis=1)
            if (again := (np.diff(own, axis=1) == 0).any(axis=1)).any():
                row = start + int(again.argmax())
                raise DataError(f"row {row:,} (counted from 0) ranks a label twice", path=PLACE)
            yield start, stop, *best_first(codes, values, k)
