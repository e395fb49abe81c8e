"""What planning expects of an optional part: the points that it costs or saves, and its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from streammach.options.config import PartPlan

# What several parts reckon with, of the machine of docs/planner.md.
RATES = 3.3  # trials of a search of learning rates, on average
SCORE = 0.15e-9  # seconds of a class and a repetition of a row whose best classes are found


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Points lost: ``columns (n / (B R))**power + repetitions / R**2 + buckets / B``.

    n is 256, and K for dense rows and for lists of labels beside counts: these lose by every column
    that they have less than classes.
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
    """A size that a part may be planned with, or to plan without it."""

    plan: PartPlan | None  # the part; None without it
    loss: AccuracyDrop = AccuracyDrop()  # what is lost against the best
    why: str = ""  # a sentence for people; empty where nothing is to be said
    fit: Fit | None = None  # what hashing loses beside it, where it is not the usual
    # what is lost without hashed models beside it, where it can do without
    alone: AccuracyDrop | None = None


WITHOUT = Choice(plan=None)


@dataclass(frozen=True, kw_only=True)
class PartBytes:
    """Bytes that a part takes."""

    memory: dict[str, int] = field(default_factory=dict)  # of the host, by name
    # judging, shrinking: of memory, what is still taken while forms of the model are judged, and
    # by its share of a model that becomes smaller
    judging: int = 0
    shrinking: int = 0
    model: int = 0  # of a model on disk
    saved: int = 0  # on disk until hashed models are trained


Seconds = tuple[float, float]  # those that threads share, and those that they do not


@dataclass(frozen=True, kw_only=True)
class PartTime:
    """Seconds of one thread of the reference machine that a part adds to a training."""

    step: float = 0.0  # a row of every step
    # a row of the steps that are trained with it: of its trials and, perhaps, of the training
    own_step: float = 0.0
    trials: float = 0.0  # trials of learning rates, on average
    search: float = 0.0  # search, finish: in the search and after the last epoch
    finish: float = 0.0
    fixed: float = 0.0  # after the last epoch, whatever the threads
    # elastic, elastic_fixed: seconds of `finish` and of `fixed` that are left out where time is
    # short
    elastic: float = 0.0
    elastic_fixed: float = 0.0
    elastic_points: float = 0.0  # the points that this costs
    # a row's classes when it is predicted, where they are scored in another way
    scoring: float | None = None
    # The stages before the first epoch and after the last one, by name and in their order.
    stages_before: dict[str, Seconds] = field(default_factory=dict)
    stages_after: dict[str, Seconds] = field(default_factory=dict)


def sentences(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Return why choices were made, without repeats."""
    return tuple(dict.fromkeys(choice.why for choice in choices if choice.why))
