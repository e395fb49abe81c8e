"""What trainings on samples say about models, beside what is expected of them.

A score on two samples goes on as it went between them, in the logarithm of the rows, at most as
far again. Scores become points lost by the constant that agrees best with what is expected; both
estimates of a loss are weighed by their errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from streammach.parts.expected import AccuracyDrop
from streammach.parts.registry import weighed_parts
from streammach.planning.candidates import Candidate
from streammach.spec.config import PartPlan
from streammach.spec.plan import Option, Pilot, Plan

# By whether rows have lists of labels: the best mean of both accuracies, in points, on average over
# the data sets measured; how far the average of the others was off from each (root mean square);
# how many sets that is.
KNOWN = {False: (58.9, 23.4, 5), True: (28.5, 7.9, 2)}
LEAST_ERROR = 0.1  # points; no expectation is surer
PilotKey = tuple[int, tuple[PartPlan, ...]]  # buckets and parts: what one correction is for
ModelKey = tuple[PilotKey, int]  # the same and repetitions


@dataclass(frozen=True)
class Score:
    """Points reached, and their standard error."""

    points: float
    error: float


def pilot_key(option: Option | Pilot) -> PilotKey:
    """Return what a pilot's finding holds for: all repetitions of its buckets."""
    parts = option.parts if isinstance(option, Pilot) else weighed_parts(option.config)
    return option.shape.n_buckets, parts


def model_key(option: Option | Pilot) -> ModelKey:
    """Return what a pilot stands for."""
    return pilot_key(option), option.shape.n_repetitions


def score(pilot: Pilot) -> Score:
    """Return the mean of both accuracies of a pilot in points, and its standard error."""
    p, q = pilot.accuracy, pilot.top_5_accuracy
    variance = p * (1 - p) + q * (1 - q) + 2 * p * (1 - q)  # a row right at once is right in five
    return Score(50 * (p + q), 50 * math.sqrt(variance / max(pilot.held_out, 1)))


def extrapolated(pilots: Sequence[Pilot], n_rows: int) -> Score:
    """Return the score that trainings of one model on rising samples lead to at so many rows."""
    last = score(pilots[-1])
    if len(pilots) == 1 or pilots[-1].rows <= pilots[-2].rows:
        return last
    before, step = score(pilots[-2]), math.log(pilots[-1].rows / pilots[-2].rows)
    ahead = min(max(math.log(n_rows / pilots[-1].rows) / step, 0.0), 1.0)
    points = last.points + ahead * (last.points - before.points)
    return Score(points, math.hypot((1 + ahead) * last.error, ahead * before.error))


@dataclass(frozen=True)
class Expectation:
    """What a plan is expected to reach."""

    # points, error: the mean of accuracy and top-5 accuracy (precision at 1 and at 5, where rows
    # have lists of labels) of 0 to 100, and its standard error
    points: float
    error: float
    # `pilot`, where this model was trained on samples of the rows; `other data` otherwise: the mean
    # of the data sets that models were measured on, and how far such a mean was off
    source: Literal["pilot", "other data"]
    rows: int = 0  # rows of the largest sample; 0 without one


def expectation(plan: Plan) -> Expectation:
    """Return what a plan is expected to reach, with the error that was measured."""
    chosen = plan.expected
    runs = [] if chosen is None else [p for p in plan.pilots if model_key(p) == model_key(chosen)]
    if not runs:
        return Expectation(*KNOWN[plan.facts.listed][:2], "other data")
    held_out = plan.config.batching.held_out_rows
    found = extrapolated(runs, max(plan.facts.n_rows - held_out, runs[-1].rows))
    return Expectation(
        min(max(found.points, 0.0), 100.0), max(found.error, LEAST_ERROR), "pilot", runs[-1].rows
    )


def weighed_again(
    weighed: Sequence[Candidate], pilots: Sequence[Pilot], n_rows: int
) -> list[Candidate]:
    """Return the candidates with the loss that pilots and expectations lead to together."""
    by_shape: dict[ModelKey, list[Pilot]] = {}
    for pilot in pilots:
        by_shape.setdefault(model_key(pilot), []).append(pilot)
    scores: list[tuple[Option, Score]] = []
    for candidate in weighed:
        option = candidate.option
        runs = by_shape.get(model_key(option))
        if runs:
            scores.append((option, extrapolated(runs, n_rows)))
    changes = {pilot_key(option): loss for option, loss in _corrections(scores)}
    return [
        _corrected(candidate, changes.get(pilot_key(candidate.option))) for candidate in weighed
    ]


def _corrections(scores: Sequence[tuple[Option, Score]]) -> list[tuple[Option, AccuracyDrop]]:
    """Return by how many points each loss changes, and its error then."""
    if not scores:
        return []
    errors = [max(option.loss_error, LEAST_ERROR) for option, _ in scores]
    shares = [1 / (error**2 + s.error**2) for error, (_, s) in zip(errors, scores, strict=True)]
    best = sum(
        share * (option.loss + s.points) for share, (option, s) in zip(shares, scores, strict=True)
    ) / sum(shares)
    found = []
    for error, (option, s) in zip(errors, scores, strict=True):
        sure, seen = error**-2, max(s.error, LEAST_ERROR) ** -2
        change = seen * (best - s.points - option.loss) / (sure + seen)
        found.append((option, AccuracyDrop(change, (sure + seen) ** -0.5)))
    below = min(0.0, *(option.loss + loss.points for option, loss in found))
    return [(option, AccuracyDrop(loss.points - below, loss.error)) for option, loss in found]


def _corrected(candidate: Candidate, change: AccuracyDrop | None) -> Candidate:
    if change is None:
        return candidate
    option = candidate.option
    corrected = replace(option, loss=option.loss + change.points, loss_error=change.error)
    return replace(candidate, option=corrected)
