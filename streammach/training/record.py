"""What is read from the log of a run: speed, waiting, what stages reached, the bytes it held.

A line of ``log.jsonl`` is one JSON object with the event's name and ``t``, seconds since the
session began. A resumed run appends a new session. What is no such line is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from streammach.files.reading import read_small
from streammach.spec.types import Amount, Count, Share
from streammach.training.events import LOG

MAX_LOG = 256 << 20


class Logged(msgspec.Struct, frozen=True):
    """What every line of a log says."""

    t: Amount
    event: str


class Speed(msgspec.Struct, frozen=True):
    """The speed of a training at some moment, ``t`` going on from session to session."""

    t: Amount
    epoch: Count
    rows_per_second: Amount
    waited_share: Amount


class Stage(msgspec.Struct, frozen=True):
    """What a stage reached on held-out rows, ``t`` going on from session to session."""

    t: Amount
    accuracy: Share
    top_5_accuracy: Share
    stage: str = "hashed models"


@dataclass(frozen=True)
class RunLog:
    """What is read from a run's log."""

    beats: tuple[Speed, ...] = ()  # in their order
    # in their order: epochs of the hashed models, and what was measured between them
    stages: tuple[Stage, ...] = ()
    # bytes of the run's large arrays, by the ledger's names
    held: dict[str, int] = field(default_factory=dict)


def read_log(folder: Path) -> RunLog:
    """Return what a run's log says, without lines that say something else, or raise DiskError."""
    path = folder / LOG
    if not path.exists():
        return RunLog()
    beats: list[Speed] = []
    held: dict[str, int] = {}
    stages: list[Stage] = []
    before = latest = 0.0
    for line in read_small(path, MAX_LOG).splitlines():
        try:
            event = msgspec.json.decode(line, type=Logged)
            before = latest if event.event == "start" else before
            latest = max(latest, before + event.t)
            if event.event == "progress":
                beat = msgspec.json.decode(line, type=Speed)
                beats.append(msgspec.structs.replace(beat, t=latest))
            if event.event in ("validation", "measured"):
                stage = msgspec.json.decode(line, type=Stage)
                stages.append(msgspec.structs.replace(stage, t=latest))
            elif event.event == "memory":
                facts = msgspec.json.decode(line, type=dict[str, int | float | str])
                held = {name: n for name, n in facts.items() if isinstance(n, int) and n >= 0}
        except (msgspec.DecodeError, RecursionError):
            continue
    return RunLog(tuple(beats), tuple(stages), held)
