"""The epochs of a run: batches, held-out rows, checkpoints, and where it goes on."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import msgspec

from streammach.model.checkpoint import Checkpoints, RunPosition
from streammach.options.figures import EpochFigures
from streammach.options.training import TrainSpec
from streammach.system.errors import DiskError, Interrupted, MismatchError
from streammach.system.files.workplaces import GOES_ON
from streammach.system.linux import peak_bytes
from streammach.training.callbacks import State
from streammach.training.loop import (
    Feed,
    Step,
    check_loss,
    find_row_map,
    measure_rows,
    open_reader,
    prepare_backend,
    train_epoch,
)
from streammach.training.run import CHECKPOINTS
from streammach.training.run_part import RunTraining, read_ends
from streammach.training.trials import TrialRunner, alike
from streammach.training.warm_start import begin_from_start

OUT_OF_TIME = "the time is used up"
INTERRUPTED = "interrupted"
FAILED_SAVES = 3  # in a row, before a run gives up


class Epochs:
    """Trains to the last epoch, from where the newest checkpoint is.

    Of a shard every epoch's end is saved, and none is measured: held-out rows measure all
    repetitions together. In a merge their epochs are read.
    """

    def __init__(
        self, training: RunTraining, spec: TrainSpec, *, rows: int = 0,
        trials: TrialRunner | None = None,
    ) -> None:  # fmt: skip
        """Begin with the newest checkpoint; an epoch has so many of the rows, 0: all."""
        self._training, self.spec, self._backend = training, spec, training.backend
        self._trials = trials  # of a limited time
        self._checkpoints = Checkpoints(
            training.folder / CHECKPOINTS, training.identity, every_epoch=training.shard is not None
        )
        self._lasting = training.lasting and not training.shards  # whether checkpoints are written
        self._checkpoint_seconds = training.checkpoint_seconds if self._lasting else float("inf")
        self._failed_saves, self._saved_at = 0, time.monotonic()
        self._stop_reason: str | None = None  # why a callback asks for the end of the epoch
        self._best: RunPosition | None = None  # the best epoch, while no checkpoint holds it
        self._prepare(spec)
        if training.start is not None:
            begin_from_start(training, training.start)
        self.progress = self._checkpoints.newest(self._backend.arrays()) or RunPosition()
        self._backend.restore()
        self._reader: Feed = open_reader(training, spec, held=training.excluded, rows=rows or None)
        self._rows = spec.epochs * self._reader.n_rows  # of all epochs
        if (
            self.progress.epoch > spec.epochs
            or self.progress.row > self._reader.n_rows
            or self.progress.wave >= self._backend.n_waves
        ):
            raise MismatchError(
                "damaged: the checkpoint is of another training", path=training.folder
            )

    def _prepare(self, spec: TrainSpec) -> None:
        """Make the backend ready for a training that no other one follows."""
        prepare_backend(self._training, spec, find_row_map(self._training, spec))
        self._training.row_map = None

    def run(self) -> State:
        """Train to the end, or until a callback asks for it; return the last state."""
        state = self.state()
        self._training.call("on_fit_start", state)
        trials, clock = self._trials, self._training.clock
        if trials is not None and trials.kept is not None and clock.remaining_seconds <= 0:
            self.progress = msgspec.structs.replace(self.progress, stopped=OUT_OF_TIME)
        while self.progress.epoch < self.spec.epochs and self.progress.stopped is None:
            self._stop_reason = None
            state = self._read_shards() if self._training.shards else self._train_rows()
            if self.progress.stopped is None:
                state = self._end_epoch(state)
        return state

    def return_to_best(self) -> None:
        """Go back to the weights of the best epoch, and save them."""
        at = self.progress
        if at.best_epoch >= 0 and at.best_step != at.step:
            if self._best is None:
                if self._training.shards:
                    read_ends(self._training, at.best_epoch + 1)
                else:
                    self._checkpoints.read(at.best_step, self._backend.arrays())
                self._backend.restore()
            else:
                self._backend.return_to_best()
            self.progress = msgspec.structs.replace(at, best_step=at.step)
        self._best = None
        self._return_to_trial()
        if self._lasting:
            self._save()  # what comes now takes its time
            self._training.saved = "the trained epochs are saved"
        self._backend.unwhiten_weights()

    def _return_to_trial(self) -> None:
        """Take the weights of the best trial of a limited time where they reach more."""
        trials, own = self._trials, self.progress.best_score
        if trials is None or trials.kept is None:
            return
        if not self.progress.history and self.progress.step and trials.rows.n_rows:
            own = measure_rows(self._backend, trials.rows, self.spec).selection_score
        if trials.kept.score <= own:
            return
        if not alike(trials.kept.spec, self.spec):
            self._prepare(trials.kept.spec)
        trials.read_kept(self._backend.arrays())
        self._backend.restore()
        self.spec = trials.kept.spec
        self._training.report(f"the best trial is the model: held-out {trials.kept.metrics.text}")

    def _end_epoch(self, state: State) -> State:
        """Measure and keep the end of an epoch, which was come to in a state."""
        at, began, rows = self.progress, time.monotonic(), self._training.holdout.rows
        figures: dict[str, Any] = {}
        if rows.n_rows and self._training.shard is None:
            rows = rows if self._trials is None else self._trials.rows
            metrics = measure_rows(self._backend, rows, self.spec)
            figures = {
                "accuracy": metrics.accuracy, "top_5_accuracy": metrics.top_5_accuracy,
                "selection_score": metrics.selection_score,
            }  # fmt: skip
        entry = EpochFigures(
            epoch=at.epoch + 1, rows_per_second=state.rows_per_second,
            waited_share=state.waited_share, peak_bytes=peak_bytes(),
            loss=at.loss_sum / (self._reader.n_rows * self._training.plan.n_repetitions), **figures,
        )  # fmt: skip
        measuring = 0.0 if self._training.shards else time.monotonic() - began
        self.progress = _after_epoch(at, entry, at.seconds + measuring)
        self._keep(at.epoch)
        state = replace(self.state(), epoch=at.epoch)
        self._training.log("validation", entry)
        self._training.call("on_epoch_end", state)
        stopped = self._stop_reason or state.stop_reason
        self.progress = msgspec.structs.replace(self.progress, stopped=stopped)
        return state

    def _read_shards(self) -> State:
        """Read the end of the epoch from shards; return the state, of the slowest of them."""
        ends, shards = read_ends(self._training, self.progress.epoch + 1), self._training.shards
        self._backend.restore()
        loss_sum = 0.0
        for shard, at in zip(shards, ends, strict=True):
            begin, end = shard.repetitions
            loss_sum += at.history[-1].loss * self._reader.n_rows * (end - begin)
        self.progress = msgspec.structs.replace(
            self.progress, step=ends[0].step // shards[0].n_groups * self._backend.n_waves,
            row=0, wave=0, wave_steps=0, loss_sum=loss_sum, seconds=max(at.seconds for at in ends),
        )  # fmt: skip
        figures = [at.history[-1] for at in ends]
        return replace(
            self.state(), rows_per_second=min(one.rows_per_second for one in figures),
            waited_share=max(one.waited_share for one in figures),
        )  # fmt: skip

    def _train_rows(self) -> State:
        """Train on the rest of the epoch; return the state then."""
        first_row, before, began = self._n_finished_rows(), self.progress.seconds, time.monotonic()
        epoch, reader, training = self.progress.epoch, self._reader, self._training
        reader.waited_seconds, state = 0.0, self.state()
        for step in train_epoch(self._backend, reader, self.spec, epoch, start=self.progress):
            self._advance(step, before + time.monotonic() - began)
            state = self.state(first_row, time.monotonic() - began)
            done = self._n_finished_rows()
            training.report_progress(epoch * reader.n_rows + done, self._rows)
            training.call("on_progress", state)
            self._stop_reason = self._stop_reason or state.stop_reason
            late = training.clock.remaining_seconds <= 0 and done < reader.n_rows
            if late or training.ends_early:
                stopped = OUT_OF_TIME if late else INTERRUPTED
                self.progress = msgspec.structs.replace(self.progress, stopped=stopped)
                return state
            due = time.monotonic() - self._saved_at > self._checkpoint_seconds
            if training.stop.requested or due:
                self._between_batches(state)
        return state

    def _keep(self, epoch: int) -> None:
        """Keep the end of an epoch that may be gone back to: in memory, or on disk."""
        at, held_out = self.progress, self._training.holdout.rows.n_rows > 0
        if self._training.shard is not None:  # which is of no use without it
            self._checkpoints.save(at, self._backend.arrays())
            self._training.log("checkpoint", step=at.step, epoch=at.epoch, row=at.row)
            return
        if self._training.shards or at.best_epoch != epoch or at.epoch == self.spec.epochs:
            return
        if self._backend.keeps_best:
            self._backend.keep_best()
            self._best = at
        elif self._lasting or held_out:
            self._save()

    def _advance(self, step: Step, seconds: float) -> None:
        at, same_wave = self.progress, step.wave == self.progress.wave
        self.progress = msgspec.structs.replace(
            at, step=at.step + 1, row=(at.row if same_wave else 0) + step.n_rows, wave=step.wave,
            wave_steps=(at.wave_steps if same_wave else 0) + 1,
            loss_sum=at.loss_sum + step.loss.total, loss_rows=at.loss_rows + step.loss.n_rows,
            seconds=seconds,
        )  # fmt: skip

    def _n_finished_rows(self) -> int:
        """Return the rows of the epoch that are done: all of them when the last wave is."""
        rows = self.progress.wave * self._reader.n_rows + self.progress.row
        return rows // self._backend.n_waves

    def _between_batches(self, state: State) -> None:
        loss, at = self._backend.drain_losses(), self.progress
        check_loss(loss, self.spec, epoch=at.epoch, row=at.row, n_rows=self._reader.n_rows)
        self.progress = at = msgspec.structs.replace(
            at, loss_sum=at.loss_sum + loss.total, loss_rows=at.loss_rows + loss.n_rows
        )
        if self._training.stop.requested and not self._lasting:
            self._training.check_stop()
        if self._training.stop.requested:
            self._write()
            self._training.log("interrupted", step=at.step, epoch=at.epoch, row=at.row)
            raise Interrupted(
                f"interrupted: saved step {at.step:,} (epoch {at.epoch + 1}, row {at.row:,})",
                hint=GOES_ON,
            )
        self._save()
        self._training.call("on_checkpoint", state)

    def _save(self) -> None:
        """Write a checkpoint; a full disk is a warning at first, since older ones are kept."""
        self._saved_at, at = time.monotonic(), self.progress
        try:
            self._write()
            self._failed_saves = 0
            self._training.log("checkpoint", step=at.step, epoch=at.epoch, row=at.row)
        except DiskError as error:
            self._failed_saves += 1
            if self._failed_saves == FAILED_SAVES:
                raise
            warnings.warn(f"a checkpoint could not be written: {error}", stacklevel=2)

    def _write(self) -> None:
        """Write a checkpoint, behind one of the best epoch where none holds it."""
        if self._best is not None:
            self._checkpoints.save(self._best, self._backend.best_arrays())
            self._best = None
        self._checkpoints.save(self.progress, self._backend.arrays())

    def state(self, first_row: int = 0, seconds: float = 0.0) -> State:
        """Return what callbacks see."""
        at, reader, row = self.progress, self._reader, self._n_finished_rows()
        speed = (row - first_row) / seconds if seconds > 0 else 0.0
        rows = max(at.loss_rows * self._training.plan.n_repetitions, 1)
        return State(
            epoch=at.epoch, epochs=self.spec.epochs, row=row, n_rows=reader.n_rows, step=at.step,
            loss=at.loss_sum * self._backend.n_waves / rows, rows_per_second=speed,
            seconds=at.seconds, left_seconds=self._training.stages.left_seconds or 0.0,
            waited_share=reader.waited_seconds / seconds if seconds > 0 else 0.0,
            listed=self._training.plan.facts.listed, history=at.history,
            best_epoch=-1 if self._training.shard is not None else at.best_epoch,
        )  # fmt: skip


def _after_epoch(progress: RunPosition, entry: EpochFigures, seconds: float) -> RunPosition:
    # Without held-out rows the last one is the best.
    score = float(progress.epoch) if entry.selection_score is None else entry.selection_score
    better = score > progress.best_score
    return msgspec.structs.replace(
        progress, epoch=progress.epoch + 1, row=0, wave=0, wave_steps=0, loss_sum=0.0, loss_rows=0,
        seconds=seconds, history=(*progress.history, entry),
        best_step=progress.step if better else progress.best_step,
        best_epoch=progress.epoch if better else progress.best_epoch,
        best_score=score if better else progress.best_score,
    )  # fmt: skip
