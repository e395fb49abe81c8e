"""All figures of an evaluation: what each block of rows adds to them, and their sums in order.

The parts of blocks may be made in several processes. Added up in the order of their rows they give
the same figures, to the last digit, as in one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

from streammach.errors import UsageError, clean
from streammach.model.model import Model
from streammach.prediction.depths import rankings_of
from streammach.prediction.inputs import Seen
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import (
    Besides,
    BesidesPart,
    ClassFigures,
    ClassPart,
    ListFigures,
    ListPart,
)
from streammach.prediction.set_metrics import DEFAULT_A, DEFAULT_B
from streammach.rows.block import RowBlock


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What is asked of an evaluation."""

    # probability from which on a label is predicted, where rows have lists of labels
    threshold: float = 0.5
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B)  # a and B of the propensities then
    estimators: bool = False  # whether rows are ranked by all estimators that the model has, too
    # a namespace, or a column of a table: how many rows are right by its values
    by: str | None = None


class RowsPart(NamedTuple):
    """What a block of rows adds."""

    own: ClassPart | ListPart
    beside: BesidesPart


class Measured:
    """Adds up the figures of an evaluation."""

    def __init__(self, model: Model, asked: Measures) -> None:
        self._listed = model.listed
        self._own: Any = (  # the parts of one are never given to the other
            ListFigures(model, asked.threshold, asked.propensity)
            if model.listed
            else ClassFigures(model)
        )
        self._beside = Besides(model, rankings_of(model) if asked.estimators else [], asked.by)

    def part(self, predictor: Predictor, block: RowBlock, path: str | os.PathLike[str]) -> RowsPart:
        """Return what rows of an input add, or raise UsageError."""
        if block.labels is not None and not self._listed:
            raise lists_of_labels(path)
        best, own = self._own.part(predictor, block)
        return RowsPart(own, self._beside.part(predictor, block, best))

    def take(self, part: RowsPart) -> None:
        """Add what :meth:`part` returned; the order of the rows decides the last digits."""
        self._own.take(part.own)
        self._beside.take(part.beside)

    def figures(self, seen: Seen) -> dict[str, Any]:
        """Return them as fields of an evaluation."""
        return {**self._own.figures(seen), **self._beside.figures(seen.rows)}


def lists_of_labels(path: str | os.PathLike[str]) -> UsageError:
    """Return what is said of an input with lists of labels, where the model knows of none."""
    return UsageError(
        "its rows have lists of labels, those of the model's training had one each",
        path=clean(path, 300),
        hint="Convert it again with --first-label, or train on lists.",
    )
