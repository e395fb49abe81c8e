"""Checkpoints: everything that a run needs to go on from the exact row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from numpy.typing import NDArray

from streammach.model.findings import RunDocument, read_state, save_state
from streammach.model.tensors import TensorFile, read_tensors
from streammach.options.figures import EpochFigures
from streammach.options.types import Amount, Count
from streammach.system.errors import MismatchError, ModelError
from streammach.system.files.folders import remove_folder

Since = Annotated[int, msgspec.Meta(ge=-1)]  # -1: not yet


class RunPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is."""

    step: Count = 0  # batches done
    epoch: Count = 0  # the epoch it is in, from 0
    row: Count = 0  # rows of that epoch that are done, in the present wave
    loss_sum: float = 0.0  # loss so far in that epoch, summed over rows and models
    seconds: Amount = 0.0  # time spent on training
    history: tuple[EpochFigures, ...] = ()  # what was measured at the end of each epoch
    # best_step, best_epoch: the best epoch so far and the step at its end; -1 before the first end
    best_step: Since = -1
    best_epoch: Since = -1
    best_score: float = -1.0  # its score on held-out rows
    stopped: str | None = None  # why training ended before its last epoch
    # wave, wave_steps: wave of the epoch that it is in, from 0, and the batches of it that are done
    wave: Count = 0
    wave_steps: Count = 0
    loss_rows: Count = 0  # rows that `loss_sum` is of; each wave's count

    @property
    def at_end(self) -> bool:
        """Whether it is the end of an epoch."""
        return self.epoch > 0 and self.row == 0 and self.wave == 0

    def __post_init__(self) -> None:
        """Refuse a place that no run comes to."""
        if len(self.history) != self.epoch or self.best_epoch >= self.epoch:
            raise ValueError("its epochs do not fit each other")


class CheckpointDocument(RunDocument, frozen=True, kw_only=True):
    """The document of a checkpoint."""

    progress: RunPosition
    tensors: TensorFile


class Checkpoints:
    """The checkpoints of a run, in folders ``step-N``."""

    def __init__(self, folder: Path, identity: str, *, every_epoch: bool = False) -> None:
        self.folder = folder
        self._identity, self._every_epoch = identity, every_epoch

    def save(self, progress: RunPosition, arrays: dict[str, NDArray[Any]]) -> None:
        """Write a checkpoint; when it is durable, remove all but this and those that are kept.

        Kept is that of the best epoch, or of every epoch.
        """
        save_state(
            self.folder / f"step-{progress.step}", "state", arrays,
            lambda tensors: CheckpointDocument(
                identity=self._identity, tensors=tensors, progress=progress
            ),
        )  # fmt: skip
        kept = self.ends().values() if self._every_epoch else (progress.best_step,)
        for step in self._steps():
            if step != progress.step and step not in kept:
                remove_folder(self.folder / f"step-{step}")

    def ends(self) -> dict[int, int]:
        """Return the steps of checkpoints at an epoch's end, by how many epochs are done.

        Another process may train meanwhile: what it removes is left out.
        """
        found = {}
        for step in self._steps():
            try:
                at = self._document(step).progress
            except ModelError:
                if (self.folder / f"step-{step}").exists():
                    raise
                continue
            if at.at_end:
                found[at.epoch] = step
        return found

    def newest(self, arrays: dict[str, NDArray[Any]]) -> RunPosition | None:
        """Read the newest checkpoint that is whole; None without any."""
        damaged: ModelError | None = None
        for step in reversed(self._steps()):
            try:
                return self.read(step, arrays)
            except MismatchError:
                raise
            except ModelError as error:
                damaged = error
        if damaged is not None:
            raise damaged
        return None

    def read(self, step: int, arrays: dict[str, NDArray[Any]]) -> RunPosition:
        """Read the checkpoint of a step; return its progress."""
        document = self._document(step)
        place = self.folder / f"step-{step}" / "state.safetensors"
        read_tensors(place, document.tensors, arrays)
        return document.progress

    def _document(self, step: int) -> CheckpointDocument:
        path = self.folder / f"step-{step}" / "state.json"
        return read_state(path, CheckpointDocument, self._identity, "checkpoint")

    def remove(self) -> None:
        """Remove all checkpoints."""
        remove_folder(self.folder)

    def _steps(self) -> list[int]:
        try:
            names = [name.removeprefix("step-") for name in os.listdir(self.folder)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isdigit())
