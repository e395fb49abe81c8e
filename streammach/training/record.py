"""What a run notes of itself in its log: speed, waiting, the bytes it holds; and how that is read.

A line of ``log.jsonl`` is one JSON object with the event's name and ``t``, seconds since the
session began. A resumed run appends a new session. What is no such line is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.files.reading import read_small
from streammach.model.model import Model
from streammach.rows.block import RowBlock
from streammach.spec import Amount, Count

LOG = "log.jsonl"
MAX_LOG = 256 << 20
PULSE_SECONDS = 10.0


class Pulse:
    """Notes the speed of an epoch every few seconds and at its end.

    Parameters
    ----------
    log : callable
        Takes the name of an event and its facts.
    epoch : int
        Number of the epoch, from 1.
    row : int
        Row of the epoch at which it begins.
    """

    def __init__(self, log: Callable[..., None], epoch: int, row: int) -> None:
        self._log, self._epoch = log, epoch
        self._row, self._waited, self._at = row, 0.0, time.monotonic()

    def beat(self, row: int, waited: float, *, last: bool) -> None:
        """Note rows per second and the share of time waiting since the last note, if it is time.

        Parameters
        ----------
        row : int
            Rows of the epoch that are done.
        waited : float
            Seconds of this epoch in which training waited for rows.
        last : bool
            Whether the epoch is done.
        """
        now = time.monotonic()
        seconds = now - self._at
        if seconds <= 0 or not (last or seconds >= PULSE_SECONDS):
            return
        self._log(
            "progress", epoch=self._epoch, row=row, seconds=round(seconds, 3),
            rows_per_second=round((row - self._row) / seconds, 1),
            waited_share=round((waited - self._waited) / seconds, 5),
        )  # fmt: skip
        self._row, self._waited, self._at = row, waited, now


def held_bytes(arrays: dict[str, NDArray[Any]], rows: RowBlock, model: Model) -> dict[str, int]:
    """Return the bytes of a run's large arrays, by the ledger's names.

    Parameters
    ----------
    arrays : dict
        Those of the backend.
    rows : RowBlock
        The held-out rows.
    model : Model
        The finished model.
    """
    kept = ("weights", "bias")
    held = (rows.indptr, rows.features, rows.values, rows.classes, rows.importance, rows.places)
    return {
        "weights": sum(arrays[name].nbytes for name in kept),
        "optimizer": sum(a.nbytes for name, a in arrays.items() if name not in kept),
        "held-out rows": sum(a.nbytes for a in held if a is not None),
        "names": model.labels.n_bytes + model.features.n_bytes,
    }


class Event(msgspec.Struct, frozen=True):
    """What every line of a log says."""

    t: Amount
    event: str


class Beat(msgspec.Struct, frozen=True):
    """The speed of a training at some moment, ``t`` going on from session to session."""

    t: Amount
    epoch: Count
    rows_per_second: Amount
    waited_share: Amount


@dataclass(frozen=True)
class RunLog:
    """What is read from a run's log.

    Attributes
    ----------
    beats : tuple of Beat
        In their order.
    held : dict of str to int
        Bytes of the run's large arrays, by the ledger's names.
    """

    beats: tuple[Beat, ...] = ()
    held: dict[str, int] = field(default_factory=dict)


def read_log(folder: Path) -> RunLog:
    """Return what a run's log says; lines that say something else are left out.

    Parameters
    ----------
    folder : Path
        The run; without a log there is nothing.

    Raises
    ------
    DiskError
        If the log is there and cannot be read, or is too large for one.
    """
    path = folder / LOG
    if not path.exists():
        return RunLog()
    beats: dict[str, list[Beat]] = {"progress": [], "validation": []}
    held: dict[str, int] = {}
    before = latest = 0.0
    for line in read_small(path, MAX_LOG).splitlines():
        try:
            event = msgspec.json.decode(line, type=Event)
            before = latest if event.event == "start" else before
            latest = max(latest, before + event.t)
            if event.event in beats:
                beat = msgspec.json.decode(line, type=Beat)
                beats[event.event].append(msgspec.structs.replace(beat, t=latest))
            elif event.event == "memory":
                facts = msgspec.json.decode(line, type=dict[str, int | float | str])
                held = {name: n for name, n in facts.items() if isinstance(n, int) and n >= 0}
        except (msgspec.DecodeError, RecursionError):
            continue
    # Releases before this one noted the speed at the end of an epoch alone.
    return RunLog(tuple(beats["progress"] or beats["validation"]), held)
