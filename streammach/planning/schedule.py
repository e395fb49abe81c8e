"""How many rows a training and its short trials see: what decides its time."""

from __future__ import annotations

EPOCHS = {False: 5, True: 12}  # of a training, by dense
SCREEN_ROWS, SCREEN_SHARE, SCREEN_EPOCHS = 60_000, 0.3, 2  # for the transform: its effect is large
TRIAL_ROWS, TRIAL_SHARE = 30_000, 0.1  # for the rate: a tenth of the rows, at least so many
EPOCHS_POWER = 0.5  # a part of the rows needs fewer epochs to rank rates as all rows would


def screen(n_rows: int) -> tuple[int, int]:
    """Return the rows and epochs of a trial that compares transforms."""
    return min(max(int(n_rows * SCREEN_SHARE), 1), SCREEN_ROWS), SCREEN_EPOCHS


def trial(n_rows: int, epochs: int) -> tuple[int, int]:
    """Return the rows and epochs of a trial that compares rates of a training of so many epochs."""
    rows = min(n_rows, max(TRIAL_ROWS, int(n_rows * TRIAL_SHARE)))
    return rows, round(1 + (epochs - 1) * (rows / n_rows) ** EPOCHS_POWER)
