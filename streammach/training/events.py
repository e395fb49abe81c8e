"""What happens in a training: lines of its log, which each session goes on with, and callbacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.options.types import Amount, Share
from streammach.parts.training_record import LOG
from streammach.rows.block import RowBlock
from streammach.system.files.reading import read_small

MAX_LOG = 256 << 20


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


class StagePoint(msgspec.Struct, frozen=True):
    """What a stage reached on held-out rows, ``t`` going on from session to session."""

    t: Amount
    accuracy: Share
    top_5_accuracy: Share
    stage: str = "hashed models"


@dataclass(frozen=True)
class RunLog:
    """What is read from a run's log, in its order."""

    stages: tuple[StagePoint, ...] = ()  # epochs of the hashed models, and what was measured beside
    held: dict[str, int] = field(default_factory=dict)  # bytes of the run's large arrays


def read_log(folder: Path) -> RunLog:
    """Return what a run's log says, without lines that say something else, or raise DiskError."""
    path, before, latest = folder / LOG, 0.0, 0.0
    stages, held = list[StagePoint](), dict[str, int]()
    for text in read_small(path, MAX_LOG).splitlines() if path.exists() else ():
        try:
            line = msgspec.json.decode(text, type=dict[str, Any])
            event = line["event"]
            before = latest if event == "start" else before
            latest = max(latest, before + line["t"])
            if event in ("validation", "measured"):
                stages.append(msgspec.convert(line | {"t": latest}, StagePoint))
            elif event == "memory":
                held = {name: n for name, n in line.items() if isinstance(n, int) and n >= 0}
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
            continue
    return RunLog(tuple(stages), held)
