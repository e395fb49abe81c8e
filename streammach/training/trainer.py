"""Trains a model by a plan: whole, in shares, or merged from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from streammach.clock import Clock
from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError
from streammach.files.folders import temporary_folder
from streammach.files.urls import located
from streammach.model.model import Model
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.callbacks import EarlyStopping
from streammach.training.fit import fit
from streammach.training.request import FitRequest
from streammach.training.run import FolderLease, Run
from streammach.training.run_part import PartNumber, RunPart, in_order
from streammach.training.signals import StopSignals

CHECKPOINT_MINUTES = 10.0


class Trainer:
    """Trains models by a plan.

    Parameters
    ----------
    plan : Plan
        Model, batch, memory.
    options : TrainingOptions, optional
        What is fixed of the training; all is chosen otherwise.
    callbacks : sequence
        Objects with any of the methods of :class:`streammach.training.callbacks.Callback`;
        early stopping after 3 epochs if none is given.
    checkpoint_minutes : float
        Time between checkpoints.
    clock : Clock, optional
        The time that the work may take; it ends with the best model by then.
    start : Model, optional
        Where the weights start: a model of the same shape, classes and features.
    stop : StopSignals, optional
        Asks for the end; the signals of the process otherwise.
    """

    def __init__(
        self,
        plan: Plan,
        options: TrainingOptions | None = None,
        *,
        callbacks: Sequence[object] | None = None,
        checkpoint_minutes: float = CHECKPOINT_MINUTES,
        clock: Clock | None = None,
        start: Model | None = None,
        stop: StopSignals | None = None,
    ) -> None:
        self._start, self._stop = start, stop
        self.plan, self.options = plan, options or TrainingOptions()
        self._clock = clock
        self._callbacks = tuple((EarlyStopping(),) if callbacks is None else callbacks)
        self._checkpoint_seconds = checkpoint_minutes * 60

    def fit(
        self,
        data: Dataset | str | os.PathLike[str],
        out: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
    ) -> Run:
        """Train on a store or on rows in memory; leave the run in a folder.

        Parameters
        ----------
        data : Dataset or path-like
            What the plan was made for.
        out : path-like, optional
            The run's folder: plan, log, checkpoints, model. Without one it is a temporary folder,
            which goes when the run is closed or is no longer used.
        resume : bool
            Go on with an interrupted run of the same store, plan and options, from its last
            checkpoint; the result has the bytes of a run that was not interrupted.

        Raises
        ------
        UsageError
            If `out` holds a run and `resume` is False, or there is nothing to go on with.
        MismatchError
            If the plan belongs to another store, or the run to other options.
        DivergedError
            If the loss leaves the finite numbers; the last checkpoint is kept.
        Interrupted
            After a signal, with the work saved.
        DiskError, LockedError, StoreError, ModelError
            If files cannot be read or written.
        """
        if out is not None:
            fit(self._request(out, resume=resume), data)
            return Run.open(out)
        if resume:
            raise UsageError("a run in a temporary folder cannot be gone on with: out, resume")
        with ExitStack() as lease:
            folder = lease.enter_context(temporary_folder())
            fit(replace(self._request(folder), lasting=False), data)
            return replace(Run.open(folder), kept=FolderLease(lease.pop_all()))

    def fit_part(
        self,
        data: Dataset | str | os.PathLike[str],
        out: str | os.PathLike[str],
        part: tuple[int, int],
        *,
        settings: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> RunPart:
        """Train a part of a run, for :func:`streammach.training.trainer.merge`.

        Parameters
        ----------
        data : Dataset or path-like
            What the plan was made for: the plan of the whole run.
        out : path-like
            The part's folder.
        part : tuple of int
            Which part, from 1, and of how many: ``(3, 8)``. Each has as many repetitions as the
            others, or one more.
        settings : path-like, optional
            Another part of the run, where transform and learning rate are decided already.
        resume : bool
            Go on with an interrupted part.

        Raises
        ------
        UsageError
            If the run cannot be had in such parts, or `out` holds something already.
        MismatchError
            If the plan belongs to another store, or `out` or `settings` to another run.
        DivergedError, Interrupted, DiskError, LockedError, StoreError, ModelError
            As for :meth:`fit`.
        """
        asked = self._request(out, resume=resume)
        fit(replace(asked, share=PartNumber(*part), settings=settings), data)
        return RunPart.open(out)

    def _request(
        self, folder: str | os.PathLike[str], *, resume: bool = False,
        shares: tuple[RunPart, ...] = (),
    ) -> FitRequest:  # fmt: skip
        return FitRequest(
            plan=self.plan, options=self.options, folder=Path(folder), resume=resume,
            callbacks=self._callbacks, checkpoint_seconds=self._checkpoint_seconds,
            clock=self._clock or Clock(), stop=self._stop, start=self._start, shares=shares,
        )  # fmt: skip


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
    shares = in_order(list(parts))
    first = shares[0]
    options = first.facts.options
    if validation is not None:
        options = replace(options, validation=os.fspath(validation))
    trainer = Trainer(first.plan, options, callbacks=callbacks)
    store = located(first.facts.store) if data is None else data
    fit(trainer._request(run, resume=resume, shares=tuple(shares)), store)
    return Run.open(run)
