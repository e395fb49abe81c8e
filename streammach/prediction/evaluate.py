"""How good predictions are: top-k accuracy and log loss, or the metrics of lists of labels."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.base import Backend
from streammach.data.bad_rows import BadRows, listed_rows, rejects_list, skipping
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.errors import DataError, UsageError, clean
from streammach.figures import FormerNames, Reached, figures_text
from streammach.model.model import Model
from streammach.prediction.calibrate import CANDIDATES, label_probabilities, log_probabilities
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import Ranking, by_hashes
from streammach.prediction.set_metrics import (
    DEFAULT_A,
    DEFAULT_B,
    F1,
    F1Figures,
    SetFigures,
    SetMetrics,
)
from streammach.progress import Wanted, shown
from streammach.rows.block import RowBlock
from streammach.spec.estimators import estimators
from streammach.spec.reported import Reported
from streammach.spec.types import Estimator, Ranker, Transform

PLACES = (1, 3, 5)


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(FormerNames, Reported):
    """What a model reaches on labelled rows.

    Attributes
    ----------
    n_rows : int
        All rows; those with an unseen label count as wrong.
    n_unseen : int
        Rows whose label was never seen in training.
    unknown_values : int
        Values left out because the model does not know their feature.
    accuracy, top_3_accuracy, top_5_accuracy : float
        Share of the rows whose label is among the first 1, 3, 5.
    log_loss : float
        Mean of ``-ln p`` of the label over the rows whose label was seen in training, in nats; NaN
        if there are none. The probabilities sum to 1 over all classes.
    p_at_1, p_at_3, p_at_5 : float
        Former names of the three.
    majority : float
        Share of the rows with the most frequent class of the training data.
    estimator : str
        How classes were ranked.
    seconds : float
        Time taken.
    sets : SetMetrics or None
        The metrics of rows with lists of labels, where the rows or the model's have them. Then
        ``accuracy``, ``top_3_accuracy`` and ``top_5_accuracy`` are precision at 1, 3 and 5,
        `n_unseen` counts labels, and ``log_loss`` is NaN.
    f1 : F1 or None
        F1 of the labels whose probability is at least `threshold`.
    threshold : float
        That probability.
    skipped : dict of str to int
        Rows that could not be read and were left out, by reason.
    """

    n_rows: int
    n_unseen: int
    unknown_values: int
    accuracy: float
    top_3_accuracy: float
    top_5_accuracy: float
    log_loss: float
    majority: float
    estimator: Ranker
    seconds: float
    sets: SetMetrics | None = None
    f1: F1 | None = None
    threshold: float = 0.5
    skipped: dict[str, int] = field(default_factory=dict)

    def _line(self) -> str:
        figures = figures_text(self, listed=self.sets is not None)
        return f"{figures}, {self.n_rows:,} rows, {self.estimator}"


def top_k_hits(ids: NDArray[np.int64], classes: NDArray[np.int32], k: int) -> int:
    """Return how many rows have their label among the first k ids."""
    return int((ids[:, :k] == classes[:, None]).any(axis=1).sum())


def reached(rows: RowBlock, ids: NDArray[np.int64]) -> Reached:
    """Return what a ranking of rows reaches, by its first five ids int64 (n, 5)."""
    # Where rows have lists of labels these are precision at 1 and at 5.
    n = max(rows.n_rows, 1)
    if rows.labels is None:
        return Reached(top_k_hits(ids, rows.classes, 1) / n, top_k_hits(ids, rows.classes, 5) / n)
    hits = rows.labels.matched(ids[:, :5])
    return Reached(float(hits[:, :1].sum()) / n, float(hits.sum()) / (5 * n))


def measure(rows: RowBlock, ranking: Ranking) -> Reached:
    """Return what a ranking reaches on rows held in memory; see :func:`reached`."""
    return reached(rows, ranking(rows, PLACES[-1])[0])


def choose_estimator(
    backend: Backend, rows: RowBlock, transform: Transform
) -> tuple[Estimator, dict[Estimator, Reached]]:
    """Return the estimator to use, and what every one reaches on rows.

    The first of the list is used unless another one is better by more than a standard error of
    accuracy. With one repetition all rank alike and only the first is measured.

    Parameters
    ----------
    backend : Backend
        Has the weights.
    rows : RowBlock
        The rows, with their classes.
    transform : str
        How the training changed the values of its rows.
    """
    names = estimators()[: 1 if backend.spec.n_repetitions == 1 else None]
    found = {name: measure(rows, by_hashes(backend, name, transform)) for name in names}
    usual = found[names[0]]
    error = (usual.accuracy * (1 - usual.accuracy) / max(rows.n_rows, 1)) ** 0.5
    best = max(names, key=lambda name: found[name].selection_score)
    return best if found[best].selection_score > usual.selection_score + error else names[0], found


def evaluate(
    predictor: Predictor | Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    options: SourceOptions = GUESSED,
    progress: Wanted = None,
    threshold: float = 0.5,
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B),
    on_bad_row: str = "error",
    max_bad: int | None = None,
    rejects: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Evaluation:
    """Return what a model reaches on a store or a labelled text.

    Labels are compared by their names, so the input may number its classes as it likes.

    Parameters
    ----------
    predictor : Predictor, Model, or path-like
        The model with its estimator; or a model, or the folder of one or of a run.
    path : path-like
        A store, or a labelled file of any format that can be converted.
    options : SourceOptions, optional
        How a file is read, and where its labels are; guessed otherwise.
    progress : bool, str or callable, optional
        Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what is
        called with (stage, done, total).
    threshold : float
        Probability from which on a label is predicted, where rows have lists of labels.
    propensity : (float, float)
        A and B of the propensities then.
    on_bad_row : str
        ``error`` or ``skip``: rows of a file that cannot be read are left out, and counted.
    max_bad : int, optional
        How many may be skipped; any number otherwise.
    rejects : path-like, optional
        Where these are listed; nowhere otherwise.
    force : bool
        Whether a list that is there may be replaced.

    Raises
    ------
    UsageError, DataError, StoreError, DiskError
        If the input cannot be read or holds no rows.
    BudgetError
        If it does not fit the predictor's memory.
    """
    began, skip = time.monotonic(), skipping(on_bad_row, max_bad)
    listed = rejects_list(rejects, skip=skip, force=force, inputs=[Path(path)])
    with ExitStack() as stack:
        bad_rows = stack.enter_context(listed_rows(listed, skip=skip, most=max_bad))
        if not isinstance(predictor, Predictor):
            known = predictor if isinstance(predictor, Model) else Model.load(predictor)
            predictor = stack.enter_context(Predictor(known))
        model = predictor.model
        sums = _Lists(predictor, threshold, propensity) if model.listed else _Classes(predictor)
        found = _added_up(predictor, Path(path), sums, options, bad_rows, progress)
    return replace(found, skipped=dict(bad_rows.reasons), seconds=time.monotonic() - began)


def _added_up(
    predictor: Predictor, path: Path, sums: _Classes | _Lists, options: SourceOptions,
    bad_rows: BadRows, progress: Wanted,
) -> Evaluation:  # fmt: skip
    """Return what all rows of an input add up to."""
    seen, model = Seen(), predictor.model
    room = predictor.room("evaluate", path, CANDIDATES, options)
    with shown(progress, "rows") as told:
        told("evaluate", 0, 0)
        for block in rows_of(path, model, seen, room, options=options, bad_rows=bad_rows):
            if block.labels is not None and not model.listed:
                raise lists_of_labels(path)
            sums.add(block)
            told("evaluate", seen.rows, seen.total)
    if not seen.rows:
        raise DataError("it holds no rows", path=clean(path, 300))
    room.done()
    return Evaluation(
        n_rows=seen.rows, n_unseen=seen.unseen_labels, unknown_values=seen.unknown_values,
        estimator=predictor.estimator, seconds=0.0, **sums.figures(seen),
    )  # fmt: skip


def lists_of_labels(path: str | os.PathLike[str]) -> UsageError:
    """Return what is said of an input with lists of labels, where the model knows of none."""
    return UsageError(
        "its rows have lists of labels, those of the model's training had one each",
        path=clean(path, 300),
        hint="Convert it again with --first-label, or train on lists.",
    )


class _Classes:
    """Adds up what is reached on rows with one label each."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._hits, self._loss, self._majority = dict.fromkeys(PLACES, 0), 0.0, 0

    def add(self, block: RowBlock) -> None:
        """Add rows."""
        model, (best, ids, scores) = self._predictor.model, ranked(self._predictor, block)
        known = block.classes >= 0
        logs = log_probabilities(
            ids[known], scores[known], block.classes[known], n_classes=model.spec.n_classes,
            calibration=model.calibration,
        )  # fmt: skip
        for place in PLACES:
            self._hits[place] += top_k_hits(best, block.classes, place)
        self._loss -= float(logs.sum())
        self._majority += int((block.classes == model.majority).sum())

    def figures(self, seen: Seen) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        n, known = seen.rows, seen.rows - seen.unseen_labels
        return {
            "accuracy": self._hits[1] / n, "top_3_accuracy": self._hits[3] / n,
            "top_5_accuracy": self._hits[5] / n, "majority": self._majority / n,
            "log_loss": self._loss / known if known else float("nan"),
        }  # fmt: skip


class _Lists:
    """Adds up what is reached on rows with lists of labels."""

    def __init__(
        self, predictor: Predictor, threshold: float, propensity: tuple[float, float]
    ) -> None:
        model = predictor.model
        assert model.label_counts is not None, "it was trained on lists"
        a, b = propensity
        self._predictor, self._threshold, self._majority = predictor, threshold, 0
        self._sets = SetFigures(model.label_counts, model.n_rows, a=a, b=b)
        self._f1 = F1Figures(model.spec.n_classes)

    def add(self, block: RowBlock) -> None:
        """Add rows."""
        model, lists = self._predictor.model, block.lists
        best, ids, scores = ranked(self._predictor, block)
        self._sets.add(best, lists)
        said = label_probabilities(scores, model.calibration) >= self._threshold
        self._f1.add(ids, said, lists)
        majority = np.full((block.n_rows, 1), model.majority)
        self._majority += int(lists.matched(majority).sum())

    def figures(self, seen: Seen) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        sets = self._sets.result()
        p = sets.precision
        return {
            "accuracy": p[1], "top_3_accuracy": p[3], "top_5_accuracy": p[5],
            "majority": self._majority / seen.rows, "log_loss": float("nan"), "sets": sets,
            "f1": self._f1.result(), "threshold": self._threshold,
        }  # fmt: skip


def ranked(
    predictor: Predictor, block: RowBlock
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the best classes (n, 5 or more); candidates and scores of the calibrated ranking."""
    calibrated = predictor.model.calibrated
    ids, scores = predictor.topk_ids(block, CANDIDATES, calibrated)
    if predictor.estimator == calibrated:
        return ids, ids, scores
    return predictor.topk_ids(block, PLACES[-1])[0], ids, scores


def scores_text(found: Iterable[tuple[str, Reached]]) -> str:
    """Return settings with their accuracy and top-5 accuracy as text, for a reason."""
    return ", ".join(f"{name} {m.accuracy:.3f} / {m.top_5_accuracy:.3f}" for name, m in found)
