"""Trains a run on the workers of a cluster: a task for each part, then the merge."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cluster.part_tasks import PartTask, Tasks
from streammach.cluster.ranges import evaluate, predict
from streammach.cluster.workers import ClusterWorkers, check_installed
from streammach.data.class_weights import BALANCED, weighed
from streammach.data.store.dataset import Dataset
from streammach.errors import MismatchError, UsageError, clean
from streammach.files.folders import MARKER, locked, make_folder, remove_folder
from streammach.files.urls import absolute
from streammach.files.workplaces import LOCK, Workplace
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.run import RESULT, Run, begun
from streammach.training.run_part import PartNumber
from streammach.training.trainer import CHECKPOINT_MINUTES, Trainer, merge

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["evaluate", "predict", "train"]
KIND, COUNT = "distributed training", "parts"


def train(
    store: str | os.PathLike[str], plan: Plan, client: Client, *, out: str | os.PathLike[str],
    options: TrainingOptions | None = None, parts: int | None = None,
    class_weight: str | None = None, callbacks: Sequence[object] | None = None,
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
    class_weight : str, optional
        ``balanced`` or a file, as for :func:`streammach.data.class_weights.weighed`.
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
    check_installed()
    path, folder = absolute(store), Path(os.path.abspath(out))
    options = options or TrainingOptions()
    if options.validation is not None:
        options = replace(options, validation=absolute(options.validation))
    place = Workplace(folder.with_name(f"{folder.name}.parts"), KIND)
    with ExitStack() as opened:
        data = opened.enter_context(Dataset.open(path))
        if class_weight is not None:
            if class_weight != BALANCED:
                class_weight = os.path.abspath(class_weight)
            data = weighed(data, class_weight)
        n = _begun_parts(folder, place, parts, resume=resume)
        if not (folder / RESULT).exists():
            workers = ClusterWorkers(client)
            n = n or workers.parts(plan)
            PartNumber(1, n).check(plan, options)
            make_folder(place.path)
            opened.enter_context(locked(place.path / LOCK, clean(place.path)))
            place.open(**{COUNT: n})
            task = PartTask(
                store=path, folder=str(place.path), plan=plan, options=options,
                number=PartNumber(1, n), settings=None, class_weight=class_weight,
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
    """Return the number of parts that is wanted, or in which the training was begun.

    Raises UsageError if there is something that may not be gone on with, MismatchError if it was
    begun in another number of parts.
    """
    begun(out, resume=resume)
    if (out / RESULT).exists():
        return None
    if wanted is not None and wanted < 1:
        raise UsageError("at least one part is needed: parts")
    place.check()
    facts = place.facts()
    if facts is None:
        return wanted
    if not resume:
        raise UsageError(
            "it holds parts of a run already", path=clean(place.path, 300),
            hint="Use --resume or another --out.",
        )  # fmt: skip
    n = facts.get(COUNT)
    if type(n) is not int or n < 1:
        raise MismatchError(f"damaged: {MARKER}", path=clean(place.path, 300))
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
