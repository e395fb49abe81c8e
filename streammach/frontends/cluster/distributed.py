"""Trains a run on the workers of a cluster: a task for each part, then the merge."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cli.trainings import LabelOptions
from streammach.frontends.cluster.ranges import evaluate, predict
from streammach.frontends.cluster.worker import LAST, WorkerTask, hold_process
from streammach.frontends.cluster.workers import ClusterWorkers, RunningTasks, check_installed
from streammach.options.annotated import check_options
from streammach.options.option_fields import add_parameters
from streammach.options.plan import Plan
from streammach.options.training import TrainingOptions
from streammach.planning.ledger import ledger
from streammach.store.dataset import Dataset
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import (
    Interrupted,
    LockedError,
    MismatchError,
    StreammachError,
    UsageError,
    clean,
)
from streammach.system.files.folders import MARKER, lock_file, make_folder, remove_folder
from streammach.system.files.urls import absolute
from streammach.system.files.workplaces import GOES_ON, LOCK, Workplace
from streammach.system.linux import peak_bytes
from streammach.system.machine import size_text
from streammach.training.run import PARTS, RESULT, Run, check_not_begun
from streammach.training.run_part import PartNumber, RunPart
from streammach.training.trainer import CHECKPOINT_MINUTES, Trainer, merge

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["evaluate", "predict", "train"]
COUNT = "parts"
LOCKED_SECONDS = 600.0  # in which a worker notices that it was given up
AGAIN_SECONDS = 0.5


@add_parameters(LabelOptions)
def train(
    store: str | os.PathLike[str], plan: Plan, client: Client, *, out: str | os.PathLike[str],
    options: TrainingOptions | None = None, parts: int | None = None,
    class_weight: str | os.PathLike[str] | None = None,
    label_names: str | os.PathLike[str] | None = None, label_language: str | None = None,
    callbacks: Sequence[object] | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES, tell: Callable[[str], None] | None = None,
    resume: bool = False,
) -> Run:  # fmt: skip
    """Train a run on the workers of a Dask cluster.

    Each worker trains a part of the repetitions, one at a time. The first part also decides what is
    not fixed; the others begin when it has. The part of a worker that is lost goes on from its last
    checkpoint on another one. The parts are merged in this process. The model has the bytes of one
    that was trained at once, on processors with the same instructions.

    Parameters
    ----------
    store : path-like
        The training store, on storage that this process and all workers share, by the same name; or
        its URL in object storage.
    plan : Plan
        Model, batch, memory, and the kind of device. Threads are those of each worker.
    client : distributed.Client
        The connection to the cluster; it stays open.
    out : path-like
        Folder for the run, on the same storage. Parts are trained in a folder beside it, with
        ``.parts`` after its name, which goes after the merge.
    options : TrainingOptions, optional
        What is fixed of the training; all is chosen otherwise.
    parts : int, optional
        How many parts; by default one a worker, or so many that they fit the workers' memory.
    callbacks : sequence, optional
        What watches the merge, as for :class:`streammach.training.trainer.Trainer`.
    checkpoint_minutes : float
        Time between checkpoints.
    tell : callable, optional
        Given a line when a part begins, ends an epoch or is done.
    resume : bool
        Go on with an interrupted training; it keeps its number of parts.

    Raises
    ------
    UsageError
        If Dask is not installed, there is no worker, the run cannot be had in parts, or `out` holds
        something already.
    MismatchError
        If the plan belongs to another store, or what is there to another run.
    BudgetError
        If no worker may take the memory of a part.
    Interrupted
        After a signal, with the work saved.
    DivergedError, DiskError, LockedError, StoreError, ModelError
        As for a training, on a worker or here.
    StreammachError
        If workers were lost again and again, or the scheduler was.
    """
    check_options(train.__annotations__, locals())
    check_installed()
    path, folder = absolute(store), Path(os.path.abspath(out))
    options = options or TrainingOptions()
    if options.validation is not None:
        options = replace(options, validation=absolute(options.validation))
    place = Workplace(folder.with_name(f"{folder.name}.parts"), PARTS)
    with ExitStack() as opened:
        data = opened.enter_context(Dataset.open(path))
        facts = LabelFacts.of_files(class_weight, label_names, label_language)
        data = facts.view(data)
        n = _begun_parts(folder, place, parts, resume=resume)
        if not (folder / RESULT).exists():
            workers = ClusterWorkers(client)
            n = n or max(workers.parts(plan), 1)
            PartNumber(1, n).check(plan, options)
            make_folder(place.path)
            opened.enter_context(lock_file(place.path / LOCK, clean(place.path)))
            place.open(**{COUNT: n})
            task = PartTask(
                store=path, folder=str(place.path), plan=plan, options=options,
                number=PartNumber(1, n), settings=None, label_facts=facts,
                checkpoint_minutes=checkpoint_minutes,
            )  # fmt: skip
            done = Tasks(client, workers, task, tell or (lambda line: None)).run()
            run = merge(out, done, data=data, callbacks=callbacks, resume=resume)
        else:
            run = Trainer(plan, options).fit(data, out, resume=True)
        _remove(place)
    with suppress(OSError):
        place.path.rmdir()
    return run


def _begun_parts(out: Path, place: Workplace, wanted: int | None, *, resume: bool) -> int | None:
    """Return the number of parts that is wanted, or in which the training was begun."""
    check_not_begun(out, resume=resume)
    if (out / RESULT).exists():
        return None
    if wanted is not None and wanted < 1:
        raise UsageError("at least one part is needed: parts")
    place.check()
    facts = place.facts()
    if facts is None:
        return wanted
    if not resume:
        hint = "Use --resume or another --out."
        raise UsageError("it holds parts of a run already", path=place.path, hint=hint)
    n = facts.get(COUNT)
    if type(n) is not int or n < 1:
        raise MismatchError(f"damaged: {MARKER}", path=place.path)
    if wanted not in (None, n):
        raise MismatchError(f"it was begun in {n} parts, not in {wanted}: --resume")
    return n


def _remove(place: Workplace) -> None:
    """Remove the parts of a finished run, and what says that their folder is ours."""
    n = (place.facts() or {}).get(COUNT)
    for k in range(1, n + 1 if isinstance(n, int) else 1):
        part = place.path / f"part-{k}"
        if Workplace(part, "part").facts() is not None:
            remove_folder(part)
    if place.facts() is not None:
        (place.path / MARKER).unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """A part of a run, as workers are sent it."""

    store: str  # the training store, as an absolute path
    folder: str  # the part's folder, as an absolute path
    plan: Plan  # the plan of the whole run
    options: TrainingOptions  # what is fixed of the training
    number: PartNumber  # which part
    settings: str | None  # the part in which all is decided already
    label_facts: LabelFacts  # what was said of labels beside the rows; files by absolute paths
    checkpoint_minutes: float  # time between checkpoints


def train_part(task: PartTask) -> tuple[str, int]:
    """Train a part from its last checkpoint on; return the worker's address and peak memory."""
    with hold_process("the part is") as wanted:
        LAST.close()  # of a client that was lost
        _train(task, wanted)
    return wanted.worker.address, peak_bytes()


def _train(task: PartTask, wanted: WorkerTask) -> None:
    """Train a part; wait until a worker that was taken for lost has left its folder."""
    place = replace(task.plan.config.placement, threads=wanted.threads)
    config = replace(task.plan.config, placement=place)
    plan = replace(task.plan, config=config, ledger=ledger(task.plan.facts, config))
    trainer = Trainer(
        plan, task.options, callbacks=[wanted], checkpoint_minutes=task.checkpoint_minutes,
        stop=wanted.stop,
    )  # fmt: skip
    number, until = (task.number.number, task.number.of), time.monotonic() + LOCKED_SECONDS
    with ExitStack() as opened:
        data = opened.enter_context(Dataset.open(task.store))
        data = task.label_facts.view(data)
        while True:
            try:
                trainer.fit_part(data, task.folder, number, settings=task.settings, resume=True)
            except LockedError:
                if time.monotonic() >= until:
                    raise
            else:
                return
            wanted.check()
            time.sleep(AGAIN_SECONDS)


class Tasks:
    """A task for each part of a run."""

    def __init__(
        self, client: Client, workers: ClusterWorkers, first: PartTask, tell: Callable[[str], None]
    ) -> None:
        self._workers, self._first, self._tell = workers, first, tell
        self._n = first.number.of
        self._paths = [Path(first.folder) / f"part-{k}" for k in range(1, self._n + 1)]
        self._tasks = RunningTasks(client, GOES_ON)
        self._given = 0
        self._epochs: dict[int, int] = {}  # that were told, by part
        self._done: set[int] = set()

    def run(self) -> list[Path]:
        """Train all parts; return their folders. Tasks are cancelled where that fails."""
        plan = self._first.plan
        try:
            with self._tasks:
                self._submit(1, self._workers.able(plan.projected_bytes))
                while len(self._done) < self._n:
                    # The first part decides what the others need.
                    first = _open_part(self._paths[0]) if self._given < self._n else None
                    if first is not None and first.settings is not None:
                        last = PartNumber(self._n, self._n)
                        able = self._workers.able(last.plan(plan).projected_bytes)
                        for k in range(2, self._n + 1):
                            self._submit(k, able)
                    self._look(dict(self._tasks.wait_for_task()))
        except KeyboardInterrupt:
            raise Interrupted("interrupted while parts were trained", hint=GOES_ON) from None
        return list(self._paths)

    def _submit(self, k: int, able: list[str] | None) -> None:
        """Submit a part, to some of the workers or to all."""
        task = replace(
            self._first, number=PartNumber(k, self._n), folder=str(self._paths[k - 1]),
            settings=str(self._paths[0]) if k > 1 else None,
        )  # fmt: skip
        self._tasks.give(k - 1, f"part {task.number}", train_part, task, able=able)
        self._given += 1
        first, last = task.number.repetitions(task.plan.n_repetitions)
        of = task.plan.n_repetitions
        self._tell(f"part {task.number}: repetitions {first + 1} to {last} of {of}")

    def _look(self, ended: dict[int, tuple[str, int] | StreammachError]) -> None:
        """Tell how far the parts are; raise what one raised that ended."""
        for k in range(self._given):
            if k not in self._done:
                self._tell_epochs(k)
        for k, found in ended.items():
            if isinstance(found, StreammachError):
                raise found
            self._done.add(k)
            worker, peak = found
            self._tell(f"part {k + 1}/{self._n}: done by {clean(worker)}, peak {size_text(peak)}")

    def _tell_epochs(self, k: int) -> None:
        """Tell the epochs of a part that have ended since it was last asked."""
        part = _open_part(self._paths[k])
        if part is None or part.settings is None:
            return
        n, epochs = len(part.checkpoints.ends()), part.settings.training.epochs
        if n > self._epochs.get(k, 0):
            self._epochs[k] = n
            self._tell(f"part {part.facts.part}: epoch {n} of {epochs}")


def _open_part(path: Path) -> RunPart | None:
    """Return a part as it is on disk; None where it is not begun, or a file is just written."""
    try:
        return RunPart.open(path)
    except StreammachError:
        return None
