"""How much accuracy a model is expected to lose by being small, from measurements on other data.

Accuracy itself depends on the data and is not guessed. What a model loses against a larger one of
the same data behaves alike on the data sets measured: columns B*R, repetitions R and buckets B cost
what :data:`FITS` says, pairs that are left out what :data:`PARTS` says. A point is one of a hundred
of the mean of P@1 and P@5. ``docs/planner.md`` has the measurements,
``python -m benchmarks.planner.fit`` makes the constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["hashed", "counts", "dense"]


@dataclass(frozen=True)
class Fit:
    """Points lost: ``columns (n / (B R))**power + repetitions / R**2 + buckets / B``.

    n is 256, and K for dense rows, which lose by every column that they have less than classes.
    """

    columns: float
    power: float
    repetitions: float
    buckets: float
    error: float


@dataclass(frozen=True)
class Loss:
    """Points lost, and how far such an estimate was off."""

    points: float
    error: float

    def __add__(self, other: Loss) -> Loss:
        """Return both together."""
        return Loss(self.points + other.points, math.hypot(self.error, other.error))


NOTHING = Loss(0.0, 0.0)
ENOUGH = 256  # columns from which sparse rows lose little
FITS: dict[Kind, Fit] = {
    "hashed": Fit(5.1, 0.86, 73.12, 18.53, 0.41),
    "counts": Fit(0.75, 0.78, 8.09, 10.84, 0.77),
    "dense": Fit(3.21, 0.70, 1.14, 93.83, 1.18),
}
PARTS = {2: Loss(1.0, 0.5), 4: Loss(1.6, 0.8), 8: Loss(2.5, 1.2)}  # a half of the pairs and so on
NO_COUNTS = Loss(3.7, 4.0)  # sparse rows without counts: 8.5, 1.5 and 1.1 were measured
NO_CLOSED_FORM = Loss(2.1, 2.1)  # exact weights of dense rows without: 4.2 and 0


def hashed(n_classes: int, n_buckets: int, n_repetitions: int, kind: Kind) -> Loss:
    """Return what hashing K classes to R times B buckets loses against many columns.

    Parameters
    ----------
    n_classes, n_buckets, n_repetitions : int
        K, B and R.
    kind : str
        ``hashed``: alone; ``counts``: beside counts; ``dense``: alone, of dense rows.
    """
    fit, columns = FITS[kind], n_buckets * n_repetitions
    wanted = n_classes if kind == "dense" else ENOUGH
    points = fit.columns * (wanted / columns) ** fit.power
    points += fit.repetitions / n_repetitions**2 + fit.buckets / n_buckets
    return Loss(points, max(fit.error, points / 2))
