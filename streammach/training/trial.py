"""A short training of a search, and the best one of a search whose time is limited."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from streammach.model.findings import Findings
from streammach.options.figures import HeldOutMetrics, TrialFigures
from streammach.options.training import TrainSpec
from streammach.options.types import Amount, Count
from streammach.rows.block import RowBlock
from streammach.system.errors import DivergedError, ModelError

NAME = "trial"  # under which the best one's weights are kept


class Trial(Struct, frozen=True, kw_only=True):
    """One short training, and what it found."""

    spec: TrainSpec
    rows: Count  # that it was trained on
    metrics: HeldOutMetrics
    rows_per_second: Amount = 0.0
    measuring_seconds: Amount = 0.0
    listed: bool = False
    whole: bool = True  # False: it was cut off when the time was over, and says nothing

    @property
    def score(self) -> float:
        """What trials are compared by."""
        return self.metrics.selection_score if self.whole else -1.0

    @property
    def figures(self) -> TrialFigures:
        """What is saved of it."""
        known = {**vars(self.spec), **asdict(self.metrics), "rows": self.rows}
        return TrialFigures(**{name: known[name] for name in TrialFigures.__struct_fields__})


def alike(one: TrainSpec, other: TrainSpec) -> bool:
    """Return whether trainings differ in their rates and epochs alone: they are as fast."""
    return replace(one, learning_rate=other.learning_rate, epochs=other.epochs) == other


class BestTrial:
    """The best trial: its weights are on disk where it may have to be the model."""

    def __init__(self, folder: Path, identity: str, rows: RowBlock) -> None:
        self._kept = Findings(folder, identity, lasting=True)
        self.trial: Trial | None = None
        self.rows = rows  # that trials, and then epochs, are measured on

    def keep(self, trial: Trial, arrays: dict[str, NDArray[Any]]) -> None:
        """Write the weights among a backend's arrays."""
        with suppress(DivergedError):  # another trial is better
            self._kept.save(NAME, trial, _weights(arrays))
            self.trial = trial

    def read(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Read them into the arrays of a backend of the same kind, or raise ModelError."""
        if self._kept.load(NAME, Trial, _weights(arrays)) is None:
            raise ModelError("damaged: the best trial", path=self._kept.folder, hint="Train again.")


def _weights(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: arrays[name] for name in ("weights", "bias", "projection") if name in arrays}
