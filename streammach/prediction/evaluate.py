"""How good predictions are: top-k accuracy, log loss, and the map from scores to probabilities."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from streammach.backends.base import Backend
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.errors import DataError, clean
from streammach.figures import FormerNames, Reached
from streammach.model.document import Calibration
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import Ranking, by_hashes
from streammach.rows.block import RowBlock
from streammach.spec.estimators import estimators
from streammach.spec.types import Estimator, Ranker, Transform

CANDIDATES = 32
PLACES = (1, 3, 5)


@dataclass(frozen=True, kw_only=True)
class Evaluation(FormerNames):
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


def top_k_hits(ids: NDArray[np.int64], classes: NDArray[np.int32], k: int) -> int:
    """Return how many rows have their label among the first k ids."""
    return int((ids[:, :k] == classes[:, None]).any(axis=1).sum())


def measure(rows: RowBlock, ranking: Ranking) -> Reached:
    """Return what a ranking reaches on rows held in memory."""
    ids, _ = ranking(rows, PLACES[-1])
    n = max(rows.n_rows, 1)
    return Reached(top_k_hits(ids, rows.classes, 1) / n, top_k_hits(ids, rows.classes, 5) / n)


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


def log_probabilities(
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
    classes: NDArray[np.int32],
    *,
    n_classes: int,
    calibration: Calibration,
) -> NDArray[np.float64]:
    """Return ln p of each row's label.

    Parameters
    ----------
    ids, scores : int64 (n, m), float32 (n, m)
        The m best classes and their scores by the ranking that was calibrated.
    classes : int32 (n,)
        Class ids, none unknown.
    n_classes : int
        K.
    calibration : Calibration
        The map; see its text for the equation.

    Returns
    -------
    float64 (n,)
        Natural logarithms.
    """
    z = calibration.beta * scores.astype(np.float64)
    rest = n_classes - ids.shape[1]
    if rest > 0:
        z = np.column_stack([z, np.full(len(z), calibration.other)])
    top = z.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(z - top).sum(axis=1))
    found = ids == classes[:, None]
    place = np.where(found.any(axis=1), found.argmax(axis=1), z.shape[1] - 1)
    own = z[np.arange(len(z)), place] - total
    logs: NDArray[np.float64] = np.where(found.any(axis=1), own, own - np.log(max(rest, 1)))
    return logs


def fit_calibration(rows: RowBlock, ranking: Ranking, n_classes: int) -> Calibration:
    """Return the map from scores to probabilities with the smallest log loss on held-out rows."""
    known = np.flatnonzero(rows.classes >= 0)
    if not len(known):
        return Calibration()
    ids, scores = ranking(rows, CANDIDATES)
    ids, scores, classes = ids[known], scores[known], rows.classes[known]

    def loss(x: NDArray[np.float64]) -> float:
        map_ = Calibration(float(np.exp(x[0])), float(x[1]))
        logs = log_probabilities(ids, scores, classes, n_classes=n_classes, calibration=map_)
        return float(-logs.mean())

    start = np.array([0.5, -4.0])
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400})
    return Calibration(float(np.exp(best.x[0])), float(best.x[1]))


def evaluate(
    predictor: Predictor,
    path: str | os.PathLike[str],
    *,
    options: SourceOptions = GUESSED,
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """Return what a model reaches on a store or a labelled text.

    Labels are compared by their names, so the input may number its classes as it likes.

    Parameters
    ----------
    predictor : Predictor
        The model with its estimator.
    path : path-like
        A store, or a labelled file of any format that can be converted.
    options : SourceOptions, optional
        How a file is read, and where its labels are; guessed otherwise.
    progress : callable, optional
        Called with (stage, done, 0).

    Raises
    ------
    UsageError, DataError, StoreError, DiskError
        If the input cannot be read or holds no rows.
    BudgetError
        If it does not fit the predictor's memory.
    """
    began = time.monotonic()
    seen = Seen()
    counts = dict.fromkeys(PLACES, 0)
    loss, majority = 0.0, 0
    room = predictor.room("evaluate", path, CANDIDATES, options)
    for block in rows_of(Path(path), predictor.model, seen, room, options=options):
        found, loss_sum = _block_figures(predictor, block)
        for place in PLACES:
            counts[place] += found[place]
        loss += loss_sum
        majority += int((block.classes == predictor.model.majority).sum())
        if progress is not None:
            progress("evaluate", seen.rows, 0)
    if not seen.rows:
        raise DataError("it holds no rows", path=clean(path, 300))
    room.done()
    known = seen.rows - seen.unseen_labels
    return Evaluation(
        n_rows=seen.rows,
        n_unseen=seen.unseen_labels,
        unknown_values=seen.unknown_values,
        accuracy=counts[1] / seen.rows,
        top_3_accuracy=counts[3] / seen.rows,
        top_5_accuracy=counts[5] / seen.rows,
        log_loss=loss / known if known else float("nan"),
        majority=majority / seen.rows,
        estimator=predictor.estimator,
        seconds=time.monotonic() - began,
    )


def ranked(
    predictor: Predictor, block: RowBlock
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the best classes (n, 5 or more); candidates and scores of the calibrated ranking."""
    calibrated = predictor.model.calibrated
    ids, scores = predictor.topk_ids(block, CANDIDATES, calibrated)
    if predictor.estimator == calibrated:
        return ids, ids, scores
    return predictor.topk_ids(block, PLACES[-1])[0], ids, scores


def _block_figures(predictor: Predictor, block: RowBlock) -> tuple[dict[int, int], float]:
    """Return hits by place and the summed log loss of the rows with a known label."""
    model, (best, ids, scores) = predictor.model, ranked(predictor, block)
    known = block.classes >= 0
    logs = log_probabilities(
        ids[known], scores[known], block.classes[known], n_classes=model.spec.n_classes,
        calibration=model.calibration,
    )  # fmt: skip
    return {place: top_k_hits(best, block.classes, place) for place in PLACES}, float(-logs.sum())


def scores_text(found: Iterable[tuple[str, Reached]]) -> str:
    """Return settings with their accuracy and top-5 accuracy as text, for a reason."""
    return ", ".join(f"{name} {m.accuracy:.3f} / {m.top_5_accuracy:.3f}" for name, m in found)
