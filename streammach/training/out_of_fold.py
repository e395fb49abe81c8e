"""Finds rows whose labels may be wrong: each row is judged by a model of the other folds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.clock import Clock
from streammach.data.folds import row_folds
from streammach.data.memory_rows import given
from streammach.data.store.copies import copy_rows
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, UsageError
from streammach.files.destinations import Destination
from streammach.files.folders import remove_folder, scratch, temporary_folder
from streammach.files.urls import located
from streammach.machine import budget
from streammach.model.calibration import CANDIDATES
from streammach.planning.choose import plan
from streammach.planning.constraints import Constraints
from streammach.prediction.doubts import Doubts, Suspects, doubts_of, duplicates, list_format
from streammach.prediction.inputs import InputCounts, StoreRows
from streammach.prediction.predictor import Predictor
from streammach.progress import ProgressBar, Wanted
from streammach.spec.training import TrainingOptions
from streammach.stages import StageState
from streammach.training.callbacks import EarlyStopping
from streammach.training.trainer import Trainer

FOLDS = 3
MOST_FOLDS = 100
ROW_BYTES = 36  # of a row: its number, fold, group, duplicates, and what is said of it


def suspects(
    data: Any, y: Any = None, *, out: str | os.PathLike[str] | None = None, folds: int = FOLDS,
    memory: str | int | None = None, training: TrainingOptions | None = None,
    constraints: Constraints | None = None, clock: Clock | None = None, force: bool = False,
    callbacks: Sequence[object] = (), progress: Wanted = None,
) -> Suspects:  # fmt: skip
    """Find the rows of a store whose labels are probably wrong.

    Each fold of the rows is judged by a model of the other folds. A row is suspicious where that is
    surer of another label than of the row's own, or where more rows with the same features have
    another label; these come first.

    Parameters
    ----------
    data : path-like, Dataset, or rows
        A store; or rows in memory with their labels `y`, as for :func:`streammach.train`. These are
        written into a temporary store.
    y : array, list, matrix or str, optional
        The labels of rows in memory, or their column.
    out : path-like, optional
        The list, as CSV, TSV or lines of JSON by its name; it appears when it is whole.
    folds : int
        How many models are trained.
    memory : str or int, optional
        The budget of each, such as ``"1GB"``.
    training : TrainingOptions, optional
        How models are trained. With ``hold_out_by`` a namespace rows that share a feature of it are
        in one fold.
    constraints : Constraints, optional
        What else is fixed of their plans: threads, seed, optional parts.
    clock : Clock, optional
        The time that all of it may take.
    force : bool
        Whether a list that is there may be replaced.
    callbacks : sequence, optional
        What watches each training, beside early stopping.
    progress : bool, str or callable, optional
        Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what is
        called with (stage, done, total).

    Raises
    ------
    UsageError
        If rows or groups are fewer than folds, or a value is out of its range.
    BudgetError
        If no model fits the memory.
    Interrupted
        After a signal; nothing is saved.
    DataError, StoreError, DiskError
        If files cannot be read or written.
    """
    began, constraints = time.monotonic(), constraints or Constraints()
    if not 2 <= folds <= MOST_FOLDS:
        raise UsageError(f"{folds} is not a number from 2 to {MOST_FOLDS}: --folds")
    if memory is not None:
        constraints = replace(constraints, memory=memory)
    training, goal = replace(training or TrainingOptions(), seed=constraints.seed), None
    if training.validation is not None:
        raise UsageError("held-out rows are those of the folds: --validation")
    with ExitStack() as stack:
        if out is not None:
            read = [located(data)] if isinstance(data, str | os.PathLike) else []
            form, product = list_format(Path(out))
            goal = Destination(Path(out), product, force=force, inputs=read)
        place = temporary_folder() if goal is None else scratch(goal.path)
        folder = stack.enter_context(place)
        if y is not None:
            rows = replace(given(data, y), seed=constraints.seed)
            most = budget(constraints.memory).n_bytes
            data = stack.enter_context(rows.stored(folder / "given", most))
        elif not isinstance(data, Dataset):
            data = stack.enter_context(Dataset.open(data))
        clock = clock or Clock(constraints.seconds)
        work = _Work(data, folds, training, constraints, clock, callbacks, folder)
        stages = dict.fromkeys(["duplicates", *work.stages], 1.0) | {"duplicates": 0.02}
        with ProgressBar(progress, "", stages) as shown:
            found = work.suspects(shown)
        found = replace(found, seconds=time.monotonic() - began)
        if goal is not None:
            goal.write(found.text(form))
    return found


class _Work:
    """The search under way: folds, and what is said of rows so far."""

    def __init__(
        self, data: Dataset, n_folds: int, training: TrainingOptions, constraints: Constraints,
        clock: Clock, callbacks: Sequence[object], folder: Path,
    ) -> None:  # fmt: skip
        self.data, self.folder, self.training = data, folder, training
        if constraints.memory is not None or not constraints.shaped:
            most = budget(constraints.memory).n_bytes - ROW_BYTES * data.n_rows
            constraints = replace(constraints, memory=max(most, 1))
        self.constraints, self.clock, self.callbacks = constraints, clock, callbacks
        self.stages = [f"fold {i + 1} of {n_folds}" for i in range(n_folds)]
        self.folds, self.groups = row_folds(data, n_folds, training.seed, training.hold_out_by)
        self.doubts, self.projected_bytes = Doubts.none(data.n_rows), 0

    def suspects(self, shown: ProgressBar) -> Suspects:
        """Do all of it."""
        data = self.data
        shown("duplicates", 0, 0)
        same = duplicates(data)
        for fold in range(len(self.stages)):
            self._judge(fold, shown)
        order = np.lexsort((-self.doubts.odds, same == 0))
        order = order[(self.doubts.odds > 0)[order] | (same > 0)[order]]
        numbers, _ = data.origins(0, data.n_rows)
        return Suspects(
            rows=numbers[order], doubts=self.doubts.take(order),
            duplicates=same[order], groups=None if self.groups is None else self.groups[order],
            labels=data.labels, features=data.features, n_rows=data.n_rows,
            folds=len(self.stages), seconds=0.0,
            projected_bytes=self.projected_bytes + ROW_BYTES * data.n_rows,
        )  # fmt: skip

    def _judge(self, fold: int, shown: ProgressBar) -> None:
        """Train on the rows of the other folds, and note what is said of this one's."""
        stage, apart = self.stages[fold], self.folds != fold
        left = self.clock.left / (len(self.stages) - fold)
        constraints = replace(self.constraints, time=left if self.clock.limited else None)

        def told(state: StageState) -> None:
            if state.left_seconds is not None:
                shown(stage, state.seconds, state.seconds + state.left_seconds, state.stage)

        shown(stage, 0, 0)
        with Dataset.open(copy_rows(self.data, self.folder / "rows", apart)) as rows:
            chosen = plan(rows, constraints)
            trainer = Trainer(
                chosen, self.training, clock=Clock(constraints.seconds),
                callbacks=(EarlyStopping(), SimpleNamespace(on_stage=told), *self.callbacks),
            )  # fmt: skip
            try:
                run = trainer.fit(rows, self.folder / "run")
            except Interrupted:
                hint = "Nothing is saved; run the command again."
                raise Interrupted("interrupted", hint=hint) from None
            seen = rows.label_counts > 0
        with Predictor(
            run.model, memory=constraints.memory, threads=constraints.threads,
            device=constraints.device,
        ) as predictor:  # fmt: skip
            self._take(predictor, np.flatnonzero(~apart), seen)
        self.projected_bytes = max(self.projected_bytes, run.result.projected_bytes)
        for name in ("rows", "run"):
            remove_folder(self.folder / name)

    def _take(self, predictor: Predictor, rows: NDArray[np.int64], seen: NDArray[np.bool_]) -> None:
        """Note what a model says of rows of the store, whose numbers rise."""
        room = predictor.room("evaluate", None, CANDIDATES)
        source = StoreRows(self.data, predictor.model, label_needed=True)
        at = 0
        for block in source.blocks(0, self.data.n_rows, InputCounts(), room):
            own = rows[slice(*np.searchsorted(rows, (at, at + block.n_rows)))]
            self.doubts.put(own, doubts_of(predictor, block.take(own - at), seen))
            at += block.n_rows
        room.done()
