"""What may watch a training run: objects with any of the methods of :class:`Callback`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from streammach.options.annotated import check_options
from streammach.options.figures import EpochFigures, figures_text, words
from streammach.system.progress import JSON_SECONDS, ProgressBar, Wanted
from streammach.system.stages import StageState
from streammach.training.time_budget import EPOCHS


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
        Estimate of what is left of the whole run.
    waited_share : float
        Share of the time in which training waited for rows.
    history : tuple of EpochFigures
        What was measured at the end of each epoch.
    best_epoch : int
        The best epoch so far, from 0; -1 before the first end.
    listed : bool
        Whether rows have lists of labels: accuracies are precisions then.
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
    listed: bool = False
    stop_reason: str | None = None

    def stop(self, reason: str) -> None:
        """Ask the run to end after the present epoch."""
        self.stop_reason = reason


class Callback(Protocol):
    """What a callback may have; every method is optional.

    ``on_fit_start``, ``on_progress``, ``on_checkpoint``, ``on_epoch_end`` and ``on_fit_end`` are
    given the :class:`State`, ``on_search`` the :class:`streammach.training.trials.Trial` that was
    done, ``on_message`` what an optional part found, as text, ``on_run_end`` the finished
    :class:`streammach.training.run.Run`. ``on_stage`` is given the
    :class:`streammach.system.stages.StageState` when a stage of the run begins and ends, and twice
    a second meanwhile, by a thread of its own.
    """


class EarlyStopping:
    """Ends a run when held-out rows have not improved for some epochs.

    Parameters
    ----------
    patience : int
        Epochs without a new best.
    """

    def __init__(self, patience: int = 3) -> None:
        check_options(EarlyStopping.__init__.__annotations__, locals())
        self.patience = patience

    def on_epoch_end(self, state: State) -> None:
        """Ask for the end once the patience is used up."""
        if state.best_epoch >= 0 and state.epoch - state.best_epoch >= self.patience:
            state.stop(f"no better epoch in {self.patience}")


class Progress:
    """Tells how a training goes: a bar or lines of its stages, trials, a table line per epoch.

    With ``json`` each is an object on a line, with the names of events that ``log.jsonl`` has.

    Parameters
    ----------
    mode : str, bool or callable
        ``auto`` or True: a bar on a terminal and in a notebook, a line now and then elsewhere;
        ``bar``, ``plain``, ``json`` or ``none``; or what is called with (stage, done, total).
    bar : ProgressBar, optional
        Shows it; one for the mode otherwise.
    stages : bool
        Whether stages are shown.
    """

    def __init__(
        self, mode: Wanted = "auto", *, bar: ProgressBar | None = None, stages: bool = True
    ) -> None:  # fmt: skip
        self._bar, self._stages = ProgressBar(mode, "") if bar is None else bar, stages
        self._json = self._bar.mode == "json"
        self._headed, self._epochs = False, ""
        self._told, self._seconds = time.monotonic(), 0.0  # the last object; since the run began

    def on_stage(self, state: StageState) -> None:
        """Show how far the run is."""
        self._seconds = state.seconds
        if self._stages:
            note = self._epochs if state.stage == EPOCHS and not state.note else state.note
            self._bar.show(replace(state, note=note))

    def on_search(self, trial: Any) -> None:
        """Tell what a trial reached."""
        if self._json:
            self._bar.write("search", msgspec.to_builtins(trial.figures))
            return
        self._bar.tell(
            f"trial    {trial.spec.searched_text:<45} {trial.rows:>9,} rows "
            f"x {trial.spec.epochs}  held-out {figures_text(trial.metrics, listed=trial.listed)}"
        )

    def on_message(self, text: str) -> None:
        """Tell what a part found."""
        self._bar.tell(text if self._json else f"part     {text}")

    def on_progress(self, state: State) -> None:
        """Take note of where the epoch is."""
        self._epochs = (
            f"epoch {state.epoch + 1}/{state.epochs}  {state.rows_per_second:z,.0f} rows/s  "
            f"loss {state.loss:z.3f}"
        )
        if self._json and time.monotonic() - self._told >= JSON_SECONDS:
            self._told = time.monotonic()
            self._bar.write("progress", {
                "epoch": state.epoch + 1, "row": state.row, "loss": state.loss,
                "rows_per_second": round(state.rows_per_second, 1),
                "left_seconds": round(state.left_seconds, 1),
            })  # fmt: skip

    def on_epoch_end(self, state: State) -> None:
        """Add a line to the table of epochs."""
        entry = state.history[-1]
        if self._json:
            self._bar.write("validation", msgspec.to_builtins(entry))
            return
        if not self._headed:
            said = words(state.listed)
            names = f"{said.first:>10}{said.five:>9}"
            self._bar.tell(f" epoch    loss{names}  best    rows/s  peak GB  waiting")
            self._headed = True
        figures = [
            "-" if x is None else f"{x:z.3f}" for x in (entry.accuracy, entry.top_5_accuracy)
        ]
        best = "*" if state.best_epoch == state.epoch else ""
        self._bar.tell(
            f"{state.epoch + 1:>6}{entry.loss:>z8.3f}{figures[0]:>9}{figures[1]:>9}{best:>6}"
            f"{entry.rows_per_second:>z10,.0f}{entry.peak_bytes / 1e9:>z9.2f}"
            f"{entry.waited_share:>z9.1%}"
        )

    def on_fit_end(self, state: State) -> None:
        """Take the bar off."""
        if self._json:
            self._bar.write("end", {"seconds": round(self._seconds or state.seconds, 3)})
        self._bar.close()
