"""Classes that are added to a trained model: no weight changes, and no score of another class.

A new class has no hash. Its buckets are those in which the model sees its rows anyway, and what it
adds to a score by counts is what the known classes add in the mean for the same features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streammach.model.document import MAX_DOCUMENT
from streammach.model.model import Model
from streammach.model.shrink import LEVELS, rounded_gains
from streammach.options.documents import to_json
from streammach.options.model_spec import ModelSpec
from streammach.rows.names import Names
from streammach.rows.pairs import ClassPairs, CountWeights
from streammach.system.errors import UsageError

M = TypeVar("M", bound=Model)
LEAST_VALUES = 0.5  # of a class without any, as in training


@dataclass(frozen=True, kw_only=True)
class NewClasses:
    """What is known of n new classes."""

    labels: Names  # their labels, by ids from 0
    codes: NDArray[np.unsignedinteger]  # their bucket in each repetition
    # int32 (2, m): every feature that rows of a class hold, and the class; none twice
    pairs: NDArray[np.int32]
    n_values: NDArray[np.int64]  # int64 (n,): features of each class's rows, repeats counted
    n_rows: NDArray[np.int64]  # int64 (n,): rows with each label
    n_distinct: int  # rows with any of the labels


def check_open(spec: ModelSpec) -> None:
    """Raise UsageError for a model that cannot take classes."""
    if spec.exact:
        what = "each class of this model has weights of its own, so no class can be added"
        hint = "Train with --buckets and --repetitions, or learn the class with partial_fit."
        raise UsageError(what, hint=hint)


def with_classes(model: M, new: NewClasses) -> M:
    """Return the model with more classes, whose ids come next, or raise UsageError."""
    check_open(model.spec)
    spec = model.spec.with_more_classes(new.codes)
    if 2 * len(to_json(spec)) > MAX_DOCUMENT:  # the rest of a document takes less than a half
        raise UsageError(f"{len(spec.added_codes):,} added classes are too many: train again")
    label_counts, says = model.label_counts, model.says
    if says is not None:
        says = np.concatenate([says, len(says) + np.arange(len(new.labels), dtype=np.int32)])
    if label_counts is not None:
        label_counts = np.concatenate([label_counts, new.n_rows])
    calibration = model.calibration
    if not model.listed:
        calibration = calibration.with_more_classes(model.spec.n_classes, spec.n_classes)
    return replace(
        model, spec=spec, labels=model.labels.followed_by(new.labels), calibration=calibration,
        counts=None if model.counts is None else _counts(model, model.counts.plain(), new),
        titles=model.titles and model.titles.followed_by(Names.of([b""] * len(new.labels))),
        says=says, label_counts=label_counts,
        late=None if model.late is None else model.late.with_classes(len(new.labels)),
        n_rows=model.n_rows + (new.n_distinct if model.listed else 0),
    )  # fmt: skip


def _counts(model: Model, counts: CountWeights, new: NewClasses) -> CountWeights:
    features, classes = new.pairs
    known, own = np.unique(features, return_inverse=True)
    gains = np.rint(counts.mean_gains(known)).astype(np.int16)
    if model.stored in LEVELS:
        gains = rounded_gains(gains)
    found = gains[own.reshape(-1)]
    some = found != 0
    log_values = np.log(np.maximum(new.n_values, LEAST_VALUES)).astype(np.float32)
    start, slope = fitted_line(counts.log_values, counts.base)
    new_pairs = ClassPairs(
        features=features[some], classes=classes[some], gains=found[some],
        base=(start + slope * log_values).astype(np.float32), log_values=log_values,
    )  # fmt: skip
    return counts.with_classes(new_pairs)


def fitted_line(x: NDArray[np.float32], y: NDArray[np.float32]) -> tuple[float, float]:
    """Return start and slope of the line of least squares of y (n,) over x (n,); flat if x is."""
    middle, level = float(x.mean(dtype=np.float64)), float(y.mean(dtype=np.float64))
    apart = x.astype(np.float64) - middle
    spread = float((apart * apart).sum())
    slope = float((apart * (y.astype(np.float64) - level)).sum()) / spread if spread > 0 else 0.0
    return level - slope * middle, slope
