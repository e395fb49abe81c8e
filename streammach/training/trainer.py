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

from streammach.clock import Clock
from streammach.data.holdout import check_held_out
from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, MismatchError, UsageError, clean
from streammach.files.folders import make_folder, temporary_folder
from streammach.files.locks import locked
from streammach.files.reading import check_free, sha256
from streammach.files.workplaces import GOES_ON, LOCK
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.model.model import Model
from streammach.planning.speed import known_speed
from streammach.spec.documents import encoded, to_json
from streammach.spec.plan import Plan
from streammach.spec.training import AUTO, RANDOM, TrainingOptions
from streammach.stages import Stages, StageState
from streammach.training.callbacks import EarlyStopping
from streammach.training.events import Events, Started
from streammach.training.job import Job, Work
from streammach.training.label_loss import check_label_loss
from streammach.training.older import older_request
from streammach.training.part_job import PartJob
from streammach.training.precompile import are_compiled, compiling_seconds, precompile
from streammach.training.run import PLAN, Kept, Run, check_request, known_request, workplace
from streammach.training.run_part import PartNumber, RunPart
from streammach.training.signals import StopSignals
from streammach.training.timetable import COMPILING, SURE, timetable
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
            job.begin(folder, resume=resume)
            request, options = self._request(folder, kind)
            check_request(folder, request, kind)
            make_folder(folder)
            closing.enter_context(locked(folder / LOCK, clean(folder)))
            stop = closing.enter_context(self._stop or StopSignals())
            check_request(folder, request, kind)  # another process may have been here
            if done:
                return job.reopened(folder)
            check_free(folder, job.disk_bytes, f"the {kind}")
            workplace(folder, kind).open(request=request, **job.facts)
            remove_temporaries(folder)
            write_atomic(folder / PLAN, to_json(self.plan))
            events = Events(folder, self._callbacks)
            events.log(Started(name_of(folder / PLAN)))
            stages = closing.enter_context(self._stages(job, clock, events, stop))
            self._compile(dataset, stages)
            return job.work(Work(
                folder=folder, request=request, dataset=dataset, options=options, events=events,
                stop=stop, stages=stages, clock=clock, lasting=lasting,
                checkpoint_seconds=self._checkpoint_seconds, start=self._start,
            ))  # fmt: skip

    def _stages(self, job: Job[T], clock: Clock, events: Events, stop: StopSignals) -> Stages:
        """Return the stages of a job, and how long they should take."""
        facts, config, speed = self.plan.facts, self.plan.config, known_speed()
        wanted = job.expected(timetable(
            facts, config, self.options, speed=speed,
            compiling=compiling_seconds(self.plan, self.options, speed),
        ))  # fmt: skip
        limit = (lambda: clock.left) if clock.limited else None
        began = time.monotonic() - clock.spent

        def told(state: StageState) -> None:
            events.stage(replace(state, note=STOPPING) if stop.requested else state)

        return Stages(told, wanted, sure=SURE, limit=limit, began=began)

    def _compile(self, dataset: Dataset, stages: Stages) -> None:
        """Have the kernels compiled that are not, in another process."""
        if are_compiled(self.plan, self.options):
            return
        stages.begin(COMPILING)
        try:
            precompile(self.plan, self.options, dataset)
        except KeyboardInterrupt:
            raise Interrupted("interrupted while kernels were compiled", hint=GOES_ON) from None

    def _request(self, folder: Path, kind: str = "run") -> tuple[str, TrainingOptions]:
        """Return the digest of all that decides the result, and what is fixed of it.

        The store, the plan and the options decide; random rows are held out of an older run.
        """
        plan, options = self.plan, msgspec.to_builtins(self.options)
        if options["validation"] is not None:
            options["validation"] = name_of(options["validation"])
        decided = (plan.facts.digest, plan.model, plan.config.decisive)
        if options["label_loss"] == "auto":  # as before there was a choice
            del options["label_loss"]
        begun_from = (
            () if self._start is None else (sha256([np.asarray(self._start.weights).data]),)
        )
        request = sha256([encoded((*decided, options, *begun_from))])
        if options["hold_out_by"] in (AUTO, RANDOM):  # what was random rows once
            options["hold_out_by"] = None
        random = sha256([encoded((*decided, options, *begun_from))])
        del options["model_size"]  # which was not asked for once
        unsized = sha256([encoded((*decided, options))])
        known = known_request(folder, kind)
        if known is None or known not in (random, unsized, older_request(plan, self.options)):
            return request, self.options
        by = self.options.hold_out_by
        return known, replace(self.options, hold_out_by=RANDOM if by == AUTO else by)
