"""Trains a model by a plan: decisions, epochs, optional parts, the finished model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from streammach.clock import Clock
from streammach.data.holdout import check_held_out
from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, MismatchError, UsageError, clean
from streammach.files.folders import make_folder, remove_folder, temporary_folder
from streammach.files.locks import locked
from streammach.files.reading import check_free, read_small, sha256
from streammach.files.workplaces import LOCK
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.machine import peak_bytes
from streammach.model.checkpoint import Checkpoints, Progress
from streammach.model.findings import Findings
from streammach.model.model import Model
from streammach.parts.base import Part
from streammach.parts.registry import decided, planned
from streammach.planning.speed import known_speed
from streammach.spec.documents import encoded, from_json, to_json
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.stages import Stages, StageState
from streammach.training.ahead import WorkAhead
from streammach.training.callbacks import EarlyStopping
from streammach.training.compact import FEW_ROWS, Compact
from streammach.training.epochs import Epochs
from streammach.training.events import Ended, Events, Held, Started, held_bytes
from streammach.training.finalize import finalize, finalize_alone
from streammach.training.label_loss import check_label_loss
from streammach.training.older import older_request
from streammach.training.pace import Pace
from streammach.training.precompile import are_compiled, compiling_seconds, precompile
from streammach.training.run import (
    MAX_DOCUMENT,
    PLAN,
    RESULT,
    SETTINGS,
    Kept,
    Result,
    Run,
    Settings,
    begun,
    check_request,
    known_request,
    workplace,
)
from streammach.training.search import Search
from streammach.training.session import GOES_ON, Session, opened
from streammach.training.signals import StopSignals
from streammach.training.timetable import (
    ALONE,
    COMPILING,
    EPOCHS,
    HELD_OUT,
    SEARCH,
    SURE,
    WRITING,
    timetable,
)

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
    ) -> None:
        self._start = start
        self.plan, self.options = plan, options or TrainingOptions()
        self._given, self._clock = clock, clock or Clock()
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
            return self._fit(data, Path(out), resume=resume)
        if resume:
            raise UsageError("a run in a temporary folder cannot be gone on with: out, resume")
        with ExitStack() as kept:
            folder = kept.enter_context(temporary_folder())
            run = self._fit(data, folder, resume=False, lasting=False)
            return replace(run, kept=Kept(kept.pop_all()))

    def _fit(
        self,
        data: Dataset | str | os.PathLike[str],
        folder: Path,
        *,
        resume: bool,
        lasting: bool = True,
    ) -> Run:
        """Train; leave the run in a folder, which may be one that does not last."""
        options, self._clock = self.options, self._given or Clock()
        with ExitStack() as closing:
            dataset = data if isinstance(data, Dataset) else Dataset.open(data)
            if dataset is not data:
                closing.callback(dataset.close)
            if dataset.digest != self.plan.facts.digest:
                raise MismatchError(
                    "the plan was made for another store", path=clean(dataset.path, 300)
                )
            done = resume and (folder / RESULT).exists()
            if not done:
                check_held_out(options)
                check_label_loss(options, dataset.facts, self.plan.config)
                self._check_epochs()
            begun(folder, resume=resume)
            request = self._request(folder)
            check_request(folder, request)
            make_folder(folder)
            closing.enter_context(locked(folder / LOCK, clean(folder)))
            stop = closing.enter_context(StopSignals())
            check_request(folder, request)  # another process may have been here
            if done:
                return Run.open(folder)
            check_free(folder, self.plan.disk_bytes, "the run")
            workplace(folder).open(request=request)
            remove_temporaries(folder)
            write_atomic(folder / PLAN, to_json(self.plan))
            events = Events(folder, self._callbacks)
            events.log(Started(name_of(folder / PLAN)))
            stages = closing.enter_context(self._stages(events, stop))
            self._compile(dataset, stages)
            stages.begin(HELD_OUT)
            session = closing.enter_context(opened(
                self.plan, options, dataset, events=events, stop=stop, clock=self._clock,
                stages=stages,
            ))  # fmt: skip
            return self._run(session, folder, request, lasting=lasting)

    def _stages(self, events: Events, stop: StopSignals) -> Stages:
        """Return the stages of the run, and how long they should take."""
        facts, config, speed = self.plan.facts, self.plan.config, known_speed()
        wanted = timetable(
            facts, config, self.options, speed=speed,
            compiling=compiling_seconds(self.plan, self.options, speed),
        )  # fmt: skip
        limit = (lambda: self._clock.left) if self._clock.limited else None
        began = time.monotonic() - self._clock.spent

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

    def _run(self, session: Session, folder: Path, request: str, *, lasting: bool) -> Run:
        """Do the stages of a training one after another, while there is time."""
        checkpoints = Checkpoints(folder / "checkpoints", request)
        work, pace = WorkAhead(session, checkpoints.folder, request), Pace(session)
        keeps = lasting and not self._clock.limited  # else time decides what is found
        session.findings = Findings(checkpoints.folder / "kept", request, lasting=keeps)
        session.clock = pace.ahead
        session.ahead = work.run()
        for one in session.ahead.values():
            session.stages.expect(one.measured)
        named = pace.named(session.ahead)
        if self.plan.model.unhashed or (session.ahead and not pace.hashed_fits()):
            return self._without_hashes(session, folder, request, pace, named)
        if session.ahead:
            self._save_alone(session, folder, work)
        session.clock = pace.search
        session.begin(SEARCH)
        settings = self._settings(session, folder, request, pace)
        session.clock = pace.epochs
        session.begin(EPOCHS)
        epochs = Epochs(
            session, settings.training, checkpoints, lasting=lasting, start=self._start,
            checkpoint_seconds=self._checkpoint_seconds,
        )  # fmt: skip
        state = epochs.run()
        epochs.return_to_best()
        at = epochs.progress
        session.findings = session.findings.within(
            at.step, at.best_step, at.stopped, pace.judges, pace.model_size
        )
        session.ahead = work.kept()
        if session.ahead and not epochs.progress.history:
            return self._without_hashes(session, folder, request, pace, named)
        spec, shape = settings.training, self.plan.model
        compact, reasons = finalize(session, spec, pace.model_size, judges=pace.judges)
        again = self._again(
            epochs.progress, buckets=shape.n_buckets, repetitions=shape.n_repetitions,
            epochs=spec.epochs, transform=spec.transform, learning_rate=spec.learning_rate,
            **decided(self.plan.facts, self.plan.config, spec), **named,
        )  # fmt: skip
        run = self._finished(session, folder, settings, compact, (reasons, again), epochs.progress)
        session.events.call("on_fit_end", state)
        return run

    def _save_alone(self, session: Session, folder: Path, work: WorkAhead) -> None:
        """Write what parts did ahead, and a model of it; give back its memory."""
        with session.stages.one(ALONE):
            work.keep(session.ahead)
            for one in session.ahead.values():
                session.findings.drop(*one.unfinished)
            if not (folder / "model").exists():
                finalize_alone(session, "full", judges=FEW_ROWS)[0].save(folder / "model")
        session.ahead.clear()
        session.model_saved = True

    def _again(self, progress: Progress, **options: str | float) -> tuple[str, ...]:
        """Return what gives the same bytes without a limit of time, if there was one."""
        if not self._clock.limited:
            return ()
        if progress.row:
            return ("stopped within an epoch: what is trained in the same time differs a little",)
        said = " ".join(f"--{name.replace('_', '-')} {n}" for name, n in options.items())
        return (f"the same without a limit of time: {said}",)

    def _without_hashes(
        self, session: Session, folder: Path, request: str, pace: Pace,
        named: dict[str, str | int],
    ) -> Run:  # fmt: skip
        """Finish a run whose model has no hashed ones."""
        session.findings = session.findings.within(
            "without hashed models", pace.judges, pace.model_size
        )
        compact, spec, reasons = finalize_alone(session, pace.model_size, judges=pace.judges)
        again = self._again(Progress(), repetitions=0, **named)
        settings = Settings(
            training=spec, held_out=session.held.origin, trials=(), reasons=(), request=request
        )
        write_atomic(folder / SETTINGS, to_json(settings))
        return self._finished(session, folder, settings, compact, (reasons, again), Progress())

    def _finished(
        self, session: Session, folder: Path, settings: Settings, compact: Compact,
        why: tuple[tuple[str, ...], tuple[str, ...]], progress: Progress,
    ) -> Run:  # fmt: skip
        """Write the model and what was measured; remove the checkpoints."""
        (reasons, again), model = why, compact.model
        session.begin(WRITING)
        reasons = (*reasons, *compact.save(folder / "model"), *again)
        if model.estimator in model.validation:
            session.measured("finished model", model.validation[model.estimator])
        backend = session.backend
        result = Result(
            history=progress.history,
            best_epoch=max(progress.best_epoch, 0),
            stopped=progress.stopped,
            estimator=model.estimator,
            reasons=reasons,
            validation=model.validation,
            seconds=session.stages.seconds,
            stages={name: round(seconds, 3) for name, seconds in session.stages.took.items()},
            projected_bytes=self.plan.projected_bytes,
            peak_bytes=peak_bytes(),
            device_projected_bytes=self.plan.device_buffer_bytes,
            device_peak_bytes=backend.device_bytes()[0],
        )
        write_atomic(folder / RESULT, to_json(result))
        remove_folder(folder / "checkpoints")
        session.stages.close()
        session.events.log(Held(held_bytes(backend.arrays(), session.held.rows, model)))
        session.events.log(Ended(result.seconds, result.peak_bytes, result.device_peak_bytes))
        return Run(folder, self.plan, settings, result)

    def _settings(self, session: Session, folder: Path, request: str, pace: Pace) -> Settings:
        """Return what an earlier call decided, or decide it now."""
        path = folder / SETTINGS
        if path.exists():
            return from_json(read_small(path, MAX_DOCUMENT), Settings)
        search, epochs = Search(session, self.options), 0
        untrained = self._untrained(session, pace)
        if untrained is not None:
            found = search.untrained(untrained)
        else:
            found = search.choose()
            epochs = pace.epochs_that_fit(found)
        each = found.epoch_seconds(session.dataset.n_rows)
        if each is not None:
            session.expect_epochs(epochs, each)
        settings = Settings(
            training=replace(found.spec, epochs=epochs), held_out=session.held.origin,
            trials=tuple(trial.figures for trial in found.trials), reasons=found.reasons,
            request=request,
        )  # fmt: skip
        write_atomic(path, to_json(settings))
        return settings

    def _untrained(self, session: Session, pace: Pace) -> Part | None:
        """Return the part whose weights need no epoch, if there is to be none."""
        if self.options.epochs != 0 and (pace.epoch_fits() or not session.held.rows.n_rows):
            return None
        return next((part for part in planned(self.plan.config) if part.ranks_untrained), None)

    def _check_epochs(self) -> None:
        """Raise UsageError where weights need an epoch that the user does not want."""
        config = self.plan.config
        needed = not any(part.ranks_untrained for part in planned(config))
        if self.options.epochs == 0 and (needed or not config.batching.held_out_rows):
            raise UsageError("at least one epoch is needed: --epochs")

    def _request(self, folder: Path) -> str:
        """Return the digest of all that decides the result: the store, the plan, the options."""
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
        del options["model_size"]  # which was not asked for once
        unsized = sha256([encoded((*decided, options))])
        known = known_request(folder)
        return known if known in (unsized, older_request(plan, self.options)) else request
