"""Finds rows whose labels may be wrong: each row is judged by a model of the other folds."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.registry import choose_device
from streammach.conversion.convert import convert
from streammach.conversion.memory_rows import collect_rows
from streammach.model.calibration import CANDIDATES
from streammach.options.annotated import check_options
from streammach.options.training import TrainingOptions
from streammach.planning.choose import limits, plan
from streammach.planning.constraints import Constraints
from streammach.prediction.inputs import InputCounts, StoreRows, is_store
from streammach.prediction.predictor import Predictor
from streammach.prediction.suspects import (
    DOUBT,
    Suspects,
    duplicates,
    expected_wrong,
    list_format,
    suspects_of,
    suspicious,
)
from streammach.store.dataset import Dataset
from streammach.store.holdout import copy_rows, row_folds
from streammach.system.clock import Clock
from streammach.system.errors import Interrupted, UsageError, type_name
from streammach.system.files.destinations import Destination
from streammach.system.files.folders import make_folder, remove_folder, scratch, temporary_folder
from streammach.system.files.urls import locate
from streammach.system.machine import memory_limit, training_budget
from streammach.system.processes import run
from streammach.system.progress import ProgressBar, Wanted
from streammach.system.stages import StageState
from streammach.training.callbacks import EarlyStopping
from streammach.training.trainer import Trainer

FOLDS = 3
MOST_FOLDS = 100
TRAINED = 0.75  # share of the time that is for training; the rest is for rows and what is said
LEAST_ROWS = 2  # of a label of lists in the other folds, to doubt it
NO_FILE = "a store, or rows in memory, need no options of files"
ROW_BYTES = DOUBT.itemsize + 4 + 1  # of a row: what is said of it, group, fold


def suspects(
    data: Any, y: Any = None, *, out: str | os.PathLike[str] | None = None, folds: int = FOLDS,
    memory: str | int | None = None, training: TrainingOptions | None = None,
    constraints: Constraints | None = None, everything: bool = False, force: bool = False,
    progress: Wanted = None, **source: Any,
) -> Suspects:  # fmt: skip
    """Find the rows of a store whose labels are probably wrong.

    Each fold of the rows is judged by a model of the other folds. A row is suspicious where that is
    surer of another label than of the row's own, or where more rows with the same features have
    another label; these come first. As many rows are listed as are expected to have a wrong label
    (:func:`streammach.prediction.suspects.expected_wrong`), the most suspicious ones.

    Parameters
    ----------
    data : path-like, Dataset, or rows
        A store; or a file that can be converted; or rows in memory with their labels `y`, as for
        :func:`streammach.train`. Both are written into a temporary store.
    y : array, list, matrix or str, optional
        The labels of rows in memory, or their column, also in a file.
    out : path-like, optional
        The list, as CSV, TSV or lines of JSON by its name; it appears when it is whole.
    folds : int
        How many models are trained.
    memory : str or int, optional
        The budget of each, such as ``"1GB"``; otherwise that of :func:`streammach.train`.
    training : TrainingOptions, optional
        How models are trained. With ``hold_out_by`` a namespace rows that share a feature of it are
        in one fold.
    constraints : Constraints, optional
        What else is fixed of their plans: threads, seed, optional parts. A time is that of all the
        work; trainings take three quarters of it.
    everything : bool
        Whether all suspicious rows are listed.
    force : bool
        Whether a list that is there may be replaced.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`.
    **source
        How a file is read: options of :func:`streammach.convert`.

    Raises
    ------
    UsageError
        If rows or groups are fewer than folds, or a value is out of its range.
    Interrupted
        After a signal; nothing is saved.
    BudgetError, DataError, StoreError, DiskError
        If no model fits the memory, or files cannot be read or written.
    """
    check_options(suspects.__annotations__, locals())
    began, constraints = time.monotonic(), constraints or Constraints()
    if not 2 <= folds <= MOST_FOLDS:
        raise UsageError(f"{folds} is not a number from 2 to {MOST_FOLDS}: --folds")
    if memory is not None:
        constraints = replace(constraints, memory=memory)
    training, goal = replace(training or TrainingOptions(), seed=constraints.seed), None
    constraints = constraints.beside(training)
    if training.validation is not None:
        raise UsageError("held-out rows are those of the folds: --validation")
    if isinstance(y, str) and isinstance(data, str | os.PathLike):
        y, source = None, source | {"label": y}
    alone = y is None
    if alone and not isinstance(data, Dataset | str | os.PathLike):
        raise UsageError(f"rows of the type {type_name(data)} need labels: y")
    with ExitStack() as stack:
        if out is not None:
            read = [locate(getattr(data, "path", data))] if alone else []
            form, product = list_format(Path(out))
            goal = Destination(Path(out), product, force=force, inputs=read)
        place = temporary_folder() if goal is None else scratch(goal.path)
        folder = stack.enter_context(place)
        if source and (not alone or isinstance(data, Dataset)):
            raise UsageError(NO_FILE)
        if not alone:
            room = training_budget(constraints.memory, memory_limit()).n_bytes
            rows = replace(collect_rows(data, y), seed=constraints.seed)
            data = stack.enter_context(rows.write_store(folder / "given", room))
        elif not isinstance(data, Dataset):
            data = stack.enter_context(Dataset.open(_store_of(data, folder, constraints, source)))
        shown = stack.enter_context(ProgressBar(progress, "", dict.fromkeys(_stages(folds), 1.0)))
        job = _Job(data, training, constraints, Clock(constraints.seconds, began), folder, shown)
        found, projected = job.score_labels(folds)
        possible = suspicious(found, listed=data.listed)
        expected = len(possible) if data.listed else expected_wrong(found, data.n_classes)
        most = None if everything else expected
        made = Suspects(
            rows=suspicious(found, listed=data.listed, most=most), n_expected=expected,
            n_possible=len(possible), labels=data.labels,
            features=data.features, n_rows=data.n_rows, folds=folds,
            seconds=time.monotonic() - began, projected_bytes=projected,
        )  # fmt: skip
        if goal is not None:
            goal.write(made.text(form))
    return made


def _store_of(
    path: str | os.PathLike[str], folder: Path, constraints: Constraints, source: dict[str, Any]
) -> str | os.PathLike[str]:
    """Return a store: what is given, or one of a file, which is converted in its own process."""
    place = locate(path)
    if not isinstance(place, Path) or not place.exists() or is_store(place):
        if source:
            raise UsageError(NO_FILE, path=path)
        return path
    make_folder(folder)
    said = source | {"memory": constraints.memory, "seed": constraints.seed}
    run("streammach.training.out_of_fold:convert_file", place, folder / "given", said, patience=2.0)
    return folder / "given"


def convert_file(path: Path, store: Path, said: dict[str, Any]) -> None:
    """Convert, in a process of its own: the memory that it took, compilers included, goes."""
    convert(path, store, **said)


def _stages(folds: int) -> list[str]:
    return [f"fold {i + 1} of {folds}" for i in range(folds)]


@dataclass(frozen=True)
class _Job:
    """What all folds have in common."""

    data: Dataset
    training: TrainingOptions
    constraints: Constraints
    clock: Clock
    folder: Path
    shown: ProgressBar

    def score_labels(self, n_folds: int) -> tuple[NDArray[Any], int]:
        """Return what is said of all rows, in the order of the store, and projected bytes."""
        data, constraints, training = self.data, self.constraints, self.training
        beside = ROW_BYTES * data.n_rows + DOUBT.itemsize * data.facts.n_labels
        if constraints.memory is not None or not constraints.shaped:
            device, _ = choose_device(constraints.device)
            most = limits(device, constraints, memory_limit())
            allowed = (most.device or most.host) - beside
            constraints = replace(constraints, memory=max(allowed, 1))
        if constraints.seconds is not None:
            constraints = replace(constraints, time=TRAINED * constraints.seconds / n_folds)
        folds, groups = row_folds(data, n_folds, training.seed, training.hold_out_by)
        found, projected, more = np.zeros(data.n_rows, DOUBT), 0, list[NDArray[Any]]()
        for fold, stage in enumerate(_stages(n_folds)):
            self.shown(stage, 0, 0)
            clock = Clock(
                constraints.seconds
                and TRAINED * max(self.clock.remaining_seconds, 1) / (n_folds - fold)
            )
            done = self._judge(stage, constraints, clock, folds == fold, found, groups, more)
            projected = max(projected, done)
        found["duplicates"], found["group"] = duplicates(data, groups), groups
        return np.concatenate([found, *more]), projected + beside

    def _judge(
        self, stage: str, wanted: Constraints, clock: Clock, fold: NDArray[np.bool_],
        found: NDArray[Any], groups: NDArray[np.int32], more: list[NDArray[Any]],
    ) -> int:  # fmt: skip
        """Train on the rows of other folds; note what is said of this one's; return the bytes."""

        def report_state(state: StageState) -> None:
            if state.left_seconds is not None:
                total = state.seconds + state.left_seconds
                self.shown(stage, state.seconds, total, state.stage)

        watchers = (EarlyStopping(), SimpleNamespace(on_stage=report_state))
        with Dataset.open(copy_rows(self.data, self.folder / "rows", ~fold)) as rows:
            trainer = Trainer(plan(rows, wanted), self.training, clock=clock, callbacks=watchers)
            try:
                trained = trainer.fit(rows, self.folder / "run")
            except Interrupted:
                hint = "Nothing is saved; run the command again."
                raise Interrupted("interrupted", hint=hint) from None
            seen = rows.label_counts >= (LEAST_ROWS if rows.listed else 1)
        with Predictor(
            trained.model, memory=wanted.memory, threads=wanted.threads, device=wanted.device
        ) as predictor:
            best = max(CANDIDATES, self.data.root.max_row_labels + 1)
            room = predictor.room("evaluate", self.data.path, best, some_labels=True)
            at = 0
            source = StoreRows(self.data, predictor.model, label_needed=True)
            for block in source.blocks(0, len(fold), InputCounts(), room):
                own = np.flatnonzero(fold[at : at + block.n_rows])
                found[at + own], further, places = suspects_of(predictor, block.take(own), seen)
                further["group"] = groups[at + own[places]]
                more.append(further)
                at += block.n_rows
            room.keep_kernels()
        for name in ("rows", "run"):
            remove_folder(self.folder / name)
        return trained.result.projected_bytes
