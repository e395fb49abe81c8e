"""How models that are compared are trained: the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.data.store.dataset import Dataset
from streammach.spec import Plan
from streammach.training.run import Run
from streammach.training.trainer import Trainer


@dataclass(frozen=True)
class Training:
    """How each of several models is trained; None where the trainer decides.

    Attributes
    ----------
    epochs : int or None
        Passes over the rows.
    learning_rate : float or None
        Rate at the start.
    transform : str
        As for :class:`streammach.training.trainer.Trainer`.
    label_smoothing : float or None
        Share of the target spread over all buckets.
    loss : str
        As for the trainer.
    validation, hold_out_by : str or None
        Where held-out rows come from.
    """

    epochs: int | None = None
    learning_rate: float | None = None
    transform: str = "auto"
    label_smoothing: float | None = None
    loss: str = "auto"
    validation: str | None = None
    hold_out_by: str | None = None

    def run(
        self,
        plan: Plan,
        data: Dataset,
        out: Path,
        *,
        seed: int,
        callbacks: Sequence[Any] | None = None,
    ) -> Run:
        """Train by a plan, or go on with it, in a folder."""
        trainer = Trainer(
            plan, epochs=self.epochs, learning_rate=self.learning_rate, transform=self.transform,
            label_smoothing=self.label_smoothing, loss=self.loss, seed=seed, callbacks=callbacks,
        )  # fmt: skip
        return trainer.fit(
            data, out, validation=self.validation, hold_out_by=self.hold_out_by, resume=True
        )


AS_USUAL = Training()
