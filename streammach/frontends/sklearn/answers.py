"""What a fitted estimator answers with: its model, scores and probabilities, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.model import calibration
from streammach.model.calibration import CANDIDATES, LARGEST, TINY, Calibration
from streammach.model.model import Model
from streammach.model.row_answers import SharedPredictor
from streammach.prediction.allowed import Allowed
from streammach.rows.block import RowBlock
from streammach.system.errors import BudgetError, UsageError
from streammach.system.machine import advise_memory, size_text
from streammach.training.trainer import bytes_of

PART_BYTES = 32 << 20  # of scores of all classes that are held at once
SCORE_BYTES = 32  # of one of them: as it comes, with its class, and as a probability


class Answers:
    """A model that answers from any thread, one call after another."""

    def __init__(
        self, model: Model, places: NDArray[np.int64], *, combine: str, device: str, threads: int
    ) -> None:
        self.model, self.places = model, places
        self._places = np.append(places, -1)  # of no class none
        named = None if combine == "auto" else combine
        self._ranking = named or model.estimator
        self._shared = SharedPredictor(estimator=named, device=device, threads=threads)

    def rows(self, x: Any) -> RowBlock:
        """Return a matrix as rows with the model's ids, or raise DataError."""
        with self._shared.of(self.model) as predictor:
            return predictor.rows.block(x)

    def limit_labels(
        self, only: Any, never: Any, classes: NDArray[Any], n_rows: int
    ) -> Allowed | None:
        """Return which of the classes may be said of rows, None for all, or raise UsageError."""
        if only is None and never is None:
            return None
        raws = self.model.labels.raws(np.arange(len(self.model.labels)))
        names = dict(zip(classes[self.places].tolist(), raws, strict=True))
        with self._shared.of(self.model) as predictor:
            return predictor.limit_labels(only, never, n_rows, names=names)

    def topk(
        self, rows: RowBlock, k: int, allowed: Allowed | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return places of the k best classes of each row, -1 for no more, and their scores."""
        with self._shared.of(self.model) as predictor:
            ids, scores = predictor.rank(rows, k, allowed=allowed)
        return self._places[ids], scores

    def probabilities(
        self, rows: RowBlock, n_classes: int, allowed: Allowed | None = None
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield rows of the probabilities of all classes, some at a time; 0 if it is not to be."""
        most = len(self.places)
        if self._calibrated and not self.model.listed and allowed is None:
            most = min(most, CANDIDATES)  # the others have all the same one
        for some, best, scores in self._rank_rows(rows, most, n_classes):
            ids, (p, left) = best, self._as_probabilities(scores)
            if allowed is not None:
                ids, p = allowed.part(some).pack_best(ids, p, len(self.places))
            if p.shape[1] > 1 and not self.model.listed:  # of equal ones the first is the label
                p[:, 0] = _above(p)
            out = np.zeros((len(ids), n_classes + 1))
            if most < len(self.places):
                out[:, self.places] = left[:, None]
            np.put_along_axis(out, self._places[ids], p, axis=1)
            yield some, out[:, :-1]

    def decisions(self, rows: RowBlock, n_classes: int) -> Iterator[NDArray[np.float32]]:
        """Yield rows of what decides: log odds of each label, or of the second of two classes.

        Of more classes it is the scores of all, whose largest is that of the best class.
        """
        if self.model.listed or n_classes <= 2:
            for _, p in self.probabilities(rows, n_classes):
                other = 1 - p if self.model.listed else p[:, :1]
                own = p if self.model.listed else p[:, 1:]
                odds = np.log(np.maximum(own, TINY)) - np.log(np.maximum(other, TINY))
                yield odds.astype(np.float32)
            return
        for _, ids, scores in self._rank_rows(rows, len(self.places), n_classes):
            scores[:, 0] = _above(scores)
            out = np.full((len(ids), n_classes + 1), -LARGEST, np.float32)  # of classes of no row
            np.put_along_axis(out, self._places[ids], scores, axis=1)
            yield out[:, :-1]

    def _rank_rows(
        self, rows: RowBlock, k: int, n_classes: int
    ) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.float32]]]:
        """Yield which rows, with the ids and scores of their best classes, some at a time."""
        step = max(1, PART_BYTES // (SCORE_BYTES * n_classes))
        for start in range(0, rows.n_rows, step):
            some = slice(start, min(start + step, rows.n_rows))
            with self._shared.of(self.model) as predictor:
                ids, scores = predictor.rank(rows.part(some.start, some.stop), k)
            yield some, ids, scores

    @property
    def _calibrated(self) -> bool:
        """Whether held-out rows said what the scores mean."""
        model = self.model
        return self._ranking == model.calibrated_ranking and model.calibration != Calibration()

    def _as_probabilities(
        self, scores: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probabilities of classes by scores, best first, and of each other class."""
        model, none = self.model, np.zeros(0)
        if model.listed:
            return calibration.label_probabilities(scores, model.calibration), none
        if self._calibrated:
            return calibration.class_probabilities(scores, model.spec.n_classes, model.calibration)
        found = scores.astype(np.float64)
        if self._ranking in ("logsum", "blend"):  # no rows were held out: the scores as they are
            found = np.exp(found - found[:, :1])
        else:
            found = np.maximum(found, 0)
            found[found.sum(axis=1) == 0] = 1
        found /= found.sum(axis=1, keepdims=True)
        return found, none


def _above(found: NDArray[Any]) -> NDArray[Any]:
    """Return the first of numbers, best first, a trifle above an equal second one."""
    first = found[:, 0]
    return np.where(first == found[:, 1], np.nextafter(first, first.dtype.type(np.inf)), first)


def check_room(n_rows: int, n_classes: int, memory: str | int | None) -> None:
    """Refuse an array of rows x classes that does not fit a budget, or raise BudgetError."""
    needed = 4 * n_rows * n_classes
    if needed > (most := bytes_of(memory)):
        raise BudgetError(
            f"the probabilities of {n_rows:,} rows x {n_classes:,} classes take "
            f"{size_text(needed)}, {size_text(most)} are allowed: memory",
            hint="Name some classes: predict_proba(X, classes=[...]), or use predict_topk(X, k); "
            f"memory='{advise_memory(needed)}' allows it.",
        )


def check_classes(wanted: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of some classes among all, or raise UsageError for one that is unknown."""
    places = {label: i for i, label in enumerate(classes.tolist())}
    asked = np.asarray(wanted, object).ravel().tolist()
    wrong = [label for label in asked if label not in places]
    if wrong:
        raise UsageError(f"{wrong[0]!r} is no class that was trained on: classes")
    return np.array([places[label] for label in asked], np.int64)
