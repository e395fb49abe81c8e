"""The epochs of a run: batches, held-out rows, checkpoints, and where it goes on."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.data.holdout import masked_rows
from streammach.errors import DiskError, Interrupted, MismatchError, ModelError
from streammach.figures import EpochFigures
from streammach.files.workplaces import GOES_ON
from streammach.machine import peak_bytes
from streammach.model.checkpoint import RunPosition
from streammach.prediction.ranking import by_hashes
from streammach.prediction.selection_metrics import measure_ranking
from streammach.spec.estimators import USUAL
from streammach.spec.training import TrainSpec
from streammach.training.callbacks import State
from streammach.training.loop import Feed, Step, check_loss, open_reader, train_epoch
from streammach.training.run_part import RunPart
from streammach.training.session import Session
from streammach.training.trial import alike
from streammach.training.warm_start import Start, begin_classes, begin_from

OUT_OF_TIME = "the time is used up"
FAILED_SAVES = 3  # in a row, before a run gives up


class Epochs:
    """Trains a run to its last epoch, from where its newest checkpoint is."""

    def __init__(self, session: Session, spec: TrainSpec, rows: int = 0) -> None:
        """Begin with the newest checkpoint; an epoch has so many of the rows, 0: all."""
        request = session.request
        self._session, self.spec, self._checkpoints = session, spec, request.checkpoints
        self._backend, self._plan, self._events = session.backend, session.plan, session.events
        self._lasting = request.lasting and not request.shares  # whether checkpoints are written
        self._checkpoint_seconds = request.checkpoint_seconds if self._lasting else float("inf")
        self._failed_saves, self._saved_at = 0, time.monotonic()
        self._asked: str | None = None  # why a callback asks for the end of the epoch
        self._best: RunPosition | None = None  # the best epoch, while no checkpoint holds it
        session.prepare(spec, session.feature_map(spec))
        session.forget_feature_map()
        if request.start is not None:
            self._begin(request.start)
        self.progress = self._checkpoints.newest(self._backend.arrays()) or RunPosition()
        self._backend.restore()
        self._reader: Feed = open_reader(session, spec, held=session.left, rows=rows or None)
        self._rows = spec.epochs * self._reader.n_rows  # of all epochs
        if (
            self.progress.epoch > spec.epochs
            or self.progress.row > self._reader.n_rows
            or self.progress.wave >= self._backend.n_waves
        ):
            raise MismatchError(
                "damaged: the checkpoint is of another training", path=request.folder
            )

    def _begin(self, start: Start) -> None:
        """Begin from the weights of another model; on a resume the checkpoint replaces them."""
        session, arrays, model = self._session, self._backend.arrays(), start.model
        data, n = session.dataset, model.spec.n_columns
        raised = begin_from(arrays, model, data.features)
        one_label = model.spec.exact and not (data.listed or model.dense)
        if one_label and session.left is not None and start.training is not None:
            rows = masked_rows(data, session.new & ~session.left)
            begin_classes(arrays["weights"], raised, rows, data.label_counts, n)

    def run(self) -> State:
        """Train to the end, or until a callback asks for it; return the last state."""
        state = self.state()
        self._events.call("on_fit_start", state)
        kept = self._session.best_trial
        if (
            kept is not None
            and kept.trial is not None
            and self._session.clock.remaining_seconds <= 0
        ):
            self.progress = msgspec.structs.replace(self.progress, stopped=OUT_OF_TIME)
        while self.progress.epoch < self.spec.epochs and self.progress.stopped is None:
            state = self._epoch()
        return state

    def return_to_best(self) -> None:
        """Go back to the weights of the best epoch, and save them."""
        at = self.progress
        if at.best_epoch >= 0 and at.best_step != at.step:
            if self._best is None:
                self._read_best()
                self._backend.restore()
            else:
                self._backend.return_to_best()
            self.progress = msgspec.structs.replace(at, best_step=at.step)
        self._best = None
        self._return_to_trial()
        if self._lasting:
            self._save()  # what comes now takes its time
            self._session.saved = "the trained epochs are saved"
        self._backend.unwhiten_weights()

    def _return_to_trial(self) -> None:
        """Take the weights of the best trial of a limited time where they reach more."""
        kept, at = self._session.best_trial, self.progress
        if kept is None or kept.trial is None:
            return
        own, rows = at.best_score, kept.rows
        if not at.history and at.step and rows.n_rows:
            ranking = by_hashes(self._backend, USUAL, self.spec.transform)
            own = measure_ranking(rows, ranking).selection_score
        if kept.trial.score <= own:
            return
        if not alike(kept.trial.spec, self.spec):
            self._session.prepare(kept.trial.spec, self._session.feature_map(kept.trial.spec))
            self._session.forget_feature_map()
        kept.read(self._backend.arrays())
        self._backend.restore()
        self.spec = kept.trial.spec
        self._session.tell(f"the best trial is the model: held-out {kept.trial.measured.text}")

    def _read_best(self) -> None:
        self._checkpoints.read(self.progress.best_step, self._backend.arrays())

    def _epoch(self) -> State:
        epoch, began, before = self.progress.epoch, time.monotonic(), self.progress.seconds
        first_row, self._asked = self._n_finished_rows(), None
        state = self._train_rows(first_row, before)
        if self.progress.stopped is not None:
            return state
        entry = self._measure_epoch((self._reader.n_rows - first_row) / (time.monotonic() - began))
        self.progress = _after_epoch(self.progress, entry, self._seconds(before, began))
        self._keep(epoch)
        state = self.state()
        state.epoch = epoch
        self._events.log("validation", entry)
        self._events.call("on_epoch_end", state)
        stopped = self._asked or state.stop_reason
        self.progress = msgspec.structs.replace(self.progress, stopped=stopped)
        return state

    def _train_rows(self, first_row: int, before: float) -> State:
        """Train on the rest of the epoch, after so many seconds; return the state then."""
        epoch, reader, began = self.progress.epoch, self._reader, time.monotonic()
        reader.waited_seconds, state = 0.0, self.state()
        for step in train_epoch(self._backend, reader, self.spec, epoch, start=self.progress):
            self._advance(step, before + time.monotonic() - began)
            state = self.state(first_row, time.monotonic() - began)
            done = self._n_finished_rows()
            self._session.at(self.progress.epoch * reader.n_rows + done, self._rows)
            self._events.call("on_progress", state)
            self._asked = self._asked or state.stop_reason
            if self._session.clock.remaining_seconds <= 0 and done < reader.n_rows:
                self.progress = msgspec.structs.replace(self.progress, stopped=OUT_OF_TIME)
                return state
            due = time.monotonic() - self._saved_at > self._checkpoint_seconds
            if self._session.stop.requested or due:
                self._between_batches(state)
        return state

    def _seconds(self, before: float, began: float) -> float:
        return before + time.monotonic() - began

    def _keep(self, epoch: int) -> None:
        """Keep the end of an epoch that may be gone back to: in memory, or on disk."""
        at, held_out = self.progress, self._session.held.rows.n_rows > 0
        if at.best_epoch != epoch or at.epoch == self.spec.epochs:
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

    def _entry(self, speed: float) -> EpochFigures:
        reader = self._reader
        return EpochFigures(
            epoch=self.progress.epoch + 1,
            loss=self.progress.loss_sum / (reader.n_rows * self._plan.n_repetitions),
            rows_per_second=speed,
            waited_share=reader.waited_seconds * speed / reader.n_rows,
            peak_bytes=peak_bytes(),
        )

    def _measure_epoch(self, speed: float) -> EpochFigures:
        entry, kept = self._entry(speed), self._session.best_trial
        if not self._session.held.rows.n_rows:
            return entry
        rows = self._session.held.rows if kept is None else kept.rows
        found = measure_ranking(rows, by_hashes(self._backend, USUAL, self.spec.transform))
        return msgspec.structs.replace(
            entry, accuracy=found.accuracy, top_5_accuracy=found.top_5_accuracy,
            selection_score=found.selection_score,
        )  # fmt: skip

    def _between_batches(self, state: State) -> None:
        loss, at = self._backend.drain_losses(), self.progress
        check_loss(loss, self.spec, epoch=at.epoch, row=at.row, n_rows=self._reader.n_rows)
        self.progress = at = msgspec.structs.replace(
            at, loss_sum=at.loss_sum + loss.total, loss_rows=at.loss_rows + loss.n_rows
        )
        if self._session.stop.requested and not self._lasting:
            self._session.check()
        if self._session.stop.requested:
            self._write()
            self._events.log("interrupted", step=at.step, epoch=at.epoch, row=at.row)
            raise Interrupted(
                f"interrupted: saved step {at.step:,} (epoch {at.epoch + 1}, row {at.row:,})",
                hint=GOES_ON,
            )
        self._save()
        self._events.call("on_checkpoint", state)

    def _save(self) -> None:
        """Write a checkpoint; a full disk is a warning at first, since older ones are kept."""
        self._saved_at, at = time.monotonic(), self.progress
        try:
            self._write()
            self._failed_saves = 0
            self._events.log("checkpoint", step=at.step, epoch=at.epoch, row=at.row)
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
        rows = max(at.loss_rows * self._plan.n_repetitions, 1)
        return State(
            epoch=at.epoch, epochs=self.spec.epochs, row=row, n_rows=reader.n_rows, step=at.step,
            loss=at.loss_sum * self._backend.n_waves / rows, rows_per_second=speed,
            seconds=at.seconds, left_seconds=self._session.stages.left_seconds or 0.0,
            waited_share=reader.waited_seconds / seconds if seconds > 0 else 0.0,
            listed=self._plan.facts.listed, history=at.history, best_epoch=at.best_epoch,
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


STEPS = "steps"  # an array that all repetitions share


class ShareEpochs(Epochs):
    """Trains all epochs of a share; held-out rows measure all repetitions together alone."""

    def state(self, first_row: int = 0, seconds: float = 0.0) -> State:
        """Return what callbacks see: no epoch is the best."""
        return replace(super().state(first_row, seconds), best_epoch=-1)

    def _measure_epoch(self, speed: float) -> EpochFigures:
        return self._entry(speed)

    def _keep(self, epoch: int) -> None:
        """Save at the end of every epoch; without it the share is of no use."""
        at = self.progress
        self._checkpoints.save(at, self._backend.arrays())
        self._events.log("checkpoint", step=at.step, epoch=at.epoch, row=at.row)


class MergedEpochs(Epochs):
    """Goes through the epochs that shares trained."""

    _read: tuple[RunPosition, ...] = ()  # where the shares were at the end of the epoch

    @property
    def _shares(self) -> tuple[RunPart, ...]:
        return self._session.request.shares

    def _train_rows(self, first_row: int, before: float) -> State:
        """Read the end of the epoch from the shares."""
        found, first = self._join_positions(self.progress.epoch + 1), self._shares[0]
        self._backend.restore()
        self._read = found
        loss_sum = 0.0
        for share, at in zip(self._shares, found, strict=True):
            begin, end = share.repetitions
            loss_sum += at.history[-1].loss * self._reader.n_rows * (end - begin)
        self.progress = msgspec.structs.replace(
            self.progress, step=found[0].step // first.n_groups * self._backend.n_waves,
            row=0, wave=0, wave_steps=0, loss_sum=loss_sum,
        )  # fmt: skip
        return self.state()

    def _join_positions(self, epochs: int) -> tuple[RunPosition, ...]:
        arrays, found, n = self._backend.arrays(), list[RunPosition](), len(self._shares)
        for i, share in enumerate(self._shares):
            self._session.check()
            step = share.checkpoints.ends()[epochs]
            found.append(share.checkpoints.read(step, _columns(arrays, share)))
            if step * self._shares[0].n_groups != found[0].step * share.n_groups:
                raise ModelError(
                    "damaged: its epochs are not those of the first part",
                    path=share.path, hint="Train it again.",
                )  # fmt: skip
            self._session.at((epochs - 1) * n + i + 1, self.spec.epochs * n)
        return tuple(found)

    def _keep(self, epoch: int) -> None:
        """Write nothing: the shares keep all epochs."""

    def _read_best(self) -> None:
        self._join_positions(self.progress.best_epoch + 1)

    def _measure_epoch(self, speed: float) -> EpochFigures:
        """Measure; what is said of time is that of the slowest share."""
        parts = [at.history[-1] for at in self._read]
        return msgspec.structs.replace(
            super()._measure_epoch(speed),
            rows_per_second=min(one.rows_per_second for one in parts),
            waited_share=max(one.waited_share for one in parts),
        )

    def _seconds(self, before: float, began: float) -> float:
        return max(at.seconds for at in self._read)


def _columns(arrays: dict[str, NDArray[Any]], share: RunPart) -> dict[str, NDArray[Any]]:
    n, (first, last) = share.plan.n_repetitions, share.repetitions

    def some(array: NDArray[Any]) -> NDArray[Any]:
        width = array.shape[-1] // n
        return array[..., first * width : last * width]

    return {name: a if name == STEPS else some(a) for name, a in arrays.items()}
