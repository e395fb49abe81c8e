"""How many rows a training and its short trials see: what decides its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streammach.parts.expected import RATES

EPOCHS = {False: 5, True: 12}  # of a training, by dense
SEARCH_SHARE = 0.15  # of the rows that a training passes, what the trials of its search pass
LEAST_PASSED = 30_000  # rows that a trial passes at least: fewer take no time
TRANSFORM_TRIALS = 3.0  # what the choice of a transform may take, in trials
LISTS_TRIALS = RATES + 1  # of rows with lists of labels: a softmax at its rate, by two targets
EPOCHS_POWER = 0.5  # a part of the rows needs fewer epochs to rank rates as all rows would


@dataclass(frozen=True)
class Rung:
    """A round of successive halving: each candidate that is left passes so many rows."""

    candidates: int  # how many are left
    rows: int  # rows, epochs: of the trial of each
    epochs: int


def trial(n_rows: int, epochs: int, trials: float) -> tuple[int, int]:
    """Return the rows and epochs of one trial of a search."""
    return _passing(n_rows, epochs, _passed(n_rows, epochs, trials))


def rungs(n_rows: int, epochs: int, trials: float, candidates: int) -> tuple[Rung, ...]:
    """Return the rounds in which half of the candidates are left out until one is left.

    Each round passes as many rows as the others.
    """
    rounds = math.ceil(math.log2(candidates))
    passed = TRANSFORM_TRIALS * _passed(n_rows, epochs, trials) / rounds
    left = [math.ceil(candidates / 2**done) for done in range(rounds)]
    return tuple(Rung(n, *_passing(n_rows, epochs, passed / n)) for n in left)


def _passed(n_rows: int, epochs: int, trials: float) -> float:
    return max(SEARCH_SHARE * epochs * n_rows / trials, LEAST_PASSED)


def _passing(n_rows: int, epochs: int, passed: float) -> tuple[int, int]:
    """Return the most rows that are passed as often as they need to be, and how often that is."""

    def often(rows: int) -> int:
        return round(1 + (epochs - 1) * math.pow(rows / n_rows, EPOCHS_POWER))

    low, high = 1, n_rows
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle * often(middle) <= passed else (low, middle - 1)
    return low, often(low)
