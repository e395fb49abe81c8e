"""What happens in a training: typed lines of its log, and calls of its callbacks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.figures import EpochFigures, Reached, TrialFigures
from streammach.files.reading import disk_error, regular
from streammach.model.model import Model
from streammach.progress import state_fields
from streammach.rows.block import RowBlock
from streammach.spec.types import Amount, Count
from streammach.stages import StageState
from streammach.training.callbacks import call

LOG = "log.jsonl"
LOGGER = logging.getLogger("streammach")
PULSE_SECONDS = 10.0
STAGE_SECONDS = 20.0  # between two lines that say how far the run is


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """A line of a log; ``t``, seconds since the session began, and its name come first."""


class Started(Event, frozen=True, tag="start"):
    """A session began by this plan."""

    plan: str


class Tried(Event, frozen=True, tag="search"):
    """A short training of the search."""

    figures: TrialFigures


class Beat(Event, frozen=True, tag="progress"):
    """The speed of a training since the last beat."""

    epoch: Count
    row: Count
    seconds: Amount
    rows_per_second: Amount
    waited_share: Amount


class StageBeat(Event, frozen=True, tag="progress"):
    """How far the run is, in any stage: its share and seconds, and what is left of the run."""

    stage: str
    share: float | None
    stage_seconds: Amount
    left_seconds: float | None


class StagePassed(Event, frozen=True, tag="stage"):
    """A stage of the run is over."""

    stage: str
    seconds: Amount


class Validated(Event, frozen=True, tag="validation"):
    """What was measured at the end of an epoch."""

    figures: EpochFigures


class Saved(Event, frozen=True, tag="checkpoint"):
    """A checkpoint was written."""

    step: Count
    epoch: Count
    row: Count


class Interruption(Event, frozen=True, tag="interrupted", omit_defaults=True):
    """A signal ended the session, after this checkpoint if there is one."""

    step: Count | None = None
    epoch: Count | None = None
    row: Count | None = None


class Message(Event, frozen=True, tag="message"):
    """What a part found."""

    text: str


class Measured(Event, frozen=True, tag="measured"):
    """What a stage, by its name, reached on held-out rows."""

    stage: str
    figures: Reached


class Held(Event, frozen=True, tag="memory"):
    """Bytes of the large arrays by the ledger's names."""

    lines: dict[str, int]


class Ended(Event, frozen=True, tag="end"):
    """The run is finished."""

    seconds: Amount
    peak_bytes: Count
    device_peak_bytes: Count


class Events:
    """The log of a run, and those who watch it."""

    def __init__(self, folder: Path, callbacks: Sequence[object]) -> None:
        self.folder, self._path, self._callbacks = folder, folder / LOG, tuple(callbacks)
        self._began = self._beaten = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since the session began."""
        return time.monotonic() - self._began

    def stage(self, state: StageState) -> None:
        """Note how far the run is, and tell those who watch it; called by a thread of its own."""
        self.call("on_stage", state)
        now = time.monotonic()
        if state.moment == "end":
            self.log(StagePassed(state.stage, round(state.stage_seconds, 3)))
        elif state.moment == "within" and now - self._beaten >= STAGE_SECONDS:
            self._beaten, known = now, state_fields(state)
            self.log(StageBeat(**{name: known[name] for name in StageBeat.__struct_fields__}))

    def call(self, method: str, *args: object) -> None:
        """Call a method of every callback that has it, in their order."""
        call(self._callbacks, method, *args)

    def log(self, event: Event) -> None:
        """Append a line to the log, or raise DiskError."""
        fields = msgspec.to_builtins(event)
        LOGGER.info("%s", event)
        line = {"t": round(self.seconds, 3), "event": fields.pop("event")}
        for name, value in fields.items():  # figures stand in the line itself
            line |= value if isinstance(value, dict) else {name: value}
        try:
            with open(self._path, "ab", opener=regular) as log:
                log.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise disk_error(error, self._path) from error


class Pulse:
    """Notes the speed of an epoch every few seconds and at its end."""

    def __init__(self, log: Callable[[Event], None], epoch: int, row: int) -> None:
        self._log, self._epoch = log, epoch
        self._row, self._waited, self._at = row, 0.0, time.monotonic()

    def beat(self, row: int, waited: float, *, last: bool) -> None:
        """Note rows per second and the share of time waiting since the last note, if it is time.

        `waited` is in seconds.
        """
        now = time.monotonic()
        seconds = now - self._at
        if seconds <= 0 or not (last or seconds >= PULSE_SECONDS):
            return
        self._log(Beat(
            epoch=self._epoch, row=row, seconds=round(seconds, 3),
            rows_per_second=round((row - self._row) / seconds, 1),
            waited_share=round((waited - self._waited) / seconds, 5),
        ))  # fmt: skip
        self._row, self._waited, self._at = row, waited, now


def held_bytes(arrays: dict[str, NDArray[Any]], rows: RowBlock, model: Model) -> dict[str, int]:
    """Return the bytes of a run's large arrays, by the ledger's names."""
    kept = ("weights", "bias")
    held = (rows.indptr, rows.features, rows.values, rows.classes, rows.importance, rows.places)
    return {
        "weights": sum(arrays[name].nbytes for name in kept),
        "optimizer": sum(a.nbytes for name, a in arrays.items() if name not in kept),
        "held-out rows": sum(a.nbytes for a in held if a is not None),
        "names": model.labels.n_bytes + model.features.n_bytes,
    }
