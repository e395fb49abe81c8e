"""Trains a model by a plan: decisions, epochs, optional parts, the finished model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from streammach.backends.registry import BACKENDS
from streammach.clock import Clock
from streammach.data.holdout import check_held_out
from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import BudgetError, MismatchError, UsageError, clean
from streammach.files.folders import check_ours, make_folder, temporary_folder
from streammach.files.locks import locked
from streammach.files.reading import check_free, sha256
from streammach.files.workplaces import LOCK
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.jit import TRAINING_COMPILER_BYTES, compiler_bytes, keep_compiled
from streammach.machine import advised, size_text
from streammach.model.model import Model
from streammach.planning.ledger import kernels
from streammach.planning.speed import known_speed
from streammach.spec.documents import encoded, to_json
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.stages import Stages, StageState
from streammach.training.callbacks import EarlyStopping
from streammach.training.events import Events, Started
from streammach.training.job import CHECKPOINT_FILES, CHECKPOINTS, Job, Work
from streammach.training.label_loss import check_label_loss
from streammach.training.part_job import PartJob
from streammach.training.run import PLAN, Kept, Run, check_request, workplace
from streammach.training.run_part import PartNumber, RunPart
from streammach.training.signals import StopSignals
from streammach.training.timetable import timetable
from streammach.training.whole import WholeRun

T = TypeVar("T")
CHECKPOINT_MINUTES = 10.0
STOPPING = "stopping; again: now"  # what is said after a signal, until its step is over


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
        self._given = clock
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
            return self.do(WholeRun(self.plan), data, Path(out), resume=resume)
        if resume:
            raise UsageError("a run in a temporary folder cannot be gone on with: out, resume")
        with ExitStack() as kept:
            folder = kept.enter_context(temporary_folder())
            run = self.do(WholeRun(self.plan), data, folder, resume=False, lasting=False)
            return replace(run, kept=Kept(kept.pop_all()))

    def fit_part(
        self,
        data: Dataset | str | os.PathLike[str],
        out: str | os.PathLike[str],
        part: tuple[int, int],
        *,
        settings: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> RunPart:
        """Train a part of a run, for :func:`streammach.training.merge.merge`.

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
        job = PartJob(self.plan, PartNumber(*part), self.options, settings)
        return self.do(job, data, Path(out), resume=resume)

    def do(
        self,
        job: Job[T],
        data: Dataset | str | os.PathLike[str],
        folder: Path,
        *,
        resume: bool,
        lasting: bool = True,
    ) -> T:
        """Do a job in a folder: :meth:`fit` with a whole run, :meth:`fit_part` with a part.

        Parameters
        ----------
        job : Job
            What is done; its plan is the trainer's.
        data : Dataset or path-like
            What the plan was made for.
        folder : Path
            Where it is done.
        resume : bool
            Go on with what is there.
        lasting : bool
            Whether the folder stays.
        """
        options, kind, clock = self.options, job.kind, self._given or Clock()
        with ExitStack() as closing:
            dataset = data if isinstance(data, Dataset) else Dataset.open(data)
            if dataset is not data:
                closing.callback(dataset.close)
            if dataset.digest != self.plan.facts.digest:
                raise MismatchError(
                    "the plan was made for another store", path=clean(dataset.path, 300)
                )
            done = resume and job.done(folder)
            if not done:
                check_held_out(options)
                check_label_loss(options, dataset.facts, self.plan.config)
                job.check(options, clock, self._start)
            used = kernels(self.plan.facts, self.plan.config)
            compiles = (
                *used, type(job).__name__, options.transform, options.hold_out_by,
                options.validation is None,
            )  # fmt: skip
            compiling = 0 if done else self._compiling(compiles)
            job.begin(folder, resume=resume)
            request = self._request()
            check_request(folder, request, kind)
            make_folder(folder)
            closing.enter_context(locked(folder / LOCK, clean(folder)))
            stop = closing.enter_context(self._stop or StopSignals())
            check_request(folder, request, kind)  # another process may have been here
            check_ours(folder / CHECKPOINTS, CHECKPOINT_FILES)
            if done:
                return job.reopened(folder)
            check_free(folder, job.disk_bytes, f"the {kind}")
            workplace(folder, kind).open(request=request, **job.facts)
            remove_temporaries(folder)
            write_atomic(folder / PLAN, to_json(self.plan))
            events = Events(folder, self._callbacks)
            events.log(Started(name_of(folder / PLAN)))
            stages = closing.enter_context(self._stages(job, clock, events, stop))
            found = job.work(Work(
                folder=folder, request=request, dataset=dataset, options=options, events=events,
                stop=stop, stages=stages, clock=clock, lasting=lasting, compiling=compiling,
                checkpoint_seconds=self._checkpoint_seconds, start=self._start,
            ))  # fmt: skip
            if not resume and not clock.limited:  # all its stages were gone through
                keep_compiled(*compiles)
                keep_compiled(*used)
            return found

    def _stages(self, job: Job[T], clock: Clock, events: Events, stop: StopSignals) -> Stages:
        """Return the stages of a job, and how long they should take."""
        wanted = job.expected(
            timetable(self.plan.facts, self.plan.config, self.options, speed=known_speed())
        )
        limit = (lambda: clock.left) if clock.limited else None
        began = time.monotonic() - clock.spent

        def told(state: StageState) -> None:
            events.stage(replace(state, note=STOPPING) if stop.requested else state)

        return Stages(told, wanted, limit=limit, began=began)

    def _compiling(self, compiles: tuple[object, ...]) -> int:
        """Return the bytes that compiling takes beside the plan, or raise BudgetError."""
        plan = self.plan
        kept = BACKENDS[plan.config.placement.device].keeps_kernels
        more = compiler_bytes(*compiles, n_bytes=TRAINING_COMPILER_BYTES) if kept else 0
        needed, limits = plan.projected_bytes + more, plan.limits
        if more and needed > limits.host:
            raise BudgetError(
                f"the first training of its kind compiles kernels: it needs {size_text(needed)}, "
                f"later ones {size_text(plan.projected_bytes)}",
                path=f"{size_text(limits.host)} ({limits.host_source})",
                hint=f"Nothing was allocated; use --memory {advised(needed)} or more.",
            )
        return more

    def _request(self) -> str:
        """Return the digest of all that decides the result: the store, the plan, the options."""
        plan, options = self.plan, msgspec.to_builtins(self.options)
        if options["validation"] is not None:
            options["validation"] = name_of(options["validation"])
        decided = (plan.facts.digest, plan.model, plan.config.decisive)
        begun_from = (
            () if self._start is None else (sha256([np.asarray(self._start.weights).data]),)
        )
        return sha256([encoded((*decided, options, *begun_from))])
