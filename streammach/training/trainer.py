"""Trains a model by a plan: search, epochs, held-out rows, checkpoints, the finished model."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from streammach.backends.base import Backend, open_backend
from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import DiskError, Interrupted, MismatchError, UsageError, clean
from streammach.figures import EpochFigures
from streammach.files.folders import make_folder
from streammach.files.locks import locked
from streammach.files.reading import check_free, disk_error, read_small, sha256
from streammach.files.workplaces import LOCK
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.machine import peak_bytes
from streammach.model.checkpoint import Checkpoints, Progress
from streammach.planning.schedule import EPOCHS
from streammach.prediction.evaluate import measure
from streammach.prediction.ranking import by_hashes
from streammach.spec import MOST, Plan, TrainSpec, Transform, from_json, to_json
from streammach.training.callbacks import EarlyStopping, State, call
from streammach.training.finish import Finish
from streammach.training.holdout import HeldOut, check_held_out, hold_out
from streammach.training.loop import Feed, Start, check_loss, open_reader, train_epoch
from streammach.training.record import LOG, Pulse, held_bytes
from streammach.training.run import (
    MAX_DOCUMENT,
    PLAN,
    RESULT,
    SETTINGS,
    Result,
    Run,
    Settings,
    begun,
    check_request,
    workplace,
)
from streammach.training.signals import StopSignals
from streammach.training.trials import Search, Trial, couplings
from streammach.training.warm import warm

SMOOTHING = {False: 0.1, True: 0.0}
CHECKPOINT_MINUTES = 10.0
FAILED_SAVES = 3  # in a row, before a run gives up
GOES_ON = "The same command with --resume goes on."
TRANSFORMS: tuple[Transform, ...] = ("raw", "binary", "log1p", "l2")


class Trainer:
    """Trains models by a plan.

    Parameters
    ----------
    plan : Plan
        Model, batch, memory.
    epochs : int, optional
        Passes over the rows; 5 for sparse rows, 12 for dense ones.
    learning_rate : float, optional
        The rate at the start; searched otherwise.
    transform : str
        ``raw``, ``binary``, ``log1p``, ``l2``, or ``auto``: searched.
    label_smoothing : float, optional
        Share of the target spread over all buckets; 0.1 for sparse rows, 0 for dense ones.
    loss : str
        ``apart``: each repetition learns buckets for itself; ``joint``: all of them learn the class
        together; ``auto``: what held-out rows like better for hashed models of dense rows, apart
        for others.
    seed : int
        Decides the order of the rows and the groups held out.
    callbacks : sequence
        Objects with any of the methods of :class:`streammach.training.callbacks.Callback`;
        early stopping after 3 epochs if none is given.
    checkpoint_minutes : float
        Time between checkpoints.

    Raises
    ------
    UsageError
        If a value is out of its range.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        epochs: int | None = None,
        learning_rate: float | None = None,
        transform: str = "auto",
        label_smoothing: float | None = None,
        loss: str = "auto",
        seed: int = 0,
        callbacks: Sequence[Any] | None = None,
        checkpoint_minutes: float = CHECKPOINT_MINUTES,
    ) -> None:
        if transform != "auto" and transform not in TRANSFORMS:
            known = ", ".join(("auto", *TRANSFORMS))
            raise UsageError(f"'{clean(transform)}' is not one of {known}: --transform")
        if epochs is not None and epochs < 1:
            raise UsageError("at least one epoch is needed: --epochs")
        if learning_rate is not None and not 0 < learning_rate < float("inf"):
            raise UsageError("the learning rate is not a number above 0: --learning-rate")
        if label_smoothing is not None and not 0 <= label_smoothing < 1:
            raise UsageError("the label smoothing is not from 0 to below 1: --label-smoothing")
        if not 0 <= seed <= MOST:
            raise UsageError("the seed is not an integer from 0 to 2^63 - 1: --seed")
        self.plan = plan
        self._transform: Transform | None = next((t for t in TRANSFORMS if t == transform), None)
        self._rate = learning_rate
        self._losses = couplings(plan, loss)
        self._spec = TrainSpec(
            epochs or EPOCHS[plan.dense],
            plan.batch_size,
            learning_rate or 1.0,
            self._transform or "raw",
            SMOOTHING[plan.dense] if label_smoothing is None else label_smoothing,
            plan.optimizer,
            1e-8,
            seed,
        )
        self._callbacks = tuple((EarlyStopping(),) if callbacks is None else callbacks)
        self._checkpoint_seconds = checkpoint_minutes * 60

    def fit(
        self,
        data: Dataset | str | os.PathLike[str],
        out: str | os.PathLike[str],
        *,
        validation: str | os.PathLike[str] | None = None,
        hold_out_by: str | None = None,
        resume: bool = False,
    ) -> Run:
        """Train on a store; leave the run in a folder.

        Parameters
        ----------
        data : Dataset or path-like
            The store that the plan was made for.
        out : path-like
            The run's folder: plan, log, checkpoints, model.
        validation : path-like, optional
            A store with held-out rows.
        hold_out_by : str, optional
            Hold out rows of the training store that share a feature of this namespace; random
            rows otherwise.
        resume : bool
            Go on with an interrupted run of the same store, plan and options, from its last
            checkpoint; the result has the bytes of a run that was not interrupted.

        Raises
        ------
        UsageError
            If `out` holds a run and `resume` is False.
        MismatchError
            If the plan belongs to another store, or the run to other options.
        DivergedError
            If the loss leaves the finite numbers; the last checkpoint is kept.
        Interrupted
            After a signal, with the work saved.
        DiskError, LockedError, StoreError, ModelError
            If files cannot be read or written.
        """
        dataset = data if isinstance(data, Dataset) else Dataset.open(data)
        folder = Path(out)
        if dataset.digest != self.plan.facts.digest:
            raise MismatchError(
                "the plan was made for another store", path=clean(dataset.path, 300)
            )
        if not (resume and (folder / RESULT).exists()):
            check_held_out(validation, hold_out_by)
        begun(folder, resume=resume)
        request = self._request(validation, hold_out_by)
        check_request(folder, request)
        warm(
            self.plan, dataset.path, transform=self._transform, losses=self._losses,
            by=hold_out_by, validation=None if validation is None else os.fspath(validation),
        )  # fmt: skip
        make_folder(folder)
        with locked(folder / LOCK, clean(folder)), StopSignals() as signals:
            check_request(folder, request)  # another process may have been here
            if resume and (folder / RESULT).exists():
                return Run.open(folder)
            check_free(folder, self.plan.disk_bytes, "the run")
            workplace(folder).open(request=request)
            remove_temporaries(folder)
            write_atomic(folder / PLAN, to_json(self.plan))
            session = _Session(self, dataset, folder, signals)
            try:
                return session.run(request, validation, hold_out_by)
            finally:
                session.close()

    def _request(self, validation: str | os.PathLike[str] | None, by: str | None) -> str:
        """Return the digest of all that decides the result."""
        plan = self.plan
        decided = [
            plan.facts.digest, plan.model, plan.batch_nnz, plan.pool_blocks, plan.dense,
            plan.validation_rows, plan.validation_nnz, plan.max_pairs,
            plan.closed_form, plan.whitened, plan.weights, self._spec, self._transform,
            self._rate, self._losses, name_of(str(validation)), by,
        ]  # fmt: skip
        return sha256([msgspec.json.encode(decided)])


class _Session:
    """One call of fit: the backend, the reader, and where the run is."""

    def __init__(
        self, trainer: Trainer, dataset: Dataset, folder: Path, signals: StopSignals
    ) -> None:
        self._trainer, self._dataset, self._folder = trainer, dataset, folder
        self._signals = signals
        self._plan = trainer.plan
        self._callbacks = trainer._callbacks
        facts = self._plan.facts
        self._backend: Backend = open_backend(
            self._plan.device, self._plan.model, dense=self._plan.dense,
            threads=self._plan.threads, device_bytes=self._plan.device_allowed_bytes,
            waves=self._plan.waves, weights_are=self._plan.weights,
            keep=(facts.n_rows, facts.nnz) if self._plan.resident else (0, 0),
        )  # fmt: skip
        self._began = time.monotonic()
        self._failed_saves = 0
        self._saved_at = time.monotonic()

    def close(self) -> None:
        self._backend.close()

    def run(self, request: str, validation: str | os.PathLike[str] | None, by: str | None) -> Run:
        self._log("start", plan=str(self._folder / PLAN))
        held = hold_out(
            self._dataset, self._plan, validation=validation, by=by, seed=self._trainer._spec.seed
        )
        search = self._search(held)
        settings = self._settings(search, held, request)
        spec = settings.training
        self._backend.prepare(spec, self._plan.batch_nnz, search.basis(spec))
        del search  # and what it keeps
        checkpoints = Checkpoints(self._folder / "checkpoints", request)
        progress = checkpoints.newest(self._backend.arrays()) or Progress()
        self._backend.restore()
        reader = open_reader(self._dataset, self._plan, self._backend, spec, held)
        if (
            progress.epoch > spec.epochs
            or progress.row > reader.n_rows
            or progress.wave >= self._backend.n_waves
        ):
            raise MismatchError(
                "damaged: the checkpoint is of another training", path=clean(self._folder, 300)
            )
        state = self._state(progress, spec, reader)
        call(self._callbacks, "on_fit_start", state)
        while progress.epoch < spec.epochs and progress.stopped is None:
            progress, state = self._epoch(progress, spec, reader, held, checkpoints)
        result = self._finish(progress, held, spec, checkpoints)
        call(self._callbacks, "on_fit_end", state)
        return Run(self._folder, self._plan, settings, result)

    def _search(self, held: HeldOut) -> Search:
        def on_trial(trial: Trial) -> None:
            self._log("search", **msgspec.to_builtins(trial.figures))
            call(self._callbacks, "on_search", trial)

        return Search(
            self._dataset, self._plan, self._backend, held,
            on_trial=on_trial, on_batch=self._signals.check,
        )  # fmt: skip

    def _settings(self, search: Search, held: HeldOut, request: str) -> Settings:
        """Return what an earlier call decided, or decide it now."""
        path = self._folder / SETTINGS
        if path.exists():
            return from_json(read_small(path, MAX_DOCUMENT), Settings)
        trainer = self._trainer
        choice = search.choose(
            trainer._spec, transform=trainer._transform, learning_rate=trainer._rate,
            losses=trainer._losses,
        )  # fmt: skip
        trials = tuple(trial.figures for trial in choice.trials)
        settings = Settings(choice.spec, held.origin, trials, choice.reasons, request)
        write_atomic(path, to_json(settings))
        return settings

    def _epoch(
        self,
        progress: Progress,
        spec: TrainSpec,
        reader: Feed,
        held: HeldOut,
        checkpoints: Checkpoints,
    ) -> tuple[Progress, State]:
        """Train to the end of the present epoch, measure, keep the best."""
        epoch, before, began = progress.epoch, progress.seconds, time.monotonic()
        reader.waited_seconds = 0.0
        first_row = self._done(progress, reader)
        pulse = Pulse(self._log, epoch + 1, first_row)
        asked: str | None = None
        start = Start(progress.row, progress.wave, progress.wave_steps)
        for step in train_epoch(self._backend, reader, spec, epoch, start):
            same_wave = step.wave == progress.wave
            progress = msgspec.structs.replace(
                progress,
                step=progress.step + 1,
                row=(progress.row if same_wave else 0) + step.n_rows,
                wave=step.wave,
                wave_steps=(progress.wave_steps if same_wave else 0) + 1,
                loss_sum=progress.loss_sum + step.loss.total,
                loss_rows=progress.loss_rows + step.loss.n_rows,
                seconds=before + time.monotonic() - began,
            )
            state = self._state(progress, spec, reader, first_row, time.monotonic() - began)
            done = self._done(progress, reader)
            pulse.beat(done, reader.waited_seconds, last=done == reader.n_rows)
            call(self._callbacks, "on_progress", state)
            asked = asked or state.stop_reason
            if self._signals.requested or self._is_time_to_save():
                progress = self._settled(progress, spec, reader)
                self._between_batches(progress, state, checkpoints)
        seconds = time.monotonic() - began
        entry = self._measured(progress, spec, reader, held, (reader.n_rows - first_row) / seconds)
        progress = _after_epoch(progress, entry, before + time.monotonic() - began)
        if progress.best_epoch == epoch and progress.epoch < spec.epochs:
            self._save(progress, checkpoints)
        state = self._state(progress, spec, reader)
        state.epoch = epoch
        self._log("validation", **msgspec.to_builtins(entry))
        call(self._callbacks, "on_epoch_end", state)
        return msgspec.structs.replace(progress, stopped=asked or state.stop_reason), state

    def _done(self, progress: Progress, reader: Feed) -> int:
        """Return the rows of the epoch that are done: all of them when the last wave is."""
        return (progress.wave * reader.n_rows + progress.row) // self._backend.n_waves

    def _measured(
        self,
        progress: Progress,
        spec: TrainSpec,
        reader: Feed,
        held: HeldOut,
        speed: float,
    ) -> EpochFigures:
        entry = EpochFigures(
            epoch=progress.epoch + 1,
            loss=progress.loss_sum / (reader.n_rows * self._plan.n_repetitions),
            rows_per_second=speed,
            waited_share=reader.waited_seconds * speed / reader.n_rows,
            peak_bytes=peak_bytes(),
        )
        if not held.rows.n_rows:
            return entry
        found = measure(held.rows, by_hashes(self._backend, "logsum", spec.transform))
        return msgspec.structs.replace(
            entry, p_at_1=found.p_at_1, p_at_5=found.p_at_5, merit=found.merit
        )

    def _is_time_to_save(self) -> bool:
        return time.monotonic() - self._saved_at > self._trainer._checkpoint_seconds

    def _settled(self, progress: Progress, spec: TrainSpec, reader: Feed) -> Progress:
        """Return the progress with the losses of all its steps."""
        loss = self._backend.settle()
        check_loss(loss, spec, progress.epoch, progress.row, reader.n_rows)
        return msgspec.structs.replace(
            progress,
            loss_sum=progress.loss_sum + loss.total,
            loss_rows=progress.loss_rows + loss.n_rows,
        )

    def _between_batches(self, progress: Progress, state: State, checkpoints: Checkpoints) -> None:
        """Save, and end where a signal asks for it."""
        if self._signals.requested:
            checkpoints.save(progress, self._backend.arrays())
            self._log("interrupted", step=progress.step, epoch=progress.epoch, row=progress.row)
            raise Interrupted(
                f"interrupted: saved step {progress.step:,} "
                f"(epoch {progress.epoch + 1}, row {progress.row:,})",
                hint=GOES_ON,
            )
        self._save(progress, checkpoints)
        call(self._callbacks, "on_checkpoint", state)

    def _save(self, progress: Progress, checkpoints: Checkpoints) -> None:
        """Write a checkpoint; a full disk is a warning at first, since older ones are kept."""
        self._saved_at = time.monotonic()
        try:
            checkpoints.save(progress, self._backend.arrays())
            self._failed_saves = 0
            self._log("checkpoint", step=progress.step, epoch=progress.epoch, row=progress.row)
        except DiskError as error:
            self._failed_saves += 1
            if self._failed_saves == FAILED_SAVES:
                raise
            warnings.warn(f"a checkpoint could not be written: {error}", stacklevel=2)

    def _finish(
        self, progress: Progress, held: HeldOut, spec: TrainSpec, checkpoints: Checkpoints
    ) -> Result:
        """Go back to the best epoch, choose how classes are ranked, write model and result."""
        self._save(progress, checkpoints)  # what comes now takes its time
        if progress.best_epoch not in (-1, progress.epoch - 1):
            checkpoints.read(progress.best_step, self._backend.arrays())
            self._backend.restore()
        self._backend.fold()
        model, reasons = Finish(
            self._dataset, self._plan, self._backend, held, spec, self._tell, self._stop_if_asked
        ).model()
        model.save(self._folder / "model", force=True)
        result = Result(
            history=progress.history,
            best_epoch=max(progress.best_epoch, 0),
            stopped=progress.stopped,
            estimator=model.estimator,
            reasons=reasons,
            validation=model.validation,
            seconds=time.monotonic() - self._began,
            projected_bytes=self._plan.projected_bytes,
            peak_bytes=peak_bytes(),
            device_projected_bytes=self._plan.device_buffer_bytes,
            device_peak_bytes=self._backend.device_bytes()[0],
        )
        write_atomic(self._folder / RESULT, to_json(result))
        checkpoints.remove()
        self._log("memory", **held_bytes(self._backend.arrays(), held.rows, model))
        self._log(
            "end", seconds=result.seconds, peak_bytes=result.peak_bytes,
            device_peak_bytes=result.device_peak_bytes,
        )  # fmt: skip
        return result

    def _stop_if_asked(self) -> None:
        if self._signals.requested:
            self._log("interrupted")
            raise Interrupted("interrupted: the trained epochs are saved", hint=GOES_ON)

    def _tell(self, text: str) -> None:
        self._log("beside", text=text)
        call(self._callbacks, "on_beside", text)

    def _state(
        self,
        progress: Progress,
        spec: TrainSpec,
        reader: Feed,
        first_row: int = 0,
        seconds: float = 0.0,
    ) -> State:
        row = self._done(progress, reader)
        speed = (row - first_row) / seconds if seconds > 0 else 0.0
        left = (spec.epochs - progress.epoch) * reader.n_rows - row
        return State(
            epoch=progress.epoch,
            epochs=spec.epochs,
            row=row,
            n_rows=reader.n_rows,
            step=progress.step,
            loss=progress.loss_sum
            * self._backend.n_waves
            / max(progress.loss_rows * self._plan.n_repetitions, 1),
            rows_per_second=speed,
            seconds=progress.seconds,
            left_seconds=left / speed if speed else 0.0,
            peak_bytes=0,
            waited_share=reader.waited_seconds / seconds if seconds > 0 else 0.0,
            history=progress.history,
            best_epoch=progress.best_epoch,
        )

    def _log(self, event: str, **facts: Any) -> None:
        """Append a line to the run's log."""
        line = {"t": round(time.monotonic() - self._began, 3), "event": event, **facts}
        path = self._folder / LOG
        try:
            with open(path, "a", encoding="utf-8", opener=_no_link) as log:
                log.write(json.dumps(line) + "\n")
        except OSError as error:
            raise disk_error(error, path) from error


def _no_link(path: str, flags: int) -> int:
    """Open a file that is no link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _after_epoch(progress: Progress, entry: EpochFigures, seconds: float) -> Progress:
    """Return the progress at the start of the next epoch."""
    # Without held-out rows the last one is the best.
    score = float(progress.epoch) if entry.merit is None else entry.merit
    better = score > progress.best_score
    return msgspec.structs.replace(
        progress,
        epoch=progress.epoch + 1,
        row=0,
        wave=0,
        wave_steps=0,
        loss_sum=0.0,
        loss_rows=0,
        seconds=seconds,
        history=(*progress.history, entry),
        best_step=progress.step if better else progress.best_step,
        best_epoch=progress.epoch if better else progress.best_epoch,
        best_score=score if better else progress.best_score,
    )
