"""Trains a model: by a plan, whole, in shares or merged from them; or on rows in memory."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

from streammach.conversion.memory_rows import (
    IteratorRows,
    MemoryRows,
    collect_rows,
    iterator_rows,
    merge_equal_rows,
)
from streammach.inputs.bad_rows import BadRows, skipping
from streammach.inputs.label_names import NamesOfLabels
from streammach.inputs.source_options import TableOptions
from streammach.inputs.tables.memory_objects import is_pair, rows_in_turn
from streammach.options.annotated import check_options
from streammach.options.plan import Plan
from streammach.options.recipe import Recipe
from streammach.options.training import TrainingOptions
from streammach.planning.choose import plan, rows_held_out
from streammach.planning.constraints import Constraints
from streammach.rows.names import Label
from streammach.store.dataset import Dataset
from streammach.store.label_facts import ClassWeights, LabelFacts, names_column
from streammach.system.clock import Clock
from streammach.system.errors import BudgetError, UsageError, type_name
from streammach.system.files.folders import temporary_folder
from streammach.system.files.urls import locate
from streammach.system.machine import memory_limit, parse_size, training_budget
from streammach.system.processes import StopSignals
from streammach.system.progress import ProgressBar, Wanted, watched
from streammach.training.callbacks import EarlyStopping, Progress
from streammach.training.run import FolderLease, Run
from streammach.training.run_part import PartNumber, RunPart, RunTraining, in_order
from streammach.training.train import train_run, train_shard
from streammach.training.warm_start import Start

CHECKPOINT_MINUTES = 10.0
OF_TRAINING = {field.name for field in fields(TrainingOptions)}
OF_TABLE = {field.name for field in fields(TableOptions)} - {"label", "label_names"}


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
    start : Start, optional
        Where the weights start; the plan is :meth:`streammach.training.warm_start.Start.plan`'s.
    stop : StopSignals, optional
        Asks for the end; the signals of the process otherwise.
    """

    def __init__(
        self, plan: Plan, options: TrainingOptions | None = None, *,
        callbacks: Sequence[object] | None = None, checkpoint_minutes: float = CHECKPOINT_MINUTES,
        clock: Clock | None = None, start: Start | None = None, stop: StopSignals | None = None,
    ) -> None:  # fmt: skip
        check_options(Trainer.__init__.__annotations__, locals())
        self._start, self._stop, self._clock = start, stop, clock
        self.plan, self.options = plan, options or TrainingOptions()
        if start is not None:
            start.check(vars(self.options))
        self._callbacks = tuple((EarlyStopping(),) if callbacks is None else callbacks)
        self._checkpoint_seconds = checkpoint_minutes * 60

    def fit(
        self, data: Dataset | str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *,
        resume: bool = False,
    ) -> Run:  # fmt: skip
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
            After a signal, with the work saved in `out`.
        KeyboardInterrupt
            After Ctrl-C where there is no `out` and no model yet: otherwise it is the best by then.
        DiskError, LockedError, StoreError, ModelError
            If files cannot be read or written.
        """
        check_options(Trainer.fit.__annotations__, locals())
        if out is None and resume:
            raise UsageError("a run in a temporary folder cannot be gone on with: out, resume")
        with ExitStack() as lease:
            folder = lease.enter_context(temporary_folder()) if out is None else out
            training = self._training(folder, resume=resume, lasting=out is not None)
            train_run(training, data)
            training.call("on_run_end", run := Run.open(folder))
            return replace(run, kept=FolderLease(lease.pop_all()) if out is None else None)

    def fit_part(
        self, data: Dataset | str | os.PathLike[str], out: str | os.PathLike[str],
        part: tuple[int, int], *, settings: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> RunPart:  # fmt: skip
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
        check_options(Trainer.fit_part.__annotations__, locals())
        how = {"shard": PartNumber(*part), "decided_in": settings, "resume": resume}
        train_shard(self._training(out, **how), data)
        return RunPart.open(out)

    def _training(self, folder: str | os.PathLike[str], **facts: Any) -> RunTraining:
        stop = self._stop or StopSignals(raises=not facts.get("lasting", True))
        return RunTraining(
            plan=self.plan, options=self.options, folder=Path(folder), start=self._start,
            callbacks=self._callbacks, checkpoint_seconds=self._checkpoint_seconds,
            clock=self._clock or Clock(), stop=stop, **facts,
        )  # fmt: skip


def merge(
    run: str | os.PathLike[str], parts: Sequence[str | os.PathLike[str]], *,
    data: Dataset | str | os.PathLike[str] | None = None,
    validation: str | os.PathLike[str] | None = None, callbacks: Sequence[object] | None = None,
    resume: bool = False,
) -> Run:  # fmt: skip
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
    check_options(merge.__annotations__, locals())
    shards = in_order(list(parts))
    first, options = shards[0], shards[0].facts.options
    if validation is not None:
        options = replace(options, validation=os.fspath(validation))
    trainer = Trainer(first.plan, options, callbacks=callbacks)
    training = trainer._training(run, resume=resume, shards=tuple(shards))
    train_run(training, locate(first.facts.store) if data is None else data)
    training.call("on_run_end", made := Run.open(run))
    return made


def train(
    X: Any, y: Any = None, *, memory: str | int | None = None, sample_weight: Any = None,
    class_weight: ClassWeights | None = None, label_names: NamesOfLabels | None = None,
    label_language: str | None = None, on_bad_row: str = "error",
    columns: Sequence[Label] | None = None, out: str | os.PathLike[str] | None = None,
    validation: Any = None, callbacks: Sequence[object] | None = None, progress: Wanted = None,
    seed: int = 0, resume: bool = False, **options: Any,
) -> Run:  # fmt: skip
    """Train a model on rows in memory, within a budget.

    Rows are taken in as a conversion does, so that the weights are those of a training on a store
    of the same rows; but of up to 100 rows of numbers equal ones, labels too, are one of the sum of
    their importances. :class:`streammach.MACHClassifier` gives the same model
    for the same options; its `n_jobs` is 1 in a search with several fits at a time. Rows stay in
    memory where that and the model fit the budget; otherwise they are written into a temporary
    store, which is removed at the end. After Ctrl-C without `out` the model is the best one by
    then, and a warning says so.

    Parameters
    ----------
    X : scipy sparse matrix, array (n, columns), DataFrame, Arrow table, list of dicts or of strings
        The rows: numbers, by column or by name; or rows of a table or text, which become features
        as in a conversion. The model then takes the like. Or AnnData, a dict of columns, an array
        of images. Or an iterator, loader or stream of dicts, tables or pairs ``(X, y)`` of a matrix
        and labels: it is gone through once, into a temporary store.
    y : array (n,), n lists, array or scipy sparse matrix (n, labels), or str
        A label for each row: integers, booleans, whole floats or strings; or a list of labels for
        each row; or an indicator, a matrix with a column for each label. A string is the column of
        a table, or of obs, that holds the labels. An iterator of pairs brings them itself.
    memory : str or int, optional
        What the training may take, such as ``"1GB"``, beside what `X` and `y` take; otherwise half
        of what is free, the most of 2, 3, 4, 6, 8 and 12 GB.
    sample_weight : array (n,), optional
        The importance of each row; 1 otherwise. Rows of importance 0 are left out.
    class_weight : "balanced", dict or path-like, optional
        What the rows of each class count for, beside `sample_weight`: the same for all classes
        together; or by label; or a file (:func:`streammach.store.label_facts.weigh_classes`).
    label_names : dict, path-like or "labels", optional
        What labels are called: a name or several of each label; or a file
        (:func:`streammach.inputs.label_names.read_label_names`); or labels are names themselves;
        or, where `y` is one, a column of the table.
        Words of a name in a row tell of its label, if held-out rows say so. Labels that no row has
        can be predicted, too.
    label_language : str, optional
        Of names in SKOS: those of this language, such as ``de``.
    on_bad_row : str
        ``error`` or ``skip``: rows that cannot be read are left out, and counted in a warning.
    columns : sequence of str, int or bytes, optional
        A name for each column of a matrix; their numbers from 0 otherwise.
    out : path-like, optional
        Folder for the run; a temporary one otherwise, which goes with the run.
    validation : (X, y), table, or path-like, optional
        Rows, a table with the column of labels `y`, or a store, on which choices are made; some of
        the rows otherwise.
    callbacks : sequence, optional
        As for :class:`streammach.training.trainer.Trainer`.
    progress : bool, str or callable, optional
        Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what is
        called with (stage, done, total). It is on a terminal and in a notebook otherwise, and not
        in a pipe; False: never.
    seed : int
        Decides hashes, and the order of the rows.
    resume : bool
        Go on with an interrupted run of the same rows and options in `out`.
    **options
        Fields of :class:`streammach.options.training.TrainingOptions` (``epochs``,
        ``learning_rate``, ...), options of :func:`streammach.planning.choose.plan`
        (``n_buckets``, ``device``, ``time``, ``counts``, ...), and what is said of the columns of
        a table: ``text``, ``category``, ``number``, ``date``, ``names``, ``weight``, ``ngrams``,
        ``chars``, ``language``, ``tokenizer``
        (:class:`streammach.inputs.source_options.TableOptions`).

    Returns
    -------
    Run
        Its ``model`` answers: ``run.model.predict(rows)``.

    Raises
    ------
    UsageError, TypeError
        If an option is wrong or there is none of this name.
    DataError
        If rows or labels are none, or do not fit each other.
    BudgetError
        If nothing fits.
    DeviceError, DivergedError, Interrupted, DiskError, KeyboardInterrupt
        As for a training.
    """
    check_options(train.__annotations__, locals())
    columns_said = {name: options.pop(name) for name in OF_TABLE & options.keys()}
    if isinstance(y, str) and names_column(label_names):
        columns_said["label_names"], label_names = label_names, None
    table, bad_rows = TableOptions(**columns_said), BadRows(skip=skipping(on_bad_row, None))
    data: MemoryRows | IteratorRows
    own_labels = None if isinstance(y, str) else y
    beside = {"y": own_labels, "sample_weight": sample_weight, "columns": columns}
    items = rows_in_turn(X, whole=any(value is not None for value in beside.values()))
    if items is not None:
        data = iterator_rows(items, type_name(X), y, table, skip=bad_rows.skip, more=beside)
    else:
        data = collect_rows(X, y, sample_weight, columns=columns, options=table, bad_rows=bad_rows)
    facts = LabelFacts(weights=class_weight, names=label_names, language=label_language)
    known = {*OF_TABLE, *signature(train).parameters} - {"X", "y", "options"}
    with ExitStack() as opened:
        if validation is not None:
            options["validation"] = path = _store(validation, y, memory, opened, table, data.recipe)
            options["held_out_rows"] = options.get("held_out_rows") or rows_held_out(path)
        return train_rows(
            replace(data, label_facts=facts), {"seed": seed, "memory": memory, **options},
            out=out, callbacks=callbacks, progress=progress, resume=resume,
            left_out=bad_rows.reasons, known=known,
        )  # fmt: skip


def train_rows(
    data: MemoryRows | IteratorRows, options: Mapping[str, Any], function: str = "train", *,
    out: str | os.PathLike[str] | None = None, callbacks: Sequence[object] | None = None,
    progress: Wanted = None, resume: bool = False, left_out: Mapping[str, int] | None = None,
    start: Start | None = None, known: Iterable[str] = (),
) -> Run:  # fmt: skip
    """Plan a model for rows in memory and train it: what every door to them ends in.

    `options` were given to a function, which has the `known` ones, too.
    """
    of_plan = {name: options[name] for name in options.keys() - OF_TRAINING | {"seed"}}
    constraints = Constraints.of(of_plan, function, {*OF_TRAINING, *known})
    wanted = TrainingOptions(**{name: options[name] for name in OF_TRAINING & options.keys()})
    clock, data = Clock(constraints.seconds), merge_equal_rows(replace(data, seed=constraints.seed))
    with ExitStack() as closing:
        progress = watched() if progress is None else progress
        bar = closing.enter_context(ProgressBar(progress, ""))
        if progress:
            usual = (EarlyStopping(),) if callbacks is None else callbacks
            callbacks = (*usual, Progress(bar=bar))
        made, dataset = plan_rows(data, constraints.beside(wanted), closing, start)
        left_out = Counter(left_out) + Counter(dataset.root.skipped)
        if left_out:
            why = ", ".join(f"{n:,} {reason}" for reason, n in left_out.items())
            warnings.warn(f"rows that could not be read were left out: {why}", stacklevel=3)
        trainer = Trainer(made, wanted, callbacks=callbacks, clock=clock, start=start)
        return replace(trainer.fit(dataset, out, resume=resume), label_kind=data.label_kind)


def plan_rows(
    data: MemoryRows | IteratorRows, constraints: Constraints, stack: ExitStack, start: Start | None
) -> tuple[Plan, Dataset]:
    """Return a plan for rows, and the rows: in memory if that fits, else in a temporary store."""
    budget, choose = bytes_of(constraints.memory), plan if start is None else start.plan
    if isinstance(data, MemoryRows) and data.code_bytes + data.intake_bytes <= budget:
        dataset = data.view(data.to_dataset())
        try:
            return choose(dataset, constraints), dataset
        except BudgetError:
            del dataset  # its memory is needed
    folder = stack.enter_context(temporary_folder())
    dataset = data.view(stack.enter_context(data.write_store(folder, budget)))
    return choose(dataset, constraints), dataset


def bytes_of(memory: str | int | None) -> int:
    """Return the bytes of a budget: of a training's usual one where none is named."""
    return training_budget(None, memory_limit()).n_bytes if memory is None else parse_size(memory)


def _store(
    rows: Any, y: Any, memory: str | int | None, closing: ExitStack, options: TableOptions,
    recipe: Recipe | None,
) -> str:  # fmt: skip
    """Return the path of a store of held-out rows; a temporary one, where they are in memory."""
    if isinstance(rows, str | os.PathLike):
        return os.fspath(rows)
    if isinstance(y, str) and not is_pair(rows):
        rows = (rows, y)
    if not is_pair(rows):
        hint = "Give a pair of both, or the path of a store; a table where y is a column."
        what = f"{type_name(rows)} is no pair of rows and labels, and no path: validation"
        raise UsageError(what, hint=hint)
    data = replace(collect_rows(rows[0], rows[1], options=options, recipe=recipe), weights=None)
    folder = closing.enter_context(temporary_folder())
    return os.fspath(closing.enter_context(data.write_store(folder, bytes_of(memory))).path)
