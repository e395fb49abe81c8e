"""What models reach before and after a command changed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cli.output import Document, say, short_path
from streammach.figures import figures_text
from streammach.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.model.model import Model
    from streammach.prediction.evaluate import Evaluation

NAMES = ("before", "after")
UNITS = dict.fromkeys(NAMES, "rows")  # what is counted while they are measured


def reached(
    models: Sequence[Model],
    store: Path,
    *,
    memory: str | None,
    threads: int | None,
    shown: ProgressBar,
) -> list[Evaluation]:
    """Return what models reach on the rows of a store, one after the other."""
    from streammach.prediction.evaluate import evaluate  # compiled code loads on demand
    from streammach.prediction.predictor import Predictor

    found = []
    for name, model in zip(NAMES, models, strict=True):

        def told(_: str, done: float, total: float, stage: str = name) -> None:
            shown(stage, done, total)

        with Predictor(model, memory=memory, threads=threads) as predictor:
            found.append(evaluate(predictor, store, progress=told))
    return found


def compared(found: Sequence[Evaluation]) -> Document:
    """Return both evaluations for JSON, None each where nothing was measured."""
    if not found:
        return dict.fromkeys(NAMES)
    return dict(zip(NAMES, map(dataclasses.asdict, found), strict=True))


def say_compared(found: Sequence[Evaluation], store: Path | None) -> None:
    """Say what both reached on a store, if they were measured."""
    for name, one in zip(NAMES, found, strict=False):
        figures = figures_text(one, listed=one.sets is not None, digits=4)
        say(f"{name:<8}{figures} on {one.n_rows:,} rows of {short_path(store)}")
