"""How scores become probabilities: what is fitted on held-out rows and stored with a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

STATED, RIGHT = "calibration_stated", "calibration_right"
ENDS = (0.0, 1.0)


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities.

    S is the score of a class by counts and hashed models together, or where there are no counts the
    mean logarithm of the hashed models; M is the median score of the row's 32 best candidates. Then
    ``q_i = e^(beta (S_i - M)) / (sum_j e^(beta (S_j - M)) + e^other)`` over these candidates j,
    and ``p_i`` is the line through `stated` and `right` at ``q_i``. The other classes share
    evenly what is left of 1, and at least a half of what ``e^other`` gives them: the ``p_i`` of a
    row are scaled down for it. With 32 classes or fewer there are none, ``e^other`` is left out,
    and ``p_i`` are scaled to 1.
    No class gets less than one with a lower score: the last candidates share with all others then.

    Without `stated` and `right` M is 0 and ``p_i = q_i``. Where rows
    have lists of labels, a label has ``p_i = 1 / (1 + e^-(beta (S_i - M) + other))`` on its own.
    """

    beta: float = 1.0  # beta, other: of the equation
    other: float = -30.0
    # stated, right: points of a line that rises from (0, 0) to (1, 1), as float32; none where it
    # was not fitted
    stated: tuple[float, ...] = ()
    right: tuple[float, ...] = ()

    @classmethod
    def of(cls, beta: float, other: float, arrays: dict[str, NDArray[Any]]) -> Calibration:
        """Return what a model's document and its arrays by name hold, or raise ValueError."""
        if STATED not in arrays:
            return cls(beta, other)
        points = [np.asarray(arrays[name], np.float64) for name in (STATED, RIGHT)]
        for values in points:
            if (values[[0, -1]] != ENDS).any() if len(values) > 1 else True:
                raise ValueError("the line of the calibration does not rise from 0 to 1")
        if len(points[0]) != len(points[1]) or not all((np.diff(v) > 0).all() for v in points):
            raise ValueError("the line of the calibration does not rise")
        return cls(beta, other, *(tuple(values.tolist()) for values in points))

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Arrays by their names in a model's file; none where there is no line."""
        points = {STATED: self.stated, RIGHT: self.right}
        return {name: np.array(v, np.float32) for name, v in points.items() if v}

    @cached_property
    def line(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The points of the line."""
        return np.array(self.stated), np.array(self.right)
