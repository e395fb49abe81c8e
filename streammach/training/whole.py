"""A whole run: decisions, epochs, optional parts, the finished model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streammach.clock import Clock
from streammach.errors import UsageError
from streammach.files.folders import remove_folder
from streammach.files.reading import read_small
from streammach.files.writing import write_atomic
from streammach.machine import peak_bytes
from streammach.model.checkpoint import Checkpoints, RunPosition
from streammach.model.findings import Findings
from streammach.model.model import Model
from streammach.parts.base import Part
from streammach.parts.registry import decided, planned
from streammach.spec.documents import from_json, to_json
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.ahead import WorkAhead
from streammach.training.callbacks import State
from streammach.training.compact import FEW_ROWS, Compact
from streammach.training.epochs import Epochs
from streammach.training.events import Ended, Held, held_bytes
from streammach.training.finalize import finalize, finalize_alone
from streammach.training.job import CHECKPOINTS, Job, Work
from streammach.training.pace import Pace
from streammach.training.run import MAX_DOCUMENT, RESULT, SETTINGS, Result, Run, Settings, begun
from streammach.training.search import Search
from streammach.training.session import Session
from streammach.training.timetable import ALONE, EPOCHS, SEARCH, WRITING


class WholeRun(Job[Run]):
    """Trains a model to its end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def check(self, options: TrainingOptions, clock: Clock, start: Model | None) -> None:
        """Raise UsageError where weights need an epoch that the user does not want."""
        config = self.plan.config
        needed = not any(part.ranks_untrained for part in planned(config))
        if options.epochs == 0 and (needed or not config.batching.held_out_rows):
            raise UsageError("at least one epoch is needed: --epochs")

    def begin(self, folder: Path, *, resume: bool) -> None:
        """Raise UsageError if a folder holds a run, and it is not to be resumed."""
        begun(folder, resume=resume)

    def done(self, folder: Path) -> bool:
        """Return whether a folder holds a finished run."""
        return (folder / RESULT).exists()

    def reopened(self, folder: Path) -> Run:
        """Return a finished run."""
        return Run.open(folder)

    def work(self, work: Work) -> Run:
        """Do the stages of a training one after another, while there is time."""
        with work.session(self.plan) as session:
            return self._work(session, work)

    def _work(self, session: Session, work: Work) -> Run:
        checkpoints, ahead, pace = work.checkpoints(), self._ahead(session, work), Pace(session)
        keeps = work.lasting and not work.clock.limited  # else time decides what is found
        session.findings = Findings(checkpoints.folder / "kept", work.request, lasting=keeps)
        session.clock = pace.ahead
        session.ahead = ahead.run()
        # No name may stay for what is let go before the model is made.
        session.stages.expect(
            {k: v for one in session.ahead.values() for k, v in one.measured.items()}
        )
        named = pace.named(session.ahead)
        if self.plan.model.unhashed or (session.ahead and not pace.hashed_fits()):
            return self._without_hashes(session, work, pace, named)
        if session.ahead:
            self._save_alone(session, work, ahead)
        settings = self._settings(session, work, pace)
        session.clock = pace.epochs
        session.begin(EPOCHS)
        state, at = self._trained(session, settings, checkpoints, work)
        session.findings = session.findings.within(
            at.step, at.best_step, at.stopped, pace.judges, pace.model_size
        )
        session.ahead = ahead.kept()
        if session.ahead and not at.history:
            return self._without_hashes(session, work, pace, named)
        spec, shape = settings.training, self.plan.model
        compact, reasons = finalize(session, spec, pace.model_size, judges=pace.judges)
        again = _again(
            work.clock, at, buckets=shape.n_buckets, repetitions=shape.n_repetitions,
            epochs=spec.epochs, transform=spec.transform, learning_rate=spec.learning_rate,
            **decided(self.plan.facts, self.plan.config, spec), **named,
        )  # fmt: skip
        run = self._finished(session, work, settings, compact, (reasons, again), at)
        session.events.call("on_fit_end", state)
        return run

    def _trained(
        self, session: Session, settings: Settings, checkpoints: Checkpoints, work: Work
    ) -> tuple[State, RunPosition]:
        """Train, and go back to the best epoch; what reads the rows takes no memory behind it."""
        epochs = self._epochs(session, settings, checkpoints, work)
        state = epochs.run()
        epochs.return_to_best()
        return state, epochs.progress

    def _ahead(self, session: Session, work: Work) -> WorkAhead:
        """Return the work of parts that need no hashed models."""
        return WorkAhead(session, work.folder / CHECKPOINTS, work.request)

    def _settings(self, session: Session, work: Work, pace: Pace) -> Settings:
        """Return what is decided before the first epoch."""
        return decide(session, work, pace)

    def _epochs(
        self, session: Session, settings: Settings, checkpoints: Checkpoints, work: Work
    ) -> Epochs:
        """Return what trains the epochs."""
        return Epochs(
            session, settings.training, checkpoints, lasting=work.lasting, start=work.start,
            checkpoint_seconds=work.checkpoint_seconds,
        )  # fmt: skip

    def _save_alone(self, session: Session, work: Work, ahead: WorkAhead) -> None:
        """Write what parts did ahead, and a model of it; give back its memory."""
        folder = work.folder / "model"
        with session.stages.one(ALONE):
            ahead.keep(session.ahead)
            if not folder.exists():
                finalize_alone(session, "full", judges=FEW_ROWS)[0].save(folder)
        session.let_go()
        session.model_saved = True

    def _without_hashes(
        self, session: Session, work: Work, pace: Pace, named: dict[str, str | int]
    ) -> Run:
        """Finish a run whose model has no hashed ones."""
        session.findings = session.findings.within(
            "without hashed models", pace.judges, pace.model_size
        )
        compact, spec, reasons = finalize_alone(session, pace.model_size, judges=pace.judges)
        again = _again(work.clock, RunPosition(), repetitions=0, **named)
        settings = Settings(
            training=spec, held_out=session.held.origin, trials=(), reasons=(),
            request=work.request,
        )  # fmt: skip
        write_atomic(work.folder / SETTINGS, to_json(settings))
        return self._finished(session, work, settings, compact, (reasons, again), RunPosition())

    def _finished(
        self, session: Session, work: Work, settings: Settings, compact: Compact,
        why: tuple[tuple[str, ...], tuple[str, ...]], progress: RunPosition,
    ) -> Run:  # fmt: skip
        """Write the model and what was measured; remove the checkpoints."""
        (reasons, again), model, folder = why, compact.model, work.folder
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
            projected_bytes=self.plan.projected_bytes + work.compiling,
            peak_bytes=peak_bytes(),
            device_projected_bytes=self.plan.device_buffer_bytes,
            device_peak_bytes=backend.device_bytes()[0],
        )
        write_atomic(folder / RESULT, to_json(result))
        remove_folder(folder / CHECKPOINTS)
        session.stages.close()
        session.events.log(Held(held_bytes(backend.arrays(), session.held.rows, model)))
        session.events.log(Ended(result.seconds, result.peak_bytes, result.device_peak_bytes))
        return Run(folder, self.plan, settings, result)


def decide(session: Session, work: Work, pace: Pace) -> Settings:
    """Return what an earlier call decided before the first epoch, or decide it now."""
    path = work.folder / SETTINGS
    session.clock = pace.search
    session.begin(SEARCH)
    if path.exists():
        return from_json(read_small(path, MAX_DOCUMENT), Settings)
    search, epochs = Search(session, work.options), 0
    untrained = _untrained(session, pace)
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
        request=work.request,
    )  # fmt: skip
    write_atomic(path, to_json(settings))
    return settings


def _untrained(session: Session, pace: Pace) -> Part | None:
    """Return the part whose weights need no epoch, if there is to be none."""
    if session.options.epochs != 0 and (pace.epoch_fits() or not session.held.rows.n_rows):
        return None
    return next((part for part in planned(session.plan.config) if part.ranks_untrained), None)


def _again(clock: Clock, progress: RunPosition, **options: str | float) -> tuple[str, ...]:
    """Return what gives the same bytes without a limit of time, if there was one."""
    if not clock.limited:
        return ()
    if progress.row:
        return ("stopped within an epoch: what is trained in the same time differs a little",)
    said = " ".join(f"--{name.replace('_', '-')} {n}" for name, n in options.items())
    return (f"the same without a limit of time: {said}",)
