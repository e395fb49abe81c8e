"""What a run notes of itself in its log: speed, waiting, the bytes it holds; and how that is read.

A line of ``log.jsonl`` is one JSON object with the event's name and ``t``, seconds since the
session began. A resumed run appends a new session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.rows.block import RowBlock

LOG = "log.jsonl"
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
    held = (rows.indptr, rows.features, rows.values, rows.labels, rows.weights, rows.places)
    return {
        "weights": sum(arrays[name].nbytes for name in kept),
        "optimizer": sum(a.nbytes for name, a in arrays.items() if name not in kept),
        "held-out rows": sum(a.nbytes for a in held if a is not None),
        "names": model.labels.n_bytes + model.features.n_bytes,
    }


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run's log, ``t`` going on from session to session.

    Lines that are no JSON object, such as one that was cut off by a crash, are left out.

    Parameters
    ----------
    folder : Path
        The run; without a log there are no events.
    """
    path = folder / LOG
    if not path.is_file():
        return []
    events: list[dict[str, Any]] = []
    before = latest = 0.0
    for line in path.read_text("utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict) or not isinstance(event.get("t"), int | float):
            continue
        if event.get("event") == "start":
            before = latest
        latest = before + event["t"]
        events.append({**event, "t": latest})
    return events
