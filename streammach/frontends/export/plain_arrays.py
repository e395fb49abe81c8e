"""A model as plain arrays, from which NumPy alone predicts: docs/reference/model-format.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streammach.model.model import Model
from streammach.model.shrink import plain
from streammach.prediction.output import ByteFile
from streammach.prediction.ranking import frequency_scores, knows_frequencies
from streammach.system.files.destinations import Destination, not_regular
from streammach.system.files.writing import Writer

FORMAT = 1
MARK = "streammach_export"  # the first array, or the producer of a graph: files of ours begin so


def not_an_export(path: Path) -> str | None:
    """Return why a file is no exported model; None if it is."""
    why = not_regular(path)
    if why is not None:
        return why
    with open(path, "rb") as file:
        ours = MARK.encode() in file.read(64)
    return None if ours else "it is no model that streammach exported"


def write_npz(model: Model, document: bytes, goal: Destination) -> None:
    """Write a model's arrays and its JSON, whole or not at all; or raise UsageError, DiskError."""
    arrays: dict[str, Any] = {MARK: np.array(FORMAT), "document": np.array(document.decode())}
    arrays |= model.arrays() | {"weights": plain(model, slice(None))}
    arrays |= {"codes": model.spec.codes().astype(np.int32)}
    if knows_frequencies(model):
        arrays["empty_scores"] = frequency_scores(model, model.estimator)
    arrays.pop("scale", None)
    with goal.scratch() as made, Writer(goal.path, temporary=made) as out:
        np.savez(ByteFile(out.write), **arrays)
        goal.take(made)
