"""What planning expects of an optional part: the points that it costs or saves, and its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streammach.spec.config import PartPlan

# What several parts reckon with, of the machine of docs/planner.md.
RATES = 3.3  # trials of a search of learning rates, on average
SCORE = 0.15e-9  # seconds of a class and a repetition of a row whose best classes are found


@dataclass(frozen=True, kw_only=True)
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
class AccuracyDrop:
    """Points lost, and how far such an estimate was off."""

    points: float = 0.0
    error: float = 0.0

    def __add__(self, other: AccuracyDrop) -> AccuracyDrop:
        """Return both together."""
        return AccuracyDrop(self.points + other.points, math.hypot(self.error, other.error))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A size that a part may be planned with, or to plan without it.

    Attributes
    ----------
    plan : PartPlan or None
        The part; None without it.
    loss : AccuracyDrop
        What is lost against the best.
    why : str
        A sentence for people; empty where nothing is to be said.
    fit : Fit or None
        What hashing loses beside it, where it is not the usual.
    alone : AccuracyDrop or None
        What is lost without hashed models beside it, where it can do without.
    """

    plan: PartPlan | None
    loss: AccuracyDrop = AccuracyDrop()
    why: str = ""
    fit: Fit | None = None
    alone: AccuracyDrop | None = None


WITHOUT = Choice(plan=None)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Seconds of one thread of the reference machine that a part adds to a training.

    Attributes
    ----------
    step : float
        A row of every step.
    own_step : float
        A row of the steps that are trained with it: of its trials and, perhaps, of the training.
    trials : float
        Trials of learning rates, on average.
    search, finish : float
        In the search and after the last epoch.
    fixed : float
        After the last epoch, whatever the threads.
    elastic, elastic_fixed : float
        Seconds of `finish` and of `fixed` that are left out where time is short.
    elastic_points : float
        The points that this costs.
    scoring : float or None
        A row's classes when it is predicted, where they are scored in another way.
    """

    step: float = 0.0
    own_step: float = 0.0
    trials: float = 0.0
    search: float = 0.0
    finish: float = 0.0
    fixed: float = 0.0
    elastic: float = 0.0
    elastic_fixed: float = 0.0
    elastic_points: float = 0.0
    scoring: float | None = None


def sentences(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Return why choices were made, without repeats."""
    return tuple(dict.fromkeys(choice.why for choice in choices if choice.why))
