"""Epochs of a run in shares: those that a share trains, and those that a merge reads from all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.errors import ModelError, clean
from streammach.figures import EpochFigures
from streammach.model.checkpoint import RunPosition
from streammach.training.callbacks import State
from streammach.training.epochs import Epochs
from streammach.training.events import Saved
from streammach.training.run_part import RunPart

STEPS = "steps"  # an array that all repetitions share


class ShareEpochs(Epochs):
    """Trains all epochs of a share: each one's end is kept, and none is measured.

    Held-out rows say something of all repetitions together.
    """

    def state(self, first_row: int = 0, seconds: float = 0.0) -> State:
        """Return what callbacks see: no epoch is the best."""
        return replace(super().state(first_row, seconds), best_epoch=-1)

    def _measured(self, speed: float) -> EpochFigures:
        return self._entry(speed)

    def _keep(self, epoch: int) -> None:
        """Save at the end of every epoch; without it the share is of no use."""
        at = self.progress
        self._checkpoints.save(at, self._backend.arrays())
        self._events.log(Saved(step=at.step, epoch=at.epoch, row=at.row))


class MergedEpochs(Epochs):
    """Goes through the epochs that shares trained."""

    _read: tuple[RunPosition, ...] = ()  # where the shares were at the end of the epoch

    @property
    def _shares(self) -> tuple[RunPart, ...]:
        return self._session.request.shares

    def _train_rows(self, first_row: int, before: float) -> State:
        """Read the end of the epoch from the shares."""
        found, first = self._joined(self.progress.epoch + 1), self._shares[0]
        self._backend.restore()
        self._read = found
        loss_sum = 0.0
        for share, at in zip(self._shares, found, strict=True):
            begin, end = share.repetitions
            loss_sum += at.history[-1].loss * self._reader.n_rows * (end - begin)
        self.progress = msgspec.structs.replace(
            self.progress, step=found[0].step // first.waves * self._backend.n_waves,
            row=0, wave=0, wave_steps=0, loss_sum=loss_sum,
        )  # fmt: skip
        return self.state()

    def _joined(self, epochs: int) -> tuple[RunPosition, ...]:
        """Read what the shares were after so many epochs; return where each of them was."""
        arrays, found, n = self._backend.arrays(), list[RunPosition](), len(self._shares)
        for i, share in enumerate(self._shares):
            self._session.check()
            step = share.checkpoints.ends()[epochs]
            found.append(share.checkpoints.read(step, _columns(arrays, share)))
            if step * self._shares[0].waves != found[0].step * share.waves:
                raise ModelError(
                    "damaged: its epochs are not those of the first part",
                    path=clean(share.path, 300), hint="Train it again.",
                )  # fmt: skip
            self._session.at((epochs - 1) * n + i + 1, self._spec.epochs * n)
        return tuple(found)

    def _keep(self, epoch: int) -> None:
        """Write nothing: the shares keep all epochs."""

    def _read_best(self) -> None:
        self._joined(self.progress.best_epoch + 1)

    def _measured(self, speed: float) -> EpochFigures:
        """Measure; what is said of time is that of the slowest share."""
        parts = [at.history[-1] for at in self._read]
        return msgspec.structs.replace(
            super()._measured(speed),
            rows_per_second=min(one.rows_per_second for one in parts),
            waited_share=max(one.waited_share for one in parts),
        )

    def _seconds(self, before: float, began: float) -> float:
        return max(at.seconds for at in self._read)


def _columns(arrays: dict[str, NDArray[Any]], share: RunPart) -> dict[str, NDArray[Any]]:
    """Return the columns of a share's repetitions in the arrays of a whole model."""
    n, (first, last) = share.plan.n_repetitions, share.repetitions

    def some(array: NDArray[Any]) -> NDArray[Any]:
        width = array.shape[-1] // n
        return array[..., first * width : last * width]

    return {name: a if name == STEPS else some(a) for name, a in arrays.items()}
