"""What may watch a training run: objects with any of the methods of :class:`Callback`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streammach.figures import EpochFigures


@dataclass(kw_only=True)
class State:
    """What callbacks see of a run.

    Attributes
    ----------
    epoch, epochs : int
        The present epoch, from 0, and how many there are.
    row, n_rows : int
        Rows of the epoch that are done, and how many it has.
    step : int
        Batches done in all.
    loss : float
        Mean loss of the epoch so far, in nats per row and model.
    rows_per_second : float
        Since the run began or was resumed.
    seconds : float
        Time spent on training, earlier runs included.
    left_seconds : float
        Estimate of what is left.
    waited_share : float
        Share of the time in which training waited for rows.
    history : tuple of EpochFigures
        What was measured at the end of each epoch.
    best_epoch : int
        The best epoch so far, from 0; -1 before the first end.
    """

    epoch: int
    epochs: int
    row: int
    n_rows: int
    step: int
    loss: float
    rows_per_second: float
    seconds: float
    left_seconds: float
    waited_share: float
    history: tuple[EpochFigures, ...]
    best_epoch: int
    stop_reason: str | None = None

    def stop(self, reason: str) -> None:
        """Ask the run to end after the present epoch."""
        self.stop_reason = reason


class Callback(Protocol):
    """What a callback may have; every method is optional.

    ``on_fit_start``, ``on_progress``, ``on_checkpoint``, ``on_epoch_end`` and ``on_fit_end`` are
    given the :class:`State`, ``on_search`` the :class:`streammach.training.search.Trial` that was
    done, ``on_message`` what an optional part found, as text.
    """


class EarlyStopping:
    """Ends a run when held-out rows have not improved for some epochs.

    Parameters
    ----------
    patience : int
        Epochs without a new best.
    """

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience

    def on_epoch_end(self, state: State) -> None:
        """Ask for the end once the patience is used up."""
        if state.best_epoch >= 0 and state.epoch - state.best_epoch >= self.patience:
            state.stop(f"no better epoch in {self.patience}")


def call(callbacks: Sequence[object], method: str, *args: object) -> None:
    """Call a method of every callback that has it, in their order."""
    for callback in callbacks:
        function = getattr(callback, method, None)
        if function is not None:
            function(*args)
