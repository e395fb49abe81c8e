"""Joins the parts of a run: the model has the bytes of one that was trained at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.data.store.dataset import Dataset
from streammach.errors import ModelError, clean
from streammach.figures import EpochFigures
from streammach.files.urls import located
from streammach.files.writing import write_atomic
from streammach.model.checkpoint import Checkpoints, RunPosition
from streammach.planning.cost import BYTE
from streammach.spec.documents import to_json
from streammach.spec.ledger import bytes_in
from streammach.training.ahead import WorkAhead
from streammach.training.callbacks import State
from streammach.training.epochs import Epochs
from streammach.training.job import CHECKPOINTS, Work
from streammach.training.pace import Pace
from streammach.training.run import SETTINGS, Run, Settings
from streammach.training.run_part import RunPart, in_order
from streammach.training.session import Session
from streammach.training.timetable import EPOCHS, HELD_OUT
from streammach.training.trainer import Trainer
from streammach.training.whole import WholeRun

STEPS = "steps"  # an array that all repetitions share


def merge(
    run: str | os.PathLike[str],
    parts: Sequence[str | os.PathLike[str]],
    *,
    data: Dataset | str | os.PathLike[str] | None = None,
    validation: str | os.PathLike[str] | None = None,
    callbacks: Sequence[object] | None = None,
    resume: bool = False,
) -> Run:
    """Join the parts of a run, which were trained apart, into the run.

    The epochs are gone through as in a training: held-out rows measure all repetitions together,
    early stopping may end them, the best one is kept. Then the model is finished. It has the bytes
    of one that was trained at once, on a processor with the same instructions.

    Parameters
    ----------
    run : path-like
        Folder for the run.
    parts : sequence of path-like
        Folders of all its parts, in any order; they are read only.
    data : Dataset or path-like, optional
        The training store; the one that the first part was trained on otherwise. With weights of
        classes: the same view of it.
    validation : path-like, optional
        The store of held-out rows, where it lies elsewhere now.
    callbacks : sequence, optional
        As for :class:`streammach.training.trainer.Trainer`.
    resume : bool
        Go on with an interrupted merge.

    Raises
    ------
    UsageError
        If a part is missing or there twice, or `run` holds something already.
    MismatchError
        If the parts are not of one run, or one is not finished.
    ModelError
        If a part is damaged.
    DiskError, LockedError, StoreError, Interrupted
        As for a training.
    """
    found = in_order(list(parts))
    first = found[0]
    options = first.facts.options
    if validation is not None:
        options = replace(options, validation=os.fspath(validation))
    trainer = Trainer(first.plan, options, callbacks=callbacks)
    store = located(first.facts.store) if data is None else data
    return trainer.do(Merge(found), store, Path(run), resume=resume)


class Merge(WholeRun):
    """Makes a run of its parts."""

    def __init__(self, parts: list[RunPart]) -> None:
        super().__init__(parts[0].plan)
        self._parts = parts

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that it takes at most: those of the model."""
        return bytes_in([line for line in self.plan.ledger if line.name == "model"], "disk")

    def expected(self, seconds: dict[str, float]) -> dict[str, float]:
        """Return the stages without those of the parts; epochs are read."""
        names = list(seconds)
        after = names[names.index(EPOCHS) + 1 :]
        found = {HELD_OUT: seconds[HELD_OUT]}
        settings = self._parts[0].settings
        assert settings is not None, "it is finished"
        shape = self.plan.config.shape
        table = 4 * self.plan.config.weight_rows * shape.n_columns
        found[EPOCHS] = settings.training.epochs * BYTE * table
        return found | {name: seconds[name] for name in after}

    def _ahead(self, session: Session, work: Work) -> WorkAhead:
        """Return what the first part did ahead."""
        first = self._parts[0]
        return WorkAhead(session, first.path / CHECKPOINTS, first.facts.request)

    def _save_alone(self, session: Session, work: Work, ahead: WorkAhead) -> None:
        """Give back the memory of what was done ahead: the first part keeps it."""
        session.let_go()

    def _settings(self, session: Session, work: Work, pace: Pace) -> Settings:
        """Return what the parts decided."""
        decided = self._parts[0].settings
        assert decided is not None, "it is finished"
        settings = msgspec.structs.replace(decided, request=work.request)
        write_atomic(work.folder / SETTINGS, to_json(settings))
        return settings

    def _epochs(
        self, session: Session, settings: Settings, checkpoints: Checkpoints, work: Work
    ) -> Epochs:
        """Return what reads the epochs."""
        epochs = JoinedEpochs(
            session, settings.training, checkpoints, lasting=False,
            checkpoint_seconds=work.checkpoint_seconds,
        )  # fmt: skip
        epochs.parts = self._parts
        return epochs


class JoinedEpochs(Epochs):
    """Goes through the epochs that parts trained."""

    parts: list[RunPart]  # the parts, in their order
    _read: tuple[RunPosition, ...] = ()  # where the parts were at the end of the epoch

    def _trained(self, first_row: int, before: float) -> State:
        """Read the end of the epoch from the parts."""
        found = self._joined(self.progress.epoch + 1)
        self._backend.restore()
        self._read = tuple(found)
        self.progress = msgspec.structs.replace(
            self.progress, step=found[0].step // self.parts[0].waves * self._backend.n_waves,
            row=0, wave=0, wave_steps=0,
            loss_sum=sum(self._loss_of(*one) for one in zip(self.parts, found, strict=True)),
        )  # fmt: skip
        return self.state()

    def _joined(self, epochs: int) -> list[RunPosition]:
        """Read what the parts were after so many epochs; return where each of them was."""
        arrays, found, n = self._backend.arrays(), list[RunPosition](), len(self.parts)
        for i, part in enumerate(self.parts):
            self._session.check()
            checkpoints = part.checkpoints
            step = checkpoints.ends()[epochs]
            found.append(checkpoints.read(step, _columns(arrays, part)))
            if step * self.parts[0].waves != found[0].step * part.waves:
                raise ModelError(
                    "damaged: its epochs are not those of the first part",
                    path=clean(part.path, 300), hint="Train it again.",
                )  # fmt: skip
            self._session.at((epochs - 1) * n + i + 1, self._spec.epochs * n)
        return found

    def _keep(self, epoch: int) -> None:
        """Write nothing: the parts keep all epochs."""

    def _read_best(self) -> None:
        """Read the weights of the best epoch."""
        self._joined(self.progress.best_epoch + 1)

    def _loss_of(self, part: RunPart, at: RunPosition) -> float:
        """Return the loss of the epoch, summed over rows and a part's repetitions."""
        first, last = part.repetitions
        return at.history[-1].loss * self._reader.n_rows * (last - first)

    def _measured(self, speed: float) -> EpochFigures:
        """Measure; what is said of time is that of the slowest part."""
        parts = [at.history[-1] for at in self._read]
        return msgspec.structs.replace(
            super()._measured(speed),
            rows_per_second=min(one.rows_per_second for one in parts),
            waited_share=max(one.waited_share for one in parts),
        )

    def _seconds(self, before: float, began: float) -> float:
        """Return the time of training of the slowest part."""
        return max(at.seconds for at in self._read)


def _columns(arrays: dict[str, NDArray[Any]], part: RunPart) -> dict[str, NDArray[Any]]:
    """Return the columns of a part's repetitions in the arrays of a whole model."""
    n, (first, last) = part.plan.n_repetitions, part.repetitions

    def some(array: NDArray[Any]) -> NDArray[Any]:
        width = array.shape[-1] // n
        return array[..., first * width : last * width]

    return {name: a if name == STEPS else some(a) for name, a in arrays.items()}
